// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in preemption.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/preemption.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE bool preemption_watch::was_preempted(clock::time_point now) {
    const clock::duration passed = now - begin_;
    if (passed < std::chrono::milliseconds(2)) return false;
    const std::chrono::nanoseconds ran = time_of_this_thread(), lost = passed - (ran - ran_);
    begin_ = now, ran_ = ran;
    return lost > passed / 8;
}

HALFTONE_OUT_OF_LINE std::chrono::nanoseconds preemption_watch::time_of_this_thread() {
#if defined(CLOCK_THREAD_CPUTIME_ID)
    timespec t{};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
        return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
#endif
    return clock::now().time_since_epoch();
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
