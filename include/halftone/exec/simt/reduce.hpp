// SPDX-License-Identifier: MIT
/// \file
/// Sums and maxima over a warp or a block, by a reduction tree that depends only on the number of threads.
///
///     const float total = simt::block_sum<threads>(simt, mine, scratch);      // the same bits in every thread
///
/// `scratch` is shared memory for one value a warp. Block-wide reductions have a barrier before and one after their use
/// of it, so that consecutive reductions can use the same scratch.
#pragma once

#include <halftone/exec/simt/simt.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace simt {

struct plus {
    template <class T>
    HALFTONE_HD constexpr T operator()(T a, T b) const {
        return a + b;
    }
};
struct maximum {
    template <class T>
    HALFTONE_HD constexpr T operator()(T a, T b) const {
        return a < b ? b : a;
    }
};

HALFTONE_KERNEL template <class Simt, class T, class Combine>
HALFTONE_HD HALFTONE_INLINE T warp_reduce(Simt simt, T value, Combine combine) {
    HALFTONE_UNROLL for (int mask = 16; mask > 0; mask /= 2) value = combine(value, simt.shuffle_xor(value, mask));
    return value;
}
HALFTONE_KERNEL template <class Simt, class T>
HALFTONE_HD HALFTONE_INLINE T warp_sum(Simt simt, T value) {
    return warp_reduce(simt, value, plus{});
}
HALFTONE_KERNEL template <class Simt, class T>
HALFTONE_HD HALFTONE_INLINE T warp_max(Simt simt, T value) {
    return warp_reduce(simt, value, maximum{});
}

HALFTONE_KERNEL template <int Threads, class Simt, class T, class Combine>
HALFTONE_HD HALFTONE_INLINE T block_reduce(Simt simt, T value, shared_span<T> scratch, Combine combine) {
    constexpr int warps = Threads / 32;
    static_assert(Threads % 32 == 0);
    value = warp_reduce(simt, value, combine);
    if constexpr (warps == 1) {
        return value;
    } else {
        simt.barrier();
        if (simt.lane() == 0) simt.store(scratch, simt.warp(), value);
        simt.barrier();
        T all = simt.load(scratch, 0);
        HALFTONE_UNROLL for (int w = 1; w < warps; ++w) all = combine(all, simt.load(scratch, w));
        return all;
    }
}
HALFTONE_KERNEL template <int Threads, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE T block_sum(Simt simt, T value, shared_span<T> scratch) {
    return block_reduce<Threads>(simt, value, scratch, plus{});
}
HALFTONE_KERNEL template <int Threads, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE T block_max(Simt simt, T value, shared_span<T> scratch) {
    return block_reduce<Threads>(simt, value, scratch, maximum{});
}

}  // namespace simt
}  // namespace HALFTONE_ABI
}  // namespace halftone
