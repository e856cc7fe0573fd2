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
#include <halftone/exec/ranges.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/policy/presets.hpp>
#include <halftone/policy/table.hpp>
#include <halftone/ranks/counted.hpp>
#include <halftone/train/callback.hpp>
#include <halftone/train/memory_budget.hpp>

#include "options.hpp"

namespace ht = halftone;

class file_writes;
namespace halftone {
inline namespace HALFTONE_ABI {
struct shadow_report;
}
}  // namespace halftone

/// What is trained, on what.
struct task {
    std::string policy;
    options o;
    ht::token_view corpus;
};

/// The surroundings of a run: what the rest of the program passes to it.
struct surroundings {
    ht::trainer_callback& observer;
    ht::range_listener* listener = nullptr;       ///< with --profile, --memory-history and others
    bool (*is_interrupted)() = nullptr;           ///< called after every step
    bool is_plan = false;                         ///< the device computes nothing: the run ends with its second step
    std::string checkpoints{};                    ///< the folder of the policy's checkpoints
    std::string arguments{};                      ///< what a resumed run must have the same, as JSON
    bool chooses_budget = false;                  ///< the run ends where it has chosen how to fit its budget
    ht::communicator* ranks = nullptr;            ///< with --ranks: the ranks that train together
    ht::counted_communicator* counted = nullptr;  ///< counts what they do
    std::function<void(const ht::shadow_report&)> on_shadow{};  ///< gets the report of --shadow
    file_writes* writes = nullptr;  ///< what becomes of files that cannot be written; nullptr: errors
};

/// The memory of a run at its peaks.
struct run_peaks {
    std::size_t bytes = 0;
    std::array<std::size_t, ht::memory_kinds> of_kind{};  ///< each at its own time
};

/// What the first of several ranks did with collectives while it trained.
struct run_collectives {
    double bytes = 0;              ///< received from other ranks
    double seconds_under_way = 0;  ///< in which at least one collective had begun and was not yet complete
    double seconds_waited = 0;     ///< of these: in which nothing else was done
    double hidden_share = 0;       ///< 1 - waited / under way
};

struct run_result {
    std::string policy;
    std::size_t parameters = 0;
    ht::training_result training;
    std::optional<ht::evaluation_result> validation;  ///< empty if the run was interrupted
    std::string text;                                 ///< what the model wrote
    std::vector<ht::policy_row> policies{};           ///< the types of its layers
    ht::memory_choice budget{};                       ///< of a run that chooses
    ht::memory_plan plan{};             ///< of a plan, or with --ranks what each of them was planned to have
    std::vector<run_peaks> of_ranks{};  ///< with --ranks: the peaks of each
    run_collectives collectives{};      ///< with --ranks
};

/// Calls what writes the trained model to the folder of --export.
void export_by(const surroundings& around, const std::function<void()>& write);

/// Defined in a separate file for each policy and device, to keep compile times short.
template <class Policy, class Device>
run_result run(Device& device, const options& o, const ht::token_view& corpus, const surroundings& around);
/// The same for a Llama.
template <class Policy, class Device>
run_result run_llama(Device& device, const options& o, const ht::token_view& corpus, const surroundings& around);

/// The run of a task.
template <class Device>
run_result run_on(Device& device, const task& t, const surroundings& around) {
    const std::string& policy = t.policy;
    auto* which = policy == "full_fp32"  ? &run<ht::full_fp32, Device>
                  : policy == "amp_fp16" ? &run<ht::amp_fp16, Device>
                                         : &run<ht::amp_bf16, Device>;
#if defined(TRAIN_GPT_MORE)
    if (policy == "tf32") which = &run<ht::tf32, Device>;
    if (policy == "fp8_hybrid") which = &run<ht::fp8_hybrid, Device>;
    if (t.o.model == "llama") {
        which = policy == "full_fp32"  ? &run_llama<ht::full_fp32, Device>
                : policy == "amp_fp16" ? &run_llama<ht::amp_fp16, Device>
                                       : &run_llama<ht::amp_bf16, Device>;
    }
#endif
    run_result result = which(device, t.o, t.corpus, around);
    result.policy = policy;
    return result;
}
