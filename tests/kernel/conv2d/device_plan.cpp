// SPDX-License-Identifier: MIT
/// \file
/// Plans of convolutions (kernel/conv2d/lowering/plan.hpp): a GPU's choice for shapes, types, passes and architectures, without a GPU;
/// what speaks against each family on any device; and their explanation. That kernels are launched as planned is tested in
/// emulator/kernel/conv2d_plan.cpp.
#include <cstdio>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "kernel/conv2d/device_choices.hpp"

namespace kernel_conv2d_device_plan_tests {

namespace ht = halftone;
namespace simt = ht::simt;
using namespace ht::kernel::on_device;
using conv2d_test::choice_of;
using ht::extent;
using ht::detail::conv2d_case, ht::detail::conv2d_family, ht::detail::conv2d_pass, ht::detail::conv2d_plan,
    ht::detail::conv2d_problem, ht::detail::plan_conv2d;

/// Images x channels x size x outputs x window; stride, padding and groups.
constexpr const char* choices = R"(type pass shape           s p g  | sm_80 | sm_90a | sm_120
bf16 y    64x3x224x64x7    2 3 1   | u6 11*r64.32 | u6 11*r64.32 | u6 11*r64.32
bf16 dx   64x3x224x64x7    2 3 1   | u6 11*r64.32 | u6 11*r64.32 | u6 11*r64.32
bf16 dw   64x3x224x64x7    2 3 1   | u6 11*s64.32/16 | u6 11*w64/16 | u6 11*s64.32/16
bf16 y    64x64x56x64x3    1 1 1   | u18 4*s64.32 | u18 4*s64.32 | u18 4*s64.32
bf16 dx   64x64x56x64x3    1 1 1   | u9 8*s128.32 | u9 8*s128.64 | u9 8*s128.32
bf16 dw   64x64x56x64x3    1 1 1   | u18 4*s64.32/12 | u18 4*w64/14 | u18 4*s64.32/16
bf16 y    64x64x56x128x3   2 1 1   | u64 1*s128.32 | u64 1*w192 | u64 1*s128.32
bf16 dx   64x64x56x128x3   2 1 1   | u37 2*s128.32 | u37 2*s128.64 | u37 2*s128.32
bf16 dw   64x64x56x128x3   2 1 1   | u64 1*s64.32/12 | u64 1*w64/14 | u64 1*s64.32/16
bf16 y    64x64x56x128x1   2 0 1   | u64 1*s128.32 | u64 1*s128.64 | u64 1*s128.32
bf16 dx   64x64x56x128x1   2 0 1   | u64 1*s64.32 | u64 1*s64.32 | u64 1*s64.32
bf16 dw   64x64x56x128x1   2 0 1   | u64 1*s64.32/16 | u64 1*w64/16 | u64 1*s64.32/16
bf16 y    64x256x56x64x1   1 0 1   | i 64*s64.32 | i 64*s64.32 | i 64*s64.32
bf16 dx   64x256x56x64x1   1 0 1   | i 64*s64.32 | i 64*s64.32 | i 64*s64.32
bf16 dw   64x256x56x64x1   1 0 1   | i 64*s64.32/11 | i 64*s64.32/11 | i 64*s64.32/11
bf16 y    64x256x14x256x3  1 1 1   | u64 1*s128.32 | u64 1*w192 | u64 1*s128.32
bf16 dx   64x256x14x256x3  1 1 1   | u37 2*cs128.32 | u37 2*cw256 | u37 2*cs128.32
bf16 dw   64x256x14x256x3  1 1 1   | u64 1*s128.32/6 | u64 1*w192/5 | u64 1*s128.32/4
bf16 y    64x512x7x512x3   1 1 1   | u64 1*s128.32 | u64 1*w64 | u64 1*s128.32
bf16 dx   64x512x7x512x3   1 1 1   | u64 1*s128.32 | u64 1*w256 | u64 1*s128.32
bf16 dw   64x512x7x512x3   1 1 1   | u64 1*s128.32 | u64 1*w192 | u64 1*s128.32
bf16 y    64x2048x7x512x1  1 0 1   | u64 1*s128.32 | u64 1*w64 | u64 1*s128.32
bf16 dx   64x2048x7x512x1  1 0 1   | u64 1*s128.32 | u64 1*w64 | u64 1*s128.32
bf16 dw   64x2048x7x512x1  1 0 1   | u64 1*s128.32/3 | u64 1*w64 | u64 1*s64.32
bf16 y    64x128x28x128x3  1 1 128 | u37 256*s64.32 | u37 256*s64.32 | u37 256*s64.32
bf16 dx   64x128x28x128x3  1 1 128 | u18 512*s64.32 | u18 512*s64.32 | u18 512*s64.32
bf16 dw   64x128x28x128x3  1 1 128 | u37 256*s64.32/16 | u37 256*s64.32/16 | u37 256*s64.32/16
bf16 y    64x128x28x128x3  1 1 4   | u37 8*s64.32 | u37 8*s64.32 | u37 8*s64.32
bf16 dx   64x128x28x128x3  1 1 4   | u18 16*s128.32 | u18 16*s128.64 | u18 16*s128.32
bf16 dw   64x128x28x128x3  1 1 4   | u37 8*s64.32/16 | u37 8*s64.32/16 | u37 8*s64.32/16
bf16 y    64x256x16x64x1   1 0 4   | i 256*s64.32 | i 256*s64.32 | i 256*s64.32
bf16 dx   64x256x16x64x1   1 0 4   | i 256*s64.32 | i 256*s64.32 | i 256*s64.32
bf16 dw   64x256x16x64x1   1 0 4   | i 256*s64.32 | i 256*s64.32 | i 256*s64.32
bf16 y    1x512x7x512x1    1 0 1   | i 1*r64.32 | i 1*r64.32 | i 1*r64.32
bf16 dx   1x512x7x512x1    1 0 1   | i 1*r64.32 | i 1*r64.32 | i 1*r64.32
bf16 dw   1x512x7x512x1    1 0 1   | i 1*r64.32 | i 1*r64.32 | i 1*r64.32
bf16 y    1x2048x128x64x3  1 1 1   | u1/14 10*s64.32/7 | u1/14 10*s64.32/9 | u1/14 10*s64.32/10
bf16 dx   1x2048x128x64x3  1 1 1   | u1c113 19*s128.32 | u1c113 19*s128.64 | u1c113 19*s128.32
bf16 dw   1x2048x128x64x3  1 1 1   | u1/14 10*s64.32 | u1/14 10*w192 | u1/14 10*s64.32
bf16 y    16x3x224x768x16  16 0 1   | u16 1*s128.32 | u16 1*w192 | u16 1*s64.32
bf16 dx   16x3x224x768x16  16 0 1   | u16 1*s128.32 | u16 1*w192 | u16 1*s64.32
bf16 dw   16x3x224x768x16  16 0 1   | u16 1*s128.32/3 | u16 1*w64 | u16 1*s64.32
bf16 y    8x64x55x64x3     1 1 1   | u8 1*s64.32 | u8 1*s64.32 | u8 1*s64.32
bf16 dx   8x64x55x64x3     1 1 1   | u8 1*s128.32 | u8 1*s128.64 | u8 1*s128.32
bf16 dw   8x64x55x64x3     1 1 1   | u8 1*s64.32/12 | u8 1*w64/14 | u8 1*s64.32/16
bf16 y    2x8x900x8x3      1 1 1   | u1/517 4*r64.32 | u1/517 4*r64.32 | u1/517 4*r64.32
bf16 dx   2x8x900x8x3      1 1 1   | u1c2 8*s64.32 | u1c2 8*s64.32 | u1c2 8*s64.32
bf16 dw   2x8x900x8x3      1 1 1   | u1/517 4*r64.32/16 | u1/517 4*r64.32/16 | u1/517 4*r64.32/16
tf32 y    64x3x224x64x7    2 3 1   | u6 11*r64.16 | u6 11*r64.16 | u6 11*r64.16
tf32 dx   64x3x224x64x7    2 3 1   | u6 11*r64.16 | u6 11*r64.16 | u6 11*r64.16
tf32 dw   64x3x224x64x7    2 3 1   | u6 11*s64.16/16 | u6 11*s64.16/16 | u6 11*s64.16/16
tf32 y    64x64x56x64x3    1 1 1   | u9 8*s64.16 | u9 8*s64.16 | u9 8*s64.16
tf32 dx   64x64x56x64x3    1 1 1   | u9 8*s128.16 | u9 8*s128.32 | u9 8*s128.16
tf32 dw   64x64x56x64x3    1 1 1   | u9 8*s64.16/12 | u9 8*s64.16/14 | u9 8*s64.16/16
tf32 y    64x64x56x128x3   2 1 1   | u37 2*s128.16 | u37 2*s128.32 | u37 2*s128.16
tf32 dx   64x64x56x128x3   2 1 1   | u37 2*s128.16 | u37 2*s128.32 | u37 2*s128.16
tf32 dw   64x64x56x128x3   2 1 1   | u37 2*s64.16/12 | u37 2*s64.16/14 | u37 2*s64.16/16
tf32 y    64x64x56x128x1   2 0 1   | u64 1*s128.16 | u64 1*s128.32 | u64 1*s128.16
tf32 dx   64x64x56x128x1   2 0 1   | u64 1*s64.16 | u64 1*s64.16 | u64 1*s64.16
tf32 dw   64x64x56x128x1   2 0 1   | u64 1*s64.16/16 | u64 1*s64.16/16 | u64 1*s64.16/16
tf32 y    64x256x56x64x1   1 0 1   | i 64*s64.16 | i 64*s64.16 | i 64*s64.16
tf32 dx   64x256x56x64x1   1 0 1   | i 64*s64.16 | i 64*s64.16 | i 64*s64.16
tf32 dw   64x256x56x64x1   1 0 1   | i 64*s64.16/12 | i 64*s64.16/12 | i 64*s64.16/12
tf32 y    64x256x14x256x3  1 1 1   | u37 2*s128.16/3 | u37 2*s128.32 | u37 2*s128.16
tf32 dx   64x256x14x256x3  1 1 1   | u37 2*s128.16 | u37 2*s128.32 | u37 2*s128.16
tf32 dw   64x256x14x256x3  1 1 1   | u37 2*s128.16/6 | u37 2*s128.32/7 | u37 2*s128.16/4
tf32 y    64x512x7x512x3   1 1 1   | u64 1*s128.16/2 | u64 1*s128.32/5 | u64 1*s128.16/4
tf32 dx   64x512x7x512x3   1 1 1   | u64 1*s128.16 | u64 1*s128.32 | u64 1*s128.16
tf32 dw   64x512x7x512x3   1 1 1   | u64 1*s128.16/3 | u64 1*s128.32/3 | u64 1*s128.16
tf32 y    64x2048x7x512x1  1 0 1   | u64 1*s128.16 | u64 1*s128.32 | u64 1*s128.16
tf32 dx   64x2048x7x512x1  1 0 1   | u64 1*s128.16 | u64 1*s128.32 | u64 1*s128.16
tf32 dw   64x2048x7x512x1  1 0 1   | u64 1*s128.16/3 | u64 1*s128.32/4 | u64 1*s128.16/2
tf32 y    64x128x28x128x3  1 1 128 | u18 512*s64.16 | u18 512*s64.16 | u18 512*s64.16
tf32 dx   64x128x28x128x3  1 1 128 | u18 512*s64.16 | u18 512*s64.16 | u18 512*s64.16
tf32 dw   64x128x28x128x3  1 1 128 | u18 512*s64.16/16 | u18 512*s64.16/16 | u18 512*s64.16/16
tf32 y    64x128x28x128x3  1 1 4   | u18 16*s64.16 | u18 16*s64.16 | u18 16*s64.16
tf32 dx   64x128x28x128x3  1 1 4   | u18 16*s128.16 | u18 16*s128.32 | u18 16*s128.16
tf32 dw   64x128x28x128x3  1 1 4   | u18 16*s64.16/16 | u18 16*s64.16/16 | u18 16*s64.16/16
tf32 y    64x256x16x64x1   1 0 4   | i 256*s64.16 | i 256*s64.16 | i 256*s64.16
tf32 dx   64x256x16x64x1   1 0 4   | i 256*s64.16 | i 256*s64.16 | i 256*s64.16
tf32 dw   64x256x16x64x1   1 0 4   | i 256*s64.16 | i 256*s64.16 | i 256*s64.16
fp32 y    64x3x224x64x7    2 3 1   | u6 11*f64 | u6 11*f64 | u6 11*f64
fp32 dx   64x3x224x64x7    2 3 1   | u6 11*f128 | u6 11*f128 | u6 11*f128
fp32 dw   64x3x224x64x7    2 3 1   | u6 11*f64/16 | u6 11*f64/16 | u6 11*f64/16
fp32 y    64x64x56x64x3    1 1 1   | u9 8*f64/2 | u9 8*f64/2 | u9 8*f64
fp32 dx   64x64x56x64x3    1 1 1   | u9 8*f128 | u9 8*f128 | u9 8*f128
fp32 dw   64x64x56x64x3    1 1 1   | u9 8*f64/12 | u9 8*f64/14 | u9 8*f64/16
fp32 y    64x64x56x128x3   2 1 1   | u37 2*f128/2 | u37 2*f128 | u37 2*f128
fp32 dx   64x64x56x128x3   2 1 1   | u37 2*f128 | u37 2*f128 | u37 2*f128
fp32 dw   64x64x56x128x3   2 1 1   | u37 2*f64/12 | u37 2*f64/14 | u37 2*f64/16
fp32 y    64x64x56x128x1   2 0 1   | u64 1*f128 | u64 1*f128 | u64 1*f128
fp32 dx   64x64x56x128x1   2 0 1   | u64 1*f64 | u64 1*f64 | u64 1*f64
fp32 dw   64x64x56x128x1   2 0 1   | u64 1*f64/16 | u64 1*f64/16 | u64 1*f64/16
fp32 y    64x256x56x64x1   1 0 1   | i 64*f64 | i 64*f64 | i 64*f64
fp32 dx   64x256x56x64x1   1 0 1   | i 64*f64 | i 64*f64 | i 64*f64
fp32 dw   64x256x56x64x1   1 0 1   | i 64*f64/12 | i 64*f64/12 | i 64*f64/12
fp32 y    64x256x14x256x3  1 1 1   | u37 2*f128/6 | u37 2*f128/2 | u37 2*f128/5
fp32 dx   64x256x14x256x3  1 1 1   | u37 2*f128 | u37 2*f128 | u37 2*f128
fp32 dw   64x256x14x256x3  1 1 1   | u37 2*f128/6 | u37 2*f128/11 | u37 2*f128/8
fp32 y    64x512x7x512x3   1 1 1   | u64 1*f128/2 | u64 1*f128/5 | u64 1*f128/4
fp32 dx   64x512x7x512x3   1 1 1   | u64 1*f128 | u64 1*f128 | u64 1*f128
fp32 dw   64x512x7x512x3   1 1 1   | u64 1*f128/3 | u64 1*f128/7 | u64 1*f128/2
fp32 y    64x2048x7x512x1  1 0 1   | u64 1*f128/2 | u64 1*f128/5 | u64 1*f128/4
fp32 dx   64x2048x7x512x1  1 0 1   | u64 1*f128 | u64 1*f128 | u64 1*f128
fp32 dw   64x2048x7x512x1  1 0 1   | u64 1*f128/5 | u64 1*f128/4 | u64 1*f128/4
fp32 y    64x128x28x128x3  1 1 128 | u18 512*f64 | u18 512*f64 | u18 512*f64
fp32 dx   64x128x28x128x3  1 1 128 | u18 512*f64 | u18 512*f64 | u18 512*f64
fp32 dw   64x128x28x128x3  1 1 128 | u18 512*f64/16 | u18 512*f64/16 | u18 512*f64/16
fp32 y    64x128x28x128x3  1 1 4   | u18 16*f64 | u18 16*f64 | u18 16*f64
fp32 dx   64x128x28x128x3  1 1 4   | u18 16*f128 | u18 16*f128 | u18 16*f128
fp32 dw   64x128x28x128x3  1 1 4   | u18 16*f64/16 | u18 16*f64/16 | u18 16*f64/16
fp32 y    64x256x16x64x1   1 0 4   | i 256*f64 | i 256*f64 | i 256*f64
fp32 dx   64x256x16x64x1   1 0 4   | i 256*f64 | i 256*f64 | i 256*f64
fp32 dw   64x256x16x64x1   1 0 4   | i 256*f64 | i 256*f64 | i 256*f64)";

