// SPDX-License-Identifier: MIT
/// \file
/// Compiles a SIMD body for each instruction set: includes the file that HALFTONE_BODY names once for each, with the
/// compiler allowed to use the set. Whoever wants a body includes first what the body includes, then
///
///     #define HALFTONE_BODY <halftone/kernel/sum/cpu.simd.hpp>
///     #include <halftone/exec/cpu/each_set.hpp>
///
/// and has portable::sum_piece, avx2::sum_piece and avx512::sum_piece, one of which `cpu::select` chooses for the processor:
///
///     const auto body = device.select(&portable::sum_piece<E, X>, &avx2::sum_piece<E, X>, &avx512::sum_piece<E, X>);
///
/// A body is a header named *.simd.hpp. kernel/sum/cpu.simd.hpp is a small one to copy:
///
///     #include <halftone/exec/cpu/simd.hpp>                          // what it uses, as in any header
///
///     namespace halftone {
///     inline namespace HALFTONE_ABI {
///     namespace HALFTONE_SET {                                       // portable, avx2 or avx512
///
///     inline void twice(const float* x, float* y, extent n) { ... }  // by f32, the set's vector
///
///     }  // namespace HALFTONE_SET
///     }  // namespace HALFTONE_ABI
///     }  // namespace halftone
///
/// It has no #pragma once, since it is included once for each set. Opened alone, in an editor say, it is a header for
/// `portable`, which HALFTONE_SET names outside of the regions that the files of set/ begin and end.
///
/// - What a body includes, whoever names it has included before. Included for the first time in the region of a set, another
///   header would be compiled for that set, and its inline functions would run on processors that lack it.
///   tests/headers/floors.sh and regions.sh see to it.
/// - So a body does not include the header that names it. What both use, a struct of arguments say, stands in a third.
/// - Code outside the regions calls a body's function through the pointer that `cpu::select` returns, never by its name.
/// - An OpenMP or other outlined region inside a body would lose the set, so bodies are serial; threads come from outside.
/// - What is for one set alone is a header as any other, with a region inside (kernel/matmul/cpu/unit/bf16.hpp).

#if !defined(HALFTONE_BODY)
#error "halftone: each_set.hpp: define HALFTONE_BODY as the file to include for each instruction set"
#else

#include <halftone/exec/cpu/set/portable.hpp>
#include HALFTONE_BODY
#include <halftone/exec/cpu/set/end.hpp>

#if defined(__x86_64__)
#include <halftone/exec/cpu/set/avx2.hpp>
#include HALFTONE_BODY
#include <halftone/exec/cpu/set/end.hpp>
// In this order: the end of a region and the beginning of another.
#include <halftone/exec/cpu/set/avx512.hpp>
#include HALFTONE_BODY
#include <halftone/exec/cpu/set/end.hpp>
#endif

#undef HALFTONE_BODY
#endif
