// SPDX-License-Identifier: MIT
/// \file
/// ht::linear_cross_entropy and its gradients: in the policy's types, within the bounds of the kernel's tests.
#include <doctest/doctest.h>

#include <halftone/kernel/linear_cross_entropy/cpu.hpp>
#include <halftone/policy/presets.hpp>

#include "kernel/linear_cross_entropy/checks.hpp"

namespace kernel_linear_cross_entropy_function_tests {

using namespace linear_cross_entropy_checks;

/// The free functions as an operation whose types follow from the policy.
template <class P>
struct by_policy {
    template <class Compute, class Logit, class Device, class X, class W>
    static void forward(Device& device, const X& x, const W& w, const ht::kernel::linear_cross_entropy_rows& rows,
                        Logit*) {
        ht::linear_cross_entropy<P>(device, x, w, rows);
    }
    template <class Compute, class Logit, class InputGrad, class Device, class X, class W, class Dx, class Dw>
    static void backward(Device& device, const X& x, const W& w, const ht::kernel::linear_cross_entropy_rows& rows,
                         const ht::const_view<float, 1>& gradient, const Dx& dx, const Dw& dw, Logit*) {
        ht::linear_cross_entropy_gradients<P>(device, x, w, rows, gradient, dx.to, dw.to, dw.mode);
    }
};

TEST_CASE("linear_cross_entropy: the free functions, loss and gradients within their bounds") {
    ht::cpu device{{.threads = 2}};
    using single = types<float, float, float>;
    using half = types<bfloat16, bfloat16, bfloat16>;
    using wide = types<bfloat16, float, bfloat16>;
    within_bounds<single>(by_policy<ht::full_fp32>{}, device, {37, 19, 53}, write_mode::overwrite);
    within_bounds<half>(by_policy<ht::amp_bf16>{}, device, {37, 19, 53}, write_mode::overwrite);
    within_bounds<wide>(by_policy<ht::with_output<ht::amp_bf16, float>>{}, device, {64, 33, 17}, write_mode::overwrite);
}

TEST_CASE("linear_cross_entropy: the free functions refuse shapes that do not fit together") {
    ht::cpu device;
    const run<types<float, float, float>> r({5, 4, 7});
    const auto x = r.x.const_view(ht::shape<2>{5, 4}), w = r.w.const_view(ht::shape<2>{7, 4});
    CHECK_THROWS_WITH_AS(
        ht::linear_cross_entropy<ht::full_fp32>(device, x, r.w.const_view(ht::shape<2>{4, 7}), r.rows()),
        "linear_cross_entropy: w is (4, 7); expected (4, 4)", ht::shape_error);
    ht::kernel::linear_cross_entropy_rows few = r.rows();
    few.targets = {few.targets.data(), {4}};
    CHECK_THROWS_WITH_AS(ht::linear_cross_entropy<ht::full_fp32>(device, x, w, few),
                         "linear_cross_entropy: targets is (4); expected (5)", ht::shape_error);
}

}  // namespace kernel_linear_cross_entropy_function_tests
