// SPDX-License-Identifier: MIT
/// \file
/// How the indices of a parallel region are distributed over workers.
///
/// Each worker begins with a contiguous range of indices, its share, and takes indices from other workers' shares (work
/// stealing) when it has finished. So if consecutive regions partition an array in the same way, a worker mostly gets
/// the part that is still in its caches, and no worker waits for one that was delayed.
#pragma once

#include <algorithm>
#include <atomic>

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class index_shares {
  public:
    index_shares(extent count, int workers);

    /// Calls run(index), as one of the workers, until every index has been taken.
    template <class Run>
    void run(int worker, const Run& run) {
        for (int i = 0; i < used_; ++i) {
            share& from = shares_[(worker + i) % used_];
            while (from.next.load(std::memory_order_relaxed) < from.end) {
                const extent index = from.next.fetch_add(1, std::memory_order_relaxed);
                if (index < from.end) run(index);
            }
        }
    }

  private:
    static constexpr int most = 64;
    struct alignas(64) share {
        std::atomic<extent> next;
        extent end;
    };

    int used_;
    share shares_[most];
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/exec/cpu/shares.body.hpp>
#endif
