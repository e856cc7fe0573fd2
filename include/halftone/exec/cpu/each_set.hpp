// SPDX-License-Identifier: MIT
/// \file
/// Compiles a SIMD body for each instruction set: includes the file that HALFTONE_BODY names once for each, with the
/// compiler allowed to use the set.
///
///     #include <halftone/kernel/map/evaluate.hpp>                    // first all that the body includes, then
///     #define HALFTONE_BODY <halftone/kernel/sum/cpu.simd.hpp>
///     #include <halftone/exec/cpu/each_set.hpp>                      // portable::sum_piece, avx2::sum_piece, avx512::sum_piece
///
/// A body is a header named *.simd.hpp; kernel/sum/cpu.simd.hpp is a small one to copy:
///
///     #include <halftone/exec/cpu/simd.hpp>                          // all that it uses, as in any header
///
///     namespace halftone {
///     inline namespace HALFTONE_ABI {
///     namespace HALFTONE_SET {                                       // avx2, say
///
///     inline void twice(const float* x, float* y, extent n) { ... }  // on f32, whose lanes are the set's
///
///     }  // namespace HALFTONE_SET
///     }  // namespace HALFTONE_ABI
///     }  // namespace halftone
///
/// It has no #pragma once, for it is included once for each set, and is the only kind of header without. Opened alone, by
/// an editor say, it is a header for `portable`: that is what HALFTONE_SET names outside of the regions of set/.
///
/// - Whoever names a body has included before what the body includes: in a region of a set a header of the standard
///   library, or one of halftone, would be compiled for the set, and its inline functions would run on processors without
///   it. tests/headers/regions.sh and the floors test see to it. So a body does not include who names it either, and what
///   both use (a struct of arguments) stands in a header that both include.
/// - Code outside these regions does not call a body's function directly, but through the pointer that `cpu::select` returns.
/// - An OpenMP or other outlined region inside a body would lose the set, so bodies are serial; threads come from outside.
/// - What is for one set alone is no body but a header as any other, with its region within (kernel/matmul/cpu/bf16.hpp).

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

#include <halftone/exec/cpu/set/avx512.hpp>
#include HALFTONE_BODY
#include <halftone/exec/cpu/set/end.hpp>
#endif

#undef HALFTONE_BODY
#endif
