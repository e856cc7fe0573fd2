// SPDX-License-Identifier: MIT
/// \file
/// The rule of no optimizer: it puts what stands in the gradient's place where the parameter was, or leaves the parameter as
/// it is. With it the pass of a step saves parameters as floats (its `average` with a decay of 0), and puts floats in their
/// place, whatever types they have (optim/average.hpp).
///
///     kernel::assign_rule rule{.takes = true};                               // w = g
#pragma once

#include <halftone/kernel/common/update/records.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

struct assign_rule {
    static constexpr const char* name = "assign";
    static constexpr int moments = 1;  // of which none is kept
    static constexpr const char* moment_names[moments] = {"moment"};
    static constexpr bool always_keeps = false;

    bool takes = true;  ///< the gradient's number; else the parameter's own

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
