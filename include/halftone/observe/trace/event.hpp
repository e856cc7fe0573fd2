// SPDX-License-Identifier: MIT
/// \file
/// What a trace consists of: events, in a ring that is allocated once and keeps the latest ones; and a lane, the ring of
/// one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <halftone/exec/ranges.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A range of a trace, with the times at which it began and ended.
struct trace_event {
    const char* name = "";
    const char* layer = "";           ///< the layer's path; empty if it is unknown
    std::int64_t begin = 0, end = 0;  ///< nanoseconds of the recorder's clock
    std::int64_t step = 0;            ///< 0: outside of steps
    track on = track::step;
    bool is_operation = false;        ///< not a part of the program that contains operations

    std::int64_t duration() const { return end - begin; }
};

namespace detail {

/// Keeps the latest entries; never allocates after it was made.
template <class T>
class trace_ring {
  public:
    explicit trace_ring(std::size_t most) : entries_(most) {}

    void add(const T& entry) { entries_[static_cast<std::size_t>(added_++ % entries_.size())] = entry; }
    void clear() { added_ = 0; }
    /// How many were overwritten.
    std::uint64_t dropped() const { return added_ > entries_.size() ? added_ - entries_.size() : 0; }
    /// The entries that are kept, in the order in which they were added.
    std::vector<T> kept() const {
        std::vector<T> all;
        for (std::uint64_t i = dropped(); i < added_; ++i)
            all.push_back(entries_[static_cast<std::size_t>(i % entries_.size())]);
        return all;
    }

  private:
    std::vector<T> entries_;
    std::uint64_t added_ = 0;
};

/// Nanoseconds of the system's monotonic clock.
inline std::int64_t monotonic_nanoseconds() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// Whether ranges are recorded; in a warm-up they cost as much, and are dropped.
enum class trace_mode { off, warmup, on };

/// What all lanes of a recorder share.
struct trace_state {
    std::atomic<trace_mode> mode{trace_mode::off};
    std::int64_t (*clock)() = nullptr;
    std::atomic<std::int64_t> step{0};

    trace_mode now() const { return mode.load(std::memory_order_relaxed); }
};

}  // namespace detail

/// The ranges of one thread: a listener for the ranges of a thread of the program's own, a loader of data say. Made by
/// trace_recorder::lane. Used by one thread at a time.
class trace_lane final : public range_listener {
  public:
    trace_lane(const detail::trace_state& state, std::string title, std::size_t most)
        : state_(&state), title_(std::move(title)), ring_(most) {
        open_.reserve(64);
    }

    /// The name of its row.
    const std::string& title() const { return title_; }

    void begin(const char* operation, pass p) override {
        constexpr track of_pass[passes] = {track::forward, track::backward, track::update};
        open(operation, of_pass[static_cast<int>(p)], true);
    }
    void end() override { close(); }
    bool wants_origins() const override { return state_->now() != detail::trace_mode::off; }
    void layer(const char* path) override {
        if (!open_.empty() && open_.back().begin != unrecorded) open_.back().layer = known(path);
    }
    void begin_scope(const char* name, track on) override { open(name, on, false); }
    void end_scope() override { close(); }
    /// Adds a range that has ended, with times of the recorder's clock.
    void add(const char* name, const char* layer, std::int64_t begin, std::int64_t end) {
        trace_event e;
        e.name = name, e.layer = *layer == 0 ? "" : known(layer), e.begin = begin, e.end = end, e.is_operation = true;
        e.step = state_->step.load(std::memory_order_relaxed);
        ring_.add(e);
    }

    /// The name of the innermost range; empty if none is open.
    const char* running() const { return open_.empty() ? "" : open_.back().name; }
    /// The layer of the innermost range that has one, or empty.
    const char* running_layer() const {
        for (auto r = open_.rbegin(); r != open_.rend(); ++r) {
            if (*r->layer != 0) return r->layer;
        }
        return "";
    }
    /// The events that are kept, in the order of their ends. The lane's thread must not record at the same time.
    std::vector<trace_event> events() const { return ring_.kept(); }
    /// How many earlier events are no longer kept.
    std::uint64_t dropped() const { return ring_.dropped(); }
    /// Forgets the events.
    void clear() { ring_.clear(); }

  private:
    static constexpr std::int64_t unrecorded = -1;

    void open(const char* name, track on, bool is_operation) {
        trace_event e;
        e.name = name, e.on = on, e.is_operation = is_operation;
        e.begin = state_->now() != detail::trace_mode::off ? state_->clock() : unrecorded;
        open_.push_back(e);
    }
    void close() {
        if (open_.empty()) return;
        trace_event& e = open_.back();
        if (e.begin != unrecorded && state_->now() != detail::trace_mode::off) {
            e.end = state_->clock();
            e.step = state_->step.load(std::memory_order_relaxed);
            if (state_->now() == detail::trace_mode::on) ring_.add(e);
        }
        open_.pop_back();
    }
    const char* known(const char* name) {
        const auto found = names_.find(name);
        return found != names_.end() ? found->c_str() : names_.insert(name).first->c_str();
    }

    const detail::trace_state* state_;
    std::string title_;
    detail::trace_ring<trace_event> ring_;
    std::vector<trace_event> open_;
    std::set<std::string, std::less<>> names_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
