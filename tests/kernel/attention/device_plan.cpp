// SPDX-License-Identifier: MIT
/// \file
/// A GPU's plans of attention (kernel/attention/device/plan.hpp): the choice for shapes, types and architectures, without a GPU; what
/// speaks against each family; and their explanation. That kernels are launched as planned is tested in
/// emulator/kernel/attention_plan.cpp.
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/attention/device/explain.hpp>

#include "kernel/attention/device_choices.hpp"

namespace kernel_attention_device_plan_tests {

namespace ht = halftone;
namespace simt = ht::simt;
using namespace ht::kernel::on_device;
using attention_test::choice_of;
using ht::extent;

/// The choices at the time when the kernels were measured (bench/results/gpu_h200), in the letters of device_choices.hpp. Shapes:
/// batch, time, heads and head size.
constexpr const char* choices =
    R"(types pass     shape         sm_80    sm_86    sm_89    sm_90    sm_90a   sm_100   sm_120
bf16  forward  1x1024x12x64  m64      m64      m64      m64      w64.128  m64      m64
bf16  backward 1x1024x12x64  m64      m64      m64      m64      w64      m64      m64
bf16  forward  16x1024x32x64 m64      m64      m64      m64      w64.192  m64      m64
bf16  backward 16x1024x32x64 m64      m64      m64      m64      w64      m64      m64
bf16  forward  4x4096x32x64  m64      m64      m64      m64      w64.192  m64      m64
bf16  backward 4x4096x32x64  m64      m64      m64      m64      w64      m64      m64
bf16  forward  1x16384x16x128 m128     m128     m128     m128     w128.128 m128     m128
bf16  backward 1x16384x16x128 m128     m128     m128     m128     w128     m128     m128
bf16  forward  1x1024x12x32  m32      m32      m32      m32      w64.128  m32      m32
bf16  backward 1x1024x12x32  m32      m32      m32      m32      m32      m32      m32
bf16  forward  1x100x3x20    p64      p64      p64      p64      p64      p64      p64
bf16  backward 1x100x3x20    p64      p64      p64      p64      p64      p64      p64
bf16  forward  1x1x12x64     m64      m64      m64      m64      w64.128  m64      m64
bf16  backward 1x1x12x64     m64      m64      m64      m64      w64      m64      m64
bf16  forward  16x1024x21x96 m96      m96      m96      m96      w128.128 m96      m96
bf16  backward 16x1024x21x96 m96      m96      m96      m96      w128     m96      m96
bf16  forward  2x512x4x72    m96      m96      m96      m96      w128.128 m96      m96
bf16  backward 2x512x4x72    m96      m96      m96      m96      w128     m96      m96
bf16  forward  1x2048x8x160  m256L    m256     m256     m256L    m256L    m256L    m256
bf16  backward 1x2048x8x160  m256L    m256     m256     m256L    m256L    m256L    m256
bf16  forward  1x1024x8x256  m256L    m256     m256     m256L    m256L    m256L    m256
bf16  backward 1x1024x8x256  m256L    m256     m256     m256L    m256L    m256L    m256
bf16  forward  1x1024x4x512  s        s        s        s        s        s        s
bf16  backward 1x1024x4x512  s        s        s        s        s        s        s
bf16  forward  8x128x12x8    m32      m32      m32      m32      w64.128  m32      m32
bf16  backward 8x128x12x8    m32      m32      m32      m32      m32      m32      m32
tf32  forward  1x1024x12x64  m64      m64      m64      m64      m64      m64      m64
tf32  backward 1x1024x12x64  m64      m64      m64      m64      m64      m64      m64
tf32  forward  16x1024x32x64 m64      m64      m64      m64      m64      m64      m64
tf32  backward 16x1024x32x64 m64      m64      m64      m64      m64      m64      m64
tf32  forward  4x4096x32x64  m64      m64      m64      m64      m64      m64      m64
tf32  backward 4x4096x32x64  m64      m64      m64      m64      m64      m64      m64
tf32  forward  1x16384x16x128 m128     m128     m128     m128     m128     m128     m128
tf32  backward 1x16384x16x128 m128     m128     m128     m128     m128     m128     m128
tf32  forward  1x1024x12x32  m64      m64      m64      m64      m64      m64      m64
tf32  backward 1x1024x12x32  m64      m64      m64      m64      m64      m64      m64
tf32  forward  1x100x3x20    p64      p64      p64      p64      p64      p64      p64
tf32  backward 1x100x3x20    p64      p64      p64      p64      p64      p64      p64
tf32  forward  1x1x12x64     m64      m64      m64      m64      m64      m64      m64
tf32  backward 1x1x12x64     m64      m64      m64      m64      m64      m64      m64
tf32  forward  16x1024x21x96 m128     m128     m128     m128     m128     m128     m128
tf32  backward 16x1024x21x96 m128     m128     m128     m128     m128     m128     m128
tf32  forward  2x512x4x72    m128     m128     m128     m128     m128     m128     m128
tf32  backward 2x512x4x72    m128     m128     m128     m128     m128     m128     m128
tf32  forward  1x2048x8x160  m256L    m256     m256     m256L    m256L    m256L    m256
tf32  backward 1x2048x8x160  m256L    m256     m256     m256L    m256L    m256L    m256
tf32  forward  1x1024x8x256  m256L    m256     m256     m256L    m256L    m256L    m256
tf32  backward 1x1024x8x256  m256L    m256     m256     m256L    m256L    m256L    m256
tf32  forward  1x1024x4x512  s        s        s        s        s        s        s
tf32  backward 1x1024x4x512  s        s        s        s        s        s        s
tf32  forward  8x128x12x8    m64      m64      m64      m64      m64      m64      m64
tf32  backward 8x128x12x8    m64      m64      m64      m64      m64      m64      m64
fp32  forward  1x1024x12x64  p64      p64      p64      p64      p64      p64      p64
fp32  backward 1x1024x12x64  p64      p64      p64      p64      p64      p64      p64
fp32  forward  16x1024x32x64 p64      p64      p64      p64      p64      p64      p64
fp32  backward 16x1024x32x64 p64      p64      p64      p64      p64      p64      p64
fp32  forward  4x4096x32x64  p64      p64      p64      p64      p64      p64      p64
fp32  backward 4x4096x32x64  p64      p64      p64      p64      p64      p64      p64
fp32  forward  1x16384x16x128 p128     p128     p128     p128     p128     p128     p128
fp32  backward 1x16384x16x128 p128     p128     p128     p128     p128     p128     p128
fp32  forward  1x1024x12x32  p64      p64      p64      p64      p64      p64      p64
fp32  backward 1x1024x12x32  p64      p64      p64      p64      p64      p64      p64
fp32  forward  1x100x3x20    p64      p64      p64      p64      p64      p64      p64
fp32  backward 1x100x3x20    p64      p64      p64      p64      p64      p64      p64
fp32  forward  1x1x12x64     p64      p64      p64      p64      p64      p64      p64
fp32  backward 1x1x12x64     p64      p64      p64      p64      p64      p64      p64
fp32  forward  16x1024x21x96 p128     p128     p128     p128     p128     p128     p128
fp32  backward 16x1024x21x96 p128     p128     p128     p128     p128     p128     p128
fp32  forward  2x512x4x72    p128     p128     p128     p128     p128     p128     p128
fp32  backward 2x512x4x72    p128     p128     p128     p128     p128     p128     p128
fp32  forward  1x2048x8x160  p256     p256     p256     p256     p256     p256     p256
fp32  backward 1x2048x8x160  p256     p256     p256     p256     p256     p256     p256
fp32  forward  1x1024x8x256  p256     p256     p256     p256     p256     p256     p256
fp32  backward 1x1024x8x256  p256     p256     p256     p256     p256     p256     p256
fp32  forward  1x1024x4x512  s        s        s        s        s        s        s
fp32  backward 1x1024x4x512  s        s        s        s        s        s        s
fp32  forward  8x128x12x8    p64      p64      p64      p64      p64      p64      p64
fp32  backward 8x128x12x8    p64      p64      p64      p64      p64      p64      p64)";

