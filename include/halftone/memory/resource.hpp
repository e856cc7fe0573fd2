// SPDX-License-Identifier: MIT
/// \file
/// Sources of memory: a memory_resource allocates aligned blocks and counts them; a buffer owns one block.
///
/// A device owns the resource of its memory, so that stores, arenas and tensors do not depend on the kind of device.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/memory/capture_dependency.hpp>
#include <halftone/memory/host_pages.hpp>
#include <halftone/memory/usage.hpp>
#include <halftone/number/integer.hpp>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// Every block begins at a multiple of this many bytes: a cache line, the widest vector, a row of an AMX tile.
inline constexpr std::size_t block_alignment = 64;

/// Thrown for work that cannot be captured in a graph (exec/capture.hpp); the message says what to do.
struct capture_error : state_error {
    using state_error::state_error;
};

/// How an arena divides its memory into blocks, and takes it from the system. All give the same results.
enum class arena_kind {
    segments,  ///< segments of any size, joined into one as soon as no block is in use (memory/segment_blocks.hpp)
    planned,   ///< one slab, in which each block has the place that a plan of all lifetimes gives it (planned_blocks.hpp)
    growable,  ///< a large range of addresses, to which memory is added as needed; blocks never move (growable_blocks.hpp)
    caching,   ///< segments by size classes, as PyTorch's allocator has them (caching_blocks.hpp)
};

/// The kind's name, as its enumerator is spelled.
constexpr const char* name(arena_kind kind) {
    constexpr const char* names[] = {"segments", "planned", "growable", "caching"};
    return names[static_cast<int>(kind)];
}

struct adapter_options;  // memory/adapters.hpp

namespace detail {
class arena_plans;
std::shared_ptr<arena_plans> make_arena_plans();
}  // namespace detail

/// A source of memory that counts what it allocates. Not thread-safe.
class memory_resource {
  public:
    memory_resource() = default;
    memory_resource(const memory_resource&) = delete;
    memory_resource& operator=(const memory_resource&) = delete;
    virtual ~memory_resource() = default;

    /// Allocates a block of `bytes` (rounded up to block_alignment), counted as `kind`; contents undefined. If there is
    /// no memory, what arenas and workspaces hold unused is released and the request tried once more. Throws
    /// out_of_memory, with the bytes in use by kind; nothing else changes then.
    std::byte* allocate(std::size_t bytes, memory_kind kind);
    /// Frees a block; `bytes` and `kind` as in the call of allocate().
    void deallocate(std::byte* block, std::size_t bytes, memory_kind kind) noexcept {
        usage_.remove(round_up(bytes, block_alignment), kind, block);
        unreserve(block, bytes, kind);
    }

    /// Allocates a block that the caller, an arena, divides up; the arena itself counts the used part.
    std::byte* reserve(std::size_t bytes, memory_kind kind);
    /// Allocates a block that the caller divides up, as reserve() does; nullptr if there is no such block.
    std::byte* try_reserve(std::size_t bytes, memory_kind kind);
    /// Frees a reserved block; while work is captured, it is kept until the capture ends.
    void unreserve(std::byte* block, std::size_t bytes, memory_kind kind) noexcept;
    /// Throws the out_of_memory of a request of `bytes`.
    [[noreturn]] void refuse(std::size_t bytes, memory_kind kind) const;
    /// Returns to the system all that arenas and workspaces hold and nothing uses, as torch.cuda.empty_cache() does.
    /// Steps that were captured in it are captured again. Throws capture_error while work is captured.
    void release_cached();

    // ---- ranges of addresses, for arenas that grow and never move

    /// The size of a page of a range; 0: this resource has no ranges.
    virtual std::size_t page_bytes() const { return 0; }
    /// A range of addresses as large as the resource's memory could be, or less: without memory, and not counted.
    /// {nullptr, 0} if there is none.
    address_range reserve_addresses() {
        return is_capturing_ || captured_by_others() != nullptr ? address_range{} : obtain_range();
    }
    /// Gives pages of a range memory, counted as `kind`: `at` and `bytes` are multiples of the page. False if there is
    /// none.
    bool try_commit(std::byte* at, std::size_t bytes, memory_kind kind);
    /// Returns pages that one call of try_commit gave. Throws capture_error while work is captured.
    void decommit(std::byte* at, std::size_t bytes, memory_kind kind);
    /// Returns a range with all its memory, whose pages the caller has removed from usage(); while work is captured, it is
    /// kept until the capture ends.
    void unreserve_addresses(const address_range& range) noexcept { give_back({range.data, range.bytes, true}); }

    /// The kind of arenas on this memory: of those that are made from now on.
    arena_kind arenas() const { return arenas_; }
    /// Sets it; arenas that exist keep theirs.
    void set_arenas(arena_kind kind) { arenas_ = kind; }
    /// The plans of planned arenas on this memory; those of the memory that it plans for, if it does.
    detail::arena_plans& plans() { return *plans_; }
    /// From now on arenas are of the other memory's kind and share its plans.
    void use_arenas_of(const memory_resource& other) {
        arenas_ = other.arenas_;
        plans_ = other.plans_;
    }

    /// Copies `bytes` of host memory into a block, in order with the device's other work. The host memory may be
    /// changed as soon as the call returns.
    virtual void write(void* to, const void* from, std::size_t bytes) = 0;
    /// Copies `bytes` out of a block into host memory, and waits for the device; in order with its other work.
    virtual void read(void* to, const void* from, std::size_t bytes) = 0;
    /// Sets `bytes` of a block to zero, in order with the device's other work.
    virtual void clear(void* to, std::size_t bytes) = 0;

    /// Whether parameters that are committed now wait for the object that divides them among ranks (defer_parameters).
    bool defers_parameters() const { return deferrals_ != 0; }
    /// Begins (+1) and ends (-1) such a time.
    void defer_parameters(int change) { deferrals_ += change; }

