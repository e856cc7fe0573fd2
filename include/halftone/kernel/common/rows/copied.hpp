// SPDX-License-Identifier: MIT
/// \file
/// Rows in shared memory on a GPU, for row-wise kernels that need more of them than their registers hold. Each thread
/// copies its own elements (cp.async, which needs no register) and reads no other's, so that it waits for its own copies
/// alone, without a barrier.
///
///     const on_device::row_pair<X, Y, n, threads, held> rows(simt, steps, x, dy, at);   // in registers, or from byte `at` on
///     steps.each_or_zeros([&](const auto& place) { sum += of(rows.first(simt, place), rows.second(simt, place)); });
#pragma once

#include <halftone/kernel/common/rows/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// One thread's vectors of a row in shared memory, number `me` and every Threads-th from there: chunks of 16 bytes,
/// consecutive threads' side by side.
template <class T, int N, int Threads, int Held>
struct copied_row {
    static constexpr int some = at_once<T, N>, parts = N / some;
    static constexpr word bytes = Held * parts * Threads * 16;
    static_assert(some * sizeof(T) == 16);

    word base;  // in bytes
    int me;

    /// Begins to copy vector number `held` of the thread's.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void request(Simt simt, int held, const global_span<const T>& row) const {
        HALFTONE_UNROLL for (int p = 0; p < parts; ++p) {
            const extent first = static_cast<extent>(me + held * Threads) * N + p * some;
            simt.async_copy16(place(held, p), row.part(first, some), some);
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<T, N> read(Simt simt, int held) const {
        vec<T, N> v;
        HALFTONE_UNROLL for (int p = 0; p < parts; ++p) {
            const simt::chunk<T> part = simt.load(place(held, p), 0);
            HALFTONE_UNROLL for (int e = 0; e < some; ++e) v[p * some + e] = part[e];
        }
        return v;
    }

  private:
    HALFTONE_HD HALFTONE_INLINE shared_span<simt::chunk<T>> place(int held, int part) const {
        return {base + static_cast<word>(((held * parts + part) * Threads + me) * 16), 1};
    }
};

/// One thread's part of two rows, as row_values has it of one. A wide block has them in shared memory: in registers they
/// would leave a multiprocessor one block, which loads, then computes, then stores.
template <class A, class B, int N, int Threads, int Held, bool IsWide = (Held > 0 && Threads > 256)>
class row_pair {
  public:
    static constexpr word bytes = 0;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE row_pair(Simt simt, const row_steps<N, Threads, Held>& steps,
                                         const global_span<const A>& a, const global_span<const B>& b, word)
        : a_(simt, steps, a), b_(simt, steps, b) {}
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE vec<float, M> first(Simt simt, const row_place<M>& place) const {
        return a_.at(simt, place);
    }
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE vec<float, M> second(Simt simt, const row_place<M>& place) const {
        return b_.at(simt, place);
    }

  private:
    row_values<A, N, Threads, Held> a_;
    row_values<B, N, Threads, Held> b_;
};

template <class A, class B, int N, int Threads, int Held>
class row_pair<A, B, N, Threads, Held, true> {
    using row_of_a = copied_row<A, N, Threads, Held>;
    using row_of_b = copied_row<B, N, Threads, Held>;

  public:
    static constexpr word bytes = row_of_a::bytes + row_of_b::bytes;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE row_pair(Simt simt, const row_steps<N, Threads, Held>& steps,
                                         const global_span<const A>& a, const global_span<const B>& b, word base)
        : a_{base, steps.me}, b_{base + row_of_a::bytes, steps.me} {
        steps.each([&](const auto& place) {
            a_.request(simt, place.held, a);
            b_.request(simt, place.held, b);
        });
        simt.async_commit();
        simt.async_wait(constant<0>{});
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<float, N> first(Simt simt, const row_place<N>& place) const {
        return place.is_there ? to_float(a_.read(simt, place.held)) : vec<float, N>{};
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<float, N> second(Simt simt, const row_place<N>& place) const {
        return place.is_there ? to_float(b_.read(simt, place.held)) : vec<float, N>{};
    }

  private:
    row_of_a a_;
    row_of_b b_;
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
