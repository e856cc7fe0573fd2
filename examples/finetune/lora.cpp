// SPDX-License-Identifier: MIT
#include "tune.hpp"

using tuned = ht::lora<ht::amp_bf16, ht::pure_bf16>;

const method lora = method_of<tuned, true>("lora", "adapters with fp32 masters, over a base in bf16");

namespace {

template <class Model>
void merge(ht::cpu& device, const task& t, const std::filesystem::path& out) {
    const auto model = load<Model, true>(device, t);
    ht::load_peft(*model, out / "adapter");
    ht::merge_adapters(*model);
    write_model(*model, t, out / "merged", out / "model.gguf");
}

}  // namespace

void write_merged(ht::cpu& device, const task& t, const std::filesystem::path& out) {
    if (t.has_head_norms) return merge<ht::nn::qwen3<tuned>>(device, t, out);
    merge<ht::nn::llama<tuned>>(device, t, out);
}
