// SPDX-License-Identifier: MIT
/// \file
/// Counts of how the values of a tensor change when a product reads it in eight bits; rows of operands in numerics.hpp
/// have them.
///
///     row.operand.saturated     // of row.counts.elements(), at row.operand.scale
///
/// Numeric contract: exact counts of the operand as the product reads it, compared with the tensor that it was made
/// from.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <halftone/kernel/exponent_counts/exponent_counts.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/observe/watch/watched_tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What scaling did to a tensor that a product reads in eight bits.
struct operand_counts {
    scaled_tensor tensor{};
    scaling_rule rule{};
    float scale = 0;            ///< the latest scale
    float amax = 0;             ///< the largest finite magnitude of the tensor, before it was scaled
    extent saturated = 0;       ///< finite numbers that saturated at the format's largest
    extent flushed = 0;         ///< nonzero numbers that became zero
    extent flushed_by_own = 0;  ///< those that become zero with the scale of the tensor's own amax, too

    /// Whether its scale follows from earlier windows (delayed scaling).
    bool is_delayed() const { return rule.history > 0; }
};

namespace detail {

/// Adds to these counts, and to those of the 8-bit numbers. Waits for the device.
template <class Device>
void count_operand(Device& device, const watched_tensor& t, operand_counts& counts, tensor_statistics& of_read) {
    counts.tensor = t.operand.tensor;
    counts.rule = t.operand.rule;
    tensor_scale scale;
    device.memory().read(&scale, t.operand.scale, sizeof scale);
    counts.scale = scale.scale;
    const std::vector<float> before = fetched_floats(device, t.format, t.data, t.count),
                             read = fetched_floats(device, t.operand.format, t.operand.values, t.count);
    of_read.add(statistics_on_host(const_view<float, 1>(read.data(), {t.count})));
    float amax = 0;
    for (const float x : before) {
        if (is_finite(x)) amax = std::max(amax, std::fabs(x));
    }
    counts.amax = std::max(counts.amax, amax);
    const value_format format = t.operand.format;
    const float largest = static_cast<float>(format->max), own = scale_for(amax, largest, t.operand.rule, 1.0f);
    for (std::size_t i = 0; i < before.size(); ++i) {
        const float x = before[i];
        if (!is_finite(x) || x == 0) continue;
        const float scaled = x * counts.scale;
        if (format->shows_overflow ? !is_finite(format->round(scaled)) : std::fabs(scaled) > largest) ++counts.saturated;
        if (read[i] == 0) ++counts.flushed;
        if (format->saturate(x * own) == 0) ++counts.flushed_by_own;
    }
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
