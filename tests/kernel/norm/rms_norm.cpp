// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation on the CPU against its definition, and the definition's gradients against
/// differences.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/norm/cpu.hpp>

#include "kernel/norm/rms_norm_checks.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace kernel_norm_rms_norm_tests {

using namespace rms_norm_checks;
using rms_norm = ht::kernel::rms_norm<ht::cpu>;

TEST_CASE_TEMPLATE("rms_norm: forward within its bound of the definition", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) forward_within_bounds<M>(device, 3, width, 1e-6f);
        forward_within_bounds<M>(device, 61, 4097, 0.0f);
    });
}

TEST_CASE_TEMPLATE("rms_norm: backward within its bound of the definition", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) backward_within_bounds<M>(device, 3, width, write_mode::overwrite);
        backward_within_bounds<M>(device, 301, 129, write_mode::overwrite);  // several pieces
        backward_within_bounds<M>(device, 301, 129, write_mode::add);
    });
}

TEST_CASE("rms_norm: the same bits at one and at two threads") {
    support::for_each_set([](ht::isa set) {
        constexpr extent rows = 333, width = 257;
        const ht::shape<2> shape{rows, width};
        support::random data(7);
        const guarded<bfloat16> x(data.normals<bfloat16>(rows * width)), dy(data.normals<bfloat16>(rows * width));
        const guarded<float> gain(data.normals<float>(width));
        struct results {
            guarded<bfloat16> y{rows * width}, dx{rows * width};
            guarded<float> rstd{rows}, dgain{width};
        } one, two;
        for (results* r : {&one, &two}) {
            ht::cpu device{{.threads = r == &one ? 1 : 2, .instruction_set = set}};
            rms_norm::forward<bfloat16, float, bfloat16>(
                device,
                {.x = x.const_view(shape), .gain = gain.const_view(), .y = r->y.view(shape), .rstd = r->rstd.view()});
            rms_norm::backward<bfloat16, float, bfloat16, float>(device, {.x = x.const_view(shape),
                                                                          .gain = gain.const_view(),
                                                                          .dy = dy.const_view(shape),
                                                                          .rstd = r->rstd.const_view(),
                                                                          .dx = r->dx.view(shape),
                                                                          .dgain = r->dgain.view(),
                                                                          .parameter_mode = write_mode::overwrite});
        }
        CHECK(one.y.same_bits(two.y));
        CHECK(one.dx.same_bits(two.dx));
        CHECK(one.rstd.same_bits(two.rstd));
        CHECK(one.dgain.same_bits(two.dgain));
    });
}

TEST_CASE("rms_norm: exact results") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        what_is_exact(device);
    });
}

TEST_CASE("rms_norm: the definition's gradients") {
    constexpr extent rows = 3, width = 5;
    constexpr double epsilon = 1e-3;
    const ht::shape<2> shape{rows, width};
    support::random data(11);
    const doubles x = data.normals<double>(rows * width), gain = data.normals<double>(width),
                  dy = data.normals<double>(rows * width);
    doubles y(rows * width), rstd(rows);
    const auto loss = [&](const doubles& at_x, const doubles& at_gain) {
        ht::reference::rms_norm(ht::const_view<double, 2>(at_x.data(), shape),
                                ht::const_view<double, 1>(at_gain.data(), {width}), epsilon,
                                ht::view<double, 2>(y.data(), shape), ht::view<double, 1>(rstd.data(), {rows}));
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
        return sum;
    };
    loss(x, gain);
    doubles dx(rows * width), dgain(width);
    ht::reference::rms_norm_backward(
        ht::const_view<double, 2>(x.data(), shape), ht::const_view<double, 1>(gain.data(), {width}),
        ht::const_view<double, 2>(dy.data(), shape), ht::const_view<double, 1>(rstd.data(), {rows}),
        ht::view<double, 2>(dx.data(), shape), ht::view<double, 1>(dgain.data(), {width}));
    support::check_gradient([&](const doubles& at) { return loss(at, gain); }, x, dx);
    support::check_gradient([&](const doubles& at) { return loss(x, at); }, gain, dgain);
}

TEST_CASE("rms_norm: wrong arguments") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(12), gain(4), y(12);
    const ht::shape<2> shape{3, 4};
    CHECK_THROWS_WITH_AS((rms_norm::forward<float, float, float>(
                             device, {.x = x.const_view(shape), .gain = {gain.data(), {3}}, .y = y.view(shape)})),
                         "rms_norm: gain is (3); expected (4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(
        (rms_norm::forward<float, float, float>(
            device, {.x = x.const_view(shape), .gain = gain.const_view(), .y = y.view(shape), .epsilon = -0.5f})),
        "rms_norm: epsilon is -0.5; expected 0 or more", ht::argument_error);
}

}  // namespace kernel_norm_rms_norm_tests
