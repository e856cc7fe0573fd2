// SPDX-License-Identifier: MIT
/// \file
/// Normalisation by channels on the CPU; channel_norm.hpp has the contract and examples.
///
/// A task processes some segments, each in blocks of floats that fit into the cache: elements of other types are
/// widened to floats, and results are rounded, one block at a time.
#pragma once

#include <algorithm>

#include <halftone/kernel/axis_reduction/cpu.hpp>
#include <halftone/kernel/channel_norm/each/whole.hpp>

#define HALFTONE_BODY <halftone/kernel/channel_norm/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace channel_cpu {

using axis_cpu::sink;
using axis_cpu::source;
using channel_each::segment_line;
using channel_each::segment_slope;
using channel_each::segment_sums;

/// Scratch memory of a worker.
struct worker {
    float x[axis_block], dy[axis_block], to[axis_block];
};

/// Calls block(segment, first, count, worker) for the blocks of each segment; `first` is the index of the block's first
/// element in the whole tensor.
template <class Block>
void for_blocks(cpu& device, const channel_sets& sets, const Block& block) {
    const row_partition partition = partition_rows(sets.segments(), sets.area);
    device.parallel_for(partition.count, sizeof(worker), [&](extent piece, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent begin = partition.begin(piece), end = begin + partition.rows_of(piece);
        for (extent segment = begin; segment < end; ++segment) {
            for (extent i = 0; i < sets.area; i += axis_block)
                block(segment, segment * sets.area + i, std::min(axis_block, sets.area - i), w);
        }
    });
}

inline void apply(cpu& device, const channel_sets& sets, const source& x, const segment_line<float>* table,
                  const sink& y) {
    const auto body = device.select(HALFTONE_EACH_SET(apply_line));
    for_blocks(device, sets, [&](extent segment, extent first, extent count, worker& w) {
        body(x.floats(first, 1, count, w.x), count, table[segment], w.to);
        y.put(w.to, count, first);
    });
}

inline void sum(cpu& device, const channel_sets& sets, const source& x, const float* mean, const source& dy,
                segment_sums<float>* sums) {
    const auto body = device.select(HALFTONE_EACH_SET(sum_slopes));
    const row_partition partition = partition_rows(sets.segments(), sets.area);
    device.parallel_for(partition.count, sizeof(worker), [&](extent piece, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent begin = partition.begin(piece), end = begin + partition.rows_of(piece);
        for (extent segment = begin; segment < end; ++segment) {
            double of_dy = 0, of_dy_x = 0;
            for (extent i = 0; i < sets.area; i += axis_block) {
                const extent first = segment * sets.area + i, count = std::min(axis_block, sets.area - i);
                const segment_sums<float> of = body(x.floats(first, 1, count, w.x), dy.floats(first, 1, count, w.dy),
                                                    count, mean[sets.set_of(segment)]);
                of_dy += static_cast<double>(of.dy);
                of_dy_x += static_cast<double>(of.dy_x);
            }
            sums[segment] = {static_cast<float>(of_dy), static_cast<float>(of_dy_x)};
        }
    });
}

inline void input_gradient(cpu& device, const channel_sets& sets, const source& x, const source& dy,
                           const segment_slope<float>* table, const sink& dx, write_mode mode) {
    const auto body = device.select(HALFTONE_EACH_SET(apply_slope));
    for_blocks(device, sets, [&](extent segment, extent first, extent count, worker& w) {
        body(x.floats(first, 1, count, w.x), dy.floats(first, 1, count, w.dy), count, table[segment], w.to);
        dx.put(w.to, count, first, 1, mode);
    });
}

}  // namespace channel_cpu

template <>
struct channel_norm<cpu> {
    template <class X, class S>
    static void center(cpu& device, const channel_each::far_mean<X, S>& work) {
        fp64::for_each(device, work.mean.count, work.layout.reduced_size, work);
    }
    template <class X, class Y, class S>
    static void apply(cpu& device, const channel_sets& sets, const X* x, const channel_each::segment_line<S>* table,
                      Y* y) {
        if constexpr (std::is_same_v<S, double>) {
            channel_each::apply_each(device, sets, x, table, y);
        } else {
            channel_cpu::apply(device, sets, axis_cpu::source_of(device, x), table, axis_cpu::sink_of(device, y));
        }
    }
    template <class X, class Y, class S>
    static void sums(cpu& device, const channel_sets& sets, const X* x, const S* mean, const Y* dy,
                     channel_each::segment_sums<S>* sums) {
        if constexpr (std::is_same_v<S, double>) {
            channel_each::sums_each(device, sets, x, mean, dy, sums);
        } else {
            channel_cpu::sum(device, sets, axis_cpu::source_of(device, x), mean, axis_cpu::source_of(device, dy), sums);
        }
    }
    template <class X, class Y, class S>
    static void input_gradient(cpu& device, const channel_sets& sets, const X* x, const Y* dy,
                               const channel_each::segment_slope<S>* table, X* dx, write_mode mode) {
        if constexpr (std::is_same_v<S, double>) {
            channel_each::input_gradient_each(device, sets, x, dy, table, dx, mode);
        } else {
            channel_cpu::input_gradient(device, sets, axis_cpu::source_of(device, x), axis_cpu::source_of(device, dy),
                                        table, axis_cpu::sink_of(device, dx), mode);
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
