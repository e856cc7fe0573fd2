// SPDX-License-Identifier: MIT
/// \file
/// Checks whether a trainer without a loss scaler should have one: policies are known at compile time, regions in a
/// model's functions only at run time.
///
///     detail::check_scaled<Model>(acc);                      // after tape.backward(..., acc)
#pragma once

#include <halftone/policy/model.hpp>
#include <halftone/scale/accumulator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Throws state_error and discards the window if gradients passed through fp16 although no policy of the Model needs a
/// loss scale.
template <class Model, class Accumulator>
void check_scaled(Accumulator& acc) {
    if (model_needs_scaling<Model> || !acc.has_narrow_gradients()) return;
    acc.discard();
    fail<state_error>(
        "trainer: gradients pass through fp16 in a region of autocast, where they underflow, and no policy of this "
        "model says that its loss needs a scale: give it one that does, using policy = ht::amp_fp16, or open a region "
        "of bfloat16");
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
