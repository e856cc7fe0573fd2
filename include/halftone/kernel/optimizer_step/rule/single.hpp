// SPDX-License-Identifier: MIT
/// \file
/// Every rule's body for single numbers, in the namespace HALFTONE_SET (../device/floats.hpp).
// No include guard: it is included for floats and for doubles.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>

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
