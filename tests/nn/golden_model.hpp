// SPDX-License-Identifier: MIT
/// \file
/// What tests of models against transformers' and torchvision's share: the files that golden/llama.py, golden/bert.py and
/// golden/vision.py write, their generator of weights and inputs, and the comparison, which allows twice PyTorch's own error in
/// bfloat16.
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
    /// Numbers for images.
    std::vector<float> numbers(std::size_t count, float scale) {
        std::vector<float> all(count);
        for (float& v : all) v = number(scale, 0.0f);
        return all;
    }
    /// The masters of all parameters, but states: scale_of(entry) is the scale of those that are neither gains nor biases.
    template <class Scale>
    void fill(ht::store& s, const Scale& scale_of) {
        for (std::size_t i = 0; i < s.entries().size(); ++i) {
            const ht::store::entry& e = s.entries()[i];
            if (e.is_state) continue;
            const bool is_gain = e.values.mean == 1.0f, is_bias = e.path.ends_with("bias");
            const float scale = is_gain || is_bias ? 0.5f : scale_of(e);
            std::vector<float> masters(e.count);
            for (float& v : masters) v = number(scale, is_gain ? 1.0f : 0.0f);
            support::write_masters(s, i, masters);
        }
        s.refresh();
    }
    void fill(ht::store& s) {
        fill(s, [](const ht::store::entry& e) { return e.path.ends_with("tokens") ? 1.0f : 0.25f; });
    }
};

struct golden_case {
    std::string name;
    double logits_off, loss_off, loss;  // errors of PyTorch's bfloat16, relative except for the loss
    doubles logits, hidden{};
    double hidden_off = 0;
    std::vector<double> gradients_off{};
    std::vector<doubles> gradients{};
    std::uint32_t seed = 12345;
    std::vector<double> states_off{};
    std::vector<doubles> states{};
    double evaluation_off = 0;  // of logits that follow from states
    doubles evaluation{};
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
            if (line.words.size() > 5) all.back().seed = static_cast<std::uint32_t>(line.number(5));
        } else if (line.kind == "logits") {
            all.back().logits = numbers(0);
        } else if (line.kind == "hidden") {
            all.back().hidden_off = line.number(0);
            all.back().hidden = numbers(1);
        } else if (line.kind == "state") {
            all.back().states_off.push_back(line.number(0));
            all.back().states.push_back(numbers(1));
        } else if (line.kind == "evaluation") {
            all.back().evaluation_off = line.number(0);
            all.back().evaluation = numbers(1);
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
