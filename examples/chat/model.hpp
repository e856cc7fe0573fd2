// SPDX-License-Identifier: MIT
/// \file
/// A language model that somebody made, whatever its architecture and policy are, on the CPU or on the GPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <halftone/nn/token_sampler.hpp>

#include "../command_line.hpp"

namespace ht = halftone;
using ids = std::vector<std::int32_t>;

/// What is loaded, and how it is computed.
struct model_options {
    std::filesystem::path path;  ///< a folder of transformers, or a GGUF file
    std::string policy = "pure_bf16";
    int threads = 0;
    ht::extent context =
        0;  ///< the most tokens of a conversation; 0: those of the model, but no more than usual_context
    ht::cache_type cache = ht::cache_type::as_computed;

    static constexpr ht::extent usual_context = 4096;  ///< keys and values of so many tokens are allocated
};

class language_model {
  public:
    virtual ~language_model() = default;
    virtual ht::extent context() const = 0;
    virtual ht::extent vocabulary() const = 0;
    virtual std::string device() const = 0;
    /// The tokens that follow a text; on_token returns whether it goes on. Of a text that begins as the one before, only what is
    /// new is computed.
    virtual ids follow(const ids& text, const ht::generation_options& how,
                       const std::function<bool(std::int32_t)>& on_token) = 0;
};

std::unique_ptr<language_model> load_pure_bf16(const model_options& o);
std::unique_ptr<language_model> load_full_fp32(const model_options& o);
/// With the policy that the options name. Each program has it in gpu.cu if CUDA is available, in no_gpu.cpp otherwise.
std::unique_ptr<language_model> load_on_gpu(const model_options& o);
