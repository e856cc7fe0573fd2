// SPDX-License-Identifier: MIT
#include <halftone/cuda.cuh>

#include "../with_gpu.cuh"
#include "load.hpp"

gpu_names describe_gpu() {
    return with_gpu([](ht::cuda& device) { return gpu_names{device.description(), device.properties().name}; });
}

std::unique_ptr<language_model> load_on_gpu(const model_options& o) {
    auto device = begin_gpu();
    if (o.policy == "full_fp32") return load<ht::full_fp32>(std::move(device), o);
    return load<ht::pure_bf16>(std::move(device), o);
}
