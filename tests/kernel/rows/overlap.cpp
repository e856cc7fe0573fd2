// SPDX-License-Identifier: MIT
/// \file
/// Views that kernels write to must not have two elements at one address. Maps and conversions are tested by
/// overlap_checks.hpp on the CPU; the arguments of other kernels are checked by functions that all devices share.
#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/matmul/matmul.hpp>

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
              ht::epilogue_of(ht::bias_gelu_keep(bias, two(y + 32, {3, 5}, {0, 1})), two(y, {3, 5}));
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

}  // namespace kernel_rows_overlap_tests
