// SPDX-License-Identifier: MIT
/// \file
/// Tests of an embedding's gradient by rows, for every device.
///
///     embedding_rows_checks::as_dense<bfloat16, float>(device, 50, 67, {30, 1, 0, 40});
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/kernel/embedding_rows/embedding_rows.hpp>
#include <halftone/kernel/embedding_rows/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace embedding_rows_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::guarded;

/// Rows with guards around everything.
template <class G>
struct rows_of {
    guarded<std::int32_t> indices, count{1};
    guarded<G> values;
    extent room, width;

    rows_of(extent rows, extent columns, extent offset)
        : indices(rows), values(rows * columns, offset), room(rows), width(columns) {}
    ht::gradient_rows<G> view() const { return {indices.view(), values.view(ht::shape<2>{room, width}), count.data()}; }
    bool intact() const { return indices.intact() && count.intact() && values.intact(); }
    /// All contents, byte by byte.
    std::vector<char> bytes() const {
        const auto* first = reinterpret_cast<const char*>(indices.data());
        std::vector<char> all(first, first + count[0] * static_cast<extent>(sizeof(std::int32_t)));
        const auto* value = reinterpret_cast<const char*>(values.data());
        all.insert(all.end(), value, value + count[0] * width * static_cast<extent>(sizeof(G)));
        return all;
    }
};

/// Tokens of a micro-batch: a frequent one, the first and the last of the vocabulary.
inline std::vector<std::int32_t> tokens_of(support::random& data, extent lookups, extent vocabulary) {
    std::vector<std::int32_t> tokens = data.indices(lookups, static_cast<int>(vocabulary));
    for (std::size_t r = 0; r < tokens.size(); r += 3) tokens[r] = static_cast<std::int32_t>(vocabulary / 2);
    if (tokens.size() > 4) tokens[1] = static_cast<std::int32_t>(vocabulary - 1), tokens[4] = 0;
    return tokens;
}

