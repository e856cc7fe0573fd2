// SPDX-License-Identifier: MIT
// expect: halftone: this operation works along one axis: ht::axes<1>
// expect: halftone: ht::axes<...> names an axis that the tensor does not have
// expect: halftone: ht::axes<...> names one axis twice
#include <halftone/autodiff/op/axis_reduction.hpp>
#include <halftone/kernel.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using one = ht::axis_list<1>;
using there = ht::axis_list<-2>;
using once = ht::axis_list<0, 1>;
#else
using one = ht::axis_list<0, 2>;
using there = ht::axis_list<3>;
using once = ht::axis_list<0, -3>;
#endif

void use(ht::inference<ht::cpu>& eval, const ht::variable<float, 3>& x) {
    static_cast<void>(ht::argmax(eval, x, one{}));
    static_cast<void>(ht::mean(eval, x, there{}));
    static_cast<void>(ht::amax(eval, x, once{}));
}
