// SPDX-License-Identifier: MIT
/// \file
/// Embedding against its definition, and the definition's gradients against differences.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/embedding/cpu.hpp>

#include "kernel/embedding/checks.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace kernel_embedding_tests {

using namespace embedding_checks;
using embedding = ht::kernel::embedding<ht::cpu>;

TEST_CASE_TEMPLATE("embedding: forward is the rounded sum of its two rows", M, all_float, rounding_down, narrow,
                   widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) forward_within_bounds<M>(device, width);
    });
}

TEST_CASE_TEMPLATE("embedding: backward within its bound of the definition", M, accumulated, accumulated_narrow,
                   accumulated_float) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) {
            backward_within_bounds<M>(device, 11, 4, 14, width, write_mode::overwrite);
            backward_within_bounds<M>(device, 11, 4, 14, width, write_mode::add);
        }
        backward_within_bounds<M>(device, 7, 100, 1000, 33, write_mode::add);  // sums over several pieces of lookups
        backward_within_bounds<M>(device, 3000, 50, 20, 33,
                                  write_mode::add);  // most tokens absent, positions beyond the rows
        backward_within_bounds<M>(device, 3000, 50, 20, 33, write_mode::overwrite);
    });
}

TEST_CASE("embedding: the same bits at one and at two threads; integers exactly") {
    support::for_each_set([](ht::isa set) {
        ht::cpu single{{.threads = 1, .instruction_set = set}}, both{{.threads = 2, .instruction_set = set}};
        const exact_sums one(single), two(both);
        CHECK(one.same_bits(two));
    });
}

TEST_CASE("embedding: the sum of squares of the table's gradient, updated while rows are added to it") {
    constexpr extent vocabulary = 50, rows = 200, width = 300;
    support::random data(3);
    const guarded<bfloat16> dy(data.normals<bfloat16>(rows * width));
    const guarded<std::int32_t> tokens(data.indices(rows, static_cast<int>(vocabulary) - 5));
    const std::vector<float> old = data.normals<float>(vocabulary * width);
    const auto squares_of = [](const auto& values) {
        double sum = 0;
        for (extent i = 0; i < static_cast<extent>(values.size()); ++i)
            sum += static_cast<double>(values.data()[i]) * static_cast<double>(values.data()[i]);
        return sum;
    };
    support::comparison all;
    support::for_each_isa([&](ht::isa set) {
        double of_one_thread[2]{};
        for (const int threads : {1, 2, 3}) {
            ht::cpu device{{.threads = threads, .instruction_set = set}};
            for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
                const guarded<float> dtable(old, 1);
                const double before = squares_of(old);
                ht::square_sum squares;
                embedding::backward<bfloat16, float>(device, {.tokens = tokens.const_view(),
                                                              .dy = dy.const_view(ht::shape<2>{rows, width}),
                                                              .dtable = dtable.view(ht::shape<2>{vocabulary, width}),
                                                              .mode = mode,
                                                              .squares_before = {before, vocabulary * width},
                                                              .squares = &squares});
                const double want = squares_of(dtable);
                // The sum contains the squares of rows before and after, each with its error.
                const double bound = support::gamma(ht::kernel::written_squares::depth + 1) * (before + want);
                all.expect(squares.sum, want, bound);
                CHECK(squares.is_known(vocabulary * width));
                double& first = of_one_thread[mode == write_mode::add];
                if (threads == 1) first = squares.sum;
                CHECK(squares.sum == first);
            }
        }
    });
    CHECK_WITHIN(all);

    // Rows that cancel the previous values: the sum would consist of rounding errors.
    const guarded<float> same(std::vector<float>(vocabulary * width, 3.0f)),
        against(std::vector<float>(vocabulary * width, -2.9f));
    const guarded<std::int32_t> each(vocabulary);
    for (extent i = 0; i < vocabulary; ++i) each[i] = static_cast<std::int32_t>(i);
    ht::cpu device{{.threads = 1}};
    ht::square_sum squares;
    const auto add = [&](const ht::square_sum& before) {
        embedding::backward<float, float>(device, {.tokens = each.const_view(),
                                                   .dy = against.const_view(ht::shape<2>{vocabulary, width}),
                                                   .dtable = same.view(ht::shape<2>{vocabulary, width}),
                                                   .squares_before = before,
                                                   .squares = &squares});
    };
    add({squares_of(same), vocabulary * width});
    CHECK(squares.count == 0);
    // The same if the sum of squares before is not known.
    add({});
    CHECK(squares.count == 0);
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

TEST_CASE("embedding: tokens outside the vocabulary, wrong shapes, no rows") {
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
    refuses(device);
}

}  // namespace kernel_embedding_tests