attention_case case_of(const std::string& types, attention_pass pass, const std::string& shape, const std::string& on) {
    long long batch = 0, time = 0, heads = 0, size = 0;
    REQUIRE(std::sscanf(shape.c_str(), "%lldx%lldx%lldx%lld", &batch, &time, &heads, &size) == 4);
    for (const attention_types& t : named_attention_types) {
        if (t.name == types) return dense_case(batch, time, heads, size, t, *simt::target_named(on), pass);
    }
    FAIL("no types ", types);
    return {};
}

TEST_CASE("a GPU's choice for attention: every line of the table") {
    std::istringstream lines(choices);
    std::string types, pass, shape, name, line;
    std::getline(lines, line);
    std::istringstream head(line);
    head >> types >> pass >> shape;
    std::vector<std::string> devices;
    while (head >> name) devices.push_back(name);
    int count = 0;
    while (std::getline(lines, line)) {
        std::istringstream row(line);
        row >> types >> pass >> shape;
        for (const std::string& device : devices) {
            std::string expected;
            row >> expected;
            INFO(types, " ", pass, " ", shape, " ", device);
            const attention_pass which = pass == "forward" ? attention_pass::forward : attention_pass::backward;
            CHECK(choice_of(case_of(types, which, shape, device)) == expected);
            ++count;
        }
    }
    CHECK(count == 7 * 78);
}

