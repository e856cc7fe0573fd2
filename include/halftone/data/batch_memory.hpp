// SPDX-License-Identifier: MIT
/// \file
/// The memory of a batch, which a data loader reuses for later batches.
///
///     auto collate = [](std::span<const image> images, ht::batch_memory& memory) {
///         const auto pixels = memory.make<float>(ht::shape<2>{ht::extent(images.size()), 784});
///         ...                                                             // writes all of it
///         return my_batch{pixels, labels};
///     };
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <halftone/memory/resource.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A block of host memory, aligned to block_alignment.
class host_block {
  public:
    virtual ~host_block() = default;
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  protected:
    host_block() = default;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

class pageable_block final : public host_block {
  public:
    explicit pageable_block(std::size_t bytes) {
        data_ = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{block_alignment}, std::nothrow));
        if (data_ == nullptr) fail<out_of_memory>("data_loader: no memory for ", bytes, " bytes of a batch");
        bytes_ = bytes;
    }
    pageable_block(const pageable_block&) = delete;
    pageable_block& operator=(const pageable_block&) = delete;
    ~pageable_block() override { ::operator delete(data_, std::align_val_t{block_alignment}); }
};

/// Memory that a device can copy from without waiting; it has data().
template <class Memory>
class device_readable_block final : public host_block {
  public:
    device_readable_block(Memory memory, std::size_t bytes) : memory_(std::move(memory)) {
        data_ = static_cast<std::byte*>(memory_.data());
        bytes_ = bytes;
    }

  private:
    Memory memory_;
};

}  // namespace detail

/// Host memory for the tensors of one batch. Its blocks are kept for the next batch, so that after the first batches
/// nothing is allocated, unless one is larger than all before it.
class batch_memory {
  public:
    batch_memory() = default;
    batch_memory(const batch_memory&) = delete;
    batch_memory& operator=(const batch_memory&) = delete;

    /// A tensor of this batch; its contents are undefined. It is valid as long as the batch. Throws shape_error for an
    /// invalid shape, and out_of_memory.
    template <class T, int Rank>
    view<T, Rank> make(const shape<Rank>& s) {
        check_shape("data_loader", s);
        const auto count = static_cast<std::size_t>(s.size());
        if (count > static_cast<std::size_t>(-1) / 2 / sizeof(T))
            fail<out_of_memory>("data_loader: no memory for ", count, " elements of a batch");
        return {reinterpret_cast<T*>(take(count * sizeof(T))), s};
    }

    /// Ends the batch: its memory is used for the next one. If it took several blocks, one of their size replaces them.
    void reset() {
        if (blocks_.size() > 1) {
            std::size_t all = 0;
            for (const auto& b : blocks_) all += b->bytes();
            blocks_.clear();
            add(all);
        }
        used_ = 0;
    }

    /// From now on blocks come from this function, in place of operator new.
    void allocate_by(std::function<std::unique_ptr<detail::host_block>(std::size_t bytes)> f) {
        blocks_.clear();
        used_ = 0;
        make_block_ = std::move(f);
    }

  private:
    std::byte* take(std::size_t bytes) {
        bytes = round_up(std::max<std::size_t>(bytes, 1), block_alignment);
        if (blocks_.empty() || blocks_.back()->bytes() - used_ < bytes) {
            add(std::max(bytes, blocks_.empty() ? least : 2 * blocks_.back()->bytes()));
            used_ = 0;
        }
        std::byte* const p = blocks_.back()->data() + used_;
        used_ += bytes;
        return p;
    }
    void add(std::size_t bytes) { blocks_.push_back(make_block_(bytes)); }

    static constexpr std::size_t least = 4096;

    std::vector<std::unique_ptr<detail::host_block>> blocks_;
    std::size_t used_ = 0;  ///< of the last block
    std::function<std::unique_ptr<detail::host_block>(std::size_t)> make_block_ = [](std::size_t bytes) {
        return std::make_unique<detail::pageable_block>(bytes);
    };
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
