// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in cpu.hpp that are no templates.
#pragma once

#include <halftone/kernel/common/squares/cpu.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

HALFTONE_OUT_OF_LINE square_sum written_squares::total() const {
    constexpr extent chains = 4;  // independent chains of additions
    double sums[chains] = {};
    for (extent t = 0; t < count_; ++t) sums[t % chains] += static_cast<double>(sums_.as<float>()[t]);
    return {(sums[0] + sums[1]) + (sums[2] + sums[3]), shape_.size()};
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
