// SPDX-License-Identifier: MIT
/// \file
/// A communicator whose collectives are ranges: a row of their own in a trace, and lines of the speed of light.
///
///     ht::listened_communicator told{comm, listener};
///     told.all_gather("losses", &mine, all, sizeof mine);      // "all_gather" in the row of collectives, with "losses" as layer
///
/// A collective that goes on beside the program has two ranges: where it begins, and where its wait() waits, "all_gather, its
/// end".
#pragma once

#include <string>
#include <utility>

#include <halftone/exec/ranges.hpp>
#include <halftone/ranks/communicator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A range of the row of collectives; `what` names the values.
class collective_range {
  public:
    collective_range(range_listener* listener, const char* name, const char* what)
        : range_(listener, name, track::collectives) {
        if (ranges_exist && listener != nullptr && listener->wants_origins()) listener->layer(what);
    }

  private:
    scoped_range range_;
};

/// A collective that tells where it is waited for.
class listened_collective final : public collective {
  public:
    listened_collective(pending work, range_listener* listener, const char* name, const char* what)
        : work_(std::move(work)), listener_(listener), name_(name), what_(what) {}
    bool is_done() override { return work_.is_done(); }
    void wait() override {
        const collective_range here(listener_, name_, what_.c_str());
        work_.wait();
    }

  private:
    pending work_;
    range_listener* listener_;
    const char* name_;
    std::string what_;
};

}  // namespace detail

/// Tells a listener of every collective of another communicator, and of those that split() makes of it. Both must outlive
/// it.
class listened_communicator final : public communicator {
  public:
    listened_communicator(communicator& inner, range_listener* listener)
        : communicator(inner.rank(), inner.size(), inner.options()), inner_(&inner), listener_(listener) {}

    const char* engine() const override { return inner_->engine(); }
    pending begin_exchange(const char* what, const void* send, void* receive, std::size_t bytes) override {
        return begun("exchange", "exchange, its end", what, [&] { return inner_->begin_exchange(what, send, receive, bytes); });
    }
    pending begin_all_gather(const char* what, const void* mine, void* all, std::size_t bytes) override {
        return begun("all_gather", "all_gather, its end", what, [&] { return inner_->begin_all_gather(what, mine, all, bytes); });
    }
    pending begin_broadcast(const char* what, void* data, std::size_t bytes, int root) override {
        return begun("broadcast", "broadcast, its end", what, [&] { return inner_->begin_broadcast(what, data, bytes, root); });
    }
    void barrier(const char* what) override {
        const detail::collective_range here(listener_, "barrier", what);
        inner_->barrier(what);
    }
    std::unique_ptr<communicator> split(int color, int key) override {
        auto part = inner_->split(color, key);
        auto* const raw = part.get();
        return raw == nullptr ? nullptr : std::unique_ptr<communicator>(new listened_communicator(*raw, listener_, std::move(part)));
    }

  private:
    listened_communicator(communicator& inner, range_listener* listener, std::unique_ptr<communicator> owned)
        : communicator(inner.rank(), inner.size(), inner.options()), owned_(std::move(owned)), inner_(&inner),
          listener_(listener) {}

    template <class Begin>
    pending begun(const char* name, const char* end, const char* what, const Begin& begin) {
        const detail::collective_range here(listener_, name, what);
        return pending(std::make_unique<detail::listened_collective>(begin(), listener_, end, what));
    }

    std::unique_ptr<communicator> owned_;
    communicator* inner_;
    range_listener* listener_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
