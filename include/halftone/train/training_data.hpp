// SPDX-License-Identifier: MIT
/// \file
/// What a trainer requires of data: batches for training, and windows for evaluation.
///
///     struct my_data {                                            // any type; the model's loss takes its batches
///         my_batch sample(std::uint32_t step, ht::extent rows);   // my_batch: split(micro_batches), size()
///     };
///     static_assert(ht::training_data<my_data>);
///
/// If a batch and its micro-batches have `targets` or `labels`, a view of std::int32_t, the loss is a mean over those that are not
/// -100, and each micro-batch, rank and evaluated window is weighted by its share of them. A loss that is a mean over something else,
/// with class weights, another ignore_index, or of your own, says so by model.loss_divisor(batch) or batch.loss_divisor(), an
/// ht::loss_divisor (autodiff/engine/share.hpp). Otherwise micro-batches are weighted by their rows, which are equally
/// many except at the end of an epoch.
///
/// A run that is resumed goes on with the step's number, so that steps of other sizes, or data of another order, would give
/// some rows twice and others not at all: train() refuses them. Data says what its order depends on by order_text(), a
/// std::string, or that sample() draws rows at random, by `static constexpr bool draws_at_random = true`.
#pragma once

#include <concepts>
#include <cstdint>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// sample() gives the batch of a step: `rows` rows, which split into micro-batches for the model's loss. size() is its
/// number of tokens. train() refuses a batch whose rows() is 0, and one that splits into another number of micro-batches.
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

/// Training data with epochs, in each of which every row comes once, for runs of num_train_epochs. epoch_rows() is the number
/// of rows, and of_epoch(epoch, first, rows) a batch of `rows` of them from number `first` of that epoch's order on. A batch
/// gives its rows(), and part(first, count), some of them.
template <class Data>
concept epoch_data = training_data<Data> && requires(Data& data, std::uint32_t epoch, extent first, extent rows) {
    { data.epoch_rows() } -> std::convertible_to<extent>;
    { data.of_epoch(epoch, first, rows) } -> std::same_as<decltype(data.sample(epoch, rows))>;
    data.of_epoch(epoch, first, rows).part(first, rows);
    { data.of_epoch(epoch, first, rows).rows() } -> std::convertible_to<extent>;
};

/// window() gives numbered windows for evaluation, a batch at a time. One without rows counts as nothing.
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
