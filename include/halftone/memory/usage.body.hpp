// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in usage.hpp that are no templates.
#pragma once

#include <halftone/memory/usage.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE void memory_usage::reset_peaks() {
    total_.peak = total_.live;
    held_.peak = held_.live;
    for (counter& kind : kinds_) kind.peak = kind.live;
    for (counter& kind : held_kinds_) kind.peak = kind.live;
}

HALFTONE_OUT_OF_LINE void memory_usage::add(std::size_t bytes, memory_kind kind, const void* block) {
    kinds_[index(kind)].add(bytes);
    const bool is_peak = total_.add(bytes);
    if (listener_ == nullptr) return;
    listener_->on_allocate(block, bytes, kind);
    if (is_peak) listener_->on_peak(*this);
}

HALFTONE_OUT_OF_LINE void memory_usage::remove(std::size_t bytes, memory_kind kind, const void* block) {
    total_.live -= bytes;
    kinds_[index(kind)].live -= bytes;
    if (listener_ != nullptr) listener_->on_free(block, bytes, kind);
}

HALFTONE_OUT_OF_LINE void memory_usage::add_block(std::size_t bytes, memory_kind kind, const void* block) {
    ++allocations_;
    held_.add(bytes);
    held_kinds_[index(kind)].add(bytes);
    if (listener_ != nullptr) listener_->on_reserve(block, bytes);
}

HALFTONE_OUT_OF_LINE void memory_usage::remove_block(std::size_t bytes, memory_kind kind, const void* block) {
    held_.live -= bytes;
    held_kinds_[index(kind)].live -= bytes;
    if (listener_ != nullptr) listener_->on_unreserve(block, bytes);
}

HALFTONE_OUT_OF_LINE bool memory_usage::counter::add(std::size_t bytes) {
    live += bytes;
    if (live <= peak) return false;
    peak = live;
    return true;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
