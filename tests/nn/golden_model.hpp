// SPDX-License-Identifier: MIT
/// \file
/// What tests of models against transformers' share: the files that golden/llama.py and golden/bert.py write, their generator
/// of weights and inputs, and the comparison, which allows twice PyTorch's own error in bfloat16.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <halftone/memory/store.hpp>
#include <halftone/policy/presets.hpp>

#include "optim/golden.hpp"
#include "support/gradient_sink.hpp"

namespace golden_model {

namespace ht = halftone;
using doubles = std::vector<double>;

/// golden/golden_model.py's generator.
struct generator {
    std::uint32_t state = 12345;

    std::uint32_t next() {
        state = state * 1664525u + 1013904223u;
        return state >> 16;
    }
    float number(float scale, float mean) {
        return mean + (static_cast<float>(next()) - 32768.0f) / 32768.0f * scale;
    }
    /// Random ids below a count.
    std::vector<std::int32_t> ids(int count, ht::extent below) {
        std::vector<std::int32_t> all(static_cast<std::size_t>(count));
        for (std::int32_t& id : all) id = static_cast<std::int32_t>(next() % static_cast<std::uint32_t>(below));
        return all;
    }
    /// The masters of all parameters.
    void fill(ht::store& s) {
        for (std::size_t i = 0; i < s.entries().size(); ++i) {
            const std::string& path = s.entries()[i].path;
            const bool is_gain = path.ends_with("gain"), is_bias = path.ends_with("bias");
            const float scale = path.ends_with("tokens") ? 1.0f : is_gain || is_bias ? 0.5f : 0.25f;
            std::vector<float> masters(s.entries()[i].count);
            for (float& v : masters) v = number(scale, is_gain ? 1.0f : 0.0f);
            support::write_masters(s, i, masters);
        }
        s.refresh();
    }
};

struct golden_case {
    std::string name;
    double logits_off, loss_off, loss;  // errors of PyTorch's bfloat16, relative except for the loss
    doubles logits, hidden{};
    double hidden_off = 0;
    std::vector<double> gradients_off{};
    std::vector<doubles> gradients{};
};

inline std::vector<golden_case> read_cases(const std::string& file) {
    std::vector<golden_case> all;
    for (const support::golden_line& line : support::read_golden(file.c_str())) {
        const auto numbers = [&](std::size_t first) {
            doubles values;
            for (std::size_t i = first; i < line.words.size(); ++i) values.push_back(line.number(i));
            return values;
        };
        if (line.kind == "case") {
            all.push_back({line.words[0], line.number(2), line.number(3), line.number(4), {}});
        } else if (line.kind == "logits") {
            all.back().logits = numbers(0);
        } else if (line.kind == "hidden") {
            all.back().hidden_off = line.number(0);
            all.back().hidden = numbers(1);
        } else {
            all.back().gradients_off.push_back(line.number(0));
            all.back().gradients.push_back(numbers(1));
        }
    }
    return all;
}

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

/// The largest error allowed for a policy.
template <class P>
double allowed(double of_pytorch) {
    return std::is_same_v<P, ht::full_fp32> ? 1e-4 : 2 * of_pytorch;
}

/// The loss's own error may be near zero by chance; the error of a logit is allowed at least.
template <class P>
void check_loss(double loss, const golden_case& golden) {
    CHECK(std::fabs(loss - golden.loss) <= allowed<P>(std::max(golden.loss_off, golden.logits_off)) * golden.loss);
}

template <class P>
void check_gradients(const ht::store& s, const support::gradient_sink& sink, const golden_case& golden) {
    REQUIRE(s.entries().size() == golden.gradients.size());
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        CAPTURE(s.entries()[i].path);
        const std::vector<float> g = sink.entry(i);
        CHECK(off({g.begin(), g.end()}, golden.gradients[i]) <= allowed<P>(golden.gradients_off[i]));
    }
}

}  // namespace golden_model
