// SPDX-License-Identifier: MIT
// expect: halftone: permute names every axis once, in their new order: ht::axes<0, 2, 1>
// expect: halftone: ht::axes<...> names an axis that the tensor does not have
// expect: halftone: this operation works along one axis: ht::axes<1>
// expect: halftone: expand adds axes in front, and takes none away
// expect: halftone: flatten merges the axes from one to a later one: ht::axes<1, -1>
// expect: halftone: matmul of ht::transposed(a) and one matrix for all of a's
#include <halftone/amp.hpp>

namespace ht = halftone;

void shapes(ht::tape<ht::cpu>& tape, const ht::variable<float, 3>& x, const ht::variable<float, 2>& w) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::permute(tape, x, ht::axes<0, 2, 1>);
    ht::transpose(tape, x, ht::axes<1, 2>);
    ht::slice(tape, x, ht::axes<1>, 0, 2);
    ht::expand(tape, x, ht::shape<3>{2, -1, -1});
    ht::flatten(tape, x, ht::axes<0, 1>);
    ht::matmul(tape, ht::transpose(tape, x, ht::axes<1, 2>), w);
#else
    ht::permute(tape, x, ht::axes<2, 1>);
    ht::transpose(tape, x, ht::axes<1, 3>);
    ht::slice(tape, x, ht::axes<1, 2>, 0, 2);
    ht::expand(tape, x, ht::shape<2>{-1, -1});
    ht::flatten(tape, x, ht::axes<1, 0>);
    ht::matmul(tape, ht::transposed(x), w);
#endif
}
