// SPDX-License-Identifier: MIT
// expect: halftone: gradients are summed in a type without infinity and NaN (role `accumulate` or `reduce`)
#include <halftone/policy/check.hpp>

namespace ht = halftone;

namespace own_number_hides_nan_in_sums {
struct fixed {
    short code;
    explicit fixed(float);
    fixed() = default;
    operator float() const;
};
}  // namespace own_number_hides_nan_in_sums
template <>
struct halftone::number_traits<own_number_hides_nan_in_sums::fixed> : halftone::fixed_format<3, 12> {
    static constexpr const char* name = "fixed";
#if defined(HALFTONE_TEST_RIGHT)
    static constexpr bool has_nan = true;
#endif
};
static_assert(ht::check_policy<ht::with_accumulate<ht::full_fp32, own_number_hides_nan_in_sums::fixed>>());
