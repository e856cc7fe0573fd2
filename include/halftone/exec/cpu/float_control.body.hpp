// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in float_control.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/float_control.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE float_control float_control::of_this_thread() {
    float_control control;
#if defined(__x86_64__)
    control.bits_ = _mm_getcsr() & ~raised;
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(control.bits_));
#endif
    return control;
}

HALFTONE_OUT_OF_LINE void float_control::apply() const {
#if defined(__x86_64__)
    _mm_setcsr((_mm_getcsr() & raised) | static_cast<unsigned>(bits_));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(bits_));
#endif
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
