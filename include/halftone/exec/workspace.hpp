// SPDX-License-Identifier: MIT
/// \file
/// Scratch memory of kernels: a stack that a context keeps, so that a steady program never allocates.
#pragma once

#include <algorithm>
#include <vector>

#include <halftone/memory/resource.hpp>

namespace halftone::inline HALFTONE_ABI {

/// Leases are given back in the reverse order of taking, as C++ scopes do. Where a lease does not fit, a further block
/// is taken; once no lease is out, the blocks are replaced by one that would have held them all.
class workspace {
  public:
    explicit workspace(memory_resource& source) : source_(&source) {}

    class lease {
      public:
        lease(workspace& owner, std::size_t bytes) : owner_(&owner), bytes_(round_up(bytes, block_alignment)), data_(owner.take(bytes_)) {}
        lease(const lease&) = delete;
        lease& operator=(const lease&) = delete;
        ~lease() { owner_->give_back(bytes_); }

        std::byte* data() const { return data_; }
        template <class T>
        T* as() const {
            return reinterpret_cast<T*>(data_);
        }

      private:
        workspace* owner_;
        std::size_t bytes_;
        std::byte* data_;
    };

  private:
    struct block {
        buffer memory;
        std::size_t used = 0;
    };

    std::byte* take(std::size_t bytes) {
        if (bytes == 0) return nullptr;
        if (total_ == 0) {
            const std::size_t size = std::max(wanted_, bytes);
            if (blocks_.empty() || blocks_.front().memory.bytes() < size) {
                blocks_.clear();
                blocks_.push_back({buffer(*source_, size, memory_kind::workspace), 0});
            }
        } else if (blocks_.back().memory.bytes() - blocks_.back().used < bytes) {
            blocks_.push_back({buffer(*source_, bytes, memory_kind::workspace), 0});
        }
        block& top = blocks_.back();
        std::byte* data = top.memory.data() + top.used;
        top.used += bytes;
        total_ += bytes;
        wanted_ = std::max(wanted_, total_);
        return data;
    }

    void give_back(std::size_t bytes) noexcept {
        if (bytes == 0) return;
        total_ -= bytes;
        blocks_.back().used -= bytes;
        if (blocks_.size() > 1 && blocks_.back().used == 0) blocks_.pop_back();
    }

    memory_resource* source_;
    std::vector<block> blocks_;
    std::size_t total_ = 0, wanted_ = 0;
};

}  // namespace halftone::inline HALFTONE_ABI