/// The problem of a shape: images, channels, size, outputs, window.
conv2d_problem problem_of(const std::string& shape, extent stride, extent padding, extent groups) {
    long long n[5] = {};
    REQUIRE(std::sscanf(shape.c_str(), "%lldx%lldx%lldx%lldx%lld", &n[0], &n[1], &n[2], &n[3], &n[4]) == 5);
    return conv2d_problem::of("test", {n[0], n[1], n[2], n[2]}, {n[3], n[1] / groups, n[4], n[4]},
                              {.stride = {stride, stride}, .padding = {padding, padding}, .groups = groups});
}
conv2d_pass pass_of(const std::string& name) {
    return name == "y"    ? conv2d_pass::forward
           : name == "dx" ? conv2d_pass::input_gradient
                          : conv2d_pass::weight_gradient;
}
const matmul_types& types_of(const std::string& name) {
    for (const matmul_types& t : named_conv2d_types) {
        if (t.name == name) return t;
    }
    FAIL("no types of this name");
    return named_conv2d_types[0];
}

TEST_CASE("a GPU's choice for convolutions: every line of the table") {
    std::istringstream lines(choices);
    std::string line;
    std::getline(lines, line);
    int count = 0;
    while (std::getline(lines, line)) {
        std::istringstream row(line);
        std::string types, pass, shape, bar, family, products;
        extent stride = 0, padding = 0, groups = 0;
        row >> types >> pass >> shape >> stride >> padding >> groups;
        const conv2d_problem p = problem_of(shape, stride, padding, groups);
        for (const char* const device : {"sm_80", "sm_90a", "sm_120"}) {
            row >> bar >> family >> products;
            INFO(line, " on ", device);
            CHECK(choice_of(dense_conv2d(p, pass_of(pass), types_of(types), *simt::target_named(device))) ==
                  family + " " + products);
            ++count;
        }
    }
    CHECK(count == 3 * 114);
}

