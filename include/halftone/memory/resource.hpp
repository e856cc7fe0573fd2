// SPDX-License-Identifier: MIT
/// \file
/// Where memory comes from: a resource hands out aligned blocks and counts them; a buffer owns one block.
///
/// A context owns the resource of its device, so stores, arenas and tensors need not know which device that is.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/memory/capture_dependency.hpp>
#include <halftone/memory/usage.hpp>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// Every block begins on a boundary of this many bytes: a cache line, the widest vector, an AMX row.
inline constexpr std::size_t block_alignment = 64;

/// Something that cannot be captured (exec/capture.hpp); the sentence says what to do.
struct capture_error : state_error {
    using state_error::state_error;
};

/// The next multiple of `unit`, a power of two; the largest where that is beyond, which no memory has.
constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
    return (bytes > static_cast<std::size_t>(-1) - (unit - 1) ? bytes : bytes + unit - 1) & ~(unit - 1);
}

/// A source of memory that counts what it hands out. One thread at a time.
class memory_resource {
  public:
    memory_resource() = default;
    memory_resource(const memory_resource&) = delete;
    memory_resource& operator=(const memory_resource&) = delete;
    virtual ~memory_resource() = default;

    /// A block of `bytes` (rounded up to block_alignment), used for `kind` from now on; contents undefined. Throws
    /// out_of_memory, with what is held by kind; nothing changes then.
    std::byte* allocate(std::size_t bytes, memory_kind kind) {
        std::byte* block = reserve(bytes, kind);
        usage_.add(round_up(bytes, block_alignment), kind);
        return block;
    }
    /// Gives a block back: `bytes` and `kind` as they were asked for.
    void deallocate(std::byte* block, std::size_t bytes, memory_kind kind) noexcept {
        usage_.remove(round_up(bytes, block_alignment), kind);
        unreserve(block, bytes);
    }

    /// A block to be cut up further: an arena's, which counts by itself what is used of it.
    std::byte* reserve(std::size_t bytes, memory_kind kind) {
        if (is_capturing_) {
            fail<capture_error>(
                "captured step: ", bytes, " bytes are asked for inside the step, for ", name(kind),
                "; make tapes, accumulators and tensors before it, and let its first run need what all need");
        }
        if (const char* const who = captured_by_others()) {
            fail<capture_error>("captured stream: ", bytes, " bytes are asked for, for ", name(kind), ", while ", who,
                                ", and a graph would own them; do the same work once before the capture on the same "
                                "context, or give that a workspace (ht::workspace_bytes)");
        }
        give_back_left();
        if (bytes > static_cast<std::size_t>(-1) - block_alignment) refuse(bytes, kind);  // rounded up it would wrap
        bytes = round_up(bytes, block_alignment);
        std::byte* block = obtain(bytes);
        if (block == nullptr) refuse(bytes, kind);
        usage_.add_block(bytes);
        return block;
    }
    /// Gives a reserved block back; while work is captured, it is kept until the capture ends.
    void unreserve(std::byte* block, std::size_t bytes) noexcept {
        bytes = round_up(bytes, block_alignment);
        usage_.remove_block(bytes);
        if (is_capturing_ || captured_by_others() != nullptr) {
            left_.push_back({block, bytes});  // what is given back now would be given back by each replay
        } else {
            give_back_left();
            release(block, bytes);
        }
    }

    /// Copies `bytes` of host memory into a block, in order with the device's other work; the host memory is the caller's
    /// again on return.
    virtual void write(void* to, const void* from, std::size_t bytes) = 0;
    /// Copies `bytes` out of a block into host memory, and waits for the device; in order with its other work.
    virtual void read(void* to, const void* from, std::size_t bytes) = 0;
    /// Sets `bytes` of a block to zero, in order with the device's other work.
    virtual void clear(void* to, std::size_t bytes) = 0;

    memory_usage& usage() { return usage_; }
    const memory_usage& usage() const { return usage_; }
    /// What captured work that uses this memory relies on.
    detail::capture_dependency_list& capture_dependencies() { return capture_dependencies_; }

    /// While one lives, the device's work is captured: no memory is handed out, and none is given back before its end.
    class capturing {
      public:
        explicit capturing(memory_resource& memory) : memory_(memory) {
            memory.expect_no_capture("a step is captured inside another; let each have a device of its own");
            memory.is_capturing_ = true;
        }
        capturing(const capturing&) = delete;
        capturing& operator=(const capturing&) = delete;
        ~capturing() {
            memory_.is_capturing_ = false;
            memory_.give_back_left();
        }

