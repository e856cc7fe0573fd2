// SPDX-License-Identifier: MIT
/// \file
/// Pooling on devices that run GPU kernels, with one thread per strip of four elements (each/places.hpp); pooling.hpp has the contract and examples.
#pragma once

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/pooling/each/places.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <simt_device Device>
struct pooling<Device> {
    template <class X, class Y>
    static void largest(Device& device, const pool_forward<X, Y>& a) {
        pool_each::run_largest(device, a);
    }
    template <class X, class Y>
    static void largest_gradient(Device& device, const pool_backward<X, Y>& a) {
        pool_each::run_largest_gradient(device, a);
    }
    template <class X, class Y>
    static void chosen(Device& device, const pool_layout& l, const X* x, const std::int32_t* index, Y* y) {
        pool_each::run_chosen(device, l, x, index, y);
    }
    template <class X, class Y>
    static void mean(Device& device, const pool_forward<X, Y>& a) {
        pool_each::run_mean(device, a);
    }
    template <class X, class Y>
    static void mean_gradient(Device& device, const pool_backward<X, Y>& a) {
        pool_each::run_mean_gradient(device, a);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
