// SPDX-License-Identifier: MIT
/// \file
/// Compiles a SIMD body once for each instruction set: includes the file that HALFTONE_BODY names once a set, with the
/// compiler's target set to it. A header that wants a body first includes what the body includes, and then
///
///     #define HALFTONE_BODY <halftone/kernel/sum/cpu.simd.hpp>
///     #include <halftone/exec/cpu/each_set.hpp>
///
/// It then has portable::sum_piece, avx2::sum_piece and avx512::sum_piece; `cpu::select` chooses one for the processor:
///
///     const auto body = device.select(HALFTONE_EACH_SET(sum_piece<E, X>));
///
/// A body is a header named *.simd.hpp, such as kernel/sum/cpu.simd.hpp, a short one:
///
///     #include <halftone/exec/cpu/simd.hpp>                          // what it uses, as in any header
///
///     namespace halftone {
///     inline namespace HALFTONE_ABI {
///     namespace HALFTONE_SET {                                       // portable, avx2 or avx512
///
///     inline void twice(const float* x, float* y, extent n) { ... }  // uses f32, the set's vector of floats
///
///     }  // namespace HALFTONE_SET
///     }  // namespace HALFTONE_ABI
///     }  // namespace halftone
///
/// It has no #pragma once, since it is included once a set. Opened alone, in an editor say, it is compiled as a header
/// for `portable`, the value of HALFTONE_SET outside of the regions between set/*.hpp and set/end.hpp.
///
/// - Everything that a body includes must have been included before. A header included for the first time inside the
///   region of a set would be compiled for that set, and its inline functions would then run on processors that lack the
///   set. tests/headers/floors.sh and tests/headers/regions.sh check this.
/// - A body does not include the header that names it. What both need, such as a struct of arguments, is in a third
///   header.
/// - Code outside of the regions calls a body's function through the pointer from `cpu::select`, never by its name.
/// - An OpenMP or otherwise outlined region inside a body would lose the target, so bodies are serial; threads come from
///   outside.
/// - Code for one set alone is an ordinary header with a region inside (kernel/matmul/cpu/unit/bf16.hpp).

#include <halftone/config.hpp>

#if !defined(HALFTONE_BODY)
#error "halftone: each_set.hpp: define HALFTONE_BODY as the file to include for each instruction set"
#else

// The order matters: each of these files ends a region or begins the next.
#if HALFTONE_PORTABLE
#include <halftone/exec/cpu/set/portable.hpp>
#include HALFTONE_BODY
#include <halftone/exec/cpu/set/end.hpp>
#endif
#if HALFTONE_AVX2
#include <halftone/exec/cpu/set/avx2.hpp>
#include HALFTONE_BODY
#include <halftone/exec/cpu/set/end.hpp>
#endif
#if HALFTONE_AVX512
#include <halftone/exec/cpu/set/avx512.hpp>
#include HALFTONE_BODY
#include <halftone/exec/cpu/set/end.hpp>
#endif

#undef HALFTONE_BODY
#endif
