// SPDX-License-Identifier: MIT
/// \file
/// Embedding on devices that run GPU kernels; embedding.hpp has its arguments, its contract and an example.
///
/// The gradient of the table uses no atomic additions: the device sorts the rows by token, after which every token is a
/// run of places. Each piece of places is summed by its threads; for a run that crosses pieces, the pieces' sums are
/// added in order. The time is linear in the number of rows, and nearly independent of how often a token occurs.
#pragma once

#include <bit>

#include <halftone/exec/simt/sort.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/kernel/embedding/fp64.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// A thread's row, and its vector in it: `across` threads along a row, several rows in a block.
struct embedding_threads {
    static constexpr int threads = 128;
    extent rows, vectors;
    int across = 1;

    embedding_threads(extent r, extent v) : rows(r), vectors(v) {
        while (across < threads && across < vectors) across *= 2;
    }
    grid_shape grid() const {
        return simt::folded(simt::blocks_for(rows, threads / across), detail::ceil_div(vectors, across));
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE extent row(Simt simt) const {
        return static_cast<extent>(simt.block().x) * (threads / across) + simt.thread() / across;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE extent vector(Simt simt) const {
        return simt::folded_row(simt.block()) * across + simt.thread() % across;
    }
};

/// A vector of a row of `width` elements.
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<float, N> load_from_row(Simt simt, const global_span<T>& all, extent width, extent row,
                                                        extent i) {
    return load_floats<N>(simt, all.part(row * width, width), i);
}
HALFTONE_KERNEL template <int N, class Simt, class G>
HALFTONE_HD HALFTONE_INLINE void store_gradient(Simt simt, const global_span<G>& all, extent width, extent row,
                                                extent i, vec<float, N> sum, write_mode mode) {
    if (mode == write_mode::add) {
        const vec<float, N> old = load_from_row<N>(simt, all, width, row, i);
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) sum[e] = old[e] + sum[e];
    }
    store_rounded<N>(simt, all.part(row * width, width), i, sum);
}
template <int N>
HALFTONE_HD HALFTONE_INLINE void add_to(vec<float, N>& sum, const vec<float, N>& v) {
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) sum[e] += v[e];
}

template <class T, class Y, int N>
struct embedding_kernel {
    static constexpr int threads = embedding_threads::threads;
    static constexpr word shared_bytes = 0;

    global_span<const std::int32_t> tokens;
    global_span<const T> table, positions;
    global_span<Y> out;
    extent vocabulary, period, width;
    embedding_threads place;
    global_span<const std::int32_t> position_of;  // or empty

    grid_shape grid() const { return place.grid(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = place.row(simt), i = place.vector(simt);
        if (row >= place.rows || i >= place.vectors) return;
        const std::int32_t token = simt.load(tokens, row);
        const extent position = position_of.is_there() ? simt.load(position_of, row)
                                : positions.is_there() ? row % period
                                                       : 0;
        vec<float, N> v;
        if (token < 0 || token >= vocabulary || position < 0 || (positions.is_there() && position >= period)) {
            HALFTONE_UNROLL for (int e = 0; e < N; ++e) v[e] = bit_cast<float>(word{0x7fc00000});
        } else {
            v = load_from_row<N>(simt, table, width, token, i);
            if (positions.is_there()) add_to(v, load_from_row<N>(simt, positions, width, position, i));
        }
        store_rounded<N>(simt, out.part(row * width, width), i, v);
    }
};

/// The sort keys of rows: their tokens. An invalid token sorts after all others, as `vocabulary`, at most 2^31.
struct embedding_keys_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = 0;

    global_span<const std::int32_t> tokens;  // (rows)
    global_span<word> keys;                  // (rows)
    global_span<std::int32_t> rows;          // (rows), their indices
    word vocabulary;
    word padding = ~word{0};                 // a token that counts as invalid; no token is ~0

    grid_shape grid() const { return simt::blocks_for(tokens.count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (row >= tokens.count) return;
        const word token = static_cast<word>(simt.load(tokens, row));  // 2^31 or more if it is negative
        simt.store(keys, row, token < vocabulary && token != padding ? token : vocabulary);
        simt.store(rows, row, static_cast<std::int32_t>(row));
    }
};

/// What the two kernels that sum runs of places share. `begun` gets the sum of a piece's last run if it continues in
/// the next piece, `continued` the sum of its first run if it comes from the piece before. `finish` gets the sum of a
/// whole run: its token, one of its places, and the vector.
template <class Y, class G, int N>
struct embedding_runs {
    static constexpr int n = N;
    static constexpr extent places = 16;  // places in a piece

    global_span<const word> sorted;         // (rows), the keys
    global_span<const std::int32_t> order;  // (rows)
    global_span<const Y> dy;                // (rows, width)
    global_span<G> dtable;                  // (vocabulary, width)
    global_span<float> begun, continued;    // (pieces, width)
    extent rows, width;
    word vocabulary;
    write_mode mode;

