// SPDX-License-Identifier: MIT
/// \file
/// The machine's peaks on all threads, measured in this run: multiply-adds from registers, and a copy of memory. With
/// random numbers, as the kernels' operands are: with zeros a processor runs at a higher clock than any product reaches
/// (on a Xeon with AMX 5,500 to 7,400 GFLOP/s from registers, compared to 4,400 to 4,750 with random tiles).
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>

#include <support/protocol.hpp>
#include <support/random.hpp>

#include <halftone/kernel/matmul/cpu/unit/choose.hpp>

#define HALFTONE_BODY <support/peak.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

#if defined(__x86_64__)
#include <halftone/exec/cpu/set/avx512_bf16.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace avx512_bf16 {
/// `random`: eight vectors of numbers around one, as for multiply_add_peak.
inline float pair_peak(long count, const bfloat16* random) {
    constexpr int factors = 4;
    __m512 sums[24];
    __m512i a[factors], b[factors];
#pragma GCC unroll 4
    for (int i = 0; i < factors; ++i) {
        a[i] = _mm512_loadu_si512(random + i * 32);
        b[i] = _mm512_loadu_si512(random + (i + factors) * 32);
        __asm__ volatile("" : "+v"(a[i]), "+v"(b[i]));
    }
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) sums[i] = _mm512_setzero_ps();
    for (long n = 0; n < count; ++n) {
#pragma GCC unroll 24
        for (int i = 0; i < 24; ++i)
            sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)a[i % factors], (__m512bh)b[(i + i / factors) % factors]);
#pragma GCC unroll 24
        for (int i = 0; i < 24; ++i) __asm__ volatile("" : "+v"(sums[i]));
    }
    __m512 all = sums[0];
#pragma GCC unroll 24
    for (int i = 1; i < 24; ++i) all = _mm512_add_ps(all, sums[i]);
    return _mm512_cvtss_f32(all);
}
/// Copies with non-temporal stores; n is a multiple of 64 and both addresses are aligned to cache lines.
inline void stream_copy(std::byte* to, const std::byte* from, std::size_t n) {
    for (std::size_t i = 0; i < n; i += 64) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i),
                            _mm512_load_si512(reinterpret_cast<const __m512i*>(from + i)));
    }
    _mm_sfence();
}
}  // namespace avx512_bf16
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>

// The order of these two inclusions matters.
#include <halftone/exec/cpu/set/amx.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace amx {
/// `random`: four tiles of 16 x 32 numbers around one, as for multiply_add_peak.
inline float tile_peak(long count, const bfloat16* random) {
    enter_tiles();
    complete_stores();
    load_tile<4>(random, 64);
    load_tile<5>(random + 512, 64);
    load_tile<6>(random + 1024, 64);
    load_tile<7>(random + 1536, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (long n = 0; n < count; ++n) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    alignas(64) float sums[256];
    store_tile<0>(sums, 64);
    leave_tiles();
    return sums[0];
}
}  // namespace amx
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif

namespace bench {

/// The rates of the whole device, each the best of several tries.
struct peaks {
    double fp32 = 0;        ///< operations a second in multiply-adds of floats, 2 operations each
    double bf16 = 0;        ///< the same for pairs of bfloat16 or tiles; for floats if the set has neither
    double copy_bytes = 0;  ///< bytes read and written a second
};

namespace detail {

/// The least time of several runs of work(thread) on every thread at once.
template <class Work>
double least_seconds(halftone::cpu& device, int tries, const Work& work) {
    double least = 1e30;
    const auto first = std::chrono::steady_clock::now();
    // Threads that have just started may share a core for some milliseconds.
    for (int i = 0; i < tries || seconds_since(first) < 0.2; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        device.parallel_for(device.threads(), [&](halftone::extent thread) { work(thread); });
        least = std::min(least, seconds_since(begin));
    }
    return least;
}

}  // namespace detail

inline peaks measure_peaks(halftone::cpu& device) {
    using halftone::isa;
    peaks p;
    const double threads = device.threads();
    const long count = 400000;
    float sink[256] = {};
    const auto floats = random_values<float>(4 * 2 * 16, 1);
    const auto pairs = random_values<halftone::bfloat16>(4 * 16 * 32, 2);
    const auto multiply_add = device.select(&halftone::portable::multiply_add_peak, &halftone::avx2::multiply_add_peak,
                                            &halftone::avx512::multiply_add_peak);
    const double operations =
        device.select(&halftone::portable::multiply_add_operations, &halftone::avx2::multiply_add_operations,
                      &halftone::avx512::multiply_add_operations)();
    p.fp32 = threads * static_cast<double>(count) * operations /
             detail::least_seconds(device, 20,
                                   [&](halftone::extent t) { sink[t % 256] = multiply_add(count, floats.data()); });
    p.bf16 = p.fp32;
#if defined(__x86_64__)
    if (device.instruction_set() == isa::amx) {
        p.bf16 = threads * static_cast<double>(count) * 4 * 2 * 16 * 16 * 32 /
                 detail::least_seconds(device, 20, [&](halftone::extent t) {
                     sink[t % 256] = halftone::amx::tile_peak(count, pairs.data());
                 });
    } else if (device.instruction_set() >= isa::avx512_bf16) {
        p.bf16 =
            threads * static_cast<double>(count) * 24 * 64 / detail::least_seconds(device, 20, [&](halftone::extent t) {
                sink[t % 256] = halftone::avx512_bf16::pair_peak(count, pairs.data());
            });
    }
#endif
    const std::size_t each = (std::size_t{256} << 20) / static_cast<std::size_t>(device.threads()) / 4096 * 4096;
    const std::size_t all = each * static_cast<std::size_t>(device.threads());
    const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, 2 * all), &std::free);
    auto* const from = static_cast<std::byte*>(memory.get());
    auto* const to = from + all;
    const auto copy_by = [&](auto copy) {
        return 2 * static_cast<double>(each) * threads / detail::least_seconds(device, 9, [&](halftone::extent t) {
                   const auto at = each * static_cast<std::size_t>(t);
                   copy(to + at, from + at, each);
               });
    };
    detail::least_seconds(device, 1, [&](halftone::extent t) {
        auto* const own = from + each * static_cast<std::size_t>(t);
        const std::size_t some = pairs.size() * sizeof pairs[0];  // 4096, which divides each
        for (std::size_t i = 0; i < each; i += some) std::memcpy(own + i, pairs.data(), some);
    });
    p.copy_bytes = copy_by([](std::byte* a, const std::byte* b, std::size_t n) { std::memcpy(a, b, n); });
#if defined(__x86_64__)
    if (device.instruction_set() >= isa::avx512_bf16)
        p.copy_bytes = std::max(p.copy_bytes, copy_by(&halftone::avx512_bf16::stream_copy));
#endif
    return p;
}

/// Measures the peaks and reports them.
inline peaks measure_peaks(halftone::cpu& device, report& to) {
    const peaks p = measure_peaks(device);
    to.machine_figure("peak_fp32_flops", p.fp32, 1e9, "GFLOP/s from registers");
    to.machine_figure("peak_bf16_flops", p.bf16, 1e9, "GFLOP/s from registers");
    to.machine_figure("copy_bytes_per_second", p.copy_bytes, 1e9, "GB/s, read and written");
    return p;
}

}  // namespace bench
