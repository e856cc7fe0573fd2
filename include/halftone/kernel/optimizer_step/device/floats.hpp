// SPDX-License-Identifier: MIT
/// \file
/// The rules' arithmetic on single floats, for GPU threads. The functions have the names of those on the CPU's vectors
/// (exec/cpu/simd.hpp), so that a rule is written once.
///
///     w = on_device::floats::updated(scalars, w, g, moments, keeps);
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

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_SET
#define HALFTONE_SET kernel::on_device::floats
#define HALFTONE_RULE HALFTONE_HD HALFTONE_INLINE
#include <halftone/kernel/optimizer_step/rule/adafactor.simd.hpp>
#define HALFTONE_RULE HALFTONE_HD HALFTONE_INLINE
#include <halftone/kernel/optimizer_step/rule/adamw.simd.hpp>
#define HALFTONE_RULE HALFTONE_HD HALFTONE_INLINE
#include <halftone/kernel/optimizer_step/rule/assign.simd.hpp>
#define HALFTONE_RULE HALFTONE_HD HALFTONE_INLINE
#include <halftone/kernel/optimizer_step/rule/lion.simd.hpp>
#define HALFTONE_RULE HALFTONE_HD HALFTONE_INLINE
#include <halftone/kernel/optimizer_step/rule/muon.simd.hpp>
#define HALFTONE_RULE HALFTONE_HD HALFTONE_INLINE
#include <halftone/kernel/optimizer_step/rule/sgd.simd.hpp>
#undef HALFTONE_SET
#define HALFTONE_SET portable