    static constexpr extent pieces_of(extent rows) { return detail::ceil_div(rows, places); }
    HALFTONE_HD extent end_of(extent piece) const { return (piece + 1) * places < rows ? (piece + 1) * places : rows; }

    /// Whether the place before has the same token, and whether the place after has.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE bool continues_from_before(Simt simt, extent place) const {
        return place > 0 && simt.load(sorted, place - 1) == simt.load(sorted, place);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE bool continues_after(Simt simt, extent place) const {
        return place + 1 < rows && simt.load(sorted, place + 1) == simt.load(sorted, place);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, extent token, extent, extent i, const vec<float, N>& sum) const {
        if (token < vocabulary) store_gradient<N>(simt, dtable, width, token, i, sum, mode);
    }
};

template <class Runs>
struct embedding_sums_kernel {
    static constexpr int threads = embedding_threads::threads;
    static constexpr word shared_bytes = 0;
    static constexpr int N = Runs::n;

    Runs runs;
    embedding_threads place;  // its rows are pieces

    grid_shape grid() const { return place.grid(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent piece = place.row(simt), i = place.vector(simt);
        if (piece >= place.rows || i >= place.vectors) return;
        const extent begin = piece * runs.places, end = runs.end_of(piece);
        extent token = simt.load(runs.sorted, begin);
        bool from_before = runs.continues_from_before(simt, begin);
        vec<float, N> sum{};
        for (extent at = begin; at < end; ++at) {
            const extent next = simt.load(runs.sorted, at);
            if (next != token) {
                if (from_before) {
                    store_rounded<N>(simt, runs.continued.part(piece * runs.width, runs.width), i, sum);
                } else {
                    runs.finish(simt, token, at - 1, i, sum);
                }
                token = next, from_before = false, sum = {};
            }
            add_to(sum, load_from_row<N>(simt, runs.dy, runs.width, simt.load(runs.order, at), i));
        }
        if (from_before) {
            store_rounded<N>(simt, runs.continued.part(piece * runs.width, runs.width), i, sum);
        } else if (runs.continues_after(simt, end - 1)) {
            store_rounded<N>(simt, runs.begun.part(piece * runs.width, runs.width), i, sum);
        } else {
            runs.finish(simt, token, end - 1, i, sum);
        }
    }
};

/// Adds up the runs that cross pieces, each by the threads of the piece in which it begins.
template <class Runs>
struct embedding_joins_kernel {
    static constexpr int threads = embedding_threads::threads;
    static constexpr word shared_bytes = 0;
    static constexpr int N = Runs::n;

    Runs runs;
    embedding_threads place;

    grid_shape grid() const { return place.grid(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent piece = place.row(simt), i = place.vector(simt);
        if (piece >= place.rows || i >= place.vectors) return;
        const extent begin = piece * runs.places, end = runs.end_of(piece);
        const extent token = simt.load(runs.sorted, end - 1);
        const bool begins_here = simt.load(runs.sorted, begin) != token || !runs.continues_from_before(simt, begin);
        if (!begins_here || !runs.continues_after(simt, end - 1)) return;
        vec<float, N> sum = load_from_row<N>(simt, runs.begun, runs.width, piece, i);
        for (extent later = piece + 1;; ++later) {
            add_to(sum, load_from_row<N>(simt, runs.continued, runs.width, later, i));
            const extent last = runs.end_of(later) - 1;
            if (simt.load(runs.sorted, last) != token || !runs.continues_after(simt, last)) break;
        }
        runs.finish(simt, token, end - 1, i, sum);
    }
};

/// dpositions[p] = (or +=) the sum of the rows p, p + period, p + 2 period, ...
template <class Y, class G, int N>
struct embedding_positions_kernel {
    static constexpr int threads = embedding_threads::threads;
    static constexpr word shared_bytes = 0;

    global_span<const Y> dy;
    global_span<G> dpositions;
    extent rows, width;
    write_mode mode;
    embedding_threads place;  // its rows are positions

