// SPDX-License-Identifier: MIT
/// \file
/// Conversion on devices that run GPU kernels, implemented as a map of one input; convert.hpp has its contract and an
/// example.
#pragma once

#include <halftone/kernel/convert/convert.hpp>
#include <halftone/kernel/convert/each/wide.hpp>
#include <halftone/kernel/map/device.hpp>
#include <halftone/number/saturate.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <class Y>
struct saturation {
    HALFTONE_HD float operator()(float x) const { return clamp_to<Y>(x); }
};

/// One thread per element of rows at any distance.
template <bool Saturates, class X, class Y>
struct convert_wide_kernel {
    static constexpr int threads = 256;
    static constexpr simt::word shared_bytes = 0;

    simt::global_span<const X> from;
    simt::global_span<Y> to;
    extent width, from_stride, to_stride, count;
    float factor;

    simt::grid_shape grid() const { return simt::blocks_for(count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i >= count) return;
        const extent row = i / width, column = i - row * width;
        simt.store(to, row * to_stride + column,
                   converted_wide<Y, Saturates>(simt.load(from, row * from_stride + column), factor));
    }
};

}  // namespace on_device

template <simt_device Device>
struct convert<Device> {
    template <class From, class Y, int Rank>
    static void run(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor = 1) {
        each<false>(device, from, to, factor, [](const auto& x) { return x; });
    }
    template <class From, class Y, int Rank>
    static void saturate(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor = 1) {
        each<true>(device, from, to, factor, opaque(on_device::saturation<Y>{}));
    }

  private:
    template <bool Saturates, class From, class Y, int Rank, class End>
    static void each(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor,
                     const End& end) {
        if (!(to.shape() == from.shape()))
            fail<shape_error>("convert: to is ", to.shape(), "; expected ", from.shape());
        if (from.is_contiguous() && to.is_contiguous()) {
            convert_rows<Saturates>(device, flatten(from), flatten(to), factor, end);
        } else if constexpr (Rank == 2) {
            expect_rows("convert", "from", from, from.shape());
            expect_written_rows("convert", "to", to, from.shape());
            convert_rows<Saturates>(device, from, to, factor, end);
        } else {
            expect("convert", "from", from, from.shape());
            expect("convert", "to", to, from.shape());
        }
    }

    template <bool Saturates, class From, class Y, int Rank, class End>
    static void convert_rows(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor,
                             const End& end) {
        constexpr symbolic::argument<0> x;
        if constexpr (wide_number<std::remove_const_t<From>>) {
            if (from.size() == 0) return;
            const extent width = from.extent_of(Rank - 1), first = Rank == 1 ? 0 : from.stride_of(0);
            device.launch(on_device::convert_wide_kernel<Saturates, std::remove_const_t<From>, Y>{
                simt::bounding_span_of(const_view<std::remove_const_t<From>, Rank>(from)), simt::bounding_span_of(to),
                width, first, Rank == 1 ? 0 : to.stride_of(0), from.size(), factor});
        } else if (factor == 1) {
            map<Device>::run(device, make_pack(end(x)), make_pack(to), make_pack(from));
        } else {
            map<Device>::run(device, make_pack(end(factor * x)), make_pack(to), make_pack(from));
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
