// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in time_slice.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/time_slice.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE bool short_time_slice::request_short(attributes wanted) {
#if defined(__linux__)
    if (wanted.policy != SCHED_OTHER && wanted.policy != SCHED_BATCH) return false;  // the user's choice
#endif
    if (wanted.runtime == shortest) return false;
    wanted.runtime = shortest;
    return write(wanted);
}

HALFTONE_OUT_OF_LINE bool short_time_slice::read([[maybe_unused]] attributes& now) {
#if defined(__linux__) && defined(SYS_sched_getattr)
    return syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) == 0;
#else
    return false;
#endif
}

HALFTONE_OUT_OF_LINE bool short_time_slice::write([[maybe_unused]] const attributes& wanted) {
#if defined(__linux__) && defined(SYS_sched_setattr)
    return syscall(SYS_sched_setattr, 0, &wanted, 0) == 0;
#else
    return false;
#endif
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
