// SPDX-License-Identifier: MIT
/// \file
/// The state that captured work depends on in addition to its arguments: addresses of an arena's blocks and of scratch
/// memory, the layout of a store. A CUDA graph of captured work contains these addresses and must be captured again
/// once one changes.
///
///     const capture_dependency_list::snapshot before = memory.capture_dependencies().now();
///     ...
///     if (const char* change = memory.capture_dependencies().first_change_since(before)) ...         // "scratch memory has moved"
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class capture_dependency;

/// All capture_dependencies of one memory resource.
class capture_dependency_list {
  public:
    /// A dependency's number, which stays the same until it changes, and the sentence that names the change.
    struct state {
        std::uint64_t number;
        const char* what;
    };
    using snapshot = std::vector<state>;

    capture_dependency_list() = default;
    capture_dependency_list(const capture_dependency_list&) = delete;
    capture_dependency_list& operator=(const capture_dependency_list&) = delete;

    /// The current state of every dependency, to be compared with a later one.
    snapshot now() const;
    /// nullptr if every dependency of `before` still exists with the same number; dependencies that were added later
    /// are ignored.
    const char* first_change_since(const snapshot& before) const;
    /// Lets each dependency change its memory to its final layout (an arena: one segment). True if one of them
    /// may still allocate more.
    bool settle() const;
    /// Lets each dependency return to the system what it holds and nothing uses.
    void release_cached() const;
    /// Tells each dependency that a request failed for good.
    void note_refusal() const;

  private:
    friend capture_dependency;

    std::vector<capture_dependency*> all_;
    std::uint64_t numbers_ = 0;
};

/// Base class of a dependency. It must not outlive its list; the list may be null.
class capture_dependency {
  public:
    capture_dependency(capture_dependency_list* list, const char* what);
    capture_dependency(const capture_dependency&) = delete;
    capture_dependency& operator=(const capture_dependency&) = delete;

    /// See capture_dependency_list::settle.
    virtual bool settle() { return false; }
    /// See capture_dependency_list::release_cached. What moves or is gone then is a change.
    virtual void release_cached() {}
    /// A request failed for good, of this object or of another one with the same memory.
    virtual void note_refusal() {}

  protected:
    ~capture_dependency() {
        if (list_ != nullptr) list_->all_.erase(std::find(list_->all_.begin(), list_->all_.end(), this));
    }
    /// To be called when captured work that relied on this object must not be replayed any more.
    void change() noexcept {
        if (list_ != nullptr) number_ = ++list_->numbers_;
    }
    /// The current number. Setting it to an earlier one means that the earlier state is restored, so that work captured
    /// then can be replayed again.
    std::uint64_t number() const { return number_; }
    void restore(std::uint64_t number) noexcept { number_ = number; }

  private:
    friend capture_dependency_list;

    capture_dependency_list* list_;
    const char* what_;
    std::uint64_t number_ = 0;
};

inline void capture_dependency_list::release_cached() const {
    for (capture_dependency* f : all_) f->release_cached();
}

inline void capture_dependency_list::note_refusal() const {
    for (capture_dependency* f : all_) f->note_refusal();
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/capture_dependency.body.hpp>
#endif
