// SPDX-License-Identifier: MIT
/// \file
/// Column sums on a GPU; column_sum.hpp has their contract and an example.
#pragma once

#include <type_traits>

#include <halftone/kernel/column_sum/column_sum.hpp>
#include <halftone/kernel/column_sum/fp64.hpp>
#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/rows/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// Sums of each column over each piece of rows.
template <class X, int N>
struct column_sum_kernel {
    using team = column_team<N, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    global_span<float> sums;  // (pieces, width)
    row_partition partition;
    extent width, stride;

    grid_shape grid() const { return team::grid(width, partition.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent j = team::column(simt), first = partition.begin(simt.block().y),
                     end = first + partition.rows_of(simt.block().y);
        vec<float, N> sum{};
        if (j < width) {
            for (extent row = first + simt.warp(); row < end; row += team::warps) {
                const vec<float, N> v = load_floats<N>(simt, x.from(row * stride + j), 0);
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) sum[e] += v[e];
            }
        }
        team::leave(simt, 0, sum);
        simt.barrier();
        team::write(simt, 0, sums, width);
    }
};

}  // namespace on_device

template <simt_device Device>
struct column_sum<Device> {
    template <class From, class Y>
        requires in_double<From, Y>
    static void run(Device& device, const view<From, 2>& x, const view<Y, 1>& out,
                    write_mode mode = write_mode::overwrite) {
        fp64::sum_columns(device, x, out, mode);
    }
    template <class From, class Y>
    static void run(Device& device, const view<From, 2>& x, const view<Y, 1>& out,
                    write_mode mode = write_mode::overwrite) {
        using X = std::remove_const_t<From>;
        using namespace on_device;
        expect_rows("column_sum", "x", x, x.shape());
        expect("column_sum", "out", out, {x.extent_of(1)});
        const extent width = x.extent_of(1), stride = x.stride_of(0);
        const row_partition partition = on_device::partition_rows_for_sums(x.extent_of(0));
        const workspace::lease partials(device.scratch(), static_cast<std::size_t>(partition.count * width) * sizeof(float));
        float* const sums = partials.as<float>();
        const auto launch = [&]<int N>(constant<N>) {
            device.launch(column_sum_kernel<X, N>{
                simt::bounding_span_of(view<const X, 2>(x)), {sums, partition.count * width}, partition, width, stride});
        };
        constexpr int n = longest<X>;
        stride % n == 0 && can_use_vectors(n, width, x.data()) ? launch(constant<n>{}) : launch(constant<1>{});
        add_partials(device, partition.count, sums, width, width, out.data(), mode);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
