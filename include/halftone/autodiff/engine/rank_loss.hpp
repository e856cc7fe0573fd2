// SPDX-License-Identifier: MIT
/// \file
/// The loss of one rank's rows as a part of the loss of all ranks' rows. The parts of all ranks add up to the loss of the
/// whole batch, and so do their gradients.
///
///     loss / ranks                                  // ranks: ht::data_parallel; equally many rows on each rank
///     loss * ranks.share_of(tape, micro, batch)     // by the targets that count, however they are distributed
///
/// An accumulator whose gradients are summed over ranks takes no other loss: the mean of one rank's rows alone would count
/// as many times as there are ranks.
#pragma once

#include <utility>

#include <halftone/autodiff/engine/share.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The losses of a step so far: the sum of losses times their weights, and the sum of the weights.
struct step_losses {
    double sum = 0, weight = 0;
};

/// A loss, as a part of that of `ranks` ranks.
template <class Loss>
struct rank_loss {
    Loss loss;
    int ranks;
};

/// A micro-batch's share of the batch of `ranks` ranks: multiply a loss by it.
struct rank_share {
    loss_share share;
    int ranks;
};

template <class Loss>
auto operator*(const Loss& loss, const rank_share& share) -> rank_loss<decltype(loss * share.share)> {
    return {loss * share.share, share.ranks};
}
template <class Loss>
auto operator*(const rank_share& share, const Loss& loss) -> rank_loss<decltype(loss * share.share)> {
    return loss * share;
}
template <class Loss>
auto operator*(const rank_loss<Loss>& loss, double factor) -> rank_loss<decltype(loss.loss * factor)> {
    return {loss.loss * factor, loss.ranks};
}
template <class Loss>
auto operator*(double factor, const rank_loss<Loss>& loss) -> rank_loss<decltype(loss.loss * factor)> {
    return loss * factor;
}
template <class Loss>
auto operator/(const rank_loss<Loss>& loss, double divisor) -> rank_loss<decltype(loss.loss / divisor)> {
    return {loss.loss / divisor, loss.ranks};
}

/// The variable of the loss inside.
template <class Loss>
decltype(auto) loss_variable(const rank_loss<Loss>& loss) {
    return loss_variable(loss.loss);
}
/// The gradient with which its backward pass begins: that of the loss inside.
template <class Loss>
gradient_seed loss_seed(const rank_loss<Loss>& loss) {
    return loss_seed(loss.loss);
}
/// `value` unchanged: a part is not a loss scale.
template <class Loss, class Value>
Value scaled_as(const rank_loss<Loss>&, Value value) {
    return value;
}

namespace detail {

/// The number of ranks to whose rows a loss belongs; 1 for a loss that says nothing.
template <class Loss>
struct ranks_of_loss {
    static int read(const Loss&) { return 1; }
};
template <class Loss>
struct ranks_of_loss<rank_loss<Loss>> {
    static int read(const rank_loss<Loss>& loss) { return loss.ranks; }
};

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