TEST_CASE("a GPU's choice for convolutions: each group has a bias of its own, all images of one group the same") {
    const simt::target on = *simt::target_named("sm_90a");
    const auto with = [&](const conv2d_problem& p, bool has_bias) {
        const conv2d_products all = products_of(dense_conv2d(p, conv2d_pass::forward, types_of("bf16"), on, has_bias));
        return std::to_string(all.launches) + " of " + std::to_string(all.each.matrices);
    };
    const conv2d_problem one_group = problem_of("64x256x56x64x1", 1, 0, 1),
                         four = problem_of("64x256x56x64x1", 1, 0, 4);
    CHECK(with(one_group, false) == "1 of 64");
    CHECK(with(one_group, true) == "1 of 64");
    CHECK(with(four, false) == "64 of 4");
    CHECK(with(four, true) == "256 of 1");
}

/// What speaks against each family until one applies.
std::string words_of(const conv2d_case& c) {
    const conv2d_plan plan = plan_conv2d(c);
    std::string text;
    for (int i = 0; i < plan.chosen; ++i)
        text += std::string("not ") + plan.families[i].name + ": " + plan.families[i].why_not + "; ";
    return text + plan.best().name;
}
TEST_CASE("a convolution's plan: what speaks against each family") {
    conv2d_case c{.p = problem_of("8x64x28x64x1", 1, 0, 64), .limits = ht::detail::conv2d_limits_of_gpu};
    const std::string not_implicit = "not implicit: the device has no such kernels for these types and this window; ";
    CHECK(words_of(c) == "not depthwise: the device has no such kernels for these types; " + not_implicit + "in_place");
    c.has_depthwise = true;
    CHECK(words_of(c) == "depthwise");
    c.p = problem_of("8x64x28x64x1", 1, 0, 2);
    CHECK(words_of(c) == "not depthwise: a group has several channels; " + not_implicit + "in_place");
    c.p = problem_of("8x64x28x64x1", 1, 0, 1);
    const std::string not_both = "not depthwise: there is one group; " + not_implicit;
    CHECK(words_of(c) == not_both + "in_place");
    c.are_planes = false;
    CHECK(words_of(c) == not_both + "not in_place: the elements of a channel do not follow one another; unfolded");
    c.has_implicit = true;
    CHECK(words_of(c) == "not depthwise: there is one group; implicit");
    c.has_implicit = false, c.are_planes = true;
    c.p = problem_of("8x64x15x64x1", 1, 0, 1);
    CHECK(words_of(c) ==
          not_both + "not in_place: there are several images, of fewer than 256 positions each; unfolded");
    c.p = problem_of("1x64x15x64x1", 1, 0, 1);
    CHECK(words_of(c) == not_both + "in_place");
    c.p = problem_of("8x64x16x64x1", 1, 0, 1);
    CHECK(words_of(c) == not_both + "in_place");
    for (const extent stride : {1, 2}) {
        c.p = problem_of("8x64x56x64x1", stride, stride == 1 ? 1 : 0, 1);
        CHECK(words_of(c) == not_both + "not in_place: the window has several elements, a stride or padding; unfolded");
    }
}

