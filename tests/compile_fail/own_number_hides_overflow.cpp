// SPDX-License-Identifier: MIT
// expect: halftone: gradients pass through a type without infinity and NaN
#include <halftone/policy/check.hpp>

namespace ht = halftone;

namespace own_number_hides_overflow {
struct fixed {
    short code;
    explicit fixed(float);
    fixed() = default;
    operator float() const;
};
}  // namespace own_number_hides_overflow
template <>
struct halftone::number_traits<own_number_hides_overflow::fixed> : halftone::fixed_format<3, 12> {
    static constexpr const char* name = "fixed";
};
#if defined(HALFTONE_TEST_RIGHT)
using found = ht::with_compute<ht::amp_bf16, own_number_hides_overflow::fixed>;
#else
using found = ht::with_output<ht::amp_bf16, own_number_hides_overflow::fixed>;
#endif
static_assert(ht::check_policy<found>());