    grid_shape grid() const { return place.grid(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent position = place.row(simt), i = place.vector(simt), period = place.rows;
        if (position >= period || i >= place.vectors) return;
        vec<float, N> sum{};
        for (extent row = position; row < rows; row += period) add_to(sum, load_from_row<N>(simt, dy, width, row, i));
        store_gradient<N>(simt, dpositions, width, position, i, sum, mode);
    }
};

}  // namespace on_device

/// The host cannot read the tokens, so invalid ones do not throw: in the forward pass such a token gives a row of NaN,
/// in the backward pass its gradient is dropped.
template <simt_device Device>
struct embedding<Device> {
    template <class T, class Y>
        requires in_double<T, Y>
    static void forward(Device& device, const embedding_forward<T, Y>& a) {
        fp64::embed(device, a);
    }
    template <class Y, class G>
        requires in_double<Y, G>
    static void backward(Device& device, const embedding_backward<Y, G>& a) {
        fp64::embed(device, a);
    }
    template <class T, class Y>
    static void forward(Device& device, const embedding_forward<T, Y>& a) {
        check(a);
        const extent rows = a.tokens.extent_of(0), width = a.table.extent_of(1);
        if (a.out.size() == 0) return;
        with_vectors<T, Y>(width, a.table.data(), a.positions.data(), a.out.data(), [&]<int N>(simt::constant<N>) {
            device.launch(on_device::embedding_kernel<T, Y, N>{
                simt::span_of(a.tokens), simt::span_of(a.table), simt::span_of(a.positions), simt::span_of(a.out),
                a.table.extent_of(0), a.positions.extent_of(0), width, on_device::embedding_threads(rows, width / N),
                simt::span_of(a.position_of)});
        });
    }

    template <class Y, class G>
    static void backward(Device& device, const embedding_backward<Y, G>& a) {
        check(a);
        if (a.dtable.data() != nullptr) backward_tokens(device, a);
        if (a.dpositions.data() != nullptr) backward_positions(device, a);
    }

  private:
    template <class... T, class A, class B, class C, class F>
    static void with_vectors(extent width, const A* a, const B* b, const C* c, const F& f) {
        constexpr int n = on_device::longest<T...>;
        if (on_device::can_use_vectors(n, width, a, b, c)) {
            f(simt::constant<n>{});
        } else {
            f(simt::constant<1>{});
        }
    }

    template <class Y, class G>
    static void backward_tokens(Device& device, const embedding_backward<Y, G>& a) {
        static_assert(sorting_device<Device>,
                      "halftone: embedding: the gradient of a table sorts its rows, and this device's sort is not "
                      "included: include <halftone/exec/cuda/sort.cuh> for ht::cuda");
        const extent rows = a.tokens.extent_of(0), width = a.dy.extent_of(1);
        if (a.mode == write_mode::overwrite) device.fill(a.dtable.data(), a.dtable.size(), G(0.0f));
        if (a.dy.size() == 0 || a.dtable.size() == 0) return;
        constexpr extent most = extent{1} << 31;
        const auto vocabulary = static_cast<simt::word>(a.dtable.extent_of(0) < most ? a.dtable.extent_of(0) : most);

        const workspace::lease places(device.scratch(), static_cast<std::size_t>(4 * rows) * sizeof(simt::word));
        auto *const keys = places.as<simt::word>(), *const sorted = keys + rows;
        auto *const numbers = places.as<std::int32_t>() + 2 * rows, *const order = numbers + rows;
        device.launch(
            on_device::embedding_keys_kernel{simt::span_of(a.tokens), {keys, rows}, {numbers, rows}, vocabulary});
        sort_pairs(device, keys, sorted, numbers, order, rows, std::bit_width(vocabulary));

        const extent pieces = on_device::embedding_runs<Y, G, 1>::pieces_of(rows);
        const workspace::lease partials(device.scratch(), static_cast<std::size_t>(2 * pieces * width) * sizeof(float));
        float* const sums = partials.as<float>();
        with_vectors<Y, G, float>(
            width, a.dy.data(), a.dtable.data(), sums + pieces * width, [&]<int N>(simt::constant<N>) {
                using runs_type = on_device::embedding_runs<Y, G, N>;
                const runs_type runs{{sorted, rows},
                                                              {order, rows},
                                                              simt::span_of(a.dy),
                                                              simt::span_of(a.dtable),
                                                              {sums, pieces * width},
                                                              {sums + pieces * width, pieces * width},
                                                              rows,
                                                              width,
                                                              vocabulary,
                                                              a.mode};
                const on_device::embedding_threads place(pieces, width / N);
                device.launch(on_device::embedding_sums_kernel<runs_type>{runs, place});
                device.launch(on_device::embedding_joins_kernel<runs_type>{runs, place});
            });
    }

    template <class Y, class G>
    static void backward_positions(Device& device, const embedding_backward<Y, G>& a) {
        const extent width = a.dy.extent_of(1), period = a.dpositions.extent_of(0);
        if (a.dpositions.size() == 0) return;
        const G* const none = nullptr;
        with_vectors<Y, G>(width, a.dy.data(), a.dpositions.data(), none, [&]<int N>(simt::constant<N>) {
            device.launch(on_device::embedding_positions_kernel<Y, G, N>{
                simt::span_of(a.dy), simt::span_of(a.dpositions), a.tokens.extent_of(0), width, a.mode,
                on_device::embedding_threads(period, width / N)});
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
