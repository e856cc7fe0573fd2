// SPDX-License-Identifier: MIT
/// \file
/// A training step whose instructions callgrind counts (ranges.sh).
///
///     step none|attached|traced|light       nobody listens; a listener that does nothing; --trace's; --speed-of-light's
#include <cstring>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>
#include <halftone/observe/trace/recorder.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace ht = halftone;

namespace {

struct silent final : ht::range_listener {
    void begin(const char*, ht::pass) override {}
    void end() override {}
};

template <class Tape>
struct training {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> model{device, {.vocabulary = 64, .context = 64, .layers = 2, .heads = 4, .width = 128}, 1};
    ht::adamw optimizer{model, {.lr = 1e-3f}};
    ht::accumulator acc{model, ht::unscaled};
    Tape tape;
    std::vector<std::int32_t> inputs, targets;

    template <class... More>
    explicit training(const More&... more) : tape{device, more...} {
        for (std::int32_t i = 0; i < 4 * 64; ++i) inputs.push_back(i * 7 % 64), targets.push_back(i * 7 % 61);
    }
    void step(ht::range_listener* listener, std::int64_t number);
};

}  // namespace

/// What is counted: callgrind's --toggle-collect knows it by its name.
extern "C" __attribute__((noinline)) void measured(void (*step)(void*), void* of) { step(of); }

namespace {

template <class Tape>
void training<Tape>::step(ht::range_listener* listener, std::int64_t number) {
    if (listener != nullptr) listener->begin_step(number);
    const ht::shape<2> s{4, 64};
    const auto loss = model.loss(tape, ht::const_view<std::int32_t, 2>(inputs.data(), s), ht::const_view<std::int32_t, 2>(targets.data(), s));
    tape.backward(loss, acc);
    auto grads = acc.take();
    optimizer.step(grads);
    if (listener != nullptr) listener->end_step();
}

template <class Training>
void run(Training& t, ht::range_listener* listener) {
    t.tape.listen(listener);
    t.step(listener, 1), t.step(listener, 2);  // plans, and allocates
    struct {
        Training* t;
        ht::range_listener* listener;
    } third{&t, listener};
    measured([](void* of) {
        auto& s = *static_cast<decltype(third)*>(of);
        s.t->step(s.listener, 3);
    }, &third);
}

}  // namespace

int main(int argc, char** argv) {
    const char* const what = argc > 1 ? argv[1] : "none";
    if (std::strcmp(what, "light") == 0) {
        training<ht::tape<ht::cpu, ht::watched_tape>> t(ht::watched);
        ht::speed_of_light light;
        run(t, &light);
        return 0;
    }
    training<ht::tape<ht::cpu>> t;
    silent nothing;
    ht::trace_recorder trace;
    run(t, std::strcmp(what, "attached") == 0 ? &nothing : std::strcmp(what, "traced") == 0 ? static_cast<ht::range_listener*>(&trace) : nullptr);
}
