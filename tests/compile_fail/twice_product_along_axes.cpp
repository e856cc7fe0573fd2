// SPDX-License-Identifier: MIT
// expect: halftone: prod: products along axes have no second derivatives: multiply the slices
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/autodiff/op/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/cpu.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using tape = ht::tape<ht::cpu>;
#else
using tape = ht::tape<ht::cpu, ht::double_backward_tape>;
#endif

auto multiply(tape& on, const ht::variable<float, 2>& x) { return ht::prod(on, x, ht::axes<1>); }
