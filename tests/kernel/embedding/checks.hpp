// SPDX-License-Identifier: MIT
/// \file
/// Tests of an embedding, for every device.
///
///     embedding_checks::forward_within_bounds<embedding_checks::narrow>(device, 67);
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/kernel/embedding/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/policy/presets.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace embedding_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using support::guarded;
using support::u;
using doubles = std::vector<double>;

enum class alignment { none, vectors };

template <class T_, class Y_>
struct types {
    using T = T_;
    using Y = Y_;
};
using all_float = types<float, float>;
using rounding_down = types<float, bfloat16>;
using narrow = types<bfloat16, bfloat16>;
using widening = types<float16, float>;

/// Every element is the rounded sum of its two rows, or the element of one row.
template <class M, class Device>
void forward_within_bounds(Device& device, extent width, alignment where = alignment::none) {
    CAPTURE(width);
    using T = typename M::T;
    using Y = typename M::Y;
    constexpr extent vocabulary = 11, period = 3, rows = 3 * period + 1;
    const extent off = where == alignment::vectors ? 0 : 1;
    const ht::shape<2> shape{rows, width};
    support::random data(static_cast<std::uint64_t>(width));
    const guarded<T> table(data.normals<T>(vocabulary * width), off),
        positions(data.normals<T>(period * width), 3 * off);
    const guarded<std::int32_t> tokens(data.indices(rows, vocabulary));
    const guarded<Y> out(rows * width, 5 * off), bare(rows * width, 7 * off), named(rows * width, 3 * off);
    const guarded<std::int32_t> position_of(data.indices(rows, period));
    const auto rows_of_tokens = table.const_view(ht::shape<2>{vocabulary, width});
    const auto rows_of_positions = positions.const_view(ht::shape<2>{period, width});
    ht::embedding<ht::amp_bf16>(device, tokens.const_view(), rows_of_tokens, rows_of_positions, out.view(shape));
    ht::embedding<ht::amp_bf16>(device, tokens.const_view(), rows_of_tokens, ht::view<T, 2>{}, bare.view(shape));
    ht::embedding<ht::amp_bf16>(device, tokens.const_view(), rows_of_tokens, rows_of_positions, named.view(shape),
                                position_of.const_view());
    doubles want(static_cast<std::size_t>(rows * width)), want_named(want);
    ht::reference::embedding(tokens.const_view(), table.const_view(ht::shape<2>{vocabulary, width}),
                             positions.const_view(ht::shape<2>{period, width}),
                             ht::view<double, 2>(want.data(), shape));
    ht::reference::embedding(tokens.const_view(), table.const_view(ht::shape<2>{vocabulary, width}),
                             positions.const_view(ht::shape<2>{period, width}),
                             ht::view<double, 2>(want_named.data(), shape), position_of.const_view());
    support::comparison c;
    extent wrong = 0;
    for (extent r = 0; r < rows; ++r) {
        for (extent j = 0; j < width; ++j) {
            const double wanted = want[static_cast<std::size_t>(r * width + j)];
            c.expect(static_cast<double>(out[r * width + j]), wanted,
                     support::rounded<Y>(wanted, u * std::fabs(wanted)));
            const double by_name = want_named[static_cast<std::size_t>(r * width + j)];
            c.expect(static_cast<double>(named[r * width + j]), by_name,
                     support::rounded<Y>(by_name, u * std::fabs(by_name)));
            wrong += bare[r * width + j] == Y(static_cast<float>(table[tokens[r] * width + j])) ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
    CHECK_WITHIN(c);
    CHECK((out.intact() && bare.intact() && named.intact()));
}

template <class Y_, class G_>
struct gradient_types {
    using Y = Y_;
    using G = G_;
};

using accumulated = gradient_types<bfloat16, float>;
using accumulated_narrow = gradient_types<float16, bfloat16>;
using accumulated_float = gradient_types<float, float>;

/// Gradients of both tables, one token frequent and one absent.
template <class M, class Device>
void backward_within_bounds(Device& device, extent vocabulary, extent period, extent rows, extent width,
                            write_mode mode, alignment where = alignment::none) {
    CAPTURE(rows);
    CAPTURE(width);
    using Y = typename M::Y;
    using G = typename M::G;
    const extent off = where == alignment::vectors ? 0 : 1;
    support::random data(static_cast<std::uint64_t>(width));
    const guarded<Y> dy(data.normals<Y>(rows * width), off);
    const guarded<std::int32_t> tokens(data.indices(rows, static_cast<int>(vocabulary)));
    for (extent r = 0; r < rows; ++r)
        tokens[r] = r % 3 == 0 ? 1 : tokens[r] == 2 ? 3 : tokens[r];  // a frequent one, an absent one
    const auto old_table = data.normals<G>(vocabulary * width), old_positions = data.normals<G>(period * width);
    const guarded<G> dtable(old_table, 3 * off), dpositions(old_positions, 5 * off);
    ht::embedding_gradients<ht::amp_bf16>(device, tokens.const_view(), dy.const_view(ht::shape<2>{rows, width}),
                                          dtable.view(ht::shape<2>{vocabulary, width}),
                                          dpositions.view(ht::shape<2>{period, width}), mode);

    const double before = mode == write_mode::add ? 1 : 0;
    doubles want(static_cast<std::size_t>(vocabulary * width)),
        want_positions(static_cast<std::size_t>(period * width));
    doubles sizes(want.size()), position_sizes(want_positions.size());
    std::vector<int> uses(static_cast<std::size_t>(vocabulary)), position_uses(static_cast<std::size_t>(period));
    for (std::size_t k = 0; k < want.size(); ++k)
        want[k] = before * static_cast<double>(old_table[k]), sizes[k] = std::fabs(want[k]);
    for (std::size_t k = 0; k < want_positions.size(); ++k) {
        want_positions[k] = before * static_cast<double>(old_positions[k]),
        position_sizes[k] = std::fabs(want_positions[k]);
    }
    for (extent r = 0; r < rows; ++r) {
        ++uses[static_cast<std::size_t>(tokens[r])], ++position_uses[static_cast<std::size_t>(r % period)];
        for (extent j = 0; j < width; ++j) {
            sizes[static_cast<std::size_t>(tokens[r] * width + j)] += std::fabs(static_cast<double>(dy[r * width + j]));
            position_sizes[static_cast<std::size_t>(r % period * width + j)] +=
                std::fabs(static_cast<double>(dy[r * width + j]));
        }
    }
    ht::reference::embedding_backward(tokens.const_view(), dy.const_view(ht::shape<2>{rows, width}),
                                      ht::view<double, 2>(want.data(), {vocabulary, width}),
                                      ht::view<double, 2>(want_positions.data(), {period, width}));

    support::comparison by_token, by_position;
    extent wrong = 0;
    for (extent k = 0; k < vocabulary * width; ++k) {
        const auto i = static_cast<std::size_t>(k);
        const int terms = uses[i / static_cast<std::size_t>(width)];
        if (terms == 0) {  // unchanged, or zero
            wrong += dtable[k] == (mode == write_mode::add ? old_table[i] : G(0.0f)) ? 0 : 1;
        } else {
            by_token.expect(static_cast<double>(dtable[k]), want[i],
                            support::rounded<G>(want[i], support::gamma(terms) * sizes[i]));
        }
    }
    for (extent k = 0; k < period * width; ++k) {
        const auto i = static_cast<std::size_t>(k);
        by_position.expect(
            static_cast<double>(dpositions[k]), want_positions[i],
            support::rounded<G>(want_positions[i], support::gamma(position_uses[i / static_cast<std::size_t>(width)]) *
                                                       position_sizes[i]));
    }
    CHECK(wrong == 0);
    CHECK_WITHIN(by_token);
    CHECK_MESSAGE(by_position.within(), by_position);
    if (rows >= period) CHECK_MESSAGE(by_position.telling(), by_position);
    CHECK(dtable.intact());
    CHECK(dpositions.intact());
}

/// Gradients of a table that are added to existing values: integers, so that sums are exact in any order. Tokens outside the
/// vocabulary, which the host cannot read on such a device, add nothing.
template <class Y, class G, class Device>
void adds_exactly(Device& device, extent vocabulary, extent width, const guarded<std::int32_t>& tokens) {
    CAPTURE(vocabulary);
    CAPTURE(width);
    const extent rows = tokens.size();
    CAPTURE(rows);
    support::random data(static_cast<std::uint64_t>(rows + vocabulary));
    const guarded<Y> dy(data.integers<Y>(rows * width, 3));
    auto want = data.integers<G>(vocabulary * width, 9);
    const guarded<G> dtable(want, 1);
    ht::kernel::embedding<Device>::template backward<Y, G>(device,
                                                           {.tokens = tokens.const_view(),
                                                            .dy = dy.const_view(ht::shape<2>{rows, width}),
                                                            .dtable = dtable.view(ht::shape<2>{vocabulary, width}),
                                                            .mode = write_mode::add});
    for (extent k = 0; k < rows * width; ++k) {
        const std::int32_t token = tokens[k / width];
        if (token < 0 || token >= vocabulary) continue;
        G& sum = want[static_cast<std::size_t>(token * width + k % width)];
        sum = G(static_cast<float>(sum) + static_cast<float>(dy[k]));
    }
    CHECK(dtable.same_bits(guarded<G>(want)));
    CHECK(dtable.intact());
}

/// Tables and rows of many sizes, each with random tokens, with equal tokens in all rows, and with some invalid tokens.
template <class Device>
void adds_exactly_at_all_sizes(Device& device, extent most_rows) {
    support::random data(3);
    constexpr auto least = std::numeric_limits<std::int32_t>::min(), most = std::numeric_limits<std::int32_t>::max();
    for (const extent vocabulary : {1, 2, 255, 256, 65535, 65536, 70000}) {
        for (const extent rows : {extent{1}, extent{31}, extent{257}, most_rows}) {
            const guarded<std::int32_t> tokens(data.indices(rows, static_cast<int>(vocabulary)));
            adds_exactly<float, float>(device, vocabulary, 3, tokens);
            constexpr std::int32_t none[] = {-1, least, most};
            for (extent r = 0; r < rows; r += 5)
                tokens[r] = r % 2 == 0 ? none[r / 10 % 3] : static_cast<std::int32_t>(vocabulary);
            adds_exactly<bfloat16, float>(device, vocabulary, 1, tokens);
            for (extent r = 0; r < rows; ++r) tokens[r] = static_cast<std::int32_t>(vocabulary - 1);
            adds_exactly<bfloat16, float>(device, vocabulary, 1, tokens);
        }
    }
}

/// Sums of integers, in any order: exact. A frequent token, and columns of several pieces.
template <class Device>
struct exact_sums {
    static constexpr extent vocabulary = 40, period = 128, rows = 8 * period, width = 300;
    const guarded<float> table{vocabulary * width}, positions{period * width};

    explicit exact_sums(Device& device) {
        support::random data(7);
        const guarded<bfloat16> dy(data.integers<bfloat16>(rows * width, 100));
        const guarded<std::int32_t> tokens(data.indices(rows, vocabulary));
        ht::kernel::embedding<Device>::template backward<bfloat16, float>(
            device, {.tokens = tokens.const_view(),
                     .dy = dy.const_view(ht::shape<2>{rows, width}),
                     .dtable = table.view(ht::shape<2>{vocabulary, width}),
                     .dpositions = positions.view(ht::shape<2>{period, width}),
                     .mode = write_mode::overwrite});
        doubles want(vocabulary * width), want_positions(period * width);
        ht::reference::embedding_backward(tokens.const_view(), dy.const_view(ht::shape<2>{rows, width}),
                                          ht::view<double, 2>(want.data(), {vocabulary, width}),
                                          ht::view<double, 2>(want_positions.data(), {period, width}));
        extent wrong = 0;
        for (extent k = 0; k < vocabulary * width; ++k)
            wrong += static_cast<double>(table[k]) == want[static_cast<std::size_t>(k)] ? 0 : 1;
        for (extent k = 0; k < period * width; ++k)
            wrong += static_cast<double>(positions[k]) == want_positions[static_cast<std::size_t>(k)] ? 0 : 1;
        CHECK(wrong == 0);
    }
    bool same_bits(const exact_sums& o) const { return table.same_bits(o.table) && positions.same_bits(o.positions); }
};

/// Shapes that do not fit; no rows.
template <class Device>
void refuses(Device& device) {
    using embedding = ht::kernel::embedding<Device>;
    const guarded<float> table(12), out(8);
    const guarded<std::int32_t> tokens(std::vector<std::int32_t>{0, 0});
    const auto run = [&](ht::const_view<float, 2> positions, ht::view<float, 2> to) {
        embedding::template forward<float, float>(device, {.tokens = tokens.const_view(),
                                                           .table = table.const_view(ht::shape<2>{3, 4}),
                                                           .positions = positions,
                                                           .out = to});
    };
    CHECK_THROWS_WITH_AS(run({}, out.view(ht::shape<2>{4, 2})), "embedding: out is (4, 2); expected (2, 4)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(run({table.data(), {2, 3}}, out.view(ht::shape<2>{2, 4})),
                         "embedding: positions is (2, 3); expected (2, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run({table.data(), {0, 4}}, out.view(ht::shape<2>{2, 4})),
                         "embedding: positions is (0, 4); expected one row at least", ht::shape_error);
    embedding::template forward<float, float>(
        device, {.tokens = {nullptr, {0}}, .table = table.const_view(ht::shape<2>{3, 4}), .out = {nullptr, {0, 4}}});
    // Without rows, gradients are zero.
    embedding::template backward<float, float>(device, {.tokens = {nullptr, {0}},
                                                        .dy = {nullptr, {0, 4}},
                                                        .dtable = table.view(ht::shape<2>{3, 4}),
                                                        .dpositions = out.view(ht::shape<2>{2, 4}),
                                                        .mode = write_mode::overwrite});
    for (extent k = 0; k < 12; ++k) CHECK(table[k] == 0);
    for (extent k = 0; k < 8; ++k) CHECK(out[k] == 0);
}

}  // namespace embedding_checks
