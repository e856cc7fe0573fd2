// SPDX-License-Identifier: MIT
/// \file
/// How large the caches of this machine are, as the system says.
#pragma once

#include <cstddef>

#if defined(__unix__)
#include <unistd.h>
#endif

#include <halftone/config.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

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

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline cache_sizes cache_sizes::of_this_machine() {
    cache_sizes all;
#if defined(_SC_LEVEL1_DCACHE_SIZE) && defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
    const auto ask = [](int what, std::size_t& size) {
        if (const long bytes = sysconf(what); bytes > 0) size = static_cast<std::size_t>(bytes);
    };
    ask(_SC_LEVEL1_DCACHE_SIZE, all.l1);
    ask(_SC_LEVEL2_CACHE_SIZE, all.l2);
    ask(_SC_LEVEL3_CACHE_SIZE, all.l3);
#endif
    return all;
}

#endif

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
