// SPDX-License-Identifier: MIT
// expect: halftone: matmul: products of eight-bit operands have no second derivatives, since the gradients of these would be rounded to eight bits; cast them first, ht::cast<ht::bfloat16>(tape, x)
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
template <class T>
auto operand(ht::tape<ht::cpu, ht::double_backward_tape>& tape, const ht::variable<T, 2>& x) {
    return ht::cast<ht::bfloat16>(tape, x);
}
#else
template <class T>
auto operand(ht::tape<ht::cpu, ht::double_backward_tape>&, const ht::variable<T, 2>& x) {
    return x;
}
#endif

auto multiply(ht::tape<ht::cpu, ht::double_backward_tape>& tape, const ht::variable<ht::float8_e4m3, 2>& x,
              const ht::variable<float, 2>& y) {
    return ht::matmul<float>(tape, operand(tape, x), y);
}
auto apply(ht::tape<ht::cpu, ht::double_backward_tape>& tape, const ht::variable<float, 2>& x,
           const ht::variable<ht::float8_e4m3, 2>& weight) {
    return ht::linear<float>(tape, x, operand(tape, weight));
}
