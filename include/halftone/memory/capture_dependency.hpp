// SPDX-License-Identifier: MIT
/// \file
/// What captured work relies on beside its arguments: the blocks of an arena, scratch memory, how a store lies in
/// memory. A graph of such work holds addresses, and is of no use once one of these has changed.
///
///     const capture_dependency_list::snapshot before = memory.capture_dependencies().now();
///     ...
///     if (const char* change = memory.capture_dependencies().first_change_since(before)) ...         // "scratch memory has moved"
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <halftone/config.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class capture_dependency;

/// All capture_dependencies of one memory resource.
class capture_dependency_list {
  public:
    /// Each of them by a number that it has until it changes. `what` says a change of it in words.
    struct state {
        std::uint64_t number;
        const char* what;
    };
    using snapshot = std::vector<state>;

    capture_dependency_list() = default;
    capture_dependency_list(const capture_dependency_list&) = delete;
    capture_dependency_list& operator=(const capture_dependency_list&) = delete;

    /// The state of each, to be compared with a later one.
    snapshot now() const;
    /// nullptr where all of them are there still as they were, whatever has come since.
    const char* first_change_since(const snapshot& before) const;
    /// Lets each bring its memory into the form in which it stays. True where one of them may want more, all the same.
    bool settle() const;

  private:
    friend capture_dependency;

    std::vector<capture_dependency*> all_;
    std::uint64_t numbers_ = 0;
};

/// One of them. It must not outlive its list, and may have none.
class capture_dependency {
  public:
    capture_dependency(capture_dependency_list* list, const char* what) : list_(list), what_(what) {
        if (list_ == nullptr) return;
        list_->all_.push_back(this);
        change();
    }
    capture_dependency(const capture_dependency&) = delete;
    capture_dependency& operator=(const capture_dependency&) = delete;

    /// See capture_dependency_list::settle.
    virtual bool settle() { return false; }

  protected:
    ~capture_dependency() {
        if (list_ != nullptr) list_->all_.erase(std::find(list_->all_.begin(), list_->all_.end(), this));
    }
    /// Captured work that relied on this is of no use any more.
    void change() noexcept {
        if (list_ != nullptr) number_ = ++list_->numbers_;
    }
    /// What it is like now, and that it is like that again: captured work of then is of use again.
    std::uint64_t number() const { return number_; }
    void restore(std::uint64_t number) noexcept { number_ = number; }

  private:
    friend capture_dependency_list;

    capture_dependency_list* list_;
    const char* what_;
    std::uint64_t number_ = 0;
};

inline capture_dependency_list::snapshot capture_dependency_list::now() const {
    snapshot all;
    for (const capture_dependency* f : all_) all.push_back({f->number_, f->what_});
    return all;
}

inline const char* capture_dependency_list::first_change_since(const snapshot& before) const {
    for (const state& old : before) {
        const auto is_it = [&](const capture_dependency* f) { return f->number_ == old.number; };
        if (std::none_of(all_.begin(), all_.end(), is_it)) return old.what;
    }
    return nullptr;
}

inline bool capture_dependency_list::settle() const {
    bool wants_more = false;
    for (capture_dependency* f : all_) wants_more = f->settle() || wants_more;
    return wants_more;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
