// SPDX-License-Identifier: MIT
/// \file
/// Conversion on devices that run GPU kernels, implemented as a map of one input; convert.hpp has its contract and an
/// example.
#pragma once

#include <halftone/kernel/convert/convert.hpp>
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

}  // namespace on_device

template <simt_device Device>
struct convert<Device> {
    template <class From, class Y, int Rank>
    static void run(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor = 1) {
        each(device, from, to, factor, [](const auto& x) { return x; });
    }
    template <class From, class Y, int Rank>
    static void saturate(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor = 1) {
        each(device, from, to, factor, opaque(on_device::saturation<Y>{}));
    }

  private:
    template <class From, class Y, int Rank, class End>
    static void each(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor,
                     const End& end) {
        if (!(to.shape() == from.shape()))
            fail<shape_error>("convert: to is ", to.shape(), "; expected ", from.shape());
        if (from.is_contiguous() && to.is_contiguous()) {
            convert_rows(device, flatten(from), flatten(to), factor, end);
        } else if constexpr (Rank == 2) {
            expect_rows("convert", "from", from, from.shape());
            expect_written_rows("convert", "to", to, from.shape());
            convert_rows(device, from, to, factor, end);
        } else {
            expect("convert", "from", from, from.shape());
            expect("convert", "to", to, from.shape());
        }
    }

    template <class From, class Y, int Rank, class End>
    static void convert_rows(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor,
                             const End& end) {
        constexpr symbolic::argument<0> x;
        if (factor == 1) {
            map<Device>::run(device, make_pack(end(x)), make_pack(to), make_pack(from));
        } else {
            map<Device>::run(device, make_pack(end(factor * x)), make_pack(to), make_pack(from));
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
