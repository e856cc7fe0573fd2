// SPDX-License-Identifier: MIT
/// \file
/// Scratch memory of kernels: a stack that a context owns, so that a steady program allocates nothing.
///
///     ht::cpu device;                                                     // allocates what it needs, and keeps it
///     ht::cpu small{{.workspace = memory}};                               // your own std::span<std::byte>, and no more
///     const workspace::lease sums(device.scratch(), n * sizeof(float));   // in a kernel: until the end of the scope
///
/// ht::workspace_bytes tells how much an operation needs (exec/measure.hpp).
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include <halftone/memory/resource.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A constructor's tag: makes an object that counts what operations would need, and touches no data (exec/measure.hpp).
struct measuring {
    explicit measuring() = default;
};

}  // namespace detail

/// Leases are returned in the reverse order of taking, as C++ scopes do it.
///
/// With its own memory, a workspace allocates a further block if a lease does not fit; as soon as no lease is out, its
/// blocks are replaced by one that is large enough for all. With the caller's memory it never allocates: a lease that
/// does not fit throws out_of_memory.
class workspace final : public detail::capture_dependency {
  public:
    explicit workspace(memory_resource& source)
        : detail::capture_dependency(&source.capture_dependencies(), "scratch memory has moved"), source_(&source) {}
    /// `given` is the caller's memory on the device and must outlive the workspace; it is used from the first multiple
    /// of block_alignment on. If it is empty, the workspace allocates.
    workspace(memory_resource& source, std::span<std::byte> given);
    /// A workspace whose leases have no memory: their addresses are aligned as real ones, but must not be accessed.
    explicit workspace(detail::measuring)
        : detail::capture_dependency(nullptr, ""),
          given_(reinterpret_cast<std::byte*>(4 * block_alignment)),
          given_bytes_(static_cast<std::size_t>(-1) / 2) {}

    /// Whether its leases have no memory, as those of calls that are measured.
    bool is_measuring() const { return source_ == nullptr; }
    /// The largest number of bytes in use at one time so far.
    std::size_t peak() const { return peak_; }

    /// A part of the workspace, until the end of the scope. Throws out_of_memory if the caller's memory does not
    /// suffice.
    class lease {
      public:
        lease(workspace& owner, std::size_t bytes)
            : owner_(&owner), bytes_(round_up(bytes, block_alignment)), data_(owner.take(bytes_)) {}
        lease(const lease&) = delete;
        lease& operator=(const lease&) = delete;
        ~lease() { owner_->give_back(bytes_); }

        /// The part's first byte, aligned to block_alignment; contents undefined.
        std::byte* data() const { return data_; }
        /// The part's memory as elements of T, from its first byte on.
        template <class T>
        T* as() const {
            return reinterpret_cast<T*>(data_);
        }

      private:
        workspace* owner_;
        std::size_t bytes_;
        std::byte* data_;
    };

    /// If no lease is out, replaces the blocks by one that is as large as all blocks in use at the same time, as the
    /// next lease would.
    bool settle() override {
        if (total_ == 0 && !blocks_.empty()) hold(wanted_);
        return false;
    }
    /// If no lease is out, returns all blocks to the system.
    void release_cached() override;

  private:
    struct block {
        buffer memory;
        std::size_t used = 0;
    };

    std::byte* take(std::size_t bytes);
    std::byte* take_from_given(std::size_t bytes) const;
    std::byte* take_from_blocks(std::size_t bytes);

    /// Allocates one block of at least that many bytes.
    void hold(std::size_t bytes);

    void give_back(std::size_t bytes) noexcept;

    memory_resource* source_ = nullptr;
    std::byte* given_ = nullptr;
    std::size_t given_bytes_ = 0;
    std::vector<block> blocks_;
    std::size_t total_ = 0, wanted_ = 0, peak_ = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/workspace.body.hpp>
#endif