/// Adds micro-batches with these numbers of lookups to rows and to a dense gradient: both have the same bits in each row, indices
/// ascend, and there is no row without a lookup. Returns the bytes of the rows.
template <class Y, class G, class Device>
std::vector<char> as_dense(Device& device, extent vocabulary, extent width, const std::vector<extent>& lookups,
                           extent offset = 1, bool has_wrong_tokens = false) {
    CAPTURE(vocabulary);
    CAPTURE(width);
    support::random data(static_cast<std::uint64_t>(vocabulary + width));
    extent all = 0;
    for (const extent n : lookups) all += n;
    rows_of<G> rows(std::min(all, vocabulary), width, 3 * offset);
    const guarded<G> dense(vocabulary * width, 5 * offset);
    std::map<std::int32_t, std::vector<double>> want, sizes;
    std::map<std::int32_t, int> terms;
    extent before = 0;
    for (std::size_t micro = 0; micro < lookups.size(); ++micro) {
        const extent n = lookups[micro];
        const guarded<std::int32_t> tokens(tokens_of(data, n, vocabulary));
        if (has_wrong_tokens) {
            for (extent r = 2; r < n; r += 4) tokens[r] = r % 8 == 2 ? -1 : static_cast<std::int32_t>(vocabulary);
        }
        const guarded<Y> dy(data.normals<Y>(n * width), offset);
        const auto dy_view = dy.const_view(ht::shape<2>{n, width});
        ht::kernel::embedding<Device>::template backward<Y, G>(
            device, {.tokens = tokens.const_view(),
                     .dy = dy_view,
                     .dtable = dense.view(ht::shape<2>{vocabulary, width}),
                     .mode = micro == 0 ? ht::write_mode::overwrite : ht::write_mode::add});
        ht::embedding_row_gradients(device, tokens.const_view(), dy_view, vocabulary, rows.view(), before);
        before = std::min(before + n, vocabulary);
        CHECK(tokens.intact());
        if (has_wrong_tokens) continue;
        ht::reference::embedding_rows(tokens.const_view(), dy_view, want);
        for (extent r = 0; r < n; ++r) {
            auto& size = sizes[tokens[r]];
            size.resize(static_cast<std::size_t>(width));
            for (extent j = 0; j < width; ++j)
                size[static_cast<std::size_t>(j)] += std::fabs(static_cast<double>(dy[r * width + j]));
            ++terms[tokens[r]];
        }
    }
    CHECK(rows.intact());
    const extent count = rows.count[0];
    REQUIRE(count >= 0);
    REQUIRE(count <= rows.room);
    extent wrong = 0, at = 0;
    for (extent t = 0; t < vocabulary; ++t) {
        const bool is_there = at < count && rows.indices[at] == t;
        for (extent j = 0; j < width; ++j) {
            // The gradient of a missing row is zero; only sums of exact zeros could make a row with that gradient.
            const G got = is_there ? rows.values[at * width + j] : G(0.0f);
            wrong += std::memcmp(&got, &dense[t * width + j], sizeof got) == 0 ? 0 : 1;
        }
        at += is_there ? 1 : 0;
    }
    CHECK(wrong == 0);
    CHECK(at == count);
    if (has_wrong_tokens) return rows.bytes();
    CHECK(count == static_cast<extent>(want.size()));
    support::comparison c;
    for (extent r = 0; r < count; ++r) {
        const std::int32_t token = rows.indices[r];
        for (extent j = 0; j < width; ++j) {
            const double value = want[token][static_cast<std::size_t>(j)],
                         size = sizes[token][static_cast<std::size_t>(j)];
            // One rounding to G for each micro-batch, of at most the sum of magnitudes.
            const double bound =
                support::gamma(terms[token]) * size +
                static_cast<double>(lookups.size()) *
                    support::rounding<G>(size * (1 + support::gamma(terms[token], ht::unit_roundoff<G>)));
            c.expect(static_cast<double>(rows.values[r * width + j]), value, bound);
        }
    }
    if (count > 0) CHECK_MESSAGE(c.within(), c);
    return rows.bytes();
}

template <class Device>
void as_dense_everywhere(Device& device) {
    for (const extent width : {1, 7, 8, 67, 300}) {
        as_dense<bfloat16, float>(device, 23, width, {40, 9, 0, 64});
        as_dense<float16, bfloat16>(device, 5000, width, {1, 33, 70}, 16);
    }
    as_dense<bfloat16, float>(device, 1, 16, {3, 2}, 16);
    as_dense<bfloat16, float>(device, 3000, 4, {700, 600, 900}, 16);    // blocks of lookups, and rows that move far
    as_dense<bfloat16, float>(device, 4, 8, {0, 5, 0}, 16);
    as_dense<bfloat16, float>(device, 4, 8, {0, 0}, 16);
    as_dense<bfloat16, float>(device, 1 << 20, 2, {50, 50});
}

