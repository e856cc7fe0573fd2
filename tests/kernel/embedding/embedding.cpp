// SPDX-License-Identifier: MIT
/// \file
/// Embedding against its definition, and the definition's gradients against differences.
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/embedding/cpu.hpp>
#include <halftone/kernel/embedding/reference.hpp>

#include "support/bounds.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using embedding = ht::kernel::embedding<ht::cpu>;
using support::guarded;
using support::u;
using doubles = std::vector<double>;

template <class T_, class Y_>
struct types {
    using T = T_;
    using Y = Y_;
};
using all_float = types<float, float>;
using rounding_down = types<float, bfloat16>;
using narrow = types<bfloat16, bfloat16>;
using widening = types<float16, float>;

TEST_CASE_TEMPLATE("embedding: forward is the rounded sum of its two rows", M, all_float, rounding_down, narrow,
                   widening) {
    using T = typename M::T;
    using Y = typename M::Y;
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) {
            CAPTURE(width);
            constexpr extent vocabulary = 11, period = 3, rows = 3 * period + 1;
            const ht::shape<2> shape{rows, width};
            support::random data(static_cast<std::uint64_t>(width));
            const guarded<T> table(data.normals<T>(vocabulary * width), 1),
                positions(data.normals<T>(period * width), 3);
            const guarded<std::int32_t> tokens(data.indices(rows, vocabulary));
            const guarded<Y> out(rows * width, 5), bare(rows * width, 7);
            embedding::forward<T, Y>(device, {.tokens = tokens.const_view(),
                                              .table = table.const_view(ht::shape<2>{vocabulary, width}),
                                              .positions = positions.const_view(ht::shape<2>{period, width}),
                                              .out = out.view(shape)});
            embedding::forward<T, Y>(device, {.tokens = tokens.const_view(),
                                              .table = table.const_view(ht::shape<2>{vocabulary, width}),
                                              .out = bare.view(shape)});
            doubles want(static_cast<std::size_t>(rows * width));
            ht::reference::embedding(tokens.const_view(), table.const_view(ht::shape<2>{vocabulary, width}),
                                     positions.const_view(ht::shape<2>{period, width}),
                                     ht::view<double, 2>(want.data(), shape));
            support::comparison c;
            extent wrong = 0;
            for (extent r = 0; r < rows; ++r) {
                for (extent j = 0; j < width; ++j) {
                    const double wanted = want[static_cast<std::size_t>(r * width + j)];
                    c.expect(static_cast<double>(out[r * width + j]), wanted,
                             support::rounded<Y>(wanted, u * std::fabs(wanted)));
                    wrong += bare[r * width + j] == Y(static_cast<float>(table[tokens[r] * width + j])) ? 0 : 1;
                }
            }
            CHECK(wrong == 0);
            CHECK_WITHIN(c);
            CHECK(out.intact());
            CHECK(bare.intact());
        }
    });
}

template <class Y_, class G_>
struct gradient_types {
    using Y = Y_;
    using G = G_;
};

