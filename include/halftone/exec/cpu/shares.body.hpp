// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in shares.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/shares.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE index_shares::index_shares(extent count, int workers) : used_(std::min(workers, most)) {
    for (extent i = 0; i < used_; ++i) {
        shares_[i].next.store(count * i / used_, std::memory_order_relaxed);
        shares_[i].end = count * (i + 1) / used_;
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
