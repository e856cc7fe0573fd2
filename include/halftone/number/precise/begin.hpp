// SPDX-License-Identifier: MIT
/// \file
/// Between this header and precise/end.hpp floating-point operations are evaluated as written, even in a program compiled
/// with -ffast-math or one of its parts. log1p needs this, because it contains (1 + x) - 1, which must not be simplified to
/// x; and so do NaNs that must propagate. Without such flags the header changes nothing. clang has a macro for -ffast-math
/// only, not for its parts, and intrinsics inlined from clang's own headers keep the flags: therefore exec/cpu/simd/ uses
/// the operators of the compiler's vector types instead of arithmetic intrinsics.
// No include guard: every inclusion begins a region.

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
