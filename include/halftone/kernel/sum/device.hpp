// SPDX-License-Identifier: MIT
/// \file
/// Sums over all elements on a GPU; sum.hpp has their contract and an example.
///
/// Each block sums a piece of sum_piece elements; one more block adds the pieces in double.
#pragma once

#include <utility>

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/map/expression/scalar.hpp>
#include <halftone/kernel/map/fp64.hpp>
#include <halftone/kernel/sum/sum.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The sum of each piece, in float.
template <class E, int N, class... X>
struct sum_pieces_kernel {
    using team = row_team<256, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;
    using input_numbers = std::index_sequence_for<X...>;

    E expression;
    pack<global_span<const X>...> inputs;
    global_span<float> sums;
    row_partition partition;

    grid_shape grid() const { return team::grid(partition.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent piece = team::row(simt), begin = partition.begin(piece);
        const row_walk<N> walk = walk_of(begin, partition.rows_of(piece), input_numbers{});
        float mine = 0;
        for (extent k = team::member(simt); k < walk.items(); k += threads) {
            mine += k < walk.vectors ? sum_of<N>(simt, begin + walk.head, k, input_numbers{})
                                     : sum_of<1>(simt, begin, walk.edge(k), input_numbers{});
        }
        const float sum = team::sum(simt, mine, constant<0>{});
        if (simt.thread() == 0) simt.store(sums, piece, sum);
    }

  private:
    template <std::size_t... I>
    HALFTONE_HD HALFTONE_INLINE row_walk<N> walk_of(extent begin, extent count, std::index_sequence<I...>) const {
        return row_walk<N>::over(count, inputs.template at<I>().data + begin...);
    }
    /// The terms of vector number i from element `begin` on.
    HALFTONE_KERNEL template <int M, class Simt, std::size_t... I>
    HALFTONE_HD HALFTONE_INLINE float sum_of(Simt simt, extent begin, extent i, std::index_sequence<I...>) const {
        const vec<float, M> x[] = {load_floats<M>(simt, inputs.template at<I>().from(begin), i)...};
        float sum = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
            const float arguments[] = {x[I][e]...};
            sum += scalar::evaluate(expression, arguments);
        }
        return sum;
    }
};

/// out = factor times the sum of the pieces.
template <class Y>
struct sum_total_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(double);

    global_span<const float> sums;
    double factor;
    global_span<Y> out;

    grid_shape grid() const { return {1, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        double mine = 0;
        for (extent i = simt.thread(); i < sums.count; i += threads) mine += static_cast<double>(simt.load(sums, i));
        mine = simt::warp_sum(simt, mine);
        const shared_span<double> scratch{0, threads / 32};
        if (simt.lane() == 0) simt.store(scratch, simt.warp(), mine);
        simt.barrier();
        if (simt.thread() != 0) return;
        double total = 0;
        HALFTONE_UNROLL for (int w = 0; w < threads / 32; ++w) total += simt.load(scratch, w);
        simt.store(out, 0, static_cast<Y>(factor * total));
    }
};

}  // namespace on_device

template <simt_device Device>
struct sum<Device> {
    template <expression E, class... X, class Y>
    static void run(Device& device, const E& e, const pack<view<const X, 1>...>& inputs, double factor,
                    const view<Y, 0>& out) {
        if constexpr (in_double<X..., Y>) {
            fp64::sum(device, e, inputs, factor, out);
        } else {
            run_each(device, e, inputs, factor, out, std::index_sequence_for<X...>{});
        }
    }

  private:
    template <class E, class... X, class Y, std::size_t... I>
    static void run_each(Device& device, const E& e, const pack<view<const X, 1>...>& inputs, double factor,
                         const view<Y, 0>& out, std::index_sequence<I...>) {
        using namespace on_device;
        const shape<1> all = inputs.first.shape();
        (expect("sum", "an input", inputs.template at<I>(), all), ...);
        const row_partition partition = partition_rows(all.size(), 1, sum_piece);
        const workspace::lease lease(device.scratch(), static_cast<std::size_t>(partition.count) * sizeof(float));
        const global_span<float> sums{lease.as<float>(), partition.count};
        constexpr int n = longest<X...>;
        device.launch(
            sum_pieces_kernel<E, n, X...>{e, make_pack(simt::span_of(inputs.template at<I>())...), sums, partition});
        device.launch(sum_total_kernel<Y>{{sums.data, sums.count}, factor, {out.data(), 1}});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
