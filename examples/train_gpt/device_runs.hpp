// SPDX-License-Identifier: MIT
/// \file
/// Runs and plans on a device of any kind: the processor here, or a GPU, which gpu.cu has if CUDA is available.
#pragma once

#include <memory>

#include <halftone/observe/memory/history.hpp>
#include <halftone/ranks/planned.hpp>

#include "../seeing.hpp"
#include "run.hpp"

/// Calls run(surroundings). With --memory-history the memory's history is recorded meanwhile, which the surroundings'
/// listener then is, and written at the run's end and where memory runs out. Throws ht::output_error.
template <class Run>
run_result with_history(ht::memory_resource& memory, const task& t, surroundings around, const Run& run) {
    if (t.o.memory_history.empty()) return run(around);
    std::filesystem::path path = t.o.memory_history;
    if (t.o.policies.size() > 1)
        path.replace_filename(path.stem().string() + "_" + t.policy + path.extension().string());
    const std::string file = path.string();
    // A folder that cannot be written to is reported before training.
    if (t.o.on_write_error == ht::write_errors::stop) static_cast<void>(ht::output_file(file));
    ht::memory_history history(memory, {.out_of_memory = file, .title = "Memory of " + t.o.model + ", " + t.policy});
    history.also_tell(around.listener);
    around.listener = &history;
    run_result result = run(around);
    if (around.writes != nullptr)
        (*around.writes)([&] { history.dump(file); });
    else
        history.dump(file);
    return result;
}

/// The run's code on a twin of the device, which computes nothing, without what looks at values: its plan, or the choice of
/// measures for the options' budget. With --ranks it is the run of one rank, as all have the same.
template <class Device>
run_result planned_on(Device& device, task t, bool chooses_budget) {
    t.o.numerics_every = t.o.shadow_step = 0;
    if (chooses_budget) t.o.memory_history.clear();
    ht::trainer_callback silent;
    run_result result;
    ht::memory_plan plan = ht::plan(device, [&](auto& twin) {
        std::optional<ht::planned_communicator> ranks;
        if (t.o.ranks > 1) ranks.emplace(static_cast<int>(t.o.ranks));
        const surroundings around{.observer = silent,
                                  .listener = twin.listener(),
                                  .is_plan = !chooses_budget,
                                  .chooses_budget = chooses_budget,
                                  .ranks = ranks ? &*ranks : nullptr};
        result = with_history(twin.memory(), t, around,
                              [&](const surroundings& recorded) { return run_on(twin, t, recorded); });
    });
    result.plan = std::move(plan);
    return result;
}

/// The GPU's part. Both throw exit_with(3) if there is none: gpu.cu is built if CUDA is available, no_gpu.cpp otherwise.
run_result planned_on_gpu(const task& t, bool chooses_budget);
run_result run_on_gpu(const task& t, const surroundings& around, run_view& view);

/// The processor that the options ask for; with --ranks and without --threads an equal part of it for each rank.
ht::cpu_options cpu_options_of(const options& o);
/// planned_on the device of the options.
run_result planned(const task& t, bool chooses_budget = false);
/// A run on the processor, as one of several ranks if there are others. `view`: nullptr for a rank that is not told and
/// writes nothing.
run_result run_on_cpu(const task& t, const surroundings& around, run_view* view);
