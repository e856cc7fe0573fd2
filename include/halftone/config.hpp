// SPDX-License-Identifier: MIT
/// \file
/// What every other header includes: the check for C++20, the macros for functions that also run on a GPU, and the
/// name of
/// the inline namespace.
///
///     namespace halftone {                 // every header opens the two namespaces one by one, so that ctags sees
///     them
///     inline namespace HALFTONE_ABI {
///
/// The inline namespace's name holds the version and every compiler flag that changes results or code (-ffast-math,
/// HALFTONE_NO_RANGES), so that two
/// libraries built with different flags or versions can be linked into one program without sharing a symbol.
#pragma once

#include <halftone/version.hpp>

#if defined(_MSVC_LANG)
static_assert(_MSVC_LANG >= 202002L, "halftone: needs C++20; compile with /std:c++20");
#elif !defined(__cplusplus) || __cplusplus < 202002L
#error "halftone: needs C++20; compile with -std=c++20"
#endif

#if defined(__FAST_MATH__) && defined(HALFTONE_NO_RANGES)
#define HALFTONE_ABI v0_1_0_fast_math_no_ranges
#elif defined(__FAST_MATH__)
#define HALFTONE_ABI v0_1_0_fast_math
#elif defined(HALFTONE_NO_RANGES)
#define HALFTONE_ABI v0_1_0_no_ranges
#else
#define HALFTONE_ABI v0_1_0
#endif

// The library halftone::compiled is built without these flags, by compilers that know `extern template`. With any other compiler or flags every template is compiled where it is used.
#if defined(__FAST_MATH__) || defined(HALFTONE_NO_RANGES) || defined(_MSC_VER) || !defined(__GNUC__)
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
