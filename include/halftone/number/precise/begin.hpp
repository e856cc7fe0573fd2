// SPDX-License-Identifier: MIT
/// \file
/// From here to precise/end.hpp a program that is compiled with -ffast-math, or with some of what that stands for, has sums,
/// differences, quotients and comparisons as they are written: log1p is made of (1 + x) - 1, which is not x, and a NaN has
/// to come out. Without such an option nothing changes. clang tells of -ffast-math alone, and the vector functions that come
/// with it keep that option: hence the operators of the compiler's vector types in exec/cpu/simd/.
// Without a guard: it begins a region each time that it is included.

#if defined(__FAST_MATH__) || __FINITE_MATH_ONLY__ || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    defined(__NO_SIGNED_ZEROS__)
#if defined(__clang__)
#pragma float_control(push)
#pragma float_control(precise, on)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("no-fast-math", "no-unsafe-math-optimizations", "no-associative-math", "no-reciprocal-math")
#pragma GCC optimize("no-finite-math-only", "signed-zeros", "trapping-math")
#endif
#endif