/// Lookups of a padding token have no row and do not affect others: the rows are, bit by bit, those of the other tokens alone.
template <class Device>
void leaves_out_padding(Device& device) {
    constexpr extent width = 7, vocabulary = 23;
    for (const std::int32_t padding : {0, 11, 22}) {  // 11 is the frequent one
        CAPTURE(padding);
        support::random data(5);
        const rows_of<float> rows(vocabulary, width, 1), others(vocabulary, width, 1);
        extent before = 0, before_others = 0;
        for (const extent n : {40, 9, 64}) {
            const guarded<std::int32_t> tokens(tokens_of(data, n, vocabulary));
            const guarded<bfloat16> dy(data.normals<bfloat16>(n * width));
            std::vector<std::int32_t> kept;
            std::vector<bfloat16> kept_dy;
            for (extent r = 0; r < n; ++r) {
                if (tokens[r] == padding) continue;
                kept.push_back(tokens[r]);
                for (extent j = 0; j < width; ++j) kept_dy.push_back(dy[r * width + j]);
            }
            const auto count = static_cast<extent>(kept.size());
            const guarded<std::int32_t> kept_tokens(kept);
            const guarded<bfloat16> kept_rows(kept_dy);
            ht::embedding_row_gradients(device, tokens.const_view(), dy.const_view(ht::shape<2>{n, width}), vocabulary,
                                        rows.view(), before, padding);
            ht::embedding_row_gradients(device, kept_tokens.const_view(), kept_rows.const_view(ht::shape<2>{count, width}),
                                        vocabulary, others.view(), before_others);
            before = std::min(before + n, vocabulary), before_others = std::min(before_others + count, vocabulary);
        }
        CHECK(rows.intact());
        CHECK(rows.count[0] > 1);
        for (extent r = 0; r < rows.count[0]; ++r) CHECK(rows.indices[r] != padding);
        CHECK(rows.bytes() == others.bytes());
    }
    // Only padding.
    const guarded<std::int32_t> tokens(std::vector<std::int32_t>{5, 5, 5});
    const guarded<bfloat16> dy(3 * width);
    const rows_of<float> none(3, width, 1);
    ht::embedding_row_gradients(device, tokens.const_view(), dy.const_view(ht::shape<2>{3, width}), vocabulary, none.view(),
                                0, 5);
    CHECK(none.count[0] == 0);
    CHECK(none.intact());
}

/// 64000 + 64000 at one index is an infinity in fp16, and in a single row of it.
template <class Device>
void overflows_where_rows_are_summed(Device& device) {
    const guarded<std::int32_t> tokens(std::vector<std::int32_t>{5, 2, 5});
    const guarded<float16> dy(std::vector<float16>{float16(64000.0f), float16(1.0f), float16(64000.0f)});
    const rows_of<float16> rows(3, 1, 1);
    ht::kernel::embedding_rows<Device>::template add<float16, float16>(
        device,
        {.tokens = tokens.const_view(), .dy = dy.const_view(ht::shape<2>{3, 1}), .vocabulary = 9, .rows = rows.view()});
    CHECK(rows.count[0] == 2);
    CHECK(rows.indices[0] == 2);
    CHECK(rows.values[0] == float16(1.0f));
    CHECK(rows.indices[1] == 5);
    CHECK(rows.values[1].bits() == 0x7c00);
    // Also in another micro-batch: the previous value is finite, and the sum is not.
    const rows_of<float16> twice(3, 1, 1);
    const guarded<std::int32_t> one(std::vector<std::int32_t>{5});
    for (extent before = 0; before < 2; ++before) {
        ht::kernel::embedding_rows<Device>::template add<float16, float16>(device,
                                                                           {.tokens = one.const_view(),
                                                                            .dy = dy.const_view(ht::shape<2>{1, 1}),
                                                                            .vocabulary = 9,
                                                                            .rows = twice.view(),
                                                                            .before = before});
    }
    CHECK(twice.count[0] == 1);
    CHECK(twice.values[0].bits() == 0x7c00);
}

template <class Device>
void refuses(Device& device) {
    const guarded<std::int32_t> tokens(std::vector<std::int32_t>{5, 2, 5});
    const guarded<float> dy(6);
    const rows_of<float> rows(4, 2, 1);
    const auto run = [&](extent width, extent vocabulary, extent before) {
        ht::kernel::embedding_rows<Device>::template add<float, float>(device,
                                                                       {.tokens = tokens.const_view(),
                                                                        .dy = dy.const_view(ht::shape<2>{3, width}),
                                                                        .vocabulary = vocabulary,
                                                                        .rows = rows.view(),
                                                                        .before = before});
    };
    CHECK_THROWS_WITH_AS(run(2, 9, 2),
                         "embedding rows: room for 4 rows; expected that of 2 and 3 more, of 9 in the table",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(run(1, 9, 0), "embedding rows: values is (4, 2); expected (4, 1)", ht::shape_error);
    CHECK(rows.intact());
}

}  // namespace embedding_rows_checks
