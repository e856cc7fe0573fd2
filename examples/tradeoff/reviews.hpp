// SPDX-License-Identifier: MIT
/// \file
/// Labelled texts as the model reads them.
#pragma once

#include <vector>

#include <halftone/data/labelled_batches.hpp>

/// Rows of word ids with padding behind each text, a label for each, and the number of each text's last word among all
/// words of the batch.
struct review_batch {
    halftone::const_view<std::int32_t, 2> tokens;  // (batch, time)
    halftone::const_view<std::int32_t, 1> labels, last;  // (batch)

    halftone::extent size() const { return tokens.size(); }
    /// A step of this program is one micro-batch. Throws argument_error for more.
    std::vector<review_batch> split(halftone::extent count) const {
        if (count != 1) halftone::fail<halftone::argument_error>("reviews: ", count, " micro-batches; expected 1");
        return {*this};
    }
};

/// The batches of halftone::labelled_data with the places of their last words. A batch is valid until the next one.
class review_data {
  public:
    explicit review_data(halftone::labelled_data data) : data_(std::move(data)) {}

    review_batch sample(std::uint32_t step, halftone::extent rows) { return with_last(data_.sample(step, rows)); }
    halftone::extent windows() const { return data_.windows(); }
    review_batch window(halftone::extent first, halftone::extent rows) { return with_last(data_.window(first, rows)); }
    /// The number of texts to train on.
    halftone::extent training() const { return data_.training(); }

  private:
    review_batch with_last(const halftone::labelled_batch& b) {
        const auto time = static_cast<std::int32_t>(b.tokens.extent_of(1));
        last_.resize(static_cast<std::size_t>(b.rows()));
        for (std::size_t row = 0; row < last_.size(); ++row)
            last_[row] = static_cast<std::int32_t>(row) * time + b.lengths(static_cast<halftone::extent>(row)) - 1;
        return {b.tokens, b.labels, {last_.data(), {b.rows()}}};
    }

    halftone::labelled_data data_;
    std::vector<std::int32_t> last_;
};
