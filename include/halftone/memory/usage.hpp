// SPDX-License-Identifier: MIT
/// \file
/// Counters of memory by its use: live and peak bytes by kind, as PyTorch's `torch.cuda.max_memory_allocated` counts
/// them.
///
///     device.memory().usage().reset_peaks();
///     step();
///     std::cout << device.memory().usage().peak(ht::memory_kind::activation) << " bytes\n";
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a block of memory is used for.
enum class memory_kind {
    master,      ///< parameters in the `param` type: what the optimizer updates
    copy,        ///< rounded copies of parameters in the `compute` type
    gradient,    ///< accumulated gradients of parameters
    moment,      ///< optimizer state
    activation,  ///< results of operations and their gradients, on a tape
    workspace,   ///< scratch memory of kernels
    other,       ///< tensors of the user
};

/// The number of kinds.
inline constexpr int memory_kinds = 7;

/// The kind's name, as its enumerator is spelled.
constexpr const char* name(memory_kind kind) {
    constexpr const char* names[memory_kinds] = {"master",     "copy",      "gradient", "moment",
                                                 "activation", "workspace", "other"};
    return names[static_cast<int>(kind)];
}

class memory_usage;

/// Receives every allocation and release of memory, and every new peak. Plans (observe/memory/plan.hpp) and histories
/// (observe/memory/history.hpp) are computed from these.
class memory_listener {
  public:
    memory_listener() = default;
    memory_listener(const memory_listener&) = delete;
    memory_listener& operator=(const memory_listener&) = delete;
    virtual ~memory_listener() = default;

    /// Whether these bytes may be taken from the system: false has the effect that there are none.
    virtual bool allows(std::size_t /*bytes*/, memory_kind) { return true; }
    /// `bytes` at this address were allocated: a block of the system's memory, or a part of an arena.
    virtual void on_allocate(const void* /*block*/, std::size_t /*bytes*/, memory_kind) {}
    /// The block at this address was released.
    virtual void on_free(const void* /*block*/, std::size_t /*bytes*/, memory_kind) {}
    /// More bytes are in use than ever before, or than since reset_peaks().
    virtual void on_peak(const memory_usage&) {}
    /// `bytes` of this kind, allocated earlier, belong to the parameter with this path and begin at `at`; nullptr: the
    /// address is not told. Negative if they are released because the parameter was frozen.
    virtual void on_parameter(memory_kind, const char* /*path*/, std::ptrdiff_t /*bytes*/, const void* /*at*/) {}
    /// A block was taken from the system: for an arena, which divides it up, or for one allocation.
    virtual void on_reserve(const void* /*block*/, std::size_t /*bytes*/) {}
    /// The block at this address was returned to the system.
    virtual void on_unreserve(const void* /*block*/, std::size_t /*bytes*/) {}
    /// There are no `bytes` for this kind, and out_of_memory is thrown now. Returns what its message shall end with.
    virtual std::string on_out_of_memory(std::size_t /*bytes*/, memory_kind) { return {}; }
};

/// Live and peak bytes by kind, and of all kinds together. Each kind has its own peak; `peak()` is the largest total at
/// one time.
class memory_usage {
  public:
    std::size_t live() const { return total_.live; }
    std::size_t peak() const { return total_.peak; }
    /// Bytes of this kind in use now.
    std::size_t live(memory_kind kind) const { return kinds_[index(kind)].live; }
    /// The most bytes of this kind that were in use at one time.
    std::size_t peak(memory_kind kind) const { return kinds_[index(kind)].peak; }
    /// Bytes taken from the system, used or kept in arenas for the next step: PyTorch's "reserved".
    std::size_t held() const { return held_.live; }
    std::size_t peak_held() const { return held_.peak; }
    /// Bytes taken from the system for this kind, used or not.
    std::size_t held(memory_kind kind) const { return held_kinds_[index(kind)].live; }
    /// The most bytes that were taken for this kind at one time.
    std::size_t peak_held(memory_kind kind) const { return held_kinds_[index(kind)].peak; }
    /// Blocks taken from the system so far, pages of a growable arena included: a steady training step leaves it
    /// unchanged.
    std::uint64_t allocations() const { return allocations_; }

    /// Sets every peak to the bytes in use now.
    void reset_peaks();

    /// Counts bytes that come into use at `block`.
    void add(std::size_t bytes, memory_kind kind, const void* block = nullptr);
    /// Counts bytes that are no longer in use.
    void remove(std::size_t bytes, memory_kind kind, const void* block = nullptr);

    /// Counts a block allocated from the system.
    void add_block(std::size_t bytes, memory_kind kind, const void* block = nullptr);
    /// Counts a block returned to the system.
    void remove_block(std::size_t bytes, memory_kind kind, const void* block = nullptr);

    /// From now on `listener` receives everything that is counted here; nullptr: no listener.
    void listen(memory_listener* listener) { listener_ = listener; }
    /// The listener; nullptr if there is none.
    memory_listener* listener() const { return listener_; }
    /// Tells the listener, if there is one, that `bytes` of this kind, which begin at `at`, belong to the parameter with
    /// this path.
    void note_parameter(memory_kind kind, const char* path, std::ptrdiff_t bytes, const void* at = nullptr) const {
        if (listener_ != nullptr) listener_->on_parameter(kind, path, bytes, at);
    }
    /// Asks the listener, if there is one, whether these bytes may be taken from the system.
    bool allows(std::size_t bytes, memory_kind kind) const {
        return listener_ == nullptr || listener_->allows(bytes, kind);
    }
    /// Tells the listener, if there is one, that a request failed; returns what the error's message shall end with.
    std::string note_out_of_memory(std::size_t bytes, memory_kind kind) const {
        return listener_ == nullptr ? std::string() : listener_->on_out_of_memory(bytes, kind);
    }

  private:
    struct counter {
        std::size_t live = 0, peak = 0;
        /// True for a new peak.
        bool add(std::size_t bytes);
    };
    static int index(memory_kind kind) { return static_cast<int>(kind); }

    counter total_{}, held_{}, kinds_[memory_kinds]{}, held_kinds_[memory_kinds]{};
    std::uint64_t allocations_ = 0;
    memory_listener* listener_ = nullptr;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/usage.body.hpp>
#endif
