// SPDX-License-Identifier: MIT
// expect: halftone: this type has no traits and is thus no number type
// expect-first: halftone: this type has no traits and is thus no number type
// never: halftone: this policy lacks the role
// never: halftone: the accumulator of this policy (role `accum`) is narrower
// never: used in nested name specifier
#include <halftone/policy/check.hpp>

namespace ht = halftone;

namespace own_number_without_traits {
struct mine {
    unsigned short code;
    explicit mine(float);
    mine() = default;
    operator float() const;
};
}  // namespace own_number_without_traits
#if defined(HALFTONE_TEST_RIGHT)
template <>
struct halftone::number_traits<own_number_without_traits::mine> : halftone::ieee_format<10, -29, 32> {
    static constexpr const char* name = "mine";
};
#endif
static_assert(ht::check_policy<ht::with_compute<ht::amp_fp16, own_number_without_traits::mine>>());
