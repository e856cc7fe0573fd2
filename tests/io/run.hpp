// SPDX-License-Identifier: MIT
/// \file
/// A run with all its parts, of a regression with dropout whose steps take microseconds, for checkpoints.
///
///     keeping::run<ht::amp_fp16, keeping::by_adamw> r;
///     const float loss = r.step(0);
///     ht::save_checkpoint(folder, {.step = 1}, r.model, r.optimizer, r.scaler, r.tape, r.guard, r.acc);
#pragma once

#include <string>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/io/checkpoint.hpp>

#include "support/random.hpp"
#include "support/store_bytes.hpp"

namespace keeping {

namespace ht = halftone;

template <class P>
struct net : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::linear<ht::at<P, "down">> down;

    template <class Device>
    explicit net(Device& device, std::uint64_t seed = 3)
        : ht::nn::model(device), up(parameters(), 5, 19), norm(parameters(), 19), down(parameters(), 19, 3) {
        commit(*this, seed);
    }
    template <class Context>
    ht::variable<float, 0> loss(Context&& ctx, const ht::const_view<ht::bfloat16, 2>& inputs, const ht::const_view<float, 2>& y) const {
        const auto x = ht::dropout(ctx, ctx.root().to_device(inputs), {.p = 0.25f});
        return ht::mean_squared_error(ctx, down(ctx, norm(ctx, up(ctx, x))), y);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.norm, self.down); }
};

struct by_adamw {
    static auto make(auto& device, auto& model) {
        return ht::adamw<ht::cpu, std::remove_reference_t<decltype(model)>>(
            device, model, {.lr = 1e-2, .weight_decay = 0.1, .seed = 9, .ema_decay = 0.9}, {{"norm", {.weight_decay = 0}}});
    }
};
struct by_adamw_8bit {
    static auto make(auto& device, auto& model) {
        return ht::adamw_8bit<ht::cpu, std::remove_reference_t<decltype(model)>>(
            device, model, {.lr = 1e-2, .weight_decay = 0.1, .min_8bit_size = 20, .seed = 9}, {});
    }
};
struct by_sgd {
    static auto make(auto& device, auto& model) {
        return ht::sgd<ht::cpu, std::remove_reference_t<decltype(model)>>(device, model, {.lr = 1e-2, .momentum = 0.9, .seed = 9}, {});
    }
};
struct by_lion {
    static auto make(auto& device, auto& model) {
        return ht::lion<ht::cpu, std::remove_reference_t<decltype(model)>>(device, model, {.lr = 1e-3, .seed = 9}, {});
    }
};
struct by_muon {
    static auto make(auto& device, auto& model) {
        return ht::muon<ht::cpu, std::remove_reference_t<decltype(model)>>(
            device, model, {.hidden = {"up", "down"}, .lr = 1e-2, .adamw = {.lr = 1e-2, .seed = 9}});
    }
};
struct by_adafactor {
    static auto make(auto& device, auto& model) {
        return ht::adafactor<ht::cpu, std::remove_reference_t<decltype(model)>>(device, model, {.lr = 1e-2, .seed = 9}, {});
    }
};

template <class P, class Optimizer>
struct run {
    using model_type = net<P>;
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    decltype(Optimizer::make(std::declval<ht::cpu&>(), std::declval<model_type&>())) optimizer = Optimizer::make(device, model);
    // So large that the first steps overflow in fp16, and that the scale grows between a save and the end.
    ht::grad_scaler<ht::cpu> scaler{device, {.init_scale = 0x1p19f, .growth_interval = 3, .enabled = ht::model_needs_scaling<model_type>}};
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc{model};
    ht::tape<ht::cpu> tape{device};
    ht::outlier_guard<ht::cpu> guard{device, {.window = 4, .warm_up = 2}};
    int micro_batches;

    explicit run(int micro = 1) : micro_batches(micro) {
        optimizer.set_schedule({.shape = ht::cosine, .total_steps = 20, .warmup_steps = 2});
        tape.seed(5);
    }

    /// One step; returns the sum of its losses.
    float step(std::int64_t number) {
        float sum = 0;
        for (int m = 0; m < micro_batches; ++m) sum += pass(number, m);
        auto grads = scaler.unscale(acc.take());
        guard.watch(grads);
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
        return sum;
    }
    /// A forward and a backward pass.
    float pass(std::int64_t number, int micro) {
        support::random random{static_cast<unsigned>(10 * number + micro + 1)};
        const auto x = random.normals<ht::bfloat16>(4 * 5);
        std::vector<float> y;
        for (std::size_t r = 0; r < 4; ++r) {
            for (std::size_t j = 0; j < 3; ++j) y.push_back(static_cast<float>(x[5 * r + j]) - 0.5f * static_cast<float>(x[5 * r + j + 2]));
        }
        const auto loss = model.loss(tape, {x.data(), {4, 5}}, {y.data(), {4, 3}});
        const float value = loss.item();
        tape.backward(scaler.scale(loss / static_cast<float>(micro_batches)), acc);
        return value;
    }
    template <class F>
    auto with_parts(const F& f) {
        return f(model, optimizer, scaler, tape, guard, acc);
    }
    void save(const std::filesystem::path& folder, std::int64_t step) {
        with_parts([&](auto&... parts) { ht::save_checkpoint(folder, {.step = step}, parts...); });
    }
    ht::checkpoint_info load(const std::filesystem::path& path, const ht::load_checkpoint_options& o = {}) {
        return with_parts([&](auto&... parts) { return ht::load_checkpoint(path, o, parts...); });
    }

    /// Everything that a step changes, as bytes.
    std::string bytes() {
        std::string all;
        for (const ht::store::group& g : model.parameters().groups()) {
            all.append(reinterpret_cast<const char*>(g.master.data()), g.master.bytes());
            all.append(reinterpret_cast<const char*>(g.copy.data()), g.copy.bytes());
        }
        optimizer.visit_slabs([&](const ht::optimizer_slab& s) { all.append(reinterpret_cast<const char*>(s.data), s.bytes()); });
        for (const ht::detail::checkpoint_part& p : with_parts([](auto&... parts) { return ht::detail::parts_of(parts...); })) all += p.state().dump();
        return all;
    }
};

}  // namespace keeping
