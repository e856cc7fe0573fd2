// SPDX-License-Identifier: MIT
/// \file
/// The sparse gradient of an embedding's table on devices that run GPU kernels; embedding_rows.hpp has its arguments,
/// its contract and an example.
///
/// Lookups are sorted by token and their runs summed as for a dense gradient (kernel/embedding/device.hpp), with the
/// same bits. The row of each run's sum follows from the number of runs before it whose token has no row yet (a prefix
/// sum), and from a binary search among the existing rows; these move up to make room, from a copy. Only the device
/// knows the resulting number of rows: grids are for the number of lookups and the capacity.
#pragma once

#include <halftone/kernel/embedding/device.hpp>
#include <halftone/kernel/embedding_rows/embedding_rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The lookups by token, and the rows of earlier calls.
struct row_merge {
    global_span<const word> sorted;          // (lookups), the keys of embedding_keys_kernel
    global_span<const std::int32_t> old;     // (before), ascending; only the first `olds` are valid
    global_span<const std::int32_t> olds;    // one, or empty if there are no rows yet
    word vocabulary;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE extent old_rows(Simt simt) const {
        return olds.is_there() ? simt.load(olds, 0) : 0;
    }
    /// How many of the first `count` values, which are ascending, are below `value`.
    HALFTONE_KERNEL template <class Simt, class T>
    HALFTONE_HD HALFTONE_INLINE static extent below(Simt simt, const global_span<const T>& values, extent count,
                                                    T value) {
        extent first = 0;
        while (count > 0) {
            const extent half = count / 2;
            if (simt.load(values, first + half) < value) {
                first += half + 1, count -= half + 1;
            } else {
                count = half;
            }
        }
        return first;
    }
};

/// What is known about the token at one place of the sorted lookups.
struct merged_place {
    extent below = 0;        // existing rows of smaller tokens
    bool is_token = false;   // an invalid token has no row
    bool is_old = false;     // the token has a row already
    bool begins_new = false; // a run begins here whose token needs a new row
};
HALFTONE_KERNEL template <class Simt>
HALFTONE_HD HALFTONE_INLINE merged_place merge_place(Simt simt, const row_merge& m, extent place) {
    merged_place p;
    if (place >= m.sorted.count) return p;
    const word token = simt.load(m.sorted, place);
    if (token >= m.vocabulary) return p;
    const extent old_rows = m.old_rows(simt);
    const auto index = static_cast<std::int32_t>(token);
    p.is_token = true;
    p.below = row_merge::below(simt, m.old, old_rows, index);
    p.is_old = p.below < old_rows && simt.load(m.old, p.below) == index;
    p.begins_new = !p.is_old && (place == 0 || simt.load(m.sorted, place - 1) != token);
    return p;
}

/// begins_new[place] = 1 if a run begins there whose token has no row yet, otherwise 0.
struct mark_new_rows_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = 0;

    row_merge merge;
    global_span<word> begins_new;  // (lookups)

    grid_shape grid() const { return simt::blocks_for(merge.sorted.count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent place = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (place >= merge.sorted.count) return;
        simt.store(begins_new, place, merge_place(simt, merge, place).begins_new ? 1u : 0u);
    }
};

/// For each place, the row of its run's sum; an existing row r is marked as ~r. The last place writes the new number of
/// rows.
struct place_rows_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = 0;

    row_merge merge;
    global_span<const word> new_up_to;    // (lookups), number of new rows up to each place
    global_span<std::int32_t> targets;    // (lookups)
    global_span<std::int32_t> indices;    // (capacity): writes those of new rows
    global_span<std::int32_t> count;      // one

    grid_shape grid() const { return simt::blocks_for(merge.sorted.count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent place = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (place >= merge.sorted.count) return;
        const merged_place p = merge_place(simt, merge, place);
        const word sum = simt.load(new_up_to, place);
        const auto row = static_cast<std::int32_t>(p.below + sum) - (p.is_old ? 0 : 1);
        simt.store(targets, place, !p.is_token ? 0 : p.is_old ? ~row : row);
        if (p.begins_new) simt.store(indices, row, static_cast<std::int32_t>(simt.load(merge.sorted, place)));
        if (place + 1 == merge.sorted.count)
            simt.store(count, 0, static_cast<std::int32_t>(merge.old_rows(simt) + sum));
    }
};

/// Moves the existing rows to their new places.
template <class G, int N>
struct move_rows_kernel {
    static constexpr int threads = embedding_threads::threads;
    static constexpr word shared_bytes = 0;

    row_merge merge;
    global_span<const word> new_up_to;
    global_span<const G> old_values;     // (before, width)
    global_span<std::int32_t> indices;   // (capacity)
    global_span<G> values;               // (capacity, width)
    extent width;
    embedding_threads place;

