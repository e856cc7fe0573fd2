// SPDX-License-Identifier: MIT
/// \file
/// Conversions in a program that has set denormals-are-zero and flush-to-zero, like one that is linked with -ffast-math: they have
/// the same bits as in any other program, for every bit pattern of 16 and 8 bits, and for floats from the smallest subnormal on.
#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/number/bits.hpp>

#include "support/each_set.hpp"

#if defined(__x86_64__)

namespace kernel_convert_flushed_tests {

namespace ht = halftone;

/// Sets the processor's mode for subnormal numbers, and restores it at the end of the scope.
class flushing {
  public:
    flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
    flushing(const flushing&) = delete;
    flushing& operator=(const flushing&) = delete;
    ~flushing() { _mm_setcsr(before_); }

  private:
    unsigned before_;
};

template <class X, class Y>
void check(ht::cpu& device, const std::vector<X>& x) {
    // The conversion of Y is integer arithmetic; that of X to float is exact.
    const auto n = static_cast<ht::extent>(x.size());
    std::vector<Y> usual(x.size()), flushed(x.size()), saturated(x.size()), flushed_saturated(x.size());
    const ht::const_view<X, 1> from(x.data(), {n});
    using to = ht::view<Y, 1>;
    ht::kernel::convert<ht::cpu>::run(device, from, to(usual.data(), {n}));
    ht::kernel::convert<ht::cpu>::saturate(device, from, to(saturated.data(), {n}));
    {
        const flushing mode;
        ht::kernel::convert<ht::cpu>::run(device, from, to(flushed.data(), {n}));
        ht::kernel::convert<ht::cpu>::saturate(device, from, to(flushed_saturated.data(), {n}));
    }
    int wrong = 0, differ = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const Y expected(static_cast<float>(x[i]));
        const bool is_nan = static_cast<float>(x[i]) != static_cast<float>(x[i]);
        wrong += !is_nan && std::memcmp(&usual[i], &expected, sizeof expected) != 0 ? 1 : 0;
    }
    differ += std::memcmp(usual.data(), flushed.data(), usual.size() * sizeof(Y)) != 0 ? 1 : 0;
    differ += std::memcmp(saturated.data(), flushed_saturated.data(), usual.size() * sizeof(Y)) != 0 ? 2 : 0;
    CHECK(wrong == 0);
    CHECK(differ == 0);
}

template <class T>
std::vector<T> all_patterns(std::uint32_t count) {
    std::vector<T> all;
    for (std::uint32_t bits = 0; bits < count; ++bits)
        all.push_back(T::from_bits(static_cast<decltype(T().bits())>(bits)));
    return all;
}

TEST_CASE("conversions keep subnormal numbers on a processor that is set to flush them") {
    std::vector<float> floats;
    for (std::uint32_t bits = 0; bits < 0x01000000; bits += 997) {
        floats.push_back(ht::bit_cast<float>(bits));
        floats.push_back(ht::bit_cast<float>(bits | 0x80000000u));
    }
    for (std::uint32_t bits = 0x32000000; bits < 0x39000000; bits += 9973)
        floats.push_back(ht::bit_cast<float>(bits));
    // Also arrays that are shorter than a pair of vectors.
    const std::vector<float> few(floats.begin(), floats.begin() + 21);
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        check<float, ht::bfloat16>(device, floats);
        check<float, ht::bfloat16>(device, few);
        check<float, ht::float16>(device, floats);
        check<float, ht::float8_e5m2>(device, floats);
        check<float, ht::float8_e4m3>(device, floats);
        check<float, float>(device, floats);
        check<ht::bfloat16, float>(device, all_patterns<ht::bfloat16>(0x10000));
        check<ht::bfloat16, ht::bfloat16>(device, all_patterns<ht::bfloat16>(0x10000));
        check<ht::float16, float>(device, all_patterns<ht::float16>(0x10000));
        check<ht::float16, ht::bfloat16>(device, all_patterns<ht::float16>(0x10000));
        check<ht::float8_e5m2, float>(device, all_patterns<ht::float8_e5m2>(0x100));
        check<ht::float8_e4m3, ht::float16>(device, all_patterns<ht::float8_e4m3>(0x100));
    });
}

}  // namespace kernel_convert_flushed_tests

#endif
