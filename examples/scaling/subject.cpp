// SPDX-License-Identifier: MIT
#include "subject.hpp"

#include <cstdint>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace ht = halftone;

namespace {

template <class Policy>
ht::nn::gpt<Policy> make_model(auto& device, const options& o) {
    return ht::nn::gpt<Policy>{device,
                               {.vocabulary = o.vocabulary,
                                .context = o.context,
                                .layers = static_cast<int>(o.layers),
                                .heads = o.heads,
                                .width = o.width},
                               1};
}

/// Tokens of a micro-batch; a plan looks at their number alone.
struct micro_batch {
    std::vector<std::int32_t> ids;
    ht::const_view<std::int32_t, 2> tokens, targets;

    explicit micro_batch(const options& o)
        : ids(static_cast<std::size_t>(o.batch * o.context)), tokens(ids.data(), {o.batch, o.context}), targets(tokens) {}
};

/// Two steps, in which every buffer gets its size.
template <class Policy>
ht::memory_plan plan_of(ht::cpu& device, const options& o, scaling::parameter_set& parameters) {
    const micro_batch batch(o);
    return ht::plan(device, [&](auto& twin) {
        auto model = make_model<Policy>(twin, o);
        ht::adamw optimizer{twin, model, {}};
        ht::grad_scaler scaler{twin};
        ht::accumulator acc{model};
        ht::tape tape{twin};
        parameters = scaling::parameters_of(model);
        for (int step = 0; step < 2; ++step) {
            for (std::int64_t k = 0; k < o.accumulation; ++k) tape.backward(scaler.scale(model.loss(tape, batch)), acc);
            auto grads = scaler.unscale(acc.take());
            optimizer.step(grads);
            scaler.update();
        }
    });
}

/// A window's arithmetic, which is the same under every policy.
std::vector<scaling::layer> layers_of(ht::cpu& device, const options& o) {
    const micro_batch batch(o);
    ht::speed_of_light light;
    static_cast<void>(ht::plan(device, [&](auto& twin) {
        auto model = make_model<ht::full_fp32>(twin, o);
        ht::accumulator acc{model, ht::unscaled};
        ht::tape tape{twin, ht::watched};
        tape.listen(&light);
        light.begin_step(0);
        tape.backward(model.loss(tape, batch), acc);
        light.end_step();
    }));
    return scaling::layers_of(light);
}

}  // namespace

scaling::subject make_subject(const options& o) {
    ht::cpu device{{.threads = 1}};
    scaling::subject s;
    s.plan = o.policy == "full_fp32"  ? plan_of<ht::full_fp32>(device, o, s.parameters)
             : o.policy == "amp_fp16" ? plan_of<ht::amp_fp16>(device, o, s.parameters)
                                      : plan_of<ht::amp_bf16>(device, o, s.parameters);
    s.layers = layers_of(device, o);
    return s;
}
