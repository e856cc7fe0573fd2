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
    static void run(cpu& device, const const_view<std::int32_t, 1>& targets, const const_view<std::int32_t, 1>& of,
                    target_counts* counts) {
        check_targets_of_share(targets, of);
        device.run([&] { *counts = target_counts_of(count(targets), count(of)); });
    }

    /// Counts targets in host memory.
    static double count(const const_view<std::int32_t, 1>& targets) {
        const std::int32_t* const data = targets.data();
        extent n = 0;
        for (extent i = 0; i < targets.extent_of(0); ++i) n += data[i] != uncounted_target ? 1 : 0;
        return static_cast<double>(n);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
