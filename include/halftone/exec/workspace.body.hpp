// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in workspace.hpp that are no templates.
#pragma once

#include <halftone/exec/workspace.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE workspace::workspace(memory_resource& source, std::span<std::byte> given) : workspace(source) {
    if (given.empty()) return;
    const std::size_t lost = std::min(given.size(), -reinterpret_cast<std::uintptr_t>(given.data()) % block_alignment);
    given_ = given.data() + lost;
    given_bytes_ = given.size() - lost;
}

HALFTONE_OUT_OF_LINE void workspace::release_cached() {
    if (total_ != 0) return;
    wanted_ = 0;  // work may go on with smaller shapes
    if (blocks_.empty()) return;
    change();
    blocks_.clear();
}

HALFTONE_OUT_OF_LINE std::byte* workspace::take(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    std::byte* const data = given_ == nullptr ? take_from_blocks(bytes) : take_from_given(bytes);
    total_ += bytes;
    wanted_ = std::max(wanted_, total_);
    peak_ = std::max(peak_, total_);
    return data;
}

HALFTONE_OUT_OF_LINE std::byte* workspace::take_from_given(std::size_t bytes) const {
    if (bytes > given_bytes_ - total_) {
        fail<out_of_memory>("workspace: no ", bytes, " bytes left; ", total_, " are in use of the caller's ",
                            given_bytes_, " (ht::workspace_bytes returns what an operation needs)");
    }
    return given_ + total_;
}

HALFTONE_OUT_OF_LINE std::byte* workspace::take_from_blocks(std::size_t bytes) {
    if (total_ == 0) {
        hold(std::max(wanted_, bytes));
    } else if (blocks_.back().memory.bytes() - blocks_.back().used < bytes) {
        blocks_.push_back({buffer(*source_, bytes, memory_kind::workspace), 0});
    }
    block& top = blocks_.back();
    std::byte* data = top.memory.data() + top.used;
    top.used += bytes;
    return data;
}

HALFTONE_OUT_OF_LINE void workspace::hold(std::size_t bytes) {
    if (!blocks_.empty() && blocks_.front().memory.bytes() >= bytes) return;
    change();
    blocks_.clear();
    blocks_.push_back({buffer(*source_, bytes, memory_kind::workspace), 0});
}

HALFTONE_OUT_OF_LINE void workspace::give_back(std::size_t bytes) noexcept {
    if (bytes == 0) return;
    total_ -= bytes;
    if (given_ != nullptr) return;
    blocks_.back().used -= bytes;
    if (blocks_.size() > 1 && blocks_.back().used == 0) blocks_.pop_back();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