TEST_CASE("a convolution's plan: pieces have at most as many bytes as the device's limit, or the least that there is") {
    for (const ht::detail::conv2d_limits& limits :
         {ht::detail::conv2d_limits_of_gpu, ht::detail::conv2d_limits_of_cpu}) {
        for (const char* const shape : {"64x64x56x64x3", "1x2048x128x64x3", "2x3x900x8x7", "3x30000x40x1x3"}) {
            for (const conv2d_pass pass :
                 {conv2d_pass::forward, conv2d_pass::input_gradient, conv2d_pass::weight_gradient}) {
                const conv2d_case c{.p = problem_of(shape, 1, 1, 1), .pass = pass, .limits = limits, .bytes = 4};
                const auto way = plan_conv2d(c).best();
                INFO(shape, " ", static_cast<int>(pass), " ", limits.bytes);
                const extent row = way.channels * c.p.window.taps() * c.p.window.across.positions * c.bytes,
                             all = row * way.cut.rows * way.cut.images;
                const bool is_least =
                    way.cut.images == 1 && (pass == conv2d_pass::input_gradient ? way.channels : way.cut.rows) == 1;
                CHECK((all <= limits.bytes || is_least));
                CHECK((way.cut.images == 1 || way.cut.rows == c.p.window.down.positions));
                CHECK((way.channels == c.p.channels || pass == conv2d_pass::input_gradient));
            }
        }
    }
}

