// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of layer and root mean square normalisation on a GPU, in the same code; the two differ in what they
/// compute for a row.
///
///     norm_backward(device, a);               // a: kernel::layer_norm_backward or kernel::rms_norm_backward
///
/// If gradients of gain and bias are wanted, rows have at most 4,096 elements and there are enough of them, a block
/// processes a piece of rows one after the other: it reads x and dy once, writes dx, and keeps the sums of all columns
/// over its rows in registers (pieces.hpp). Otherwise there are two kernels, one over rows for dx and one over columns
/// for these sums, and x and dy are read twice. The pieces' sums are then added.
///
/// Numeric contract: both ways add in the same order, so that the choice changes no bits.
#pragma once

#include <halftone/exec/simt/architecture.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/common/rows/strided.hpp>
#include <halftone/kernel/norm/device/gradients.hpp>
#include <halftone/kernel/norm/device/pieces.hpp>
#include <halftone/kernel/norm/norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// dx, by rows.
template <class Row, class X, class W, class Y, int N, int Threads, int Held>
struct norm_dx_kernel {
    using team = row_team<Threads, Row::sums>;
    static constexpr int threads = team::block_threads;
    static constexpr int min_blocks = Threads == 256 && Held > 0 ? 3 : 0;  // without it ptxas wants more, and spills
    static constexpr word shared_bytes = team::shared_bytes + row_pair<X, Y, N, Threads, Held>::bytes;

    norm_gradients<X, W, Y> of;

    grid_shape grid() const { return team::grid(of.rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= of.rows) return;
        of.template take<Row, team, N, Threads, Held>(simt, row);
    }
};

/// For each piece of rows and each column, the sums of dy xhat and, if there is a bias, of dy.
template <class Row, class X, class W, class Y, int N>
struct norm_sums_kernel {
    using team = column_team<N, Row::sums>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    norm_gradients<X, W, Y> of;
    row_partition partition;
    global_span<float> dgain, dbias;  // (pieces, width), or empty

    grid_shape grid() const { return team::grid(of.width, partition.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent j = team::column(simt), first = partition.begin(simt.block().y),
                     end = first + partition.rows_of(simt.block().y);
        vec<float, N> gain_sums{}, bias_sums{};
        if (j < of.width) {
            for (extent row = first + simt.warp(); row < end; row += team::warps) {
                const vec<float, N> d = load_floats<N>(simt, of.dy.from(row * of.dy_stride + j), 0),
                                    v = load_floats<N>(simt, of.x.from(row * of.x_stride + j), 0);
                const Row r = of.template row_of<Row>(simt, row);
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
                    gain_sums[e] += d[e] * r.xhat(v[e]);
                    if constexpr (Row::sums == 2) bias_sums[e] += d[e];
                }
            }
        }
        team::leave(simt, 0, gain_sums);
        if constexpr (Row::sums == 2) team::leave(simt, 1, bias_sums);
        simt.barrier();
        team::write(simt, 0, dgain, of.width);
        if constexpr (Row::sums == 2) team::write(simt, 1, dbias, of.width);
    }
};

/// Whether this number of blocks, with so many warps that each process rows one after the other, saturates a GPU's
/// memory bandwidth.
inline bool pieces_keep_busy(const simt::architecture& gpu, extent pieces, int warps) {
    constexpr extent warps_wanted = 6;  // a multiprocessor, each with loads of a row of x and one of dy in flight
    return pieces * warps >= gpu.multiprocessors * warps_wanted;
}

template <class Device, class Arguments>
void norm_backward(Device& device, const Arguments& a) {
    using Row = norm_row<is_centred<Arguments>>;
    using X = typename decltype(a.x)::value_type;
    using W = typename decltype(a.gain)::value_type;
    using Y = typename decltype(a.dy)::value_type;
    const auto bias = dbias_of(a);
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    const row_partition partition = on_device::partition_rows_for_sums(rows);
    const bool gain_wanted = a.dgain.data() != nullptr, bias_wanted = bias.data() != nullptr;
    const extent floats = partition.count * width;
    const workspace::lease partials(device.scratch(),
                                    static_cast<std::size_t>((gain_wanted + bias_wanted) * floats) * sizeof(float));
    const global_span<float> dgain{gain_wanted ? partials.as<float>() : nullptr, floats},
        dbias{bias_wanted ? partials.as<float>() + (gain_wanted ? floats : 0) : nullptr, floats};
    const norm_gradients<X, W, Y> all{.x = simt::bounding_span_of(a.x),
                                      .gain = simt::span_of(a.gain),
                                      .dy = simt::bounding_span_of(a.dy),
                                      .mean = simt::span_of(mean_of(a)),
                                      .rstd = simt::span_of(a.rstd),
                                      .dx = simt::bounding_span_of(a.dx),
                                      .rows = rows,
                                      .width = width,
                                      .x_stride = a.x.stride_of(0),
                                      .dy_stride = a.dy.stride_of(0),
                                      .dx_stride = a.dx.stride_of(0),
                                      .mode = a.dx_mode};
    const auto sum_columns = [&] {
        constexpr int n = longest<X, Y>;
        const bool aligned = can_use_vectors(n, width, a.x.data(), second_row(a.x), a.dy.data(), second_row(a.dy));
        if (aligned) return device.launch(norm_sums_kernel<Row, X, W, Y, n>{all, partition, dgain, dbias});
        device.launch(norm_sums_kernel<Row, X, W, Y, 1>{all, partition, dgain, dbias});
    };
    const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
        if (gain_wanted || bias_wanted) {
            if constexpr (Held > 0 && Threads <= 256) {
                using kernel = norm_piece_kernel<Row, X, W, Y, N, Threads, Held>;
                static_assert(kernel::shared_bytes <= 99 * 1024);  // which every GPU has
                if (pieces_keep_busy(device.architecture(), partition.count, kernel::threads / 32))
                    return device.launch(kernel{all, partition, dgain, dbias});
            }
            sum_columns();  // before dx, which may be the memory of dy
        }
        device.launch(norm_dx_kernel<Row, X, W, Y, N, Threads, Held>{all});
    };
    choose_team<256, held_by_wide_thread<longest<X, W, Y>, X, Y>, X, W, Y>(
        width, launch, a.x.data(), second_row(a.x), a.gain.data(), a.dy.data(), second_row(a.dy), a.dx.data(),
        second_row(a.dx));
    add_partials(device, partition.count, dgain.data, dbias.data, width, width, a.dgain.data(), bias.data(),
                 a.parameter_mode);
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
