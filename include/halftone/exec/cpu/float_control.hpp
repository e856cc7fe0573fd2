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

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/float_control.body.hpp>
#endif
