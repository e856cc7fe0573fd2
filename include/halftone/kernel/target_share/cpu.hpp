// SPDX-License-Identifier: MIT
/// \file
/// Counting targets on the CPU; target_share.hpp has the contract and an example.
#pragma once

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/target_share/target_share.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct target_share<cpu> {
    static void run(cpu& device, const loss_divisor& micro, const loss_divisor& of, target_counts* counts) {
        device.run([&] { *counts = target_counts_of(value_on_host(micro), value_on_host(of)); });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