    /// Which layers of models that are made now have adapters (memory/adapters.hpp); nullptr: none.
    const std::shared_ptr<const adapter_options>& adapters() const { return adapters_; }
    /// Sets it.
    void set_adapters(std::shared_ptr<const adapter_options> options) { adapters_ = std::move(options); }

    /// The most bytes that it may take from the system at one time, if it was given a limit; otherwise the largest number.
    virtual std::size_t limit() const { return static_cast<std::size_t>(-1); }
    /// Whether the addresses have memory: false if it is only counted (memory/planned.hpp), so that nothing needs to be
    /// written to it.
    virtual bool has_contents() const { return true; }
    /// Whether several threads may call write(), read() and clear() at once, for different bytes.
    virtual bool is_thread_safe() const { return false; }

    memory_usage& usage() { return usage_; }
    const memory_usage& usage() const { return usage_; }
    /// The dependencies of work captured in this memory.
    detail::capture_dependency_list& capture_dependencies() { return capture_dependencies_; }

    /// While an object of this class exists, the device's work is being captured: allocations throw, and frees are
    /// deferred to the end of the capture.
    class capturing {
      public:
        explicit capturing(memory_resource& memory) : memory_(memory) {
            memory.expect_no_capture("a step is captured inside another; use a separate device for each");
            memory.is_capturing_ = true;
        }
        capturing(const capturing&) = delete;
        capturing& operator=(const capturing&) = delete;
        ~capturing() {
            memory_.is_capturing_ = false;
            memory_.free_deferred();
        }

      private:
        memory_resource& memory_;
    };
    /// Throws capture_error while work is captured, by halftone or by the user's own stream capture. Called by
    /// operations that would wait for the device, or would run only once instead of in every replay; the sentence names
    /// the operation and the remedy.
    void expect_no_capture(const char* sentence) const;

  protected:
    /// Frees the blocks whose freeing was deferred by a capture, unless work is being captured now. A resource whose
    /// stream users can capture calls it in its destructor.
    void free_deferred() noexcept {
        for (const given_back& each : deferred_) free_now(each);
        deferred_.clear();
    }

  private:
    /// The subject of an error message: the owner of a capture that was not begun by `capturing`, such as the user of a
    /// GPU's stream. nullptr if no such capture is active.
    virtual const char* captured_by_others() const noexcept { return nullptr; }
    virtual std::byte* obtain(std::size_t bytes) = 0;  ///< allocates; nullptr if that fails
    virtual void release(std::byte* block, std::size_t bytes) noexcept = 0;
    virtual void trim() {}  ///< returns to the system what the resource itself keeps
    virtual address_range obtain_range() { return {}; }
    virtual bool commit(std::byte*, std::size_t) { return false; }
    virtual void uncommit(std::byte*, std::size_t) {}
    virtual void release_range(const address_range&) noexcept {}  ///< with the pages that have memory

    struct given_back {
        std::byte* block;
        std::size_t bytes;
        bool is_range;
    };

    void free_now(const given_back& each) noexcept;
    void give_back(const given_back& each) noexcept;
    void expect_no_capture_for(std::size_t bytes, memory_kind kind) const;
    /// Whether rounding up would overflow.
    static bool overflows(std::size_t bytes) { return bytes > static_cast<std::size_t>(-1) - block_alignment; }

    memory_usage usage_;
    detail::capture_dependency_list capture_dependencies_;
    std::vector<given_back> deferred_;
    bool is_capturing_ = false;
    int deferrals_ = 0;
    std::shared_ptr<const adapter_options> adapters_{};
    arena_kind arenas_ = arena_kind::segments;
    std::shared_ptr<detail::arena_plans> plans_ = detail::make_arena_plans();
};

/// Host memory, from operator new, at most `limit` bytes at a time, so that a memory budget can be tested. For large
/// blocks it requests huge pages from the system, because a product reads from more 4 KiB pages than a processor's TLB
/// holds.
class host_memory final : public memory_resource {
  public:
    explicit host_memory(std::size_t limit = static_cast<std::size_t>(-1)) : limit_(limit) {}

    std::size_t page_bytes() const override { return detail::host_pages::exist ? huge_page : 0; }
    std::size_t limit() const override { return limit_; }
    bool is_thread_safe() const override { return true; }
    void write(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
    void read(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
    void clear(void* to, std::size_t bytes) override {
        if (bytes != 0) std::memset(to, 0, bytes);
    }

  private:
    static void copy(void* to, const void* from, std::size_t bytes) {
        if (bytes != 0) std::memcpy(to, from, bytes);
    }
    std::byte* obtain(std::size_t bytes) override;
    void release(std::byte* block, std::size_t bytes) noexcept override { ::operator delete(block, alignment_of(bytes)); }
    address_range obtain_range() override { return detail::host_pages::reserve(huge_page); }
    bool commit(std::byte* at, std::size_t bytes) override {
        return bytes <= limit_ - usage().held() && detail::host_pages::commit(at, bytes);
    }
    void uncommit(std::byte* at, std::size_t bytes) override { detail::host_pages::decommit(at, bytes); }
    void release_range(const address_range& range) noexcept override { detail::host_pages::release(range); }

    static constexpr std::size_t huge_page = std::size_t{2} << 20;
    static std::align_val_t alignment_of(std::size_t bytes) {
        return std::align_val_t{bytes >= huge_page ? huge_page : block_alignment};
    }

    std::size_t limit_;
};

/// Owns one block.
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

    /// Swaps the blocks.
    void swap(buffer& other) noexcept;

  private:
    memory_resource* source_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    memory_kind kind_ = memory_kind::other;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/resource.body.hpp>
#endif
