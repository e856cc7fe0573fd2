// SPDX-License-Identifier: MIT
/// \file
/// The run of one row of the table: a policy, an optimizer, and whether blocks are computed again.
#pragma once

#include <array>
#include <memory>
#include <string>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/train/callback.hpp>

#include "options.hpp"
#include "reviews.hpp"

/// What a row of the table is.
struct row {
    std::string name;
    bool is_bf16 = false;
    bool recomputes = false;
    bool has_8bit_state = false;
};

/// The memory of a run.
struct bytes_in_use {
    std::size_t peak = 0;
    std::array<std::size_t, halftone::memory_kinds> by_kind{};  ///< the most of each kind, each at its own time
};

struct row_result {
    std::size_t parameters = 0;
    bytes_in_use planned, measured;
    std::string operation_at_peak;  ///< by the plan
    halftone::training_result training;
    double validation_loss = 0;     ///< nats a text
    double accuracy = 0;            ///< the fraction of the held-out texts that get their label
};

/// A run on a device, which can be trained in turn with others, so that all rows share what else the machine does.
class any_run {
  public:
    virtual ~any_run() = default;
    virtual std::size_t parameters() const = 0;
    /// Takes at most this many steps more.
    virtual void train(review_data& data, std::int64_t steps) = 0;
    /// Peaks, step times and losses of the training, the latter on the held-out texts.
    virtual row_result finish(review_data& data) = 0;
};

/// Makes the model, its optimizer and its trainer; `observer` is called after every step. Defined in a file for each
/// policy, to keep compile times short.
template <class Policy>
std::unique_ptr<any_run> make_run(halftone::cpu& device, const row& r, const options& o, halftone::extent vocabulary,
                                  halftone::trainer_callback& observer);
