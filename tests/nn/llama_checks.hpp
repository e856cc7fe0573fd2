// SPDX-License-Identifier: MIT
/// \file
/// A Llama against transformers' (golden/llama.py) on any device: logits, loss and every gradient of small random models, in
/// float32, and in bfloat16 with at most twice the error of PyTorch's autocast.
///
///     for (const golden_case& c : golden_cases()) is_as_transformers_has_it<ht::full_fp32>(device, c);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <halftone/nn/llama.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "optim/golden.hpp"
#include "support/gradient_sink.hpp"

namespace llama_test {

namespace ht = halftone;
using doubles = std::vector<double>;

/// golden/llama.py's generator.
struct generator {
    std::uint32_t state = 12345;

    std::uint32_t next() {
        state = state * 1664525u + 1013904223u;
        return state >> 16;
    }
    float number(float scale, float mean) {
        return mean + (static_cast<float>(next()) - 32768.0f) / 32768.0f * scale;
    }
};

struct golden_case {
    std::string name;
    double logits_off, loss_off, loss;  // off: PyTorch's bfloat16, relative but for the loss
    doubles logits;
    std::vector<double> gradients_off;
    std::vector<doubles> gradients;
};

inline std::vector<golden_case> golden_cases() {
    std::vector<golden_case> all;
    for (const support::golden_line& line : support::read_golden("llama.txt")) {
        const auto numbers = [&](std::size_t first) {
            doubles values;
            for (std::size_t i = first; i < line.words.size(); ++i) values.push_back(line.number(i));
            return values;
        };
        if (line.kind == "case") {
            all.push_back({line.words[0], line.number(2), line.number(3), line.number(4), {}, {}, {}});
        } else if (line.kind == "logits") {
            all.back().logits = numbers(0);
        } else {
            all.back().gradients_off.push_back(line.number(0));
            all.back().gradients.push_back(numbers(1));
        }
    }
    return all;
}

inline ht::nn::llama_config config_of(const std::string& name) {
    ht::nn::llama_config c{.vocab_size = 32,
                           .hidden_size = 16,
                           .intermediate_size = 20,
                           .num_hidden_layers = 2,
                           .num_attention_heads = 4,
                           .num_key_value_heads = 2,
                           .max_position_embeddings = 32,
                           .rms_norm_eps = name == "qwen2" ? 1e-6f : 1e-5f};
    if (name == "llama") {
        c.head_dim = 8;
    } else if (name == "llama3") {
        c.rope_theta = 500;
        c.rope_scaling = {.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_context = 16};
        c.tie_word_embeddings = true;
    } else {
        c.rope_theta = 1000;
        c.tie_word_embeddings = c.attention_bias = true;
    }
    return c;
}

constexpr int rows = 2, steps = 13;

/// The model's masters, and tokens and targets behind them, by the generator.
struct batch {
    std::vector<std::int32_t> token_ids = std::vector<std::int32_t>(rows * steps), target_ids = token_ids;
    ht::const_view<std::int32_t, 2> tokens{token_ids.data(), {rows, steps}}, targets{target_ids.data(), {rows, steps}};

    template <class Model>
    explicit batch(Model& model) {
        generator values;
        ht::store& s = model.parameters();
        for (std::size_t i = 0; i < s.entries().size(); ++i) {
            const std::string& path = s.entries()[i].path;
            const bool is_gain = path.ends_with("gain"), is_bias = path.ends_with("bias");
            const float scale = path.ends_with("tokens") ? 1.0f : is_gain || is_bias ? 0.5f : 0.25f;
            std::vector<float> masters(s.entries()[i].count);
            for (float& v : masters) v = values.number(scale, is_gain ? 1.0f : 0.0f);
            support::write_masters(s, i, masters);
        }
        s.refresh();
        const auto vocabulary = static_cast<std::uint32_t>(model.config().vocab_size);
        for (std::int32_t& id : token_ids) id = static_cast<std::int32_t>(values.next() % vocabulary);
        for (std::int32_t& id : target_ids) id = static_cast<std::int32_t>(values.next() % vocabulary);
        target_ids[3] = -100;
    }
};

/// The norm of the difference over the norm.
inline double off(const doubles& got, const doubles& want) {
    REQUIRE(got.size() == want.size());
    double difference = 0, all = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    return std::sqrt(difference / all);
}

/// How far off a policy may be.
template <class P>
double allowed(double of_pytorch) {
    return std::is_same_v<P, ht::full_fp32> ? 1e-4 : 2 * of_pytorch;
}

template <class P, class Device>
void is_as_transformers_has_it(Device& device, const golden_case& golden) {
    CAPTURE(golden.name);
    ht::nn::llama<P> model{device, config_of(golden.name)};
    const batch b(model);
    ht::inference eval{device};
    const auto logits = model.logits(eval, b.tokens);
    CHECK(logits.shape() == ht::shape<3>{rows, steps, model.config().vocab_size});
    CHECK(off(support::doubles(ht::to_host(device, logits).view()), golden.logits) <= allowed<P>(golden.logits_off));
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, b);
    // The loss's own error may vanish by chance: at least as far off as one of a logit.
    CHECK(std::fabs(static_cast<double>(loss.item()) - golden.loss) <=
          allowed<P>(std::max(golden.loss_off, golden.logits_off)) * golden.loss);
    tape.backward(loss, sink);
    const ht::store& s = model.parameters();
    REQUIRE(s.entries().size() == golden.gradients.size());
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        CAPTURE(s.entries()[i].path);
        const std::vector<float> g = sink.entry(i);
        CHECK(off({g.begin(), g.end()}, golden.gradients[i]) <= allowed<P>(golden.gradients_off[i]));
    }
}

}  // namespace llama_test