template <class M>
void backward_within_bounds(ht::isa set, extent vocabulary, extent period, extent rows, extent width, write_mode mode) {
    CAPTURE(width);
    using Y = typename M::Y;
    using G = typename M::G;
    ht::cpu device{{.threads = 1, .instruction_set = set}};
    support::random data(static_cast<std::uint64_t>(width));
    const guarded<Y> dy(data.normals<Y>(rows * width), 1);
    const guarded<std::int32_t> tokens(data.indices(rows, static_cast<int>(vocabulary)));
    for (extent r = 0; r < rows; ++r)
        tokens[r] = r % 3 == 0 ? 1 : tokens[r] == 2 ? 3 : tokens[r];  // a frequent one, an absent one
    const auto old_table = data.normals<G>(vocabulary * width), old_positions = data.normals<G>(period * width);
    const guarded<G> dtable(old_table, 3), dpositions(old_positions, 5);
    embedding::backward<Y, G>(device, {.tokens = tokens.const_view(),
                                       .dy = dy.const_view(ht::shape<2>{rows, width}),
                                       .dtable = dtable.view(ht::shape<2>{vocabulary, width}),
                                       .dpositions = dpositions.view(ht::shape<2>{period, width}),
                                       .mode = mode});

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
        if (terms == 0) {  // untouched, or nothing
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

using accumulated = gradient_types<bfloat16, float>;
using accumulated_narrow = gradient_types<float16, bfloat16>;
using accumulated_float = gradient_types<float, float>;

TEST_CASE_TEMPLATE("embedding: backward within its bound of the definition", M, accumulated, accumulated_narrow,
                   accumulated_float) {
    support::for_each_set([](ht::isa set) {
        for (const extent width : support::widths) {
            backward_within_bounds<M>(set, 11, 4, 14, width, write_mode::overwrite);
            backward_within_bounds<M>(set, 11, 4, 14, width, write_mode::add);
        }
        backward_within_bounds<M>(set, 7, 100, 1000, 33, write_mode::add);  // sums over several pieces of places
        backward_within_bounds<M>(set, 3000, 50, 20, 33,
                                  write_mode::add);  // most tokens absent, positions beyond the rows
        backward_within_bounds<M>(set, 3000, 50, 20, 33, write_mode::overwrite);
    });
}

TEST_CASE("embedding: the same bits at one and at two threads; integers exactly") {
    support::for_each_set([](ht::isa set) {
        constexpr extent vocabulary = 40, period = 128, rows = 8 * period, width = 300;
        support::random data(7);
        const guarded<bfloat16> dy(data.integers<bfloat16>(rows * width, 100));
        const guarded<std::int32_t> tokens(data.indices(rows, vocabulary));
        const guarded<float> one(vocabulary * width), two(vocabulary * width), one_positions(period * width),
            two_positions(period * width);
        for (const int threads : {1, 2}) {
            ht::cpu device{{.threads = threads, .instruction_set = set}};
            embedding::backward<bfloat16, float>(
                device, {.tokens = tokens.const_view(),
                         .dy = dy.const_view(ht::shape<2>{rows, width}),
                         .dtable = (threads == 1 ? one : two).view(ht::shape<2>{vocabulary, width}),
                         .dpositions = (threads == 1 ? one_positions : two_positions).view(ht::shape<2>{period, width}),
                         .mode = write_mode::overwrite});
        }
        CHECK(one.same_bits(two));
        CHECK(one_positions.same_bits(two_positions));
        doubles want(vocabulary * width), want_positions(period * width);
        ht::reference::embedding_backward(tokens.const_view(), dy.const_view(ht::shape<2>{rows, width}),
                                          ht::view<double, 2>(want.data(), {vocabulary, width}),
                                          ht::view<double, 2>(want_positions.data(), {period, width}));
        extent wrong = 0;
        for (extent k = 0; k < vocabulary * width; ++k)
            wrong += static_cast<double>(one[k]) == want[static_cast<std::size_t>(k)] ? 0 : 1;
        for (extent k = 0; k < period * width; ++k)
            wrong += static_cast<double>(one_positions[k]) == want_positions[static_cast<std::size_t>(k)] ? 0 : 1;
        CHECK(wrong == 0);
    });
}

TEST_CASE("embedding: the definition's gradients") {
    constexpr extent vocabulary = 4, period = 2, rows = 6, width = 3;
    support::random data(11);
    const doubles table = data.normals<double>(vocabulary * width), positions = data.normals<double>(period * width),
                  dy = data.normals<double>(rows * width);
    const std::vector<std::int32_t> tokens{2, 0, 2, 2, 1, 0};
    const ht::const_view<std::int32_t, 1> of(tokens.data(), {rows});
    doubles out(rows * width), dtable(vocabulary * width), dpositions(period * width);
    const auto loss = [&](const doubles& at_table, const doubles& at_positions) {
        ht::reference::embedding(of, ht::const_view<double, 2>(at_table.data(), {vocabulary, width}),
                                 ht::const_view<double, 2>(at_positions.data(), {period, width}),
                                 ht::view<double, 2>(out.data(), {rows, width}));
        double sum = 0;
        for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dy[i];
        return sum;
    };
    ht::reference::embedding_backward(of, ht::const_view<double, 2>(dy.data(), {rows, width}),
                                      ht::view<double, 2>(dtable.data(), {vocabulary, width}),
                                      ht::view<double, 2>(dpositions.data(), {period, width}));
    support::check_gradient([&](const doubles& at) { return loss(at, positions); }, table, dtable);
    support::check_gradient([&](const doubles& at) { return loss(table, at); }, positions, dpositions);
}

TEST_CASE("embedding: wrong arguments, and none") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> table(12), out(8);
    const guarded<std::int32_t> tokens(std::vector<std::int32_t>{0, 3});
    const auto run = [&](ht::const_view<float, 2> positions, ht::view<float, 2> to) {
        embedding::forward<float, float>(device, {.tokens = tokens.const_view(),
                                                  .table = table.const_view(ht::shape<2>{3, 4}),
                                                  .positions = positions,
                                                  .out = to});
    };
    CHECK_THROWS_WITH_AS(run({}, out.view(ht::shape<2>{2, 4})), "embedding: the token of row 1 is 3; expected 0 to 2",
                         ht::argument_error);
    tokens[1] = -1;
    CHECK_THROWS_WITH_AS(run({}, out.view(ht::shape<2>{2, 4})), "embedding: the token of row 1 is -1; expected 0 to 2",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS((embedding::backward<float, float>(device, {.tokens = tokens.const_view(),
                                                                     .dy = out.const_view(ht::shape<2>{2, 4}),
                                                                     .dtable = table.view(ht::shape<2>{3, 4})})),
                         "embedding: the token of row 1 is -1; expected 0 to 2", ht::argument_error);
    tokens[1] = 0;
    CHECK_THROWS_WITH_AS(run({}, out.view(ht::shape<2>{4, 2})), "embedding: out is (4, 2); expected (2, 4)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(run({table.data(), {2, 3}}, out.view(ht::shape<2>{2, 4})),
                         "embedding: positions is (2, 3); expected (2, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run({table.data(), {0, 4}}, out.view(ht::shape<2>{2, 4})),
                         "embedding: positions is (0, 4); expected one row at least", ht::shape_error);
    embedding::forward<float, float>(
        device, {.tokens = {nullptr, {0}}, .table = table.const_view(ht::shape<2>{3, 4}), .out = {nullptr, {0, 4}}});
}

}  // namespace
