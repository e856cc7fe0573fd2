// SPDX-License-Identifier: MIT
/// \file
/// The machine's peaks on all threads, measured in this run (observe/profile/peaks.hpp), for reports.
#pragma once

#include <support/protocol.hpp>
#include <support/random.hpp>

#include <halftone/observe/profile/peaks.hpp>

namespace bench {

/// The rates of the whole device, each the best of several tries.
struct peaks {
    double fp32 = 0;        ///< operations a second in multiply-adds of floats, 2 operations each
    double bf16 = 0;        ///< the same for pairs of bfloat16 or tiles; for floats if the set has neither
    double copy_bytes = 0;  ///< bytes read and written a second
};

inline peaks measure_peaks(halftone::cpu& device) {
    using halftone::arithmetic;
    const halftone::machine_peaks p = halftone::measure_peaks(device, 1.2, std::size_t{256} << 20);
    return {p.of(arithmetic::fp32), p.of(arithmetic::bf16), p.bytes};
}

/// Measures the peaks and reports them.
inline peaks measure_peaks(halftone::cpu& device, report& to) {
    const peaks p = bench::measure_peaks(device);
    to.machine_figure("peak_fp32_flops", p.fp32, 1e9, "GFLOP/s from registers");
    to.machine_figure("peak_bf16_flops", p.bf16, 1e9, "GFLOP/s from registers");
    to.machine_figure("copy_bytes_per_second", p.copy_bytes, 1e9, "GB/s, read and written");
    return p;
}

}  // namespace bench
