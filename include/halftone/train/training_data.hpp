// SPDX-License-Identifier: MIT
/// \file
/// What a trainer requires of data: batches for training, and windows for evaluation.
///
///     struct my_data {                                            // any type; the model's loss takes its batches
///         my_batch sample(std::uint32_t step, ht::extent rows);   // my_batch: split(micro_batches), size()
///     };
///     static_assert(ht::training_data<my_data>);
///
/// If a batch and its micro-batches have `targets`, a view of std::int32_t, the loss is a mean over those that are not
/// -100, and each micro-batch is weighted by its share of them (autodiff/engine/share.hpp); otherwise micro-batches
/// have equal weights.
#pragma once

#include <cstdint>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// sample() gives the batch of a step: `rows` rows, which split into micro-batches for the model's loss. size() is its
/// number of tokens.
template <class Data>
concept training_data = requires(Data& data, std::uint32_t step, extent rows) {
    data.sample(step, rows).split(rows);
    data.sample(step, rows).size();
};

/// Training data with batches of few shapes: shapes() is their number, and largest() a batch of the largest one, with
/// which the trainer makes memory ready before the first step.
template <class Data>
concept bucketed_training_data = training_data<Data> && requires(Data& data, extent rows) {
    data.largest(rows).size();
    data.shapes();
};

/// window() gives numbered windows for evaluation, a batch at a time.
template <class Data>
concept evaluation_data = requires(Data& data, extent first, extent rows) {
    data.windows();
    data.window(first, rows).size();
};

/// A data loader for evaluation: next() gives its batches, and nullptr at the end of an epoch.
template <class Loader>
concept evaluation_loader = requires(Loader& loader) {
    loader.next()->size();
    loader.position();
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
