// SPDX-License-Identifier: MIT
/// \file
/// Loads somebody's language model with a policy: an nn::gpt, an nn::llama or an nn::qwen3, as its files say.
#pragma once

#include <utility>

#include <halftone/io/pretrained.hpp>
#include <halftone/nn/generation.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/nn/llama.hpp>

#include "model.hpp"

template <class Device, class Model>
class loaded_model final : public language_model {
  public:
    template <class Config>
    loaded_model(std::unique_ptr<Device> device, const Config& config, const model_options& o)
        : device_(std::move(device)),
          model_(load(*device_, config, o)),
          eval_{*device_},
          cache_{*device_, 1, model_->context(), o.cache} {}

    ht::extent context() const override { return model_->context(); }
    ht::extent vocabulary() const override {
        if constexpr (requires { model_->config().vocab_size; })
            return model_->config().vocab_size;
        else
            return model_->config().vocabulary;
    }
    std::string device() const override { return device_->description(); }
    ids follow(const ids& text, const ht::generation_options& how,
               const std::function<bool(std::int32_t)>& on_token) override {
        return ht::generate(eval_, *model_, cache_, std::vector<ids>{text}, how,
                            [&](std::size_t, std::int32_t token) { return on_token(token); })[0];
    }

  private:
    template <class Config>
    static std::unique_ptr<Model> load(Device& device, const Config& config, const model_options& o) {
        const ht::defer_parameters until_loaded{device};
        auto model = std::make_unique<Model>(device, config);
        ht::load_pretrained(*model, o.path);
        return model;
    }

    std::unique_ptr<Device> device_;
    std::unique_ptr<Model> model_;
    ht::inference<Device> eval_;
    ht::prompt_cache cache_;
};

template <class P, class Device>
std::unique_ptr<language_model> load(std::unique_ptr<Device> device, const model_options& o) {
    const std::string type = ht::read_model_type(o.path);
    const auto made = [&]<class Model>(std::type_identity<Model>, const auto& config) {
        return std::make_unique<loaded_model<Device, Model>>(std::move(device), config, o);
    };
    if (type == "bert") refuse(o.path.string(), ": a BERT does not continue texts");
    if (type == "gpt2") {
        const ht::nn::gpt_config config = ht::read_gpt2_config(o.path);
        if (o.context != 0 && o.context != config.context)
            refuse("--context is ", o.context, "; a GPT-2 has the ", config.context, " positions of its file");
        return made(std::type_identity<ht::nn::gpt<P>>{}, config);
    }
    const ht::nn::llama_config config = ht::read_llama_config(
        o.path, {.context = o.context, .at_most = o.context == 0 ? model_options::usual_context : 0});
    if (type == "qwen3") return made(std::type_identity<ht::nn::qwen3<P>>{}, config);
    return made(std::type_identity<ht::nn::llama<P>>{}, config);
}
