// SPDX-License-Identifier: MIT
/// \file
/// The rates that a machine cannot exceed; peaks.hpp measures them, peaks_file.hpp reads them.
#pragma once

#include <halftone/exec/ranges.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The rates that bound operations.
struct machine_peaks {
    double flops[arithmetics] = {};  ///< a second, by the kind of arithmetic; 0: unknown
    double bytes = 0;                ///< a second, read and written together; 0: unknown

    /// Flops a second of this kind of arithmetic.
    double of(arithmetic a) const { return flops[static_cast<int>(a)]; }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
