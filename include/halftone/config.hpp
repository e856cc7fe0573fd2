// SPDX-License-Identifier: MIT
/// \file
/// What every other header stands on: the dialect check, the marks for code that also runs on a GPU, and the name of
/// the inline namespace.
///
///     namespace halftone {                 // how every header opens: one by one, for tools that know no more
///     inline namespace HALFTONE_ABI {
///
/// The inline namespace carries the whole version and each compiler flag that changes what the code below computes, so that
/// two libraries built with other flags or another version live in one program without sharing a symbol.
#pragma once

#include <halftone/version.hpp>

#if defined(_MSVC_LANG)
static_assert(_MSVC_LANG >= 202002L, "halftone: needs C++20; compile with /std:c++20");
#elif !defined(__cplusplus) || __cplusplus < 202002L
#error "halftone: needs C++20; compile with -std=c++20"
#endif

#if defined(__FAST_MATH__)
#define HALFTONE_ABI v0_1_0_fast_math
#else
#define HALFTONE_ABI v0_1_0
#endif

// halftone::compiled is built without these, and for compilers that know `extern template` and `#pragma interface`: elsewhere
// everything is compiled where it is used.
#if defined(__FAST_MATH__) || defined(_MSC_VER) || !defined(__GNUC__)
#undef HALFTONE_COMPILED
#endif

/// Marks a function that runs on the host and on the device.
#if defined(__CUDACC__)
#define HALFTONE_HD __host__ __device__
#else
#define HALFTONE_HD
#endif

/// Inlined into its caller whatever the optimiser thinks: kernel building blocks, whose caller's instruction set they
/// take.
#if defined(__GNUC__)
#define HALFTONE_INLINE inline __attribute__((always_inline))
#else
#define HALFTONE_INLINE inline
#endif

/// The namespace of the instruction set that a SIMD body is compiled for (exec/cpu/each_set.hpp): of one that is opened alone,
/// and everywhere else, the one that every processor has.
#define HALFTONE_SET portable
