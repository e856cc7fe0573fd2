// SPDX-License-Identifier: MIT
/// \file
/// Views that kernels write to must not have two elements at one address. Maps and conversions are tested by
/// overlap_checks.hpp on the CPU; the arguments of other kernels are checked by functions that all devices share.
#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/norm/layer_norm.hpp>
#include <halftone/kernel/norm/rms_norm.hpp>
#include <halftone/kernel/softmax/softmax.hpp>

#include "kernel/overlap_checks.hpp"

namespace kernel_rows_overlap_tests {

namespace ht = halftone;
using overlap_checks::refusal;

TEST_CASE("maps and conversions: outputs that overlap themselves are refused by name; inputs may overlap") {
    ht::cpu device{{.threads = 1}};
    overlap_checks::all(device);
}

TEST_CASE("products: results that overlap themselves are refused by name; operands may overlap") {
    float x[64] = {}, y[64] = {};
    using two = ht::view<float, 2>;
    const ht::const_view<float, 2> a(x, {3, 4}), b(x, {4, 5}), same_rows(x, {3, 4}, {0, 1});
    CHECK(refusal([&] {
              ht::detail::check_matmul(a, b, two(y, {3, 5}, {0, 1}));
          }) == "matmul: c (3, 5) is written to and overlaps itself; its strides are (0, 1)");
    CHECK_FALSE(refusal([&] { ht::detail::check_matmul(a, b, two(y, {3, 5}, {4, 1})); }).empty());
    CHECK(refusal([&] { ht::detail::check_matmul(same_rows, b, two(y, {3, 5}, {8, 1})); }).empty());
    const ht::const_view<float, 1> bias(x, {5});
    CHECK(refusal([&] {
              ht::epilogue_of(ht::bias_gelu_keep{bias, two(y + 32, {3, 5}, {0, 1})}, two(y, {3, 5}));
          }) == "matmul: what bias_gelu_keep keeps (3, 5) is written to and overlaps itself; its strides are (0, 1)");
}

TEST_CASE("attention, cross-entropy: results that overlap themselves are refused by name; operands may overlap") {
    float x[64] = {}, y[64] = {};
    const std::int32_t targets[3] = {};
    const ht::kernel::cross_entropy_backward<float, float> loss{.logits = {x, {3, 4}},
                                                                .targets = {targets, {3}},
                                                                .maximum = {x, {3}},
                                                                .sum = {x, {3}},
                                                                .gradient = {x, {1}},
                                                                .dlogits = {y, {3, 4}, {0, 1}}};
    CHECK(refusal([&] { ht::kernel::check(loss); }) ==
          "cross_entropy backward: dlogits (3, 4) is written to and overlaps itself; its strides are (0, 1)");
    const ht::const_view<float, 4> q(x, {1, 2, 2, 4}), one_key(x, {1, 2, 2, 4}, {16, 8, 0, 1});
    ht::kernel::attention_forward<float> forward{.q = q, .k = one_key, .v = one_key, .o = {y, {1, 2, 2, 4}}};
    CHECK(refusal([&] { ht::detail::check_attention_shapes(forward); }).empty());
    forward.o = {y, {1, 2, 2, 4}, {16, 8, 0, 1}};
    CHECK(refusal([&] { ht::detail::check_attention_shapes(forward); }) ==
          "attention: o (1, 2, 2, 4) is written to and overlaps itself; its strides are (16, 8, 0, 1)");
}

TEST_CASE("softmax, norms: results that overlap themselves are refused by name; operands may overlap") {
    float x[64] = {}, y[64] = {};
    const ht::const_view<float, 2> rows(x, {3, 4}), same_rows(x, {3, 4}, {0, 1});
    const ht::const_view<float, 1> each(x, {3}), gain(x, {4});
    // What is said of results with the strides of torch's expand, and with rows that begin within others.
    const auto is_refused = [&](auto arguments, auto result, const std::string& name) {
        arguments.*result = {y, {3, 4}};
        CHECK(refusal([&] { ht::kernel::check(arguments); }).empty());
        for (const auto& [row, text] : {std::pair{0, "(0, 1)"}, std::pair{2, "(2, 1)"}}) {
            arguments.*result = {y, {3, 4}, {row, 1}};
            CHECK(refusal([&] { ht::kernel::check(arguments); }) ==
                  name + " (3, 4) is written to and overlaps itself; its strides are " + text);
        }
    };
    using softmax = ht::kernel::softmax_forward<float, float>;
    is_refused(softmax{.x = same_rows, .y = {}}, &softmax::y, "softmax: y");
    using softmax_gradient = ht::kernel::softmax_backward<float, float>;
    is_refused(softmax_gradient{.y = same_rows, .dy = same_rows, .dx = {}}, &softmax_gradient::dx,
               "softmax backward: dx");
    using layer_norm = ht::kernel::layer_norm_forward<float, float, float>;
    is_refused(layer_norm{.x = same_rows, .gain = gain, .y = {}}, &layer_norm::y, "layer_norm: y");
    using layer_norm_gradient = ht::kernel::layer_norm_backward<float, float, float, float>;
    is_refused(layer_norm_gradient{.x = rows, .gain = gain, .dy = same_rows, .mean = each, .rstd = each, .dx = {}},
               &layer_norm_gradient::dx, "layer_norm backward: dx");
    using rms_norm = ht::kernel::rms_norm_forward<float, float, float>;
    is_refused(rms_norm{.x = same_rows, .gain = gain, .y = {}}, &rms_norm::y, "rms_norm: y");
    using rms_norm_gradient = ht::kernel::rms_norm_backward<float, float, float, float>;
    is_refused(rms_norm_gradient{.x = rows, .gain = gain, .dy = same_rows, .rstd = each, .dx = {}},
               &rms_norm_gradient::dx, "rms_norm backward: dx");
}

}  // namespace kernel_rows_overlap_tests
