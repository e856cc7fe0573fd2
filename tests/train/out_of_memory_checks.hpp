// SPDX-License-Identifier: MIT
/// \file
/// What holds wherever a training run runs out of memory, on any device: one error that says what was asked for, by whom
/// and what would help; nothing is lost; the next run on the same device has the bits of a fresh one.
#pragma once

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "train/small_gpt.hpp"

namespace out_of_memory_checks {

namespace ht = halftone;

/// Refuses all requests from number `first` on, while it is armed.
class scarcity final : public ht::memory_listener {
  public:
    bool allows(std::size_t, ht::memory_kind) override { return requests_++ < first_; }
    void arm(long first) { first_ = first, requests_ = 0; }
    void disarm() { arm(1L << 60); }
    long requests() const { return requests_; }

  private:
    long first_ = 1L << 60, requests_ = 0;
};

/// A training run with an evaluation; returns the parameters' bytes.
template <class P, class Kind, class Device>
std::vector<std::byte> run(Device& device, const std::string& corpus, const ht::nn::gpt_config& config) {
    ht::nn::gpt<P> model{device, config, 1};
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer trainer{device,
                        model,
                        {.per_device_train_batch_size = 2,
                         .per_device_eval_batch_size = 4,
                         .gradient_accumulation_steps = 2,
                         .max_steps = 2,
                         .learning_rate = 1e-3},
                        Kind{}};
    trainer.train(data);
    trainer.evaluate(data);
    std::vector<std::byte> all;
    for (const ht::store::group& g : model.parameters().groups()) {
        std::vector<std::byte> host(g.master.bytes());
        device.memory().read(host.data(), g.master.data(), host.size());
        all.insert(all.end(), host.begin(), host.end());
    }
    return all;
}

/// The message of an error, whatever the run was doing.
inline void expect_told(const std::string& what) {
    CAPTURE(what);
    CHECK(what.find("memory: no ") == 0);
    CHECK(what.find(" bytes for ") != std::string::npos);
    CHECK(what.find("; held: ") != std::string::npos);
    CHECK(what.find("; asked for by ") != std::string::npos);
    const std::size_t layers = what.find("argest layers");
    CHECK(layers != std::string::npos);
    CHECK(what.find("h.0 ", layers) != std::string::npos);
    if (what.find(" in step ") == std::string::npos) return;  // the model, or the trainer's gradients and moments
    CHECK((what.find("; it would fit with ") != std::string::npos || what.find("; it would take ") != std::string::npos ||
           what.find("; by its plan the run fits into what was there as it is") != std::string::npos));
}

/// Runs with less and less scarcity until nothing is refused; every `stride`-th request is the first to fail.
template <class P, class Kind, class Device>
void expect_errors_everywhere(Device& device, long stride = 1) {
    const std::string corpus = small::text().substr(0, 400);  // five windows to evaluate on
    const ht::nn::gpt_config config{.vocabulary = 32, .context = 8, .layers = 2, .heads = 2, .width = 32};
    scarcity source;
    device.memory().usage().listen(&source);
    const std::vector<std::byte> fresh = run<P, Kind>(device, corpus, config);
    const auto held_by_device = [&] { return device.memory().usage().live(ht::memory_kind::workspace); };
    long errors = 0, passes_told = 0;
    for (long first = 0;; first += stride) {
        CAPTURE(first);
        device.memory().release_cached();  // as a fresh device
        source.arm(first);
        bool is_complete = true;
        try {
            const std::vector<std::byte> complete = run<P, Kind>(device, corpus, config);
            CHECK(complete == fresh);
        } catch (const ht::out_of_memory& e) {
            is_complete = false;
            ++errors;
            source.disarm();
            expect_told(e.what());
            const std::string what = e.what();
            if (what.find("(forward) of h.") != std::string::npos || what.find("(backward) of h.") != std::string::npos)
                ++passes_told;
        }
        source.disarm();
        CHECK(device.memory().usage().live() == held_by_device());
        if (is_complete) break;
        CHECK(run<P, Kind>(device, corpus, config) == fresh);
        CHECK(device.memory().usage().live() == held_by_device());
    }
    device.memory().release_cached();
    CHECK(device.memory().usage().live() == 0);
    CHECK(device.memory().usage().held() == 0);
    device.memory().usage().listen(nullptr);
    MESSAGE(errors, " requests refused, ", passes_told, " of an operation of a block");
    CHECK(errors >= (stride == 1 ? 8 : 2));
    CHECK((passes_told >= 1 || stride != 1));
}

}  // namespace out_of_memory_checks
