// SPDX-License-Identifier: MIT
/// \file
/// The results on a watched tape and the reports of overflow_finder, on any device: a small GPT with two micro-batches per step.
///
///     overflow_checks::finds_each<ht::amp_fp16>(device, 1);
#pragma once

#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/observe/overflow/overflow.hpp>

#include "support/random.hpp"
#include "support/store_bytes.hpp"

namespace overflow_checks {

namespace ht = halftone;

inline constexpr ht::nn::gpt_config config{.vocabulary = 13, .context = 4, .layers = 2, .heads = 2, .width = 16};

struct batch {
    ht::const_view<std::int32_t, 2> tokens, targets;

    template <class Function>
    batch with_views(const Function& f) const {
        return {f(tokens), f(targets)};
    }
};

template <class P, class Device, class Kind = ht::watched_tape>
struct loop {
    using model_type = ht::nn::gpt<P>;
    Device& device;
    model_type model{device, config, 3};
    ht::adamw<Device, model_type> optimizer{device, model, {.lr = 1e-2}};
    ht::grad_scaler<Device> scaler{device, {.init_scale = 1024, .enabled = ht::model_needs_scaling<model_type>}};
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc{model};
    ht::tape<Device, Kind> tape{device};
    std::vector<std::int32_t> ids =
        support::random(1).indices(3 * (config.context + 1), static_cast<int>(config.vocabulary));

    explicit loop(Device& d) : device(d) {}

    batch whole() const { return {{ids.data(), {2, config.context}}, {ids.data() + 1, {2, config.context}}}; }
    /// A step with micro-batches of one row each; returns the optimizer's outcome.
    auto step(const batch& b) {
        for (ht::extent row = 0; row < 2; ++row) {
            const ht::shape<2> one{1, config.context};
            const batch micro{{b.tokens.data() + row * config.context, one},
                              {b.targets.data() + row * config.context, one}};
            tape.backward(scaler.scale(model.loss(tape, micro) / 2), acc);
        }
        auto grads = scaler.unscale(acc.take());
        const auto outcome = optimizer.step(grads);
        scaler.update();
        return outcome;
    }
    std::vector<std::byte> parameters() const { return support::bytes_of(model.parameters()); }
    /// Multiplies the master, and refreshes its copy.
    void scale_weight(const char* path, float times) {
        ht::store& s = model.parameters();
        for (std::size_t i = 0; i < s.entries().size(); ++i) {
            const ht::store::entry& e = s.entries()[i];
            if (e.path != path) continue;
            std::vector<float> values(e.count);
            std::byte* const at = s.groups()[e.group].master.data() + e.master * sizeof(float);
            s.memory().read(values.data(), at, e.count * sizeof(float));
            for (float& v : values) v *= times;
            s.memory().write(at, values.data(), e.count * sizeof(float));
            s.refresh(i);
        }
    }
};

/// "h.0.attn.qkv linear forward value"
inline std::string text_of(const ht::watched_tensor& t) {
    return t.by->layer + (t.by->after.empty() ? " " : " after " + t.by->after + " ") + t.by->operation + " " +
           ht::name(t.pass) + " " + (t.parameter != nullptr ? t.parameter : ht::name(t.role));
}

/// A listener that stores the texts of all tensors that it is shown.
class writer final : public ht::tensor_listener {
  public:
    void on_tensor(const ht::watched_tensor& t) override { seen.push_back(text_of(t)); }
    std::vector<std::string> seen;
};

template <class T>
struct put_value {
    T* to;
    T value;
    HALFTONE_HD void operator()() const { *to = value; }
};

/// A listener that writes a value into the tensor with number `at`, before later listeners are shown it.
template <class Device>
class saboteur final : public ht::tensor_listener {
  public:
    saboteur(Device& device, std::size_t at, float value) : device_(&device), at_(at), value_(value) {}
    void on_tensor(const ht::watched_tensor& t) override {
        if (count_++ != at_) return;
        hit = text_of(t);
        micro_batch = t.micro_batch + 1;
        ht::with_values(t, [this]<class T>(const ht::const_view<T, 1>& v) {
            device_->run(put_value<T>{const_cast<T*>(v.data()) + v.size() / 2, T(value_)});
        });
        if (t.widened == nullptr) return;  // else these were copies in float, which the finder is shown
        std::vector<std::byte> number(t.format->bytes);
        t.format->narrow(&value_, 1, number.data());
        device_->memory().write(static_cast<std::byte*>(const_cast<void*>(t.data)) + static_cast<std::size_t>(t.count / 2) * number.size(),
                                number.data(), number.size());
    }
    std::string hit;
    int micro_batch = 0;

