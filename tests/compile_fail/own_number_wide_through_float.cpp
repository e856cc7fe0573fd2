// SPDX-License-Identifier: MIT
// expect: halftone: a number type of your own that float does not hold has operator double() const
#include <halftone/policy/check.hpp>

namespace ht = halftone;

namespace own_number_wide_through_float {
struct fixed {
    int code;
    explicit fixed(double);
    fixed() = default;
#if defined(HALFTONE_TEST_RIGHT)
    operator double() const;
#else
    operator float() const;
#endif
};
}  // namespace own_number_wide_through_float
template <>
struct halftone::number_traits<own_number_wide_through_float::fixed> : halftone::fixed_format<7, 24> {
    static constexpr const char* name = "fixed";
};
static_assert(ht::check_policy<ht::with_param<ht::amp_bf16, own_number_wide_through_float::fixed>>());
