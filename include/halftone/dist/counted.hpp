// SPDX-License-Identifier: MIT
/// \file
/// A communicator that counts what another one moves: the bytes that a rank receives from the others, by kind and name.
///
///     ht::counted_communicator counted{comm};
///     ht::all_reduce<float>(device, counted, "h.0", gradients);
///     for (const ht::traffic_row& r : counted.traffic()) std::cout << r.what << ": " << r.bytes << '\n';
///
/// Bytes are those that a rank must receive whatever the engine does: pieces of other ranks, once each. So they are what
/// the scaling model predicts (dist/scaling_model.hpp), and they are equal on all engines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <halftone/dist/communicator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The calls of one kind and name.
struct traffic_row {
    std::string kind;         ///< "exchange", "all_gather" or "broadcast"
    std::string what;         ///< the name that the calls gave
    std::int64_t calls = 0;
    std::uint64_t bytes = 0;  ///< received from other ranks
};

/// Passes every call on to another communicator, which must live longer, and counts it when it begins. Its sub-groups
/// count into the same rows.
class counted_communicator final : public communicator {
  public:
    explicit counted_communicator(communicator& inner)
        : counted_communicator(inner, nullptr, std::make_shared<std::vector<traffic_row>>()) {}

    const char* engine() const override { return inner_->engine(); }
    pending begin_exchange(const char* what, const void* send, void* receive, std::size_t bytes) override {
        count("exchange", what, others() * bytes);
        return inner_->begin_exchange(what, send, receive, bytes);
    }
    pending begin_all_gather(const char* what, const void* mine, void* all, std::size_t bytes) override {
        count("all_gather", what, others() * bytes);
        return inner_->begin_all_gather(what, mine, all, bytes);
    }
    pending begin_broadcast(const char* what, void* data, std::size_t bytes, int root) override {
        count("broadcast", what, root == rank() ? 0 : bytes);
        return inner_->begin_broadcast(what, data, bytes, root);
    }
    void barrier(const char* what) override { inner_->barrier(what); }
    std::unique_ptr<communicator> split(int color, int key) override {
        auto part = inner_->split(color, key);
        communicator& of = *part;
        return std::unique_ptr<communicator>(new counted_communicator(of, std::move(part), rows_));
    }

    /// What was counted, in the order of first calls.
    const std::vector<traffic_row>& traffic() const { return *rows_; }
    /// The bytes that this rank has received: of calls of this kind, or, without one, of all.
    std::uint64_t bytes(const std::string& kind = "") const {
        std::uint64_t sum = 0;
        for (const traffic_row& r : *rows_) sum += kind.empty() || r.kind == kind ? r.bytes : 0;
        return sum;
    }
    /// Forgets what was counted.
    void clear() { rows_->clear(); }

  private:
    counted_communicator(communicator& inner, std::unique_ptr<communicator> owned,
                         std::shared_ptr<std::vector<traffic_row>> rows)
        : communicator(inner.rank(), inner.size(), inner.options()), inner_(&inner), owned_(std::move(owned)),
          rows_(std::move(rows)) {}

    std::uint64_t others() const { return static_cast<std::uint64_t>(size() - 1); }
    void count(const char* kind, const char* what, std::uint64_t bytes) {
        for (traffic_row& r : *rows_) {
            if (r.kind != kind || r.what != what) continue;
            ++r.calls, r.bytes += bytes;
            return;
        }
        rows_->push_back({kind, what, 1, bytes});
    }

    communicator* inner_;
    std::unique_ptr<communicator> owned_;
    std::shared_ptr<std::vector<traffic_row>> rows_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
