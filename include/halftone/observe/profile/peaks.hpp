// SPDX-License-Identifier: MIT
/// \file
/// A machine's peaks: the largest rates of arithmetic and of a copy of memory, which no operation can exceed. Measured in
/// about a second on all threads, or read from a file.
///
///     const ht::machine_peaks peaks = ht::measure_peaks(device);
///     std::cout << peaks.flops[static_cast<int>(ht::arithmetic::fp32)] / 1e9 << " GFLOP/s\n";
///
/// Arithmetic: multiply-adds from registers, two flops each. Random numbers, as kernels' operands are: with zeros a
/// processor runs at a higher clock than any product reaches (on a Xeon with AMX 5,500 to 7,400 GFLOP/s compared to 4,400
/// to 4,750 with random tiles). A type that the instruction set does not multiply has the rate of floats, to which its
/// operands are converted. Memory: bytes read and written by a copy. A program compiled without optimisation measures
/// peaks that are far too low.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/matmul/cpu/unit/choose.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/observe/profile/machine_peaks.hpp>

#define HALFTONE_BODY <halftone/observe/profile/peak.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

#if HALFTONE_AVX512_BF16
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
#endif

#if HALFTONE_AMX
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

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Random numbers around +1 and -1.
template <class T>
std::vector<T> peak_operands(std::size_t count, std::uint32_t stream) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        const float u = uniform(random_bits(1, static_cast<std::uint32_t>(i), stream, 0));
        values[i] = static_cast<T>(u < 0.5f ? -0.75f - u : 0.25f + u);
    }
    return values;
}

/// The least time of several runs of work(thread) on every thread at once.
template <class Work>
double least_seconds(cpu& device, double seconds, const Work& work) {
    using clock = std::chrono::steady_clock;
    const auto since = [](clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); };
    double least = 1e30;
    const auto first = clock::now();
    // Threads that have just started may share a core for some milliseconds.
    for (int i = 0; i < 5 || since(first) < seconds; ++i) {
        const auto begin = clock::now();
        device.parallel_for(device.threads(), [&](extent thread) { work(thread); });
        least = std::min(least, since(begin));
    }
    return least;
}

inline double peak_of_copies(cpu& device, double seconds, std::size_t copied) {
    const std::size_t each = copied / static_cast<std::size_t>(device.threads()) / 4096 * 4096;
    const std::size_t all = each * static_cast<std::size_t>(device.threads());
    const std::unique_ptr<std::byte[], void (*)(std::byte*)> memory(
        static_cast<std::byte*>(::operator new(2 * all, std::align_val_t{4096})),
        [](std::byte* p) { ::operator delete(p, std::align_val_t{4096}); });
    std::byte* const from = memory.get();
    std::byte* const to = from + all;
    device.parallel_for(device.threads(), [&](extent t) {
        const std::size_t at = each * static_cast<std::size_t>(t);
        std::memset(from + at, 1, each), std::memset(to + at, 2, each);
    });
    const auto copied_by = [&](auto copy) {
        return 2 * static_cast<double>(all) / least_seconds(device, seconds, [&](extent t) {
                   const std::size_t at = each * static_cast<std::size_t>(t);
                   copy(to + at, from + at, each);
               });
    };
    double peak = copied_by([](std::byte* a, const std::byte* b, std::size_t n) { std::memcpy(a, b, n); });
#if HALFTONE_AVX512_BF16
    if (device.instruction_set() >= isa::avx512_bf16)
        peak = std::max(peak, copied_by(&avx512_bf16::stream_copy));
#endif
    return peak;
}

}  // namespace detail

/// Measures the peaks of a CPU's threads and instruction set, in about `seconds`; copies so many bytes, which should be
/// more than the caches hold.
inline machine_peaks measure_peaks(cpu& device, double seconds = 0.8, std::size_t copied = std::size_t{128} << 20) {
    constexpr long count = 400000;
    const double threads = device.threads(), part = seconds / 4;
    std::vector<float> sink(static_cast<std::size_t>(device.threads()));
    const auto floats = detail::peak_operands<float>(8 * 16, 1);
    const auto multiply_add = device.select(HALFTONE_EACH_SET(multiply_add_peak));
    const double each = device.select(HALFTONE_EACH_SET(multiply_add_operations))();
    const double fp32 = threads * static_cast<double>(count) * each /
                        detail::least_seconds(device, part, [&](extent t) {
                            sink[static_cast<std::size_t>(t)] = multiply_add(count, floats.data());
                        });
    machine_peaks p;
    for (double& rate : p.flops) rate = fp32;
    p.flops[static_cast<int>(arithmetic::fp64)] = fp32 / 2;
    const auto pairs = detail::peak_operands<bfloat16>(4 * 16 * 32, 2);
    // The floating-point operations of all threads in a second, each of which executes `operations` in each turn of body(count, pairs).
    [[maybe_unused]] const auto rate = [&](double operations, auto body) {
        return threads * static_cast<double>(count) * operations / detail::least_seconds(device, part, [&](extent t) {
                   sink[static_cast<std::size_t>(t)] = body(count, pairs.data());
               });
    };
#if HALFTONE_AVX512_BF16
    if (device.instruction_set() == isa::avx512_bf16)
        p.flops[static_cast<int>(arithmetic::bf16)] = rate(24 * 64, &avx512_bf16::pair_peak);
#endif
#if HALFTONE_AMX
    if (device.instruction_set() == isa::amx)
        p.flops[static_cast<int>(arithmetic::bf16)] = rate(4 * 2 * 16 * 16 * 32, &amx::tile_peak);
#endif
    p.bytes = detail::peak_of_copies(device, part, copied);
    return p;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