      private:
        memory_resource& memory_;
    };
    /// Throws capture_error while work is captured, here or by others: for what waits for the device, or would be done
    /// once and by no replay. The sentence says what, and what to do.
    void expect_no_capture(const char* sentence) const {
        if (is_capturing_) fail<capture_error>("captured step: ", sentence);
        if (const char* const who = captured_by_others())
            fail<capture_error>("captured stream: ", who, ", and ", sentence);
    }

  protected:
    /// What was given back while work was captured, and is not captured now. A resource that others can capture calls it
    /// at its end.
    void give_back_left() noexcept {
        for (const auto& [block, bytes] : left_) release(block, bytes);
        left_.clear();
    }

  private:
    /// Who captures the device's work without `capturing`, the user of a GPU's stream, say, as a sentence begins;
    /// nullptr: nobody.
    virtual const char* captured_by_others() const noexcept { return nullptr; }
    virtual std::byte* obtain(std::size_t bytes) = 0;  ///< nullptr where there is no such block
    virtual void release(std::byte* block, std::size_t bytes) noexcept = 0;

    [[noreturn]] void refuse(std::size_t bytes, memory_kind kind) const {
        std::string held;
        for (int i = 0; i < memory_kinds; ++i) {
            const auto each = static_cast<memory_kind>(i);
            if (usage_.live(each) != 0)
                held += detail::sentence(held.empty() ? "" : ", ", name(each), " ", usage_.live(each));
        }
        fail<out_of_memory>("memory: no ", bytes, " bytes for ", name(kind),
                            "; held: ", held.empty() ? "nothing" : held);
    }

    struct given_back {
        std::byte* block;
        std::size_t bytes;
    };

    memory_usage usage_;
    detail::capture_dependency_list capture_dependencies_;
    std::vector<given_back> left_;
    bool is_capturing_ = false;
};

/// Host memory, from operator new. `limit` bytes at most are out at a time, so that a budget can be tried. Large blocks
/// ask the system for huge pages: a product reads from more pages of 4 KiB than a processor keeps translations for.
class host_memory final : public memory_resource {
  public:
    explicit host_memory(std::size_t limit = static_cast<std::size_t>(-1)) : limit_(limit) {}

    void write(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
    void read(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
    void clear(void* to, std::size_t bytes) override {
        if (bytes != 0) std::memset(to, 0, bytes);
    }

  private:
    static void copy(void* to, const void* from, std::size_t bytes) {
        if (bytes != 0) std::memcpy(to, from, bytes);
    }
    std::byte* obtain(std::size_t bytes) override {
        if (bytes > limit_ - usage().held()) return nullptr;
        auto* const block = static_cast<std::byte*>(::operator new(bytes, alignment_of(bytes), std::nothrow));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        // A wish; where it is not granted, nothing is lost.
        if (block != nullptr && bytes >= huge_page)
            static_cast<void>(madvise(block, bytes / huge_page * huge_page, MADV_HUGEPAGE));
#endif
        return block;
    }
    void release(std::byte* block, std::size_t bytes) noexcept override { ::operator delete(block, alignment_of(bytes)); }

    static constexpr std::size_t huge_page = std::size_t{2} << 20;
    static std::align_val_t alignment_of(std::size_t bytes) {
        return std::align_val_t{bytes >= huge_page ? huge_page : block_alignment};
    }

    std::size_t limit_;
};

/// One owned block.
class buffer {
  public:
    buffer() = default;
    buffer(memory_resource& source, std::size_t bytes, memory_kind kind)
        : source_(&source), data_(bytes == 0 ? nullptr : source.allocate(bytes, kind)), bytes_(bytes), kind_(kind) {}
    buffer(buffer&& other) noexcept { swap(other); }
    buffer& operator=(buffer&& other) noexcept {
        buffer(std::move(other)).swap(*this);
        return *this;
    }
    ~buffer() {
        if (data_ != nullptr) source_->deallocate(data_, bytes_, kind_);
    }

    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

    /// Exchanges the blocks.
    void swap(buffer& other) noexcept {
        std::swap(source_, other.source_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(kind_, other.kind_);
    }

  private:
    memory_resource* source_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    memory_kind kind_ = memory_kind::other;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
