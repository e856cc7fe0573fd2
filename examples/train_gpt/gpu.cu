// SPDX-License-Identifier: MIT
#include <optional>

#include <halftone/observe/trace/kernels.cuh>
#include <halftone/observe/trace/listeners.hpp>

#include "../with_gpu.cuh"
#include "device_runs.hpp"

gpu_names describe_gpu() {
    return with_gpu([](ht::cuda& device) { return gpu_names{device.description(), device.properties().name}; });
}

run_result planned_on_gpu(const task& t, bool chooses_budget) {
    return with_gpu([&](ht::cuda& device) { return planned_on(device, t, chooses_budget); });
}

run_result run_on_gpu(const task& t, const surroundings& around, run_view& view) {
    ht::cuda device;
    view.watch(device.memory());
    // With --trace: kernels between the events of a stream, told after the recorder, whose schedule decides.
    ht::listener_list all{{around.listener}};
    std::optional<ht::cuda_kernel_times> kernels;
    if (view.trace() != nullptr) all.add(kernels.emplace(device, *view.trace()));
    surroundings traced = around;
    traced.listener = all.listener();
    return with_history(device.memory(), t, traced,
                        [&](const surroundings& recorded) { return run_on(device, t, recorded); });
}
