// SPDX-License-Identifier: MIT
/// \file
/// A communicator for plans: one rank of several, of which the others do not exist.
///
///     const ht::memory_plan of_a_rank = ht::plan(device, [&](auto& twin) {
///         ht::planned_communicator comm{8};                                // rank 0 of 8
///         ht::nn::gpt<ht::amp_bf16> model{twin, config};
///         ht::shard sharded{twin, model, comm, ht::zero2{}};
///         ...                                                              // as on 8 ranks
///     });
///
/// ht::shard gives all ranks equal pieces and ht::data_parallel equal buckets, so that the plan of one rank is that of all.
#pragma once

#include <cstring>

#include <halftone/memory/planned.hpp>
#include <halftone/ranks/call.hpp>
#include <halftone/ranks/communicator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A rank whose partners give what it gives: values in host memory are as if all ranks had the same, and in the memory of a
/// plan's twin, which has no contents, nothing moves. Calls return at once.
class planned_communicator final : public communicator {
  public:
    /// One of `ranks` ranks. Throws argument_error for a rank that is none of them.
    explicit planned_communicator(int ranks, int rank = 0) : communicator(rank, ranks, {}) {
        if (rank < 0 || rank >= ranks) fail<argument_error>("planned_communicator: rank ", rank, " of ", ranks, "; expected 0 to ", ranks - 1);
    }

    const char* engine() const override { return "plan"; }
    pending begin_exchange(const char*, const void* send, void* receive, std::size_t bytes) override {
        repeat(static_cast<const std::byte*>(send) + static_cast<std::size_t>(rank()) * bytes, receive, bytes);
        return {};
    }
    pending begin_all_gather(const char*, const void* mine, void* all, std::size_t bytes) override {
        repeat(mine, all, bytes);
        return {};
    }
    pending begin_broadcast(const char*, void*, std::size_t, int root) override {
        detail::expect_root(root, size());
        return {};
    }
    void barrier(const char*) override {}
    /// All ranks give the same color: the group is that of all.
    std::unique_ptr<communicator> split(int color, int) override {
        detail::expect_color(color);
        return std::make_unique<planned_communicator>(size(), rank());
    }

  private:
    /// Every piece of `all` is `mine`, which may be one of them.
    void repeat(const void* mine, void* all, std::size_t bytes) const {
        if (bytes == 0 || planned_memory::is_planned(mine) || planned_memory::is_planned(all)) return;
        for (int i = 0; i < size(); ++i) {
            std::byte* const piece = static_cast<std::byte*>(all) + static_cast<std::size_t>(i) * bytes;
            if (piece != mine) std::memcpy(piece, mine, bytes);
        }
    }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
