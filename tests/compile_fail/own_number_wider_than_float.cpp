// SPDX-License-Identifier: MIT
// expect: halftone: kernels compute with numbers of your own type in float, which does not hold all of this one's
// never: halftone: the accumulator of this policy (role `accum`) is narrower
#include <halftone/policy/check.hpp>

namespace ht = halftone;

namespace own_number_wider_than_float {
struct fixed {
    int code;
    explicit fixed(float);
    fixed() = default;
    operator float() const;
};
}  // namespace own_number_wider_than_float
#if defined(HALFTONE_TEST_RIGHT)
constexpr int fraction_bits = 16;
#else
constexpr int fraction_bits = 24;
#endif
template <>
struct halftone::number_traits<own_number_wider_than_float::fixed> : halftone::fixed_format<7, fraction_bits> {
    static constexpr const char* name = "fixed";
};
static_assert(ht::check_policy<ht::with_compute<ht::full_fp32, own_number_wider_than_float::fixed>>());
