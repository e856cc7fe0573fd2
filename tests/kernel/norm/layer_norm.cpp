// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation on the CPU against its definition, and the definition's gradients against differences.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/norm/cpu.hpp>

#include "kernel/norm/layer_norm_checks.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace kernel_norm_layer_norm_tests {

using namespace layer_norm_checks;
using layer_norm = ht::kernel::layer_norm<ht::cpu>;

TEST_CASE_TEMPLATE("layer_norm: forward within its bound of the definition", M, all_float, mixed, widening, narrow) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) forward_within_bounds<M>(device, 3, width, 1e-5f, true);
        forward_within_bounds<M>(device, 5, 67, 1e-2f, false);
        forward_within_bounds<M>(device, 61, 4097, 0.0f, true);
    });
}

TEST_CASE_TEMPLATE("layer_norm: backward within its bound of the definition", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) backward_within_bounds<M>(device, 3, width, write_mode::overwrite);
        backward_within_bounds<M>(device, 5, 67, write_mode::add);
        backward_within_bounds<M>(device, 301, 129, write_mode::overwrite);  // several pieces
        backward_within_bounds<M>(device, 301, 129, write_mode::add);
    });
}

TEST_CASE("layer_norm: the same bits at one and at two threads, and no allocation after the first call") {
    support::for_each_set([](ht::isa set) {
        constexpr extent rows = 333, width = 257;
        const ht::shape<2> shape{rows, width};
        support::random data(7);
        const guarded<bfloat16> x(data.normals<bfloat16>(rows * width)), dy(data.normals<bfloat16>(rows * width));
        const guarded<float> gain(data.normals<float>(width)), bias(data.normals<float>(width));
        struct results {
            guarded<bfloat16> y{rows * width}, dx{rows * width};
            guarded<float> mean{rows}, rstd{rows}, dgain{width}, dbias{width};
        } one, two;
        for (results* r : {&one, &two}) {
            ht::cpu device{{.threads = r == &one ? 1 : 2, .instruction_set = set}};
            std::uint64_t allocations = 0;
            for (int round = 0; round < 4; ++round) {
                layer_norm::forward<bfloat16, float, bfloat16>(device, {.x = x.const_view(shape),
                                                                        .gain = gain.const_view(),
                                                                        .bias = bias.const_view(),
                                                                        .y = r->y.view(shape),
                                                                        .mean = r->mean.view(),
                                                                        .rstd = r->rstd.view()});
                layer_norm::backward<bfloat16, float, bfloat16, float>(device,
                                                                       {.x = x.const_view(shape),
                                                                        .gain = gain.const_view(),
                                                                        .dy = dy.const_view(shape),
                                                                        .mean = r->mean.const_view(),
                                                                        .rstd = r->rstd.const_view(),
                                                                        .dx = r->dx.view(shape),
                                                                        .dgain = r->dgain.view(),
                                                                        .dbias = r->dbias.view(),
                                                                        .parameter_mode = write_mode::overwrite});
                if (round == 1) allocations = device.memory().usage().allocations();
            }
            CHECK(device.memory().usage().allocations() == allocations);
        }
        CHECK(one.y.same_bits(two.y));
        CHECK(one.dx.same_bits(two.dx));
        CHECK(one.mean.same_bits(two.mean));
        CHECK(one.dgain.same_bits(two.dgain));
        CHECK(one.dbias.same_bits(two.dbias));
    });
}

TEST_CASE("layer_norm: exact results, and no rows") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        what_is_exact(device);
        no_rows_at_all(device);
    });
}

TEST_CASE("layer_norm: the definition's gradients") {
    constexpr extent rows = 3, width = 5;
    constexpr double epsilon = 1e-3;
    const ht::shape<2> shape{rows, width};
    support::random data(11);
    const doubles x = data.normals<double>(rows * width), gain = data.normals<double>(width),
                  bias = data.normals<double>(width);
    const doubles dy = data.normals<double>(rows * width);
    doubles y(rows * width), mean(rows), rstd(rows);
    const auto loss = [&](const doubles& at_x, const doubles& at_gain, const doubles& at_bias) {
        ht::reference::layer_norm(
            ht::const_view<double, 2>(at_x.data(), shape), ht::const_view<double, 1>(at_gain.data(), {width}),
            ht::const_view<double, 1>(at_bias.data(), {width}), epsilon, ht::view<double, 2>(y.data(), shape),
            ht::view<double, 1>(mean.data(), {rows}), ht::view<double, 1>(rstd.data(), {rows}));
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
        return sum;
    };
    loss(x, gain, bias);
    doubles dx(rows * width), dgain(width), dbias(width);
    ht::reference::layer_norm_backward(
        ht::const_view<double, 2>(x.data(), shape), ht::const_view<double, 1>(gain.data(), {width}),
        ht::const_view<double, 2>(dy.data(), shape), ht::const_view<double, 1>(mean.data(), {rows}),
        ht::const_view<double, 1>(rstd.data(), {rows}), ht::view<double, 2>(dx.data(), shape),
        ht::view<double, 1>(dgain.data(), {width}), ht::view<double, 1>(dbias.data(), {width}));
    support::check_gradient([&](const doubles& at) { return loss(at, gain, bias); }, x, dx);
    support::check_gradient([&](const doubles& at) { return loss(x, at, bias); }, gain, dgain);
    support::check_gradient([&](const doubles& at) { return loss(x, gain, at); }, bias, dbias);
}

TEST_CASE("layer_norm: wrong arguments") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(12), gain(4), y(12), rows(3);
    const ht::shape<2> shape{3, 4};
    const auto run = [&](ht::const_view<float, 2> from, ht::const_view<float, 1> by, ht::view<float, 2> to,
                         float epsilon = 1e-5f) {
        layer_norm::forward<float, float, float>(device, {.x = from, .gain = by, .y = to, .epsilon = epsilon});
    };
    CHECK_THROWS_WITH_AS(run(x.const_view(shape), {gain.data(), {3}}, y.view(shape)),
                         "layer_norm: gain is (3); expected (4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(x.const_view(shape), gain.const_view(), {y.data(), {2, 4}}),
                         "layer_norm: y is (2, 4); expected (3, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run({x.data(), {3, 4}, {1, 3}}, gain.const_view(), y.view(shape)),
                         "layer_norm: x (3, 4) has gaps within its rows; its strides are (1, 3)", ht::shape_error);
    CHECK_THROWS_WITH_AS(run(x.const_view(shape), gain.const_view(), y.view(shape), -1.0f),
                         "layer_norm: epsilon is -1; expected 0 or more", ht::argument_error);
    CHECK_THROWS_WITH_AS((layer_norm::backward<float, float, float, float>(device, {.x = x.const_view(shape),
                                                                                    .gain = gain.const_view(),
                                                                                    .dy = x.const_view(shape),
                                                                                    .mean = {rows.data(), {2}},
                                                                                    .rstd = rows.const_view(),
                                                                                    .dx = y.view(shape)})),
                         "layer_norm backward: mean is (2); expected (3)", ht::shape_error);
}

}  // namespace kernel_norm_layer_norm_tests
