// SPDX-License-Identifier: MIT
/// \file
/// The instruction sets that CPU kernels are compiled for, and the choice among them at run time.
///
/// One binary, built without any -m flag, contains every kernel once for each set of its processor family. A context
/// (`cpu`) chooses a set when it is made; the context's option or the environment variable HALFTONE_ISA overrides the
/// choice:
///
///     HALFTONE_ISA=avx2 ./train_gpt          // every kernel as on a processor without AVX-512
///
/// With HALFTONE_ONE_SET a binary contains one set, that of the compiler's flags (`g++ -march=native -DHALFTONE_ONE_SET`), and
/// its matrix units: it compiles in less time, and runs on such processors alone.
///
/// Sets are ordered: a processor that supports one supports all before it.
#pragma once

#include <cstdlib>
#include <cstring>

#include <halftone/error.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// An instruction set for CPU kernels.
enum class isa {
    portable,     ///< the compiler's baseline: SSE2 on x86-64, NEON on aarch64
    avx2,         ///< AVX2, FMA, F16C
    avx512,       ///< AVX-512 F, BW, DQ, VL
    avx512_bf16,  ///< avx512, and VDPBF16PS for bfloat16 products
    amx,          ///< avx512_bf16, and AMX tiles for bfloat16 products
};

/// All instruction sets, in ascending order.
inline constexpr isa every_isa[] = {isa::portable, isa::avx2, isa::avx512, isa::avx512_bf16, isa::amx};

/// The name of the set, as HALFTONE_ISA takes it.
constexpr const char* name(isa set) {
    constexpr const char* names[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx"};
    return names[static_cast<int>(set)];
}

/// Whether this program has kernels for the set: for all, or with HALFTONE_ONE_SET for one, and its matrix units.
constexpr bool has_kernels(isa set) {
    constexpr bool sets[] = {HALFTONE_PORTABLE, HALFTONE_AVX2, HALFTONE_AVX512, HALFTONE_AVX512_BF16, HALFTONE_AMX};
    return sets[static_cast<int>(set)];
}

/// The set of that name. Throws argument_error for any other text.
isa parse_isa(const char* text);

namespace detail {

struct processor {
    isa best = isa::portable;        ///< the highest set that this processor can execute
    isa preferred = isa::portable;   ///< the fastest set on this processor
};

#if defined(__x86_64__)

inline unsigned long long enabled_states() {
    unsigned low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<unsigned long long>(high) << 32) | low;
}

/// Linux enables the tile registers for a process on request; a repeated request changes nothing.
inline bool request_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
    constexpr long request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

inline processor inspect_processor() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const auto has = [](unsigned word, int bit) { return (word >> bit & 1u) != 0; };

    if (!__get_cpuid(0, &a, &b, &c, &d)) return {};
    const bool is_intel = b == signature_INTEL_ebx;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return {};
    const bool os_saves_vectors = has(c, 27);
    const bool fma = has(c, 12), f16c = has(c, 29);
    if (!os_saves_vectors || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
    const unsigned long long states = enabled_states();
    const auto saves = [states](unsigned long long mask) { return (states & mask) == mask; };

    if (!(has(b, 5) && fma && f16c && saves(0x6))) return {};
    if (!(has(b, 16) && has(b, 17) && has(b, 30) && has(b, 31) && saves(0xe6))) return {isa::avx2, isa::avx2};
    const bool tiles = has(d, 22) && has(d, 24);
    unsigned a1 = 0, b1 = 0, c1 = 0, d1 = 0;
    if (!__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1) || !has(a1, 5)) return {isa::avx512, isa::avx512};
    if (tiles && saves(0x60000) && request_tiles()) return {isa::amx, isa::amx};
    // Intel's VDPBF16PS runs at half the rate of two fp32 multiply-adds, AMD's at twice that rate.
    return {isa::avx512_bf16, is_intel ? isa::avx512 : isa::avx512_bf16};
}

#else

inline processor inspect_processor() { return {}; }

#endif

}  // namespace detail

/// Whether this program has the set, and this processor and its operating system can execute it.
inline bool supports(isa set) { return has_kernels(set) && set <= detail::inspect_processor().best; }

/// The set of a context whose options name none: that of HALFTONE_ISA if it is set, otherwise the fastest one here.
/// Throws argument_error if the variable names an unknown set, or one that this program or this processor lacks, and where
/// this processor has none of the program's sets.
isa default_isa();

namespace detail {

/// Throws argument_error, with a sentence that begins with `subject`, unless supports(set).
void check_isa(const char* subject, isa set);

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/isa.body.hpp>
#endif
