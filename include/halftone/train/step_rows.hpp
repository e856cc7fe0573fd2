// SPDX-License-Identifier: MIT
/// \file
/// The rows of a step: how many steps an epoch has, and which micro-batches of a step's batch a rank takes. Included by
/// trainer.hpp.
///
///     steps_of_epoch(103, 16)                     // 7: six of 16 rows, and one of 7
///     const step_rows rows{.micro_batch = 4, .accumulation = 4};
///     rows.for_each_part(batch, step, f);         // of 7 rows f(4 of them, 4, 7) and f(the other 3, 3, 7)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <halftone/error.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The steps of an epoch of `rows` rows: each takes `of_step`, the last one what is left.
inline std::int64_t steps_of_epoch(extent rows, extent of_step) { return rows / of_step + (rows % of_step == 0 ? 0 : 1); }

/// The steps of a number of epochs, rounded up, as transformers' Trainer counts them. Throws argument_error for more than
/// 2^31 - 1.
inline std::int64_t steps_of_epochs(double epochs, std::int64_t steps_of_one) {
    const double steps = std::ceil(epochs * static_cast<double>(steps_of_one));
    if (steps > INT32_MAX)
        fail<argument_error>("training_arguments: num_train_epochs is ", epochs, ", of ", steps_of_one,
                             " steps each; expected ", INT32_MAX, " steps at most");
    return static_cast<std::int64_t>(steps);
}

/// A batch of which any rows can be taken.
template <class Batch>
concept has_row_parts = requires(const Batch& batch, extent first, extent count) {
    batch.rows() + first;
    batch.part(first, count);
};

/// How a step's batch is divided.
struct step_rows {
    extent micro_batch = 1;   ///< rows of a micro-batch
    extent accumulation = 1;  ///< micro-batches of a rank
    int rank = 0, ranks = 1;

    /// Calls f(micro-batch, its weight, the sum of all ranks' weights) for this rank's ones. Weights are 1. A batch at the end
    /// of an epoch has fewer rows: micro-batches as large as all others, and a last one with the rows that are left, weighted
    /// by their rows. All ranks get equally many, so that they call the model and exchange gradients together: those for whom
    /// none is left get the first one with a weight of 0. Throws argument_error, before the first call, for a batch without rows
    /// and for one that splits into another number of micro-batches; `step` is its number in the message.
    template <class Batch, class F>
    void for_each_part(const Batch& batch, std::int64_t step, const F& f) const {
        const extent count = accumulation * ranks;
        if constexpr (requires { batch.rows() + count; }) {
            if (batch.rows() < 1)
                fail<argument_error>("trainer: the batch of step ", step, " has ", batch.rows(), " rows; expected ",
                                     count * micro_batch, ", or fewer at the end of an epoch");
        }
        if constexpr (has_row_parts<Batch>) {
            if (batch.rows() < count * micro_batch) return for_each_of_fewer(batch, f);
        }
        const auto& parts = batch.split(count);
        extent given = 0, index = 0;
        for ([[maybe_unused]] const auto& micro : parts) ++given;
        if (given != count)
            fail<argument_error>("trainer: split(", count, ") of the batch of step ", step, " gave ", given,
                                 " micro-batches; expected ", count);
        for (const auto& micro : parts) {
            if (index++ / accumulation == rank) f(micro, extent{1}, count);
        }
    }

  private:
    template <class Batch, class F>
    void for_each_of_fewer(const Batch& batch, const F& f) const {
        const extent rows = batch.rows(), count = steps_of_epoch(rows, micro_batch), own = steps_of_epoch(count, ranks);
        for (extent i = own * rank; i < own * (rank + 1); ++i) {
            const extent first = i < count ? i * micro_batch : 0, here = std::min(micro_batch, rows - first);
            f(batch.part(first, here), i < count ? here : 0, rows);
        }
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