  private:
    Device* device_;
    std::size_t at_, count_ = 0;
    float value_;
};

inline std::string text_of(const ht::overflow& o) {
    return o.by.layer + (o.by.after.empty() ? " " : " after " + o.by.after + " ") + o.by.operation + " " +
           ht::name(o.pass) + " " + (o.parameter.empty() ? ht::name(o.role) : o.parameter);
}

/// All results and gradients of a GPT's operations, in order.
template <class Device>
void shows_everything(Device& device) {
    loop<ht::amp_fp16, Device> l(device);
    writer w;
    l.tape.watch(w);
    const ht::shape<2> one{1, config.context};
    const batch b{{l.ids.data(), one}, {l.ids.data() + 1, one}};
    l.tape.backward(l.scaler.scale(l.model.loss(l.tape, b)), l.acc);
    std::vector<std::string> want{"embed embedding forward value"};
    for (const std::string h : {"h.0", "h.1"}) {
        for (const char* op : {".attn.norm layer_norm", ".attn.qkv linear", ".attn attention", ".attn.proj linear",
                               ".mlp.norm layer_norm", ".mlp mlp", ".mlp mlp", ".mlp mlp"}) {
            want.push_back(h + op + " forward value");
        }
    }
    want.insert(want.end(), {"norm layer_norm forward value", "head linear_cross_entropy forward value",
                             "head loss scale backward gradient", "head linear_cross_entropy backward gradient",
                             "head linear_cross_entropy backward embed.tokens", "norm layer_norm backward gradient",
                             "norm layer_norm backward norm.gain", "norm layer_norm backward norm.bias"});
    for (const std::string h : {"h.1", "h.0"}) {
        const auto add = [&](const char* op, std::initializer_list<const char*> parameters) {
            for (const char* p : parameters)
                want.push_back(h + op + " backward " + (*p == '.' ? h + p : std::string(p)));
        };
        add(".mlp mlp", {".mlp.down.weight", ".mlp.down.bias", "gradient", ".mlp.up.weight", ".mlp.up.bias"});
        add(".mlp.norm layer_norm", {"gradient", ".mlp.norm.gain", ".mlp.norm.bias"});
        add(".attn.proj linear", {"gradient", ".attn.proj.weight", ".attn.proj.bias"});
        add(".attn attention", {"gradient"});
        add(".attn.qkv linear", {"gradient", ".attn.qkv.weight", ".attn.qkv.bias"});
        add(".attn.norm layer_norm", {"gradient", ".attn.norm.gain", ".attn.norm.bias"});
    }
    want.insert(want.end(), {"embed embedding backward embed.tokens", "embed embedding backward embed.positions"});
    CHECK(w.seen.size() == want.size());
    for (std::size_t i = 0; i < std::min(want.size(), w.seen.size()); ++i) {
        CAPTURE(i);
        CHECK(w.seen[i] == want[i]);
    }
    l.tape.unwatch(w);
    l.acc.discard();
}

/// An infinity or a NaN in every `each`-th tensor of a step, one at a time: the finder names the operation of that tensor,
/// although the value propagates to the results of later operations.
template <class P, class Device>
void finds_each(Device& device, std::size_t each) {
    loop<P, Device> l(device);
    writer w;
    {
        l.tape.watch(w);
        l.step(l.whole());
        l.tape.begin_step();
        l.tape.unwatch(w);
    }
    REQUIRE(w.seen.size() > 80);
    const float odd[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN()};
    const char* const kinds[] = {"+inf", "-inf", "NaN"};
    int micro_batches[3] = {};
    for (std::size_t i = 0; i < w.seen.size(); i += each) {
        CAPTURE(i);
        saboteur<Device> s(device, i, odd[i % 3]);
        l.tape.watch(s);
        ht::overflow_finder finder{device, l.tape};
        const auto outcome = l.step(l.whole());
        finder.end_step(outcome);
        l.tape.unwatch(s);
        const auto all = finder.take();
        REQUIRE(all.size() == 1);
        CHECK(s.hit == w.seen[i]);
        CHECK(all[0].step == 1);
        CHECK(all[0].is_located);
        CHECK(text_of(all[0]) == w.seen[i]);
        CHECK(all[0].micro_batch == s.micro_batch);
        CHECK(std::string(all[0].kind()) == kinds[i % 3]);
        CHECK(all[0].found.positive_infinities + all[0].found.negative_infinities + all[0].found.nans == 1);
        CHECK(all[0].is_skipped() == outcome.skipped());
        ++micro_batches[all[0].micro_batch];
    }
    CHECK(micro_batches[1] > 0);
    CHECK(micro_batches[2] > 0);
}

/// amp_fp16 with its residual stream in float16, too, in which sums and products that are added to it can overflow.
using narrow_fp16 = ht::with_stream<ht::amp_fp16, ht::float16>;

/// A layer whose weights are too large for float16's products, in step 3 of 4.
template <class Device>
void finds_a_real_one(Device& device) {
    loop<narrow_fp16, Device> l(device);
    ht::overflow_finder finder{device, l.tape};
    for (int step = 1; step <= 4; ++step) {
        if (step == 3) l.scale_weight("h.1.attn.proj.weight", 0x1p21f);
        finder.end_step(l.step(l.whole()));
        if (step == 3) l.scale_weight("h.1.attn.proj.weight", 0x1p-21f);
    }
    const auto all = finder.take();
    REQUIRE(all.size() == 1);
    const ht::overflow& o = all[0];
    CHECK(o.step == 3);
    CHECK(o.is_skipped());
    CHECK(o.by.layer == "h.1.attn.proj");
    CHECK(o.by.operation == "linear");
    CHECK(o.pass == ht::pass::forward);
    CHECK(o.micro_batch == 1);
    CHECK(o.role == ht::tensor_role::value);
    CHECK(o.format == ht::value_format::float16);
    CHECK(o.elements == config.context * config.width);
    CHECK(o.before.layer == "h.1.attn");
    CHECK(o.before.operation == "attention");
    CHECK(o.before_largest > 0);
    CHECK(o.text().find("step 3 skipped (") == 0);
    CHECK(o.text().find("h.1.attn.proj, linear, forward: ") != std::string::npos);
    CHECK(o.text().find(" of 64 values in float16") != std::string::npos);
    CHECK(finder.take().empty());
}

/// An input or a target that is not finite is reported with the first operation that it affects; not if that operation came
/// earlier, and not for another micro-batch.
template <class Device>
void tells_a_bad_input(Device& device) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), large = 0x1p100f;
    struct micro_batch {
        float input, target, unused = 0;
    };
    ht::tape tape{device, ht::watched};
    ht::overflow_finder finder{device, tape};
    const ht::buffer memory(device.memory(), sizeof(float), ht::memory_kind::other);
    auto* const input = reinterpret_cast<float*>(memory.data());
    const auto first_of = [&](std::initializer_list<micro_batch> step) {
        for (const micro_batch& b : step) {
            device.memory().write(input, &b.input, sizeof(float));
            tape.to_device(ht::const_view<float, 1>(&b.unused, {1}));
            const auto x = tape.leaf(ht::const_view<float, 1>(input, {1}));
            const auto y = ht::mul(tape, x, x);
            tape.backward(ht::mean_squared_error(tape, y, ht::const_view<float, 1>(&b.target, {1})));
        }
        finder.end_step();
        const auto all = finder.take();
        REQUIRE(all.size() == 1);
        return all[0];
    };
    const ht::overflow bad_input = first_of({{nan, nan}});
    CHECK(bad_input.by.operation == "mul");
    CHECK(bad_input.input.elements == 1);
    CHECK(bad_input.input.found.nans == 1);
    CHECK(bad_input.text().find("; an input of the tape held 1 NaN of 1 values in float already") != std::string::npos);
    const ht::overflow bad_target = first_of({{1, 1}, {1, nan}});
    CHECK(bad_target.by.operation == "mse_loss");
    CHECK(bad_target.micro_batch == 2);
    CHECK(bad_target.input.elements == 1);

    const ht::overflow product = first_of({{large, nan}});
    CHECK(product.by.operation == "mul");
    CHECK(product.input.elements == 0);
    const ht::overflow later = first_of({{1, 1, nan}, {large, 1}});
    CHECK(later.micro_batch == 2);
    CHECK(later.input.elements == 0);
}

/// Watching changes no bit of a step.
template <class Device>
void changes_nothing(Device& one, Device& two) {
    loop<ht::amp_fp16, Device, ht::plain_tape> plain(one);
    loop<ht::amp_fp16, Device> other(two);
    ht::overflow_finder finder{two, other.tape};
    for (int step = 0; step < 3; ++step) {
        plain.step(plain.whole());
        finder.end_step(other.step(other.whole()));
        CHECK(plain.parameters() == other.parameters());
    }
    CHECK(finder.take().empty());
}

}  // namespace overflow_checks
