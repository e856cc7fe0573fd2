// SPDX-License-Identifier: MIT
/// \file
/// What a step over parameters of a type that float does not hold (wide_number in number/traits.hpp) does otherwise: the rule's
/// scalars and its arithmetic are in double, and the parameter is rounded once to its type, the copy once from the stored
/// parameter. Gradients and moments are floats, as for other parameters.
#pragma once

#include <type_traits>

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The type in which a step computes over parameters of type Param.
template <class Param>
struct step_real {
    using type = float;
};
template <wide_number Param>
struct step_real<Param> {
    using type = double;
};
template <class Param>
using step_real_of = typename step_real<Param>::type;

/// A rule's scalars in Real; those of a rule that has them in float alone, as rule/own.hpp describes, are these.
template <class Rule, class Real>
struct step_scalars_type {
    using type = typename Rule::scalars;
};
template <class Rule, class Real>
    requires requires { typename Rule::template scalars_in<Real>; }
struct step_scalars_type<Rule, Real> {
    using type = typename Rule::template scalars_in<Real>;
};
template <class Rule, class Real>
using step_scalars_of = typename step_scalars_type<Rule, Real>::type;
/// A rule's scalars for a body whose numbers are V: in double for doubles, in float for floats and vectors of them.
template <class Rule, class V>
using step_scalars_for = step_scalars_of<Rule, std::conditional_t<std::is_same_v<V, double>, double, float>>;

template <class Real, class Rule>
HALFTONE_HD step_scalars_of<Rule, Real> scalars_in_real(const Rule& rule, const group_rates& rates,
                                                        const step_record& step) {
    if constexpr (requires { typename Rule::template scalars_in<Real>; }) {
        return rule.template scalars_of<Real>(rates, step);
    } else {
        return rule.scalars_of(rates, step);
    }
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
