// SPDX-License-Identifier: MIT
/// \file
/// The strategy of few columns, as low-rank adapters have: every thread packs all of b for itself and takes blocks of rows
/// that nobody has taken.
///
///                 b, packed by each thread: its L2 (256 KiB)
///                 +-----+
///                 |     |  k
///                 +-----+
///       a            |
///     +--------+  +--v--+
///     | block  |->|     |   block_rows: a thread's turn; sums in L1 and L2
///     +--------+  +-----+
///     | block  |  |     |   the next thread's turn
///
/// - Packed: b once a thread; a block of a by who takes it, a piece of k at a time, unless it is read in place.
/// - Wins where two threads would pack half of b each, wait for each other, and read what the other had just written, twice
///   for every chunk of k. Zen 4: 256 x 16 x 3072 in bf16 1.18 times shared_b, 1024 x 16 x 3072 1.05.
#pragma once

#include <halftone/kernel/matmul/cpu/strategy/vector_product.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class private_b_product : vector_product {
  public:
    explicit private_b_product(const product_task& task) : vector_product(task) {}

    void run() const {
        const slice s(*this);
        const std::size_t block_and_sums = plan_.block_bytes + plan_.sums_bytes;
        std::atomic<extent> next{0};
        device_.parallel_for(
            std::min<extent>(device_.threads(), blocks_),
            block_and_sums + times(s.panels * s.pieces, plan_.panel_bytes), [&](extent, std::byte* scratch) {
                const auto claim = [&] { return next.fetch_add(1, std::memory_order_relaxed); };
                auto* const sums = reinterpret_cast<float*>(scratch + plan_.block_bytes);
                std::byte* const panels = scratch + block_and_sums;
                extent block = claim();
                for (extent piece = 0; piece < s.pieces && block < blocks_; ++piece)
                    pack_panels(s, 0, s.panels, piece, panels + panel_offset(s, 0, piece), plan_.panel_bytes);
                for (; block < blocks_; block = claim()) multiply_group(s, block, 0, nullptr, panels, scratch, sums);
            });
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
