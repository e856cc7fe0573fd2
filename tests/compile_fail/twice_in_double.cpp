// SPDX-License-Identifier: MIT
// expect: tape: second derivatives are taken in float, and an operation here gives double: cast its operands, ht::cast<float>(tape, x), or record on ht::tape tape{device}; ht::check_gradients compares first derivatives in double
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

ht::variable<float, 0> slope(ht::cpu& device, const ht::const_view<double, 1>& values) {
    ht::tape tape{device, ht::double_backward};
#if defined(HALFTONE_TEST_RIGHT)
    const auto x = ht::cast<float>(tape, tape.leaf(values));
#else
    const auto x = tape.leaf(values);
#endif
    const auto y = ht::mean(tape, ht::mul(tape, x, x));
    return ht::norm(tape, tape.gradients(y, x));
}
