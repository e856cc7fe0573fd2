// SPDX-License-Identifier: MIT
#include "../with_gpu.cuh"
#include "model.hpp"

extern template classifier_result run<ht::full_fp32, memory_use::usual>(ht::cuda&, const std::string&, const text_data&, const text_options&);
extern template classifier_result run<ht::amp_fp16, memory_use::usual>(ht::cuda&, const std::string&, const text_data&, const text_options&);
extern template classifier_result run<ht::amp_bf16, memory_use::usual>(ht::cuda&, const std::string&, const text_data&, const text_options&);
extern template classifier_result run<ht::amp_bf16, memory_use::small>(ht::cuda&, const std::string&, const text_data&, const text_options&);

gpu_names describe_gpu() {
    return with_gpu([](ht::cuda& device) { return gpu_names{device.description(), device.properties().name}; });
}

classifier_result run_on_gpu(const std::string& name, const text_data& data, const text_options& o) {
    return with_gpu([&](ht::cuda& device) { return run_named(device, name, data, o); });
}
