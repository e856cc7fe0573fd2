// SPDX-License-Identifier: MIT
/// \file
/// What a trainer asks of the ranks that it has joined; train/ranks.hpp has the answers, and all that exchanges gradients.
///
///     if (ranks_) losses_.set_step(ranks_->add_up(losses_.step()));
#pragma once

#include <halftone/autodiff/engine/rank_loss.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class trainer_ranks {
  public:
    trainer_ranks(int rank, int size) : rank_(rank), size_(size) {}
    trainer_ranks(const trainer_ranks&) = delete;
    trainer_ranks& operator=(const trainer_ranks&) = delete;
    virtual ~trainer_ranks() = default;

    int rank() const { return rank_; }
    int size() const { return size_; }
    /// The sums of all ranks; the same bits on all of them. Collective, as the others are.
    virtual step_losses add_up(const step_losses& own) = 0;
    virtual extent add_up(extent own) = 0;
    /// Whether all ranks must call the model equally often, since its parameters are gathered then.
    virtual bool calls_together() const { return false; }
    /// Whether it is so on any rank.
    virtual bool is_any(bool own) = 0;

  private:
    int rank_, size_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
