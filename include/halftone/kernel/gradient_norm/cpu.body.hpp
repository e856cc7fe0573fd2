// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in cpu.hpp that are no templates.
#pragma once

#include <halftone/kernel/gradient_norm/cpu.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE double tree_sum(double* terms, extent count) {
    for (extent step = 1; step < count; step *= 2) {
        for (extent i = 0; i + step < count; i += 2 * step) terms[i] += terms[i + step];
    }
    return count == 0 ? 0.0 : terms[0];
}

}  // namespace detail

namespace kernel {

HALFTONE_OUT_OF_LINE void gradient_norm<cpu>::add(cpu& device, const square_sum& squares, gradient_record* record,
                                    std::int32_t* found_inf) {
    device.run([&] {
        const double factor =
            static_cast<double>(record->factors.inv_scale) * static_cast<double>(record->factors.clip);
        add_slab(*record, *found_inf, squares.sum * factor * factor, found_nothing);
    });
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
