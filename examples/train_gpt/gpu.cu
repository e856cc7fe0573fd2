// SPDX-License-Identifier: MIT
#include <optional>

#include <halftone/observe/trace/kernels.cuh>
#include <halftone/observe/trace/listeners.hpp>
#include <halftone/policy/presets.hpp>

#include "../with_gpu.cuh"
#include "gpu.hpp"
#include "history.hpp"
#include "planned.hpp"

namespace ht = halftone;

extern template run_result run<ht::full_fp32>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::amp_fp16>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::amp_bf16>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::tf32>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::fp8_hybrid>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run_llama<ht::full_fp32>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run_llama<ht::amp_fp16>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run_llama<ht::amp_bf16>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);

using planned_gpu = ht::detail::measured<ht::cuda>;
extern template run_result run<ht::full_fp32>(planned_gpu&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::amp_fp16>(planned_gpu&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::amp_bf16>(planned_gpu&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::tf32>(planned_gpu&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::fp8_hybrid>(planned_gpu&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run_llama<ht::full_fp32>(planned_gpu&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run_llama<ht::amp_fp16>(planned_gpu&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run_llama<ht::amp_bf16>(planned_gpu&, const options&, const ht::token_view&, const surroundings&);

gpu_names describe_gpu() {
    return with_gpu([](ht::cuda& device) { return gpu_names{device.description(), device.properties().name}; });
}

run_plan plan_on_gpu(const std::string& policy, const options& few, const ht::token_view& corpus) {
    return with_gpu([&](ht::cuda& device) {
        run_result result;
        auto memory = planned(device, policy, few, corpus, planned_for::plan, result);
        return run_plan{policy, result.parameters, std::move(memory)};
    });
}

run_result choose_on_gpu(const std::string& policy, const options& few, const ht::token_view& corpus) {
    return with_gpu([&](ht::cuda& device) {
        run_result result;
        planned(device, policy, few, corpus, planned_for::budget, result);
        return result;
    });
}

run_result run_on_gpu(const std::string& policy, const options& o, const ht::token_view& corpus,
                      const surroundings& around, run_view& view) {
    ht::cuda device;
    view.watch(device.memory());
    // With --trace: kernels between the events of a stream, told after the recorder, whose schedule decides.
    ht::listener_list all{{around.listener}};
    std::optional<ht::cuda_kernel_times> kernels;
    if (view.trace() != nullptr) all.add(kernels.emplace(device, *view.trace()));
    surroundings traced = around;
    traced.listener = all.listener();
    return with_history(device.memory(), policy, o, traced, [&](const surroundings& recorded) {
        return run_named(policy, device, o, corpus, recorded);
    });
}
