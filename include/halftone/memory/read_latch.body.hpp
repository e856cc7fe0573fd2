// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in read_latch.hpp that are no templates.
#pragma once

#include <halftone/memory/read_latch.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE void read_latch::end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    readers_.fetch_sub(1, std::memory_order_release);
    changed_.notify_all();
}

HALFTONE_OUT_OF_LINE void read_latch::wait() const {
    if (readers_.load(std::memory_order_acquire) == 0) return;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return readers_.load(std::memory_order_acquire) == 0; });
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