    grid_shape grid() const { return place.grid(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = place.row(simt), i = place.vector(simt);
        if (row >= merge.old_rows(simt) || i >= place.vectors) return;
        const std::int32_t index = simt.load(merge.old, row);
        const extent before = row_merge::below(simt, merge.sorted, merge.sorted.count, static_cast<word>(index));
        const extent to = row + (before == 0 ? 0 : simt.load(new_up_to, before - 1));
        if (i == 0) simt.store(indices, to, index);
        store_rounded<N>(simt, values.part(to * width, width), i, load_from_row<N>(simt, old_values, width, row, i));
    }
};

/// Sums the gradients of runs of equal tokens, as for a dense gradient, into the rows of a sparse one.
template <class Y, class G, int N>
struct embedding_row_runs : embedding_runs<Y, G, N> {
    global_span<const std::int32_t> targets;  // (lookups)

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, extent token, extent place, extent i,
                                            const vec<float, N>& sum) const {
        if (token >= this->vocabulary) return;
        const std::int32_t target = simt.load(targets, place);
        store_gradient<N>(simt, this->dtable, this->width, target < 0 ? ~target : target, i, sum,
                          target < 0 ? write_mode::add : write_mode::overwrite);
    }
};

}  // namespace on_device

template <simt_device Device>
struct embedding_rows<Device> {
    template <class Y, class G>
    static void add(Device& device, const embedding_rows_backward<Y, G>& a) {
        static_assert(
            sorting_device<Device> && summing_device<Device>,
            "halftone: embedding_rows: the gradient of a table sorts its lookups and sums how many begin a "
            "row, and this device's sort is not included: include <halftone/exec/cuda/sort.cuh> for ht::cuda");
        check(a);
        using namespace on_device;
        const extent lookups = a.tokens.extent_of(0), width = a.dy.extent_of(1), before = a.before;
        if (lookups == 0 || a.vocabulary == 0 || width == 0) {
            if (before == 0) device.fill(a.rows.count, 1, std::int32_t{0});
            return;
        }
        constexpr extent most = extent{1} << 31;
        const auto vocabulary = static_cast<word>(a.vocabulary < most ? a.vocabulary : most);
        const extent pieces = embedding_runs<Y, G, 1>::pieces_of(lookups);

        // Words: keys, sorted keys, new rows up to each place, indices, order, targets; old rows and their count.
        const workspace::lease words(device.scratch(),
                                     static_cast<std::size_t>(6 * lookups + before + 1) * sizeof(word));
        auto *const keys = words.as<word>(), *const sorted = keys + lookups, *const up_to = sorted + lookups;
        auto *const numbers = reinterpret_cast<std::int32_t*>(up_to + lookups), *const order = numbers + lookups,
                    *const targets = order + lookups;
        auto *const olds = targets + lookups, *const old = olds + 1;
        const workspace::lease old_rows(device.scratch(), static_cast<std::size_t>(before * width) * sizeof(G));
        G* const old_values = old_rows.as<G>();
        const workspace::lease partials(device.scratch(), static_cast<std::size_t>(2 * pieces * width) * sizeof(float));
        float* const sums = partials.as<float>();

        device.launch(embedding_keys_kernel{
            simt::span_of(a.tokens), {keys, lookups}, {numbers, lookups}, vocabulary, static_cast<word>(a.padding)});
        sort_pairs(device, keys, sorted, numbers, order, lookups, std::bit_width(vocabulary));

        row_merge merge{{sorted, lookups}, {old, before}, {}, vocabulary};
        if (before > 0) {
            device.copy(olds, a.rows.count, sizeof(std::int32_t));
            device.copy(old, a.rows.indices.data(), static_cast<std::size_t>(before) * sizeof(std::int32_t));
            device.copy(old_values, a.rows.values.data(), static_cast<std::size_t>(before * width) * sizeof(G));
            merge.olds = {olds, 1};
        }
        device.launch(mark_new_rows_kernel{merge, {up_to, lookups}});
        inclusive_sum(device, up_to, lookups);
        device.launch(place_rows_kernel{
            merge, {up_to, lookups}, {targets, lookups}, simt::span_of(a.rows.indices), {a.rows.count, 1}});
        with_vectors<Y, G>(a, [&]<int N>(simt::constant<N>) {
            if (before > 0) {
                device.launch(move_rows_kernel<G, N>{merge,
                                                     {up_to, lookups},
                                                     {old_values, before * width},
                                                     simt::span_of(a.rows.indices),
                                                     simt::span_of(a.rows.values),
                                                     width,
                                                     embedding_threads(before, width / N)});
            }
            using runs_type = embedding_row_runs<Y, G, N>;
            const runs_type runs{{{sorted, lookups},
                                  {order, lookups},
                                  simt::span_of(a.dy),
                                  simt::span_of(a.rows.values),
                                  {sums, pieces * width},
                                  {sums + pieces * width, pieces * width},
                                  lookups,
                                  width,
                                  vocabulary,
                                  write_mode::add},
                                 {targets, lookups}};
            const embedding_threads place(pieces, width / N);
            device.launch(embedding_sums_kernel<runs_type>{runs, place});
            device.launch(embedding_joins_kernel<runs_type>{runs, place});
        });
    }

  private:
    template <class Y, class G, class F>
    static void with_vectors(const embedding_rows_backward<Y, G>& a, const F& f) {
        // As for a dense gradient, whose partial sums are vectors, too; leased memory is aligned.
        constexpr int n = on_device::longest<Y, G, float>;
        if (on_device::can_use_vectors(n, a.dy.extent_of(1), a.dy.data(), a.rows.values.data())) {
            f(simt::constant<n>{});
        } else {
            f(simt::constant<1>{});
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
