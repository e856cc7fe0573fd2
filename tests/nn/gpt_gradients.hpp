// SPDX-License-Identifier: MIT
/// \file
/// A whole model's loss and gradients compared with an oracle, on every instruction set, within the error that the policy's
/// roundings can cause (support/noisy.hpp).
///
///     nn_test::within_what_rounding_does<ht::amp_bf16, ht::bfloat16>(1);
#pragma once

#include <map>
#include <string>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "nn/oracle.hpp"
#include "support/each_set.hpp"
#include "support/noisy.hpp"

namespace nn_test {

using support::noisy;

inline constexpr ht::nn::gpt_config small_config{.vocabulary = 11, .context = 6, .layers = 2, .heads = 2, .width = 8};

/// The expected values, and the largest rounding errors when results are stored as T.
template <class T>
struct expected {
    result<double> exact;
    std::map<std::string, support::spread> spreads;
    support::spread of_loss{1};

    template <class Model>
    expected(Model& model, const batch& b, double seed)
        : exact(oracle<double>(small_config, parameters_of<double>(model))(b, seed)) {
        for (const auto& [path, values] : exact.gradients) spreads.emplace(path, support::spread(values.values.size()));
        const auto parameters = parameters_of<noisy>(model);
        const oracle<noisy, support::noisily_stored_as<T>> sampled(small_config, parameters);
        for (int i = 0; i < support::spread::samples; ++i) {
            const auto r = sampled(b, seed);
            of_loss.add(std::vector<noisy>{r.loss},
                        std::vector<double>{exact.loss});  // nvcc takes plain braces for copies
            for (const auto& [path, values] : r.gradients)
                spreads.at(path).add(values.values, exact.gradients.at(path).values);
        }
    }
};

/// The model's loss and gradients on a device against what they should be.
template <class P, class T, class Device, class Batch>
void check_on(Device& device, const expected<T>& want, const Batch& b, float seed) {
    ht::nn::gpt<P> model{device, small_config};
    randomize(model, 3);
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, b);
    support::comparison of_loss;
    of_loss.expect(static_cast<double>(loss.item()), want.exact.loss, want.of_loss.bound(0));
    CHECK_WITHIN(of_loss);
    tape.backward(loss * seed, sink);
    CHECK(tape.memory().live() == ht::block_alignment);  // the loss
    const ht::store& s = model.parameters();
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        const std::string& path = s.entries()[i].path;
        CAPTURE(path);
        const auto got = sink.entry(i);
        const auto& exact = want.exact.gradients.at(path).values;
        REQUIRE(got.size() == exact.size());
        support::comparison all;
        for (std::size_t j = 0; j < got.size(); ++j)
            all.expect(static_cast<double>(got[j]), exact[j], want.spreads.at(path).bound(j));
        CHECK_MESSAGE(all.within(), all);
        if (path != "embed.positions") CHECK_MESSAGE(all.telling(), all);
    }
}

inline batch batch_to_check() {
    const batch any = batch::random(3, 5, 11, 4);
    std::vector<std::int32_t> targets = any.target_ids;
    targets[7] = -100;
    return {3, 5, any.token_ids, targets};
}
/// P's results are stored as T or a wider type.
template <class P, class T>
expected<T> expected_of(const batch& b, float seed) {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<P> sample{device, small_config};
    randomize(sample, 3);
    return expected<T>(sample, b, static_cast<double>(seed));
}

template <class P, class T, class Device>
void within_what_rounding_does_on(Device& device, float seed) {
    const batch b = batch_to_check();
    check_on<P>(device, expected_of<P, T>(b, seed), b, seed);
}

/// On each instruction set of the CPU.
template <class P, class T>
void within_what_rounding_does(float seed) {
    const batch b = batch_to_check();
    const expected<T> want = expected_of<P, T>(b, seed);
    support::for_each_isa([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        check_on<P>(device, want, b, seed);
    });
}

}  // namespace nn_test
