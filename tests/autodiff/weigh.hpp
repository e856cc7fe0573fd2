// SPDX-License-Identifier: MIT
/// \file
/// A scalar computed from any result: the sum of its elements times given weights. The gradient of the result is then exactly
/// the weights, so that a test knows the incoming gradient.
///
///     tape.backward(autodiff_test::weigh(tape, y, weights), sink);
#pragma once

#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

namespace autodiff_test {

template <class Tape, class T, int Rank>
auto weigh(Tape& tape, const halftone::variable<T, Rank>& y, const halftone::view<T, 1>& weights) {
    return halftone::sum(tape,
                         halftone::mul(tape, y, tape.constant(halftone::view<T, Rank>(weights.data(), y.shape()))));
}

}  // namespace autodiff_test
