// SPDX-License-Identifier: MIT
/// \file
/// What every other header includes: the check for C++20, the instruction sets of CPU kernels, the macros for functions that
/// also run on a GPU, and the name of the inline namespace.
///
///     namespace halftone {                 // every header opens the two namespaces one by one, so that ctags sees them
///     inline namespace HALFTONE_ABI {
///
/// The inline namespace's name holds the version and every flag that changes results or code (-ffast-math,
/// HALFTONE_NO_RANGES, HALFTONE_ONE_SET and its set), so that two libraries built with different flags or versions can be
/// linked into one program without sharing a symbol.
#pragma once

#include <halftone/version.hpp>

#if defined(_MSVC_LANG)
static_assert(_MSVC_LANG >= 202002L, "halftone: needs C++20; compile with /std:c++20");
#elif !defined(__cplusplus) || __cplusplus < 202002L
#error "halftone: needs C++20; compile with -std=c++20"
#endif

// Which sets of exec/cpu/isa.hpp kernels are compiled for, 1 or 0 each. On x86-64 these are all: a program chooses among them where
// it runs. HALFTONE_ONE_SET leaves the best one that the compiler's flags allow, and its matrix units: it compiles in less time, and
// runs on such processors alone.
#if !defined(__x86_64__)
#define HALFTONE_PORTABLE 1
#define HALFTONE_AVX2 0
#define HALFTONE_AVX512 0
#define HALFTONE_AVX512_BF16 0
#define HALFTONE_AMX 0
#define HALFTONE_ABI_SET
#elif !defined(HALFTONE_ONE_SET)
#define HALFTONE_PORTABLE 1
#define HALFTONE_AVX2 1
#define HALFTONE_AVX512 1
#define HALFTONE_AVX512_BF16 1
#define HALFTONE_AMX 1
#define HALFTONE_ABI_SET
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HALFTONE_PORTABLE 0
#define HALFTONE_AVX2 0
#define HALFTONE_AVX512 1
#if !defined(__AVX512BF16__)
#define HALFTONE_AVX512_BF16 0
#define HALFTONE_AMX 0
#define HALFTONE_ABI_SET _avx512
#elif !defined(__AMX_BF16__)
#define HALFTONE_AVX512_BF16 1
#define HALFTONE_AMX 0
#define HALFTONE_ABI_SET _avx512_bf16
#else
#define HALFTONE_AVX512_BF16 1
#define HALFTONE_AMX 1
#define HALFTONE_ABI_SET _amx
#endif
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HALFTONE_PORTABLE 0
#define HALFTONE_AVX2 1
#define HALFTONE_AVX512 0
#define HALFTONE_AVX512_BF16 0
#define HALFTONE_AMX 0
#define HALFTONE_ABI_SET _avx2
#else
#error "halftone: HALFTONE_ONE_SET takes the instruction set of the compiler's flags: give -march=native, or -march=x86-64-v3 or later"
#endif

#if defined(__FAST_MATH__) && defined(HALFTONE_NO_RANGES)
#define HALFTONE_ABI_FLAGS _fast_math_no_ranges
#elif defined(__FAST_MATH__)
#define HALFTONE_ABI_FLAGS _fast_math
#elif defined(HALFTONE_NO_RANGES)
#define HALFTONE_ABI_FLAGS _no_ranges
#else
#define HALFTONE_ABI_FLAGS
#endif
#define HALFTONE_JOINED(version, flags, set) version##flags##set
#define HALFTONE_JOIN(version, flags, set) HALFTONE_JOINED(version, flags, set)
#define HALFTONE_ABI HALFTONE_JOIN(v0_1_0, HALFTONE_ABI_FLAGS, HALFTONE_ABI_SET)

// The library halftone::compiled is built without these flags, by compilers that know `extern template`. With any other compiler or flags every template is compiled where it is used.
#if defined(__FAST_MATH__) || defined(HALFTONE_NO_RANGES) || defined(HALFTONE_ONE_SET) || defined(_MSC_VER) || !defined(__GNUC__)
#undef HALFTONE_COMPILED
#endif

// Longer functions that are no templates have their bodies in NAME.body.hpp, which NAME.hpp includes at its end where HALFTONE_OUT_OF_LINE is
// defined. It stands before each body. Without the library a body is inline; with it only src/functions.cpp reads them, which makes them
// the library's, and saves other sources 20 to 37% of their time. There they are inline, too, so that a program in which one source has
// HALFTONE_COMPILED and another has not may be linked: on Windows an inline definition beside one that is not is an error.
#if !defined(HALFTONE_COMPILED)
#define HALFTONE_OUT_OF_LINE inline
#elif defined(HALFTONE_COMPILED_FUNCTIONS)
#define HALFTONE_OUT_OF_LINE inline __attribute__((used))
#endif

/// Marks a function that runs on the host and on the device.
#if defined(__CUDACC__)
#define HALFTONE_HD __host__ __device__
#else
#define HALFTONE_HD
#endif

/// Always inlined, whatever the optimiser's cost model says: for building blocks of kernels. Without optimisation they are functions
/// like any others: kernels of one's own then take half the time to compile. nvcc optimises device code whatever the host's level is.
#if defined(__GNUC__) && (defined(__OPTIMIZE__) || defined(__CUDACC__))
#define HALFTONE_INLINE inline __attribute__((always_inline))
#else
#define HALFTONE_INLINE inline
#endif

/// The namespace of the instruction set that a SIMD body is being compiled for (see exec/cpu/each_set.hpp). Outside
/// of such a body it is `portable`, the set that every processor has.
#define HALFTONE_SET portable
