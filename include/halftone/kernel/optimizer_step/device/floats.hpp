// SPDX-License-Identifier: MIT
/// \file
/// The rules' arithmetic on single numbers: on floats for GPU threads, and on doubles for parameters that float does not hold
/// (wide_number in number/traits.hpp). The functions have the names of those on the CPU's vectors (exec/cpu/simd.hpp), so that a
/// rule is written once.
///
///     w = on_device::floats::updated_by_rule(scalars, w, g, moments, keeps);
#pragma once

#include <cmath>

#include <halftone/config.hpp>
#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

namespace floats {

HALFTONE_HD HALFTONE_INLINE float splat(float x) { return x; }
HALFTONE_HD HALFTONE_INLINE float fma(float a, float b, float c) { return std::fma(a, b, c); }
HALFTONE_HD HALFTONE_INLINE float sqrt(float a) { return std::sqrt(a); }
HALFTONE_HD HALFTONE_INLINE bool less(float a, float b) { return a < b; }
HALFTONE_HD HALFTONE_INLINE float select(bool condition, float yes, float no) { return condition ? yes : no; }

}  // namespace floats

namespace doubles {

HALFTONE_HD HALFTONE_INLINE double splat(double x) { return x; }
HALFTONE_HD HALFTONE_INLINE double fma(double a, double b, double c) { return std::fma(a, b, c); }
HALFTONE_HD HALFTONE_INLINE double sqrt(double a) { return std::sqrt(a); }
HALFTONE_HD HALFTONE_INLINE bool less(double a, double b) { return a < b; }
HALFTONE_HD HALFTONE_INLINE double select(bool condition, double yes, double no) { return condition ? yes : no; }

}  // namespace doubles

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_SET
#define HALFTONE_SET kernel::on_device::floats
#define HALFTONE_RULE HALFTONE_HD HALFTONE_INLINE
#include <halftone/kernel/optimizer_step/rule/updates.simd.hpp>
#undef HALFTONE_SET
#define HALFTONE_SET kernel::on_device::doubles
#define HALFTONE_RULE HALFTONE_HD HALFTONE_INLINE
#include <halftone/kernel/optimizer_step/rule/updates.simd.hpp>
#undef HALFTONE_SET
#define HALFTONE_SET portable

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

namespace floats {

/// updated() of any rule: one of a program's own (rule/own.hpp) is found in the namespace of its scalars.
template <class Scalars, int Moments>
HALFTONE_HD HALFTONE_INLINE float updated_by_rule(const Scalars& s, float w, float g, float (&moments)[Moments], bool keeps) {
    return updated(s, w, g, moments, keeps);
}

}  // namespace floats

namespace doubles {

template <class Scalars, int Moments>
HALFTONE_HD HALFTONE_INLINE double updated_by_rule(const Scalars& s, double w, double g, double (&moments)[Moments],
                                                   bool keeps) {
    return updated(s, w, g, moments, keeps);
}

}  // namespace doubles

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
