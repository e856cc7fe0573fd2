// SPDX-License-Identifier: MIT
/// \file
/// The largest numbers of each row on devices that run GPU kernels; topk.hpp has the contract and an example.
///
/// A block computes a row: it searches it k times for the first number that comes after the one found last.
#pragma once

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/topk/topk.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The order of a float and its index as one number, which is larger for a number that comes earlier; 0 means none.
HALFTONE_HD HALFTONE_INLINE std::uint64_t standing(float x, extent index) {
    return order_of(x) << 32 | (0xffffffffu - static_cast<std::uint32_t>(index));
}

template <class X>
struct topk_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(std::uint64_t);

    global_span<const X> x;
    global_span<std::int32_t> indices;
    extent rows, width, stride, k;

    grid_shape grid() const { return simt::blocks_along_x(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = simt.block().x;
        const shared_span<std::uint64_t> scratch{0, threads / 32};
        std::uint64_t last = ~std::uint64_t{0};
        for (extent found = 0; found < k; ++found) {
            std::uint64_t best = 0;
            for (extent j = simt.thread(); j < width; j += threads) {
                const std::uint64_t here = standing(detail::in_float(simt.load(x, row * stride + j)), j);
                if (here < last && here > best) best = here;
            }
            last = simt::block_max<threads>(simt, best, scratch);
            if (simt.thread() == 0)
                simt.store(indices, row * k + found,
                           static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(last & 0xffffffffu)));
        }
    }
};

/// The largest numbers of a row of doubles: one thread per row.
struct topk_row {
    fp64::rows_of<const double> x;
    global_span<std::int32_t> indices;
    extent width, k;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        ranked last{};
        for (extent found = 0; found < k; ++found) {
            ranked best{0, -1};
            for (extent j = 0; j < width; ++j) {
                const ranked here{order_of(x.load(thread, row, j)), static_cast<std::int32_t>(j)};
                if ((found == 0 || last.before(here)) && (best.index < 0 || here.before(best))) best = here;
            }
            last = best;
            thread.store(indices, row * k + found, best.index);
        }
    }
};

}  // namespace on_device

template <simt_device Device>
struct topk<Device> {
    template <class X>
    static void run(Device& device, const const_view<X, 2>& x, const view<std::int32_t, 2>& indices) {
        if constexpr (std::is_same_v<X, double>) {
            fp64::for_each(device, x.extent_of(0), x.extent_of(1),
                           on_device::topk_row{fp64::rows_of<const double>(x), simt::span_of(indices), x.extent_of(1),
                                               indices.extent_of(1)});
        } else {
            device.launch(on_device::topk_kernel<X>{simt::bounding_span_of(x), simt::span_of(indices), x.extent_of(0),
                                                    x.extent_of(1), x.stride_of(0), indices.extent_of(1)});
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
