// SPDX-License-Identifier: MIT
/// \file
/// A scalar out of any result: its elements times given weights, added up. So the gradient of the result is the
/// weights, exactly, and a test knows what comes in from above.
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
