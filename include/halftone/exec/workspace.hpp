// SPDX-License-Identifier: MIT
/// \file
/// Scratch memory of kernels: a stack that a context keeps, so that a steady program never allocates.
///
///     ht::cpu device;                                                     // takes what it needs, and keeps it
///     ht::cpu small{{.workspace = memory}};                               // a std::span<std::byte> of yours, and no more
///     const workspace::lease sums(device.scratch(), n * sizeof(float));   // in a kernel: until the end of the scope
///
/// How much an operation takes, ht::workspace_bytes tells (exec/measure.hpp).
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include <halftone/memory/resource.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Says that a thing is made to count what an operation would take, and to touch no data; exec/measure.hpp has the use.
struct measuring {
    explicit measuring() = default;
};

}  // namespace detail

/// Leases are given back in the reverse order of taking, as C++ scopes do.
///
/// Of its own memory, where a lease does not fit, a further block is taken; once no lease is out, the blocks are
/// replaced by one that would have held them all. The caller's memory is all there is: what does not fit throws
/// out_of_memory.
class workspace final : public detail::capture_dependency {
  public:
    explicit workspace(memory_resource& source)
        : detail::capture_dependency(&source.capture_dependencies(), "scratch memory has moved"), source_(&source) {}
    /// `given` is the caller's, in the device's memory, and must outlive the workspace; it counts from the first multiple of
    /// block_alignment in it. An empty one: memory of its own.
    workspace(memory_resource& source, std::span<std::byte> given) : workspace(source) {
        if (given.empty()) return;
        const std::size_t lost =
            std::min(given.size(), -reinterpret_cast<std::uintptr_t>(given.data()) % block_alignment);
        given_ = given.data() + lost;
        given_bytes_ = given.size() - lost;
    }
    /// Leases without memory: their addresses are as well aligned as those of real ones, and name nothing.
    explicit workspace(detail::measuring)
        : detail::capture_dependency(nullptr, ""),
          given_(reinterpret_cast<std::byte*>(4 * block_alignment)),
          given_bytes_(static_cast<std::size_t>(-1) / 2) {}

    /// The most bytes that were out at a time so far.
    std::size_t peak() const { return wanted_; }

    /// A piece of the workspace, until the end of its scope. Throws out_of_memory where the caller's memory does not
    /// suffice.
    class lease {
      public:
        lease(workspace& owner, std::size_t bytes)
            : owner_(&owner), bytes_(round_up(bytes, block_alignment)), data_(owner.take(bytes_)) {}
        lease(const lease&) = delete;
        lease& operator=(const lease&) = delete;
        ~lease() { owner_->give_back(bytes_); }

        /// Its first byte, aligned to block_alignment; contents undefined.
        std::byte* data() const { return data_; }
        /// The same, as elements of T.
        template <class T>
        T* as() const {
            return reinterpret_cast<T*>(data_);
        }

      private:
        workspace* owner_;
        std::size_t bytes_;
        std::byte* data_;
    };

    /// Where no lease is out, brings about what the next one would: a single block, which holds all that there were at
    /// a time.
    bool settle() override {
        if (total_ == 0 && !blocks_.empty()) hold(wanted_);
        return false;
    }

  private:
    struct block {
        buffer memory;
        std::size_t used = 0;
    };

    std::byte* take(std::size_t bytes) {
        if (bytes == 0) return nullptr;
        std::byte* const data = given_ == nullptr ? take_of_blocks(bytes) : take_of_given(bytes);
        total_ += bytes;
        wanted_ = std::max(wanted_, total_);
        return data;
    }
    std::byte* take_of_given(std::size_t bytes) const {
        if (bytes > given_bytes_ - total_) {
            fail<out_of_memory>("workspace: no ", bytes, " bytes beside ", total_, " in use; the caller gave ",
                                given_bytes_, " (ht::workspace_bytes tells what an operation takes)");
        }
        return given_ + total_;
    }
    std::byte* take_of_blocks(std::size_t bytes) {
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

    /// One block of so many bytes or more.
    void hold(std::size_t bytes) {
        if (!blocks_.empty() && blocks_.front().memory.bytes() >= bytes) return;
        change();
        blocks_.clear();
        blocks_.push_back({buffer(*source_, bytes, memory_kind::workspace), 0});
    }

    void give_back(std::size_t bytes) noexcept {
        if (bytes == 0) return;
        total_ -= bytes;
        if (given_ != nullptr) return;
        blocks_.back().used -= bytes;
        if (blocks_.size() > 1 && blocks_.back().used == 0) blocks_.pop_back();
    }

    memory_resource* source_ = nullptr;
    std::byte* given_ = nullptr;
    std::size_t given_bytes_ = 0;
    std::vector<block> blocks_;
    std::size_t total_ = 0, wanted_ = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
