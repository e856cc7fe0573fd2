// SPDX-License-Identifier: MIT
// expect: halftone: this operation works along one axis: ht::axes<1>
// expect: halftone: ht::axes<...> names an axis that the tensor does not have: a tensor of rank R has the axes 0 to R - 1
// expect: halftone: an index is a view or a variable of std::int32_t
// expect: halftone: a mask is of bool, of std::uint8_t or of a number type
// expect: halftone: cross_entropy: only reduction::none, which is another type, is a template argument
// expect: halftone: linear_cross_entropy: targets are classes, a view of std::int32_t; probabilities have as many numbers
#include <cstdint>

#include <halftone/autodiff/op/cross_entropy.hpp>
#include <halftone/autodiff/op/mask.hpp>
#include <halftone/kernel.hpp>

namespace ht = halftone;
using matrix = ht::variable<float, 2>;
using rows = ht::const_view<std::int32_t, 1>;

void choose(ht::tape<ht::cpu>& tape, const matrix& x, const rows& ids) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::index_select(tape, x, ht::axes<0>, ids), ht::index_select(tape, x, ht::axes<-1>, ids);
    ht::masked_fill(tape, x, ht::const_view<bool, 1>(), 0);
    ht::cross_entropy<ht::reduction::none>(tape, x, ids), ht::cross_entropy(tape, x, x);
#else
    ht::index_select(tape, x, ht::axes<0, 1>, ids), ht::index_select(tape, x, ht::axes<2>, ids);
    ht::index_select(tape, x, ht::axes<0>, ht::const_view<std::int64_t, 1>());
    ht::masked_fill(tape, x, ht::const_view<std::int64_t, 1>(), 0);
    ht::cross_entropy<ht::reduction::sum>(tape, x, ids);
    ht::linear_cross_entropy<ht::roles<float, float, float>>(tape, x, x, x);
#endif
}
