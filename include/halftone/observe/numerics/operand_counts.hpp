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
#include <halftone/number/saturate.hpp>
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

/// Elements of the device's memory, copied to the host.
template <class T, class Device>
std::vector<T> fetched(Device& device, const void* from, extent count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    device.memory().read(values.data(), from, values.size() * sizeof(T));
    return values;
}

/// Adds to these counts, and to those of the 8-bit numbers. Waits for the device.
template <class Device>
void count_operand(Device& device, const watched_tensor& t, operand_counts& counts, tensor_statistics& of_read) {
    counts.tensor = t.operand.tensor;
    counts.rule = t.operand.rule;
    counts.scale = fetched<tensor_scale>(device, t.operand.scale, 1)[0].scale;
    std::vector<float> before;
    with_values(t, [&]<class T, int Rank>(const view<const T, Rank>&) {
        const auto values = fetched<T>(device, t.data, t.count);
        before.assign(values.begin(), values.end());
    });
    with_format(t.operand.format, [&]<class Q>(Q) {
        if constexpr (eight_bit<Q>) {
            const auto read = fetched<Q>(device, t.operand.values, t.count);
            const std::vector<float> wide(read.begin(), read.end());
            of_read.add(statistics_on_host(const_view<float, 1>(wide.data(), {t.count})));
            float amax = 0;
            for (const float x : before) {
                if (is_finite(x)) amax = std::max(amax, std::fabs(x));
            }
            counts.amax = std::max(counts.amax, amax);
            const float own = scale_for(amax, static_cast<float>(number_traits<Q>::max), t.operand.rule, 1.0f);
            for (std::size_t i = 0; i < before.size(); ++i) {
                const float x = before[i];
                if (!is_finite(x) || x == 0) continue;
                if (!is_finite(Q(x * counts.scale))) ++counts.saturated;
                if (wide[i] == 0) ++counts.flushed;
                if (static_cast<float>(saturate<Q>(x * own)) == 0) ++counts.flushed_by_own;
            }
        }
    });
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
