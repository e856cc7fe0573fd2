// SPDX-License-Identifier: MIT
/// \file
/// A rule that assigns: it sets a parameter to the value given as its gradient, or leaves the parameter unchanged. With
/// this rule the optimizer's pass saves parameters of any type as floats (as its `average`, with a decay of 0), and
/// sets parameters from floats (optim/average.hpp).
///
///     kernel::assign_rule rule{.takes = true};                               // w = g
#pragma once

#include <halftone/kernel/common/update/records.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

struct assign_rule {
    static constexpr const char* name = "assign";
    static constexpr int moments = 1;  // which is not stored
    static constexpr const char* moment_names[moments] = {"moment"};
    static constexpr bool always_keeps = false;

    bool takes = true;  ///< whether the parameter is set to the gradient's value

    static constexpr bool keeps() { return false; }
    static constexpr float largest_gradient() { return gradient_factors::no_limit; }

    struct scalars {
        bool takes;
    };
    HALFTONE_HD scalars scalars_of(const group_rates&, const step_record&) const { return {takes}; }

    template <class State>
    static consteval bool check_state() {
        return true;
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
