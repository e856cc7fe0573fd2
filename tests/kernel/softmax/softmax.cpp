// SPDX-License-Identifier: MIT
/// \file
/// Softmax and its logarithm on the CPU against their definitions, and the definitions' gradients against differences.
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/softmax/cpu.hpp>

#include "kernel/softmax/checks.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace kernel_softmax_tests {

using namespace softmax_checks;
using softmax = ht::kernel::softmax<ht::cpu>;
using log_softmax = ht::kernel::log_softmax<ht::cpu>;

TEST_CASE_TEMPLATE("softmax: forward within its bound of the definition", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) forward_within_bounds<M>(device, 3, width, 1.0f, 2.0);
        forward_within_bounds<M>(device, 8, 129, 0.3f, 4.0);
        forward_within_bounds<M>(device, 3, 129, -0.3f, 4.0);
        forward_within_bounds<M>(device, 9, 5003, 1.0f, 1.0);
    });
}

TEST_CASE_TEMPLATE("softmax: a constant added to a row's elements changes nothing", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : {2, 3, 37, 300}) no_constant_matters<M>(device, width);
    });
}

// 768 MiB. The portable set has 16 lanes; without segments the sum in each would stop growing at 2^24.
TEST_CASE("softmax: a row of so many elements that a float cannot count them" * doctest::skip()) {
    ht::cpu device{{.threads = 1, .instruction_set = ht::isa::portable}};
    constexpr extent width = extent{3} << 27;
    const ht::shape<2> shape{1, width};
    std::vector<bfloat16> x(static_cast<std::size_t>(width), bfloat16(0.0f));
    softmax::forward<bfloat16, bfloat16>(device, {.x = {x.data(), shape}, .y = {x.data(), shape}});
    CHECK(x.front() == bfloat16(1.0f / static_cast<float>(width)));
    CHECK(x.back() == x.front());
    std::fill(x.begin(), x.end(), bfloat16(1.0f));
    log_softmax::forward<bfloat16, bfloat16>(device, {.x = {x.data(), shape}, .y = {x.data(), shape}});
    CHECK(x.front() == bfloat16(-std::log(static_cast<float>(width))));
}

TEST_CASE_TEMPLATE("softmax: the largest element of a row is found, with any sign and at any index", T, float, bfloat16,
                   float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        constexpr extent width = 150;
        const ht::shape<2> shape{width, width};  // the largest is at another index in each row
        struct scores {
            float others, largest;
        };
        for (const scores c :
             {scores{-1000, -500}, {-500, -0.0f}, {-500, 500}, {0, 500}, {500, 1000}, {-infinity, -500}}) {
            for (const float scale : {1.0f, -1.0f}) {
                const guarded<T> x(width * width), y(width * width);
                for (extent k = 0; k < width * width; ++k)
                    x[k] = T(scale * (k % width == k / width ? c.largest : c.others));
                softmax::forward<T, T>(device, {.x = x.const_view(shape), .y = y.view(shape), .scale = scale});
                extent wrong = 0;  // a larger one than that which was found has an infinite exponential
                for (extent k = 0; k < width * width; ++k)
                    wrong += y[k] == T(k % width == k / width ? 1.0f : 0.0f) ? 0 : 1;
                CHECK_MESSAGE(wrong == 0, c.largest, " among ", c.others, ", times ", scale);
            }
        }
    });
}

TEST_CASE_TEMPLATE("softmax: backward within its bound of the definition", M, all_float, mixed, widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) {
            for (const write_mode mode : {write_mode::overwrite, write_mode::add})
                backward_within_bounds<M>(device, 3, width, mode);
        }
    });
}

TEST_CASE("softmax: exact results") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : {2, 8, 37, 64, 130, 1500}) {
            what_is_exact(device, width);
            what_is_exact<bfloat16>(device, width);
        }
    });
}

TEST_CASE("softmax: the same bits at one and at two threads, in place and out of place") {
    support::for_each_set([](ht::isa set) {
        constexpr extent rows = 333, width = 257;
        const ht::shape<2> shape{rows, width};
        support::random data(7);
        const auto values = data.normals<bfloat16>(rows * width), slopes = data.normals<bfloat16>(rows * width);
        const guarded<bfloat16> x(values), dy(slopes), y(rows * width), dx(rows * width);
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        softmax::forward<bfloat16, bfloat16>(one, {.x = x.const_view(shape), .y = y.view(shape)});
        softmax::backward<bfloat16, bfloat16>(
            one, {.y = y.const_view(shape), .dy = dy.const_view(shape), .dx = dx.view(shape)});
        softmax::forward<bfloat16, bfloat16>(two, {.x = x.const_view(shape), .y = x.view(shape)});
        softmax::backward<bfloat16, bfloat16>(
            two, {.y = x.const_view(shape), .dy = dy.const_view(shape), .dx = dy.view(shape)});
        CHECK(x.same_bits(y));
        CHECK(dy.same_bits(dx));
    });
}

TEST_CASE("softmax: the definition's gradients") {
    constexpr extent rows = 2, width = 5;
    constexpr double scale = 0.7;
    const ht::shape<2> shape{rows, width};
    support::random data(11);
    const doubles x = data.normals<double>(rows * width), dy = data.normals<double>(rows * width);
    doubles y(rows * width), dx(rows * width);
    const auto view_of = [&](const doubles& values) { return ht::const_view<double, 2>(values.data(), shape); };
    const auto dot = [&] {
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
        return sum;
    };
    const ht::view<double, 2> to(y.data(), shape), dto(dx.data(), shape);
    ht::reference::softmax(view_of(x), scale, to);
    ht::reference::softmax_backward(view_of(y), view_of(dy), scale, dto);
    support::check_gradient([&](const doubles& at) { return ht::reference::softmax(view_of(at), scale, to), dot(); }, x,
                            dx);
    ht::reference::log_softmax(view_of(x), scale, to);
    ht::reference::log_softmax_backward(view_of(y), view_of(dy), scale, dto);
    support::check_gradient(
        [&](const doubles& at) { return ht::reference::log_softmax(view_of(at), scale, to), dot(); }, x, dx);
}

TEST_CASE("softmax: wrong arguments, empty tensors") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(12), y(12);
    CHECK_THROWS_WITH_AS((softmax::forward<float, float>(
                             device, {.x = x.const_view(ht::shape<2>{3, 4}), .y = y.view(ht::shape<2>{4, 3})})),
                         "softmax: y is (4, 3); expected (3, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS((softmax::backward<float, float>(device, {.y = x.const_view(ht::shape<2>{3, 4}),
                                                                   .dy = x.const_view(ht::shape<2>{3, 4}),
                                                                   .dx = {y.data(), {3, 4}, {8, 2}}})),
                         "softmax backward: dx (3, 4) has gaps within its rows; its strides are (8, 2)", ht::shape_error);
    softmax::forward<float, float>(device, {.x = {nullptr, {0, 4}}, .y = {nullptr, {0, 4}}});
    softmax::forward<float, float>(device, {.x = {nullptr, {4, 0}}, .y = {nullptr, {4, 0}}});
}

}  // namespace kernel_softmax_tests
