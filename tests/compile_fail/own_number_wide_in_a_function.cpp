// SPDX-License-Identifier: MIT
// expect: halftone: this function computes in float, which does not hold all numbers of this type of your own
#include <halftone/kernel/softmax/cpu.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

namespace own_number_wide_in_a_function {
struct fixed {
    int code;
    explicit fixed(double);
    fixed() = default;
    operator double() const;
};
}  // namespace own_number_wide_in_a_function
template <>
struct halftone::number_traits<own_number_wide_in_a_function::fixed> : halftone::fixed_format<7, 24> {
    static constexpr const char* name = "fixed";
};
#if defined(HALFTONE_TEST_RIGHT)
using own_number_in_rows = float;
#else
using own_number_in_rows = own_number_wide_in_a_function::fixed;
#endif
void own_number_softmax(ht::cpu& device, const ht::const_view<own_number_in_rows, 2>& x, const ht::view<float, 2>& y) {
    ht::softmax<ht::full_fp32>(device, x, y);
}