/// What speaks against a family; an empty text: nothing.
std::string against(const attention_case& c, attention_family family) {
    const char* const why = plan_attention(c).families[static_cast<int>(family)].why_not;
    return why == nullptr ? std::string() : std::string(why);
}

TEST_CASE("a GPU's choice for attention: what speaks against warpgroups") {
    constexpr attention_case usual =
        dense_case(2, 1024, 12, 64, named_attention_types[0], *simt::target_named("sm_90a"), attention_pass::backward);
    static_assert(plan_attention(usual).best().family == attention_family::wgmma);
    const auto without = [&](const auto& change) {
        attention_case c = usual;
        change(c);
        return choice_of(c) + ": " + against(c, attention_family::wgmma);
    };
    CHECK(without([](attention_case& c) { c.has_wgmma = false; }) ==
          "m64: the GPU or the code for it is none of sm_90a");
    CHECK(without([](attention_case& c) { c.is_packed = true; }) == "m64: the sequences are packed");
    CHECK(without([](attention_case& c) { c.gpu.batch_invariant = true; }) == "m64: the context is batch-invariant");
    CHECK(without([](attention_case& c) { c.e.head_size = 60; }) == "p64: head_size is not a multiple of 8");
    CHECK(without([](attention_case& c) { c.e.head_size = 136; }) == "m256L: head_size is above 128");
    CHECK(without([](attention_case& c) { c.e.head_size = 24; }) ==
          "m32: head_size is at most 32: most of the products would be of zeros");
    CHECK(without([](attention_case& c) { c.e.queries = 0; }) == "m64: there are no queries or no keys");
    CHECK(without([](attention_case& c) { c.have_maps = false; }) ==
          "m64: some tensor's distances are not positive multiples of 16 bytes");
    CHECK(without([](attention_case& c) { c.e.batch = 1 << 30; }) == "m64: there are more than 2^30 tiles");
    CHECK(without([](attention_case& c) { c.has_functions = true; }) ==
          "p64: functions of the scores are computed by plain kernels");
    CHECK(without([](attention_case& c) { c.requested = ht::attention_strategy::math; }) ==
          "s: stored scores were requested");
}

TEST_CASE("a GPU's choice for attention: mma.sync needs aligned vectors, and queries in the backward pass") {
    attention_case c = dense_case(2, 1024, 12, 64, named_attention_types[0], *simt::target_named("sm_80"));
    c.are_chunks = false;
    CHECK(choice_of(c) == "p64");
    CHECK(against(c, attention_family::mma_sync) == "some head's vectors do not begin on a multiple of 16 bytes");
    c.are_chunks = true, c.e.heads = 0;
    CHECK(choice_of(c) == "m64");
    c.pass = attention_pass::backward;
    CHECK(choice_of(c) == "p64");
    c.requested = ht::attention_strategy::flash, c.e.head_size = 264;
    CHECK(choice_of(c) == "none");
    CHECK(against(c, attention_family::plain) == "flash kernels take a head_size of at most 256");
    CHECK(against(c, attention_family::stored_scores) == "flash was requested");
}

TEST_CASE("a GPU's choice for attention: tiles of 192 queries where each multiprocessor has four of them") {
    const auto with = [](extent batch) {
        attention_case c = dense_case(batch, 192, 1, 64, named_attention_types[0], *simt::target_named("sm_90a"));
        c.gpu.multiprocessors = 10;
        return choice_of(c);
    };
    CHECK(with(39) == "w64.128");
    CHECK(with(40) == "w64.192");
}

TEST_CASE("a GPU's choice for attention, in words") {
    CHECK(explain_plan(case_of("bf16", attention_pass::forward, "16x1024x32x64", "sm_90a")) ==
          "  family    wgmma\n"
          "  kernels   heads of up to 64, tiles of 192 queries\n"
          "  why       wgmma: applies\n");
    CHECK(explain_plan(case_of("tf32", attention_pass::backward, "1x100x3x512", "sm_80")) ==
          "  family    stored_scores\n"
          "  kernels   products and softmax, one head at a time\n"
          "  why       not wgmma: flash kernels take a head_size of at most 256\n"
          "            not mma_sync: flash kernels take a head_size of at most 256\n"
          "            not plain: flash kernels take a head_size of at most 256\n"
          "            stored_scores: applies\n");
    CHECK(explain_plan(case_of("bf16", attention_pass::forward, "1x100x3x200", "sm_80"))
              .find("up to 256, large tiles\n") != std::string::npos);
}

}  // namespace kernel_attention_device_plan_tests
