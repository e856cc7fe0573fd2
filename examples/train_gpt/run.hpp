// SPDX-License-Identifier: MIT
/// \file
/// The run of one policy: the same model, weights and batches for every policy.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <halftone/data/tokens.hpp>
#include <halftone/dist/counted.hpp>
#include <halftone/exec/ranges.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/policy/presets.hpp>
#include <halftone/policy/table.hpp>
#include <halftone/train/callback.hpp>
#include <halftone/train/memory_budget.hpp>

#include "options.hpp"

class file_writes;
namespace halftone {
inline namespace HALFTONE_ABI {
struct shadow_report;
}
}  // namespace halftone

/// The surroundings of a run: what the rest of the program passes to it.
struct surroundings {
    halftone::trainer_callback& observer;
    halftone::range_listener* listener = nullptr;   ///< with --profile, --memory-history and others
    bool (*is_interrupted)() = nullptr;             ///< called after every step
    bool is_plan = false;                           ///< the device computes nothing: the run ends with its second step
    std::string checkpoints{};                      ///< the folder of the policy's checkpoints
    std::string arguments{};                        ///< what a resumed run must have the same, as JSON
    bool chooses_budget = false;                    ///< the run ends where it has chosen how to fit its budget
    halftone::communicator* ranks = nullptr;        ///< with --ranks: the ranks that train together
    halftone::counted_communicator* counted = nullptr;  ///< counts what they do
    std::function<void(const halftone::shadow_report&)> on_shadow{};  ///< gets the report of --shadow
    file_writes* writes = nullptr;                  ///< what becomes of files that cannot be written; nullptr: errors

    bool is_first_rank() const { return ranks == nullptr || ranks->rank() == 0; }
};

/// The memory of a run at its peaks.
struct run_peaks {
    std::size_t bytes = 0;
    std::array<std::size_t, halftone::memory_kinds> of_kind{};  ///< each at its own time
};

/// What the first of several ranks did with collectives while it trained.
struct run_collectives {
    double bytes = 0;              ///< received from other ranks
    double seconds_under_way = 0;  ///< in which at least one collective had begun and was not yet complete
    double seconds_waited = 0;     ///< of these: in which nothing else was done
    double hidden_share = 0;       ///< 1 - waited / under way

    run_collectives() = default;
    explicit run_collectives(const halftone::counted_communicator& c)
        : bytes(static_cast<double>(c.bytes())),
          seconds_under_way(c.seconds_under_way()),
          seconds_waited(c.seconds_waited()),
          hidden_share(c.hidden_share()) {}
};

struct run_result {
    std::string policy;
    std::size_t parameters = 0;
    halftone::training_result training;
    std::optional<halftone::evaluation_result> validation;  ///< empty if the run was interrupted
    std::string text;                                       ///< what the model wrote
    std::vector<halftone::policy_row> policies{};           ///< the types of its layers
    halftone::memory_choice budget{};                       ///< of a run that chooses
    std::vector<run_peaks> of_ranks{};                      ///< with --ranks: the peaks of each
    std::optional<run_peaks> planned{};                     ///< and those that one was planned to have
    run_collectives collectives{};                          ///< with --ranks
};

/// What a run is planned to have in use.
struct run_plan {
    std::string policy;
    std::size_t parameters = 0;
    halftone::memory_plan memory;
};

/// Defined in a separate file for each policy and device, to keep compile times short.
template <class Policy, class Device>
run_result run(Device& device, const options& o, const halftone::token_view& corpus, const surroundings& around);
/// The same for a Llama.
template <class Policy, class Device>
run_result run_llama(Device& device, const options& o, const halftone::token_view& corpus, const surroundings& around);

template <class Device>
run_result run_named(const std::string& policy, Device& device, const options& o, const halftone::token_view& corpus,
                     const surroundings& around) {
    auto* which = policy == "full_fp32"  ? &run<halftone::full_fp32, Device>
                  : policy == "amp_fp16" ? &run<halftone::amp_fp16, Device>
                                         : &run<halftone::amp_bf16, Device>;
#if defined(TRAIN_GPT_MORE)
    if (policy == "tf32") which = &run<halftone::tf32, Device>;
    if (policy == "fp8_hybrid") which = &run<halftone::fp8_hybrid, Device>;
    if (o.model == "llama") {
        which = policy == "full_fp32"  ? &run_llama<halftone::full_fp32, Device>
                : policy == "amp_fp16" ? &run_llama<halftone::amp_fp16, Device>
                                       : &run_llama<halftone::amp_bf16, Device>;
    }
#endif
    run_result result = which(device, o, corpus, around);
    result.policy = policy;
    return result;
}
