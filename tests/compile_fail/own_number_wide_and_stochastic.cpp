// SPDX-License-Identifier: MIT
// expect: halftone: the parameters of this policy (role `param`) have a type that float does not hold, and are rounded
#include <halftone/policy/check.hpp>

namespace ht = halftone;

namespace own_number_wide_and_stochastic {
struct fixed {
    int code;
    explicit fixed(double);
    fixed() = default;
    operator double() const;
};
}  // namespace own_number_wide_and_stochastic
template <>
struct halftone::number_traits<own_number_wide_and_stochastic::fixed> : halftone::fixed_format<7, 24> {
    static constexpr const char* name = "fixed";
};
#if defined(HALFTONE_TEST_RIGHT)
constexpr auto own_number_rounding = ht::rounding::nearest_even;
#else
constexpr auto own_number_rounding = ht::rounding::stochastic;
#endif
static_assert(ht::check_policy<ht::with_param_rounding<
                  ht::with_param<ht::amp_bf16, own_number_wide_and_stochastic::fixed>, own_number_rounding>>());