TEST_CASE("a GPU's choice for convolutions, in words") {
    const auto explained = [](const char* shape, extent padding, const char* pass) {
        return explain_plan(dense_conv2d(problem_of(shape, 1, padding, 1), pass_of(pass), types_of("bf16"),
                                         *simt::target_named("sm_90a")));
    };
    CHECK(explained("64x64x56x64x3", 1, "y") ==
          "  family    unfolded\n"
          "  at once   18 images: a matrix of 576 x 56448, 65028096 bytes\n"
          "  products  64 x 56448 x 576, 1 in a launch, 4 times\n"
          "  by        mma_sync, tiles of 64 x 64 of c, 32 of k at a time\n"
          "  copies    nothing\n"
          "  why       not depthwise: there is one group\n"
          "            not implicit: the device has no such kernels for these types and this window\n"
          "            not in_place: the window has several elements, a stride or padding\n"
          "            unfolded: applies\n");
    CHECK(explained("64x256x56x64x1", 0, "dx") ==
          "  family    in_place\n"
          "  products  256 x 3136 x 64, 64 in a launch, 1 time\n"
          "  by        mma_sync, tiles of 64 x 64 of c, 32 of k at a time\n"
          "  copies    nothing\n"
          "  why       not depthwise: there is one group\n"
          "            not implicit: the device has no such kernels for these types and this window\n"
          "            in_place: applies\n");
    CHECK(explained("1x2048x128x64x3", 1, "y")
              .find("  at once   1 image, 14 rows of positions: a matrix of 18432 x 1792, 66060288 bytes\n") !=
          std::string::npos);
    CHECK(explained("1x2048x128x64x3", 1, "dx")
              .find("  at once   1 image, 113 channels of each group: a matrix of 1017 x 16384, 66650112 bytes\n") !=
          std::string::npos);
}

}  // namespace kernel_conv2d_device_plan_tests
