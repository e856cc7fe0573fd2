// SPDX-License-Identifier: MIT
/// \file
/// What a trainer asks of data: batches to train with, and windows to measure with.
///
///     struct my_data {                                            // of any kind that the model's loss takes
///         my_batch sample(std::uint32_t step, ht::extent rows);   // my_batch: split(micro_batches), size()
///     };
///     static_assert(ht::training_data<my_data>);
///
/// Where a batch and its micro-batches have `targets`, a view of std::int32_t, the loss is taken for a mean over those
/// that are not -100, and each micro-batch weighs by its share of them (autodiff/engine/share.hpp); others weigh alike.
#pragma once

#include <cstdint>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Gives the batch of a step: `rows` rows, which split into micro-batches for the model's loss. size() counts its
/// tokens.
template <class Data>
concept training_data = requires(Data& data, std::uint32_t step, extent rows) {
    data.sample(step, rows).split(rows);
    data.sample(step, rows).size();
};

/// Gives numbered windows to measure with, a batch at a time.
template <class Data>
concept evaluation_data = requires(Data& data, extent first, extent rows) {
    data.windows();
    data.window(first, rows).size();
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
