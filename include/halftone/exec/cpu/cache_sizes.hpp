// SPDX-License-Identifier: MIT
/// \file
/// How large the caches of this machine are, as the system says.
#pragma once

#include <cstddef>

#if defined(__unix__)
#include <unistd.h>
#endif

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Bytes of a core's data caches, and of the last-level cache that cores share. The defaults stand where a system does not
/// say: those of a server core, for which the constants of kernel/matmul/cpu/tuning.hpp apply undiminished.
struct cache_sizes {
    std::size_t l1 = std::size_t{32} << 10;
    std::size_t l2 = std::size_t{2} << 20;
    std::size_t l3 = std::size_t{32} << 20;

    /// Asks the C library, which asks the processor (glibc: sysconf, microseconds). What it does not know keeps its default.
    static cache_sizes of_this_machine();
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/cache_sizes.body.hpp>
#endif
