// SPDX-License-Identifier: MIT
/// \file
/// Conversion on devices that run GPU kernels; convert.hpp has its contract and an example. It is a map of one input.
#pragma once

#include <halftone/kernel/convert/convert.hpp>
#include <halftone/kernel/map/device.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

template <simt_device Device>
struct convert<Device> {
    template <class From, class Y, int Rank>
    static void run(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor = 1) {
        if (!(to.shape() == from.shape()))
            fail<shape_error>("convert: to is ", to.shape(), "; expected ", from.shape());
        if (from.is_contiguous() && to.is_contiguous()) {
            convert_rows(device, flatten(from), flatten(to), factor);
        } else if constexpr (Rank == 2) {
            expect_rows("convert", "from", from, from.shape());
            expect_rows("convert", "to", to, from.shape());
            convert_rows(device, from, to, factor);
        } else {
            expect("convert", "from", from, from.shape());
            expect("convert", "to", to, from.shape());
        }
    }

  private:
    template <class From, class Y, int Rank>
    static void convert_rows(Device& device, const view<From, Rank>& from, const view<Y, Rank>& to, float factor) {
        constexpr symbolic::argument<0> x;
        if (factor == 1) {
            map<Device>::run(device, make_pack(x), make_pack(to), make_pack(from));
        } else {
            map<Device>::run(device, make_pack(factor * x), make_pack(to), make_pack(from));
        }
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
