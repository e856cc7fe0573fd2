// SPDX-License-Identifier: MIT
#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/policy/presets.hpp>

#include "gpu.hpp"
#include "history.hpp"

namespace ht = halftone;

extern template run_result run<ht::full_fp32>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::amp_fp16>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::amp_bf16>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::tf32>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run<ht::fp8_hybrid>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run_llama<ht::full_fp32>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run_llama<ht::amp_fp16>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);
extern template run_result run_llama<ht::amp_bf16>(ht::cuda&, const options&, const ht::token_view&, const surroundings&);

gpu_names describe_gpu() try {
    const ht::cuda device;
    return {device.description(), device.properties().name};
} catch (const ht::error& e) {
    throw exit_with(3, std::string("--device cuda: ") + e.what());
}

run_result run_on_gpu(const std::string& policy, const options& o, const ht::token_view& corpus,
                      const surroundings& around) {
    ht::cuda device;
    return with_history(device.memory(), policy, o, around, [&](const surroundings& recorded) {
        return run_named(policy, device, o, corpus, recorded);
    });
}
