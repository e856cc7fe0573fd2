// SPDX-License-Identifier: MIT
/// \file
/// A communicator that counts what another one moves: the bytes that a rank receives from the others, by kind and name; and for
/// how long the rank waits for them.
///
///     ht::counted_communicator counted{comm};
///     ht::all_reduce<float>(device, counted, "h.0", gradients);
///     for (const ht::traffic_row& r : counted.traffic()) std::cout << r.what << ": " << r.bytes << '\n';
///     std::cout << counted.hidden_share() << " of the time of collectives is hidden behind computation\n";
///
/// Bytes are those that a rank must receive whatever the engine does: pieces of other ranks, once each. So they are what
/// the scaling model predicts (examples/scaling/model.hpp), and they are equal on all engines.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <halftone/ranks/communicator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The calls of one kind and name.
struct traffic_row {
    std::string kind;         ///< "exchange", "all_gather" or "broadcast"
    std::string what;         ///< the name that the calls gave
    std::int64_t calls = 0;
    std::uint64_t bytes = 0;  ///< received from other ranks
    double seconds_waited = 0;  ///< in which the calls, and the waits for what they began, held this rank's program
};

namespace detail {

/// What a communicator and its sub-groups have counted. A rank's calls come from one thread.
class traffic_counts {
  public:
    using clock = std::chrono::steady_clock;
    std::vector<traffic_row> rows;
    double seconds_under_way = 0;

    /// The number of the row, in which a call is counted.
    std::size_t count(const char* kind, const char* what, std::uint64_t bytes) {
        std::size_t i = 0;
        while (i < rows.size() && (rows[i].kind != kind || rows[i].what != what)) ++i;
        if (i == rows.size()) rows.push_back({kind, what});
        ++rows[i].calls, rows[i].bytes += bytes;
        return i;
    }
    /// A collective begins; time counts as under way while there is one.
    void begin() {
        if (under_way_++ == 0) since_ = clock::now();
    }
    void end() {
        if (--under_way_ == 0) seconds_under_way += seconds_since(since_);
    }
    /// Calls f, whose time is that of a wait.
    template <class F>
    auto waits(std::size_t row, const F& f) {
        struct until_end {
            traffic_counts& of;
            std::size_t row;
            clock::time_point from = clock::now();
            ~until_end() {
                if (row < of.rows.size()) of.rows[row].seconds_waited += seconds_since(from);
            }
        } const here{*this, row};
        return f();
    }
    void clear() { rows.clear(), seconds_under_way = 0; }

  private:
    static double seconds_since(clock::time_point t) { return std::chrono::duration<double>(clock::now() - t).count(); }

    int under_way_ = 0;
    clock::time_point since_{};
};

/// A collective that is under way until it has been waited for.
class counted_collective final : public collective {
  public:
    counted_collective(pending work, std::shared_ptr<traffic_counts> counts, std::size_t row)
        : work_(std::move(work)), counts_(std::move(counts)), row_(row) {}
    ~counted_collective() override { end(); }
    bool is_done() override { return work_.is_done(); }
    void wait() override {
        counts_->waits(row_, [&] { work_.wait(); });
        end();
    }

  private:
    void end() {
        if (!has_ended_) counts_->end();
        has_ended_ = true;
    }
    pending work_;
    std::shared_ptr<traffic_counts> counts_;
    std::size_t row_;
    bool has_ended_ = false;
};

}  // namespace detail

/// Passes every call on to another communicator, which must live longer, and counts it when it begins. Its sub-groups
/// count into the same rows.
class counted_communicator final : public communicator {
  public:
    explicit counted_communicator(communicator& inner)
        : counted_communicator(inner, nullptr, std::make_shared<detail::traffic_counts>()) {}

    const char* engine() const override { return inner_->engine(); }
    pending begin_exchange(const char* what, const void* send, void* receive, std::size_t bytes) override {
        return begun("exchange", what, others() * bytes, [&] { return inner_->begin_exchange(what, send, receive, bytes); });
    }
    pending begin_all_gather(const char* what, const void* mine, void* all, std::size_t bytes) override {
        return begun("all_gather", what, others() * bytes, [&] { return inner_->begin_all_gather(what, mine, all, bytes); });
    }
    pending begin_broadcast(const char* what, void* data, std::size_t bytes, int root) override {
        return begun("broadcast", what, root == rank() ? 0 : bytes, [&] { return inner_->begin_broadcast(what, data, bytes, root); });
    }
    void barrier(const char* what) override { inner_->barrier(what); }
    std::unique_ptr<communicator> split(int color, int key) override {
        auto part = inner_->split(color, key);
        if (part == nullptr) return nullptr;
        communicator& of = *part;
        return std::unique_ptr<communicator>(new counted_communicator(of, std::move(part), counts_));
    }

    /// What was counted, in the order of first calls.
    const std::vector<traffic_row>& traffic() const { return counts_->rows; }
    /// The bytes that this rank has received: of calls of this kind, or, without one, of all.
    std::uint64_t bytes(const std::string& kind = "") const {
        std::uint64_t sum = 0;
        for (const traffic_row& r : counts_->rows) sum += kind.empty() || r.kind == kind ? r.bytes : 0;
        return sum;
    }
    /// The seconds in which at least one collective was under way: from the call that began it to the end of the wait for it.
    double seconds_under_way() const { return counts_->seconds_under_way; }
    /// The seconds of collectives under way in which this rank's program did nothing but begin collectives and wait for
    /// them.
    double seconds_waited() const {
        double sum = 0;
        for (const traffic_row& r : counts_->rows) sum += r.seconds_waited;
        return sum;
    }
    /// The share of the time under way that was not waited for, because the program computed meanwhile; 0 to 1.
    double hidden_share() const {
        return seconds_under_way() > 0 ? std::max(0.0, 1 - seconds_waited() / seconds_under_way()) : 0.0;
    }
    /// Forgets what was counted. Nothing may be under way.
    void clear() { counts_->clear(); }

  private:
    counted_communicator(communicator& inner, std::unique_ptr<communicator> owned, std::shared_ptr<detail::traffic_counts> counts)
        : communicator(inner.rank(), inner.size(), inner.options()), inner_(&inner), owned_(std::move(owned)),
          counts_(std::move(counts)) {}

    std::uint64_t others() const { return static_cast<std::uint64_t>(size() - 1); }
    template <class Begin>
    pending begun(const char* kind, const char* what, std::uint64_t bytes, const Begin& begin) {
        const std::size_t row = counts_->count(kind, what, bytes);
        counts_->begin();
        try {
            return pending(std::make_unique<detail::counted_collective>(counts_->waits(row, begin), counts_, row));
        } catch (...) {
            counts_->end();
            throw;
        }
    }

    communicator* inner_;
    std::unique_ptr<communicator> owned_;
    std::shared_ptr<detail::traffic_counts> counts_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
