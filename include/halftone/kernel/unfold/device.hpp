// SPDX-License-Identifier: MIT
/// \file
/// unfold and fold on devices that run GPU kernels, with one thread per element; unfold.hpp has their contract and an
/// example.
#pragma once

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/unfold/window/element.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <simt_device Device>
struct unfold<Device> {
    template <class T>
    static void run(Device& device, const unfold_arguments<T>& a) {
        check_unfold(a);
        unfold_by_elements(device, a);
    }
    template <class T, class X>
    static void fold(Device& device, const fold_arguments<T, X>& a) {
        check_fold(a);
        fold_by_elements(device, a);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
