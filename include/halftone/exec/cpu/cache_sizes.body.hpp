// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in cache_sizes.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/cache_sizes.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE cache_sizes cache_sizes::of_this_machine() {
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

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
