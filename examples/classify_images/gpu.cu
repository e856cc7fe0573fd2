// SPDX-License-Identifier: MIT
#include "../with_gpu.cuh"
#include "data.hpp"

extern template classifier_result run<ht::full_fp32, memory_use::usual>(ht::cuda&, const std::string&, const image_data&, const run_options&);
extern template classifier_result run<ht::amp_fp16, memory_use::usual>(ht::cuda&, const std::string&, const image_data&, const run_options&);
extern template classifier_result run<ht::amp_bf16, memory_use::usual>(ht::cuda&, const std::string&, const image_data&, const run_options&);
extern template classifier_result run<ht::amp_bf16, memory_use::small>(ht::cuda&, const std::string&, const image_data&, const run_options&);

gpu_names describe_gpu() {
    return with_gpu([](ht::cuda& device) { return gpu_names{device.description(), device.properties().name}; });
}

classifier_result run_on_gpu(const std::string& name, const image_data& data, const run_options& o) {
    return with_gpu([&](ht::cuda& device) { return run_named(device, name, data, o); });
}
