// SPDX-License-Identifier: MIT
/// \file
/// The median of measurements, which does not see what else the machine did during a few of them.
#pragma once

#include <algorithm>
#include <vector>

namespace support {

/// Of an even number the larger one of the two in the middle.
inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.at(values.size() / 2);
}

}  // namespace support
