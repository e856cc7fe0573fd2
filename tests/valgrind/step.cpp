// SPDX-License-Identifier: MIT
/// \file
/// A training step whose instructions callgrind counts (ranges.sh): of a GPT with -DSTEP_OF_GPT, else of a perceptron, which takes
/// less time to compile.
///
///     step none|attached|traced       nobody listens; a listener that hears nothing; --trace's
#include <cstring>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/observe/trace/recorder.hpp>

namespace ht = halftone;

namespace {

#if defined(STEP_OF_GPT)
struct learner : ht::nn::gpt<ht::full_fp32> {
    std::vector<std::int32_t> ids = std::vector<std::int32_t>(4 * 64, 7);
    explicit learner(ht::cpu& device) : gpt{device, {.vocabulary = 64, .context = 64, .layers = 2, .heads = 4, .width = 128}, 1} {}
    auto loss_of_step(auto& tape) const {
        const ht::const_view<std::int32_t, 2> view(ids.data(), {4, 64});
        return loss(tape, ht::language_batch{view, view});
    }
};
#else
struct learner : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::layer_norm<ht::at<policy, "norm">> norm;
    ht::nn::linear<ht::at<policy, "up">> up;
    ht::nn::linear<ht::at<policy, "down">> down;
    std::vector<float> values = std::vector<float>(256 * 128, 0.1f);
    explicit learner(ht::cpu& device) : model{device}, norm{parameters(), 128}, up{parameters(), 128, 256}, down{parameters(), 256, 128} {
        commit(*this, 1);
    }
    auto loss_of_step(auto& tape) const {
        const auto x = tape.to_device(ht::const_view<float, 2>(values.data(), {256, 128}));
        const auto h = ht::map(tape, [](auto v) { return v * v; }, up(tape, norm(tape, x)));
        return ht::sum(tape, down(tape, h));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.up, self.down); }
};
#endif

struct silent final : ht::range_listener {
    void begin(const char*, ht::pass) override {}
    void end() override {}
};

}  // namespace

/// What is counted: callgrind's --toggle-collect knows it by its name.
extern "C" __attribute__((noinline)) void measured(void (*step)(void*), void* of) { step(of); }

int main(int argc, char** argv) {
    const char* const what = argc > 1 ? argv[1] : "none";
    silent nothing;
    ht::trace_recorder trace;
    ht::range_listener* const listener =
        std::strcmp(what, "attached") == 0 ? &nothing : std::strcmp(what, "traced") == 0 ? static_cast<ht::range_listener*>(&trace) : nullptr;
    ht::cpu device{{.threads = 1}};
    learner model{device};
    ht::adamw optimizer{device, model, {.lr = 1e-3}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    tape.listen(listener);
    auto step = [&] {
        const auto loss = model.loss_of_step(tape);
        tape.backward(loss, acc);
        auto grads = acc.take();
        optimizer.step(grads);
    };
    step(), step();  // plans, and allocates
    measured([](void* of) { (*static_cast<decltype(step)*>(of))(); }, &step);
}
