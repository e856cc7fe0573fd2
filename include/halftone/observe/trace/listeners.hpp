// SPDX-License-Identifier: MIT
/// \file
/// Several listeners in the place of one.
///
///     ht::listener_list all{{&trace, &profile}};
///     trainer.listen(&all);
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <halftone/exec/ranges.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Tells each of several listeners what it is told. They must outlive its use; null pointers are left out.
class listener_list final : public range_listener {
  public:
    explicit listener_list(std::vector<range_listener*> listeners = {}) : listeners_(std::move(listeners)) {
        std::erase(listeners_, nullptr);
    }

    /// Another listener, told last.
    void add(range_listener& listener) { listeners_.push_back(&listener); }
    /// nullptr if there is none, the only one, or this list: what to give to a trainer.
    range_listener* listener() {
        return listeners_.empty() ? nullptr : listeners_.size() == 1 ? listeners_.front() : this;
    }

    void begin(const char* operation, pass p) override {
        for (range_listener* l : listeners_) l->begin(operation, p);
    }
    void end() override {
        for (auto l = listeners_.rbegin(); l != listeners_.rend(); ++l) (*l)->end();
    }
    bool wants_origins() const override { return any(&range_listener::wants_origins); }
    void layer(const char* path) override {
        for (range_listener* l : listeners_) {
            if (l->wants_origins()) l->layer(path);
        }
    }
    void begin_step(std::int64_t step) override {
        for (range_listener* l : listeners_) l->begin_step(step);
    }
    void end_step() override {
        for (auto l = listeners_.rbegin(); l != listeners_.rend(); ++l) (*l)->end_step();
    }
    void begin_scope(const char* name, track on) override {
        for (range_listener* l : listeners_) l->begin_scope(name, on);
    }
    void end_scope() override {
        for (auto l = listeners_.rbegin(); l != listeners_.rend(); ++l) (*l)->end_scope();
    }
    bool wants_work() const override { return any(&range_listener::wants_work); }
    void work(const operation_work& w) override {
        for (range_listener* l : listeners_) {
            if (l->wants_work()) l->work(w);
        }
    }

  private:
    bool any(bool (range_listener::*wants)() const) const {
        return std::any_of(listeners_.begin(), listeners_.end(), [=](const range_listener* l) { return (l->*wants)(); });
    }

    std::vector<range_listener*> listeners_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
