// SPDX-License-Identifier: MIT
/// \file
/// A thread's floating-point mode: the rounding mode, and whether subnormal numbers are flushed to zero. A program sets
/// it for its own thread; the threads that work for it must use the same mode, or bits would depend on which thread did
/// what.
///
///     const float_control callers = float_control::of_this_thread();
///     const float_control_scope same(callers);        // in another thread: until the end of the block
#pragma once

#include <cstdint>

#include <halftone/config.hpp>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class float_control {
  public:
    static float_control of_this_thread();
    bool operator==(const float_control&) const = default;

    /// Sets this thread's mode.
    void apply() const;

  private:
    static constexpr unsigned raised = 0x3f;  ///< the flags of exceptions raised so far, which stay each thread's own
    std::uint64_t bits_ = 0;
};

/// Sets this thread's mode until the end of a block.
class float_control_scope {
  public:
    explicit float_control_scope(float_control wanted)
        : before_(float_control::of_this_thread()), changes_(wanted != before_) {
        if (changes_) wanted.apply();
    }
    ~float_control_scope() {
        if (changes_) before_.apply();
    }
    float_control_scope(const float_control_scope&) = delete;
    float_control_scope& operator=(const float_control_scope&) = delete;

  private:
    float_control before_;
    bool changes_;
};

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline float_control float_control::of_this_thread() {
    float_control control;
#if defined(__x86_64__)
    control.bits_ = _mm_getcsr() & ~raised;
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(control.bits_));
#endif
    return control;
}

inline void float_control::apply() const {
#if defined(__x86_64__)
    _mm_setcsr((_mm_getcsr() & raised) | static_cast<unsigned>(bits_));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(bits_));
#endif
}

#endif

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
