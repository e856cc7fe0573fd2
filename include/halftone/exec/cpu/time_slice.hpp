// SPDX-License-Identifier: MIT
/// \file
/// Asks the scheduler to run a thread soon after it wakes, in exchange for shorter time slices. The thread's share of
/// the processor does not grow.
///
///     short_time_slice::request();                        // for this thread, for good
///     const short_time_slice for_now;                  // until the end of the block
///
/// A thread that wakes on a processor with a busy process otherwise waits until that process's time slice is over, up
/// to 4 ms. Linux supports such requests since 6.12; elsewhere nothing happens.
#pragma once

#include <cstdint>

#include <halftone/config.hpp>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class short_time_slice {
  public:
    short_time_slice() : changed_(read(before_) && request_short(before_)) {}
    ~short_time_slice() {
        if (changed_) write(before_);
    }
    short_time_slice(const short_time_slice&) = delete;
    short_time_slice& operator=(const short_time_slice&) = delete;

    static void request() {
        attributes now;
        if (read(now)) request_short(now);
    }

  private:
    /// The argument of sched_setattr, which C libraries declare only recently and in different headers.
    struct attributes {
        std::uint32_t size = sizeof(attributes), policy = 0;
        std::uint64_t flags = 0;
        std::int32_t nice = 0;
        std::uint32_t priority = 0;
        std::uint64_t runtime = 0, deadline = 0, period = 0;  ///< nanoseconds
        std::uint32_t least_utilization = 0, most_utilization = 0;
    };
    static constexpr std::uint64_t shortest = 100'000;

    static bool request_short(attributes wanted);
    static bool read([[maybe_unused]] attributes& now);
    static bool write([[maybe_unused]] const attributes& wanted);

    attributes before_;
    bool changed_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/time_slice.body.hpp>
#endif
