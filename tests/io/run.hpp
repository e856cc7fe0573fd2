// SPDX-License-Identifier: MIT
/// \file
/// A run with all its parts, of a regression with dropout whose steps take microseconds, for checkpoints, on any device.
///
///     keeping::run<ht::amp_fp16, keeping::by_adamw> r;
///     const float loss = r.step(0);
///     ht::save_checkpoint(folder, {.step = 1}, r.model, r.optimizer, r.scaler, r.tape, r.guard, r.acc);
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/batch_memory.hpp>
#include <halftone/io/checkpoint.hpp>

#include "support/random.hpp"
#include "support/store_bytes.hpp"

namespace keeping {

namespace ht = halftone;

/// Rows of five numbers, and the three that belong to them.
struct row_batch {
    ht::const_view<ht::bfloat16, 2> inputs;  // (rows, 5)
    ht::const_view<float, 2> wanted;         // (rows, 3)

    template <class Function>
    row_batch with_views(const Function& f) const {
        return {f(inputs), f(wanted)};
    }
    ht::extent size() const { return inputs.extent_of(0); }
    std::vector<row_batch> split(ht::extent count) const {
        const ht::extent rows = size() / count;
        std::vector<row_batch> parts;
        for (ht::extent i = 0; i < count; ++i)
            parts.push_back({{inputs.data() + i * rows * 5, {rows, 5}}, {wanted.data() + i * rows * 3, {rows, 3}}});
        return parts;
    }
};

/// The five numbers of a row; the others follow from them.
using row = std::array<ht::bfloat16, 5>;
inline row row_of(std::uint64_t seed) {
    const auto x = support::random(seed).normals<ht::bfloat16>(5);
    return {x[0], x[1], x[2], x[3], x[4]};
}
inline row_batch collate(std::span<const row> rows, ht::batch_memory& memory) {
    const auto count = static_cast<ht::extent>(rows.size());
    const auto inputs = memory.make<ht::bfloat16>(ht::shape<2>{count, 5});
    const auto wanted = memory.make<float>(ht::shape<2>{count, 3});
    for (ht::extent r = 0; r < count; ++r) {
        const row& x = rows[static_cast<std::size_t>(r)];
        std::copy(x.begin(), x.end(), inputs.data() + 5 * r);
        for (std::size_t j = 0; j < 3; ++j)
            wanted(r, static_cast<ht::extent>(j)) = static_cast<float>(x[j]) - 0.5f * static_cast<float>(x[j + 2]);
    }
    return {inputs, wanted};
}
/// A data set of rows.
struct rows_source {
    ht::extent count = 30;
    ht::extent size() const { return count; }
    row operator[](ht::extent i) const { return row_of(static_cast<std::uint64_t>(i) + 1); }
};

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
    ht::variable<float, 0> loss(Context&& ctx, const row_batch& b) const {
        const auto x = ht::dropout(ctx, ctx.root().to_device(b.inputs), {.p = 0.25f});
        return ht::mean_squared_error(ctx, down(ctx, norm(ctx, up(ctx, x))), b.wanted);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.norm, self.down); }
};

struct by_adamw {
    template <class Device, class Model>
    static auto make(Device& device, Model& model) {
        return ht::adamw<Device, Model>(
            device, model, {.lr = 1e-2, .weight_decay = 0.1, .seed = 9, .ema_decay = 0.9}, {{"norm", {.weight_decay = 0}}});
    }
};
struct by_adamw_8bit {
    template <class Device, class Model>
    static auto make(Device& device, Model& model) {
        return ht::adamw_8bit<Device, Model>(
            device, model, {.lr = 1e-2, .weight_decay = 0.1, .min_8bit_size = 20, .seed = 9}, {});
    }
};
struct by_sgd {
    template <class Device, class Model>
    static auto make(Device& device, Model& model) {
        return ht::sgd<Device, Model>(device, model, {.lr = 1e-2, .momentum = 0.9, .seed = 9}, {});
    }
};
struct by_lion {
    template <class Device, class Model>
    static auto make(Device& device, Model& model) {
        return ht::lion<Device, Model>(device, model, {.lr = 1e-3, .seed = 9}, {});
    }
};
struct by_muon {
    template <class Device, class Model>
    static auto make(Device& device, Model& model) {
        return ht::muon<Device, Model>(
            device, model, {.hidden = {"up", "down"}, .lr = 1e-2, .adamw = {.lr = 1e-2, .seed = 9}});
    }
};
struct by_adafactor {
    template <class Device, class Model>
    static auto make(Device& device, Model& model) {
        return ht::adafactor<Device, Model>(device, model, {.lr = 1e-2, .seed = 9}, {});
    }
};

/// A CPU of one thread, or a device as it is by itself.
template <class Device>
Device made_device() {
    if constexpr (std::is_same_v<Device, ht::cpu>) {
        return Device{{.threads = 1}};
    } else {
        return Device{};
    }
}

template <class P, class Optimizer, class Device = ht::cpu>
struct run {
    using model_type = net<P>;
    Device device = made_device<Device>();
    model_type model{device};
    decltype(Optimizer::make(std::declval<Device&>(), std::declval<model_type&>())) optimizer = Optimizer::make(device, model);
    // So large that the first steps overflow in fp16, and that the scale grows between a save and the end.
    ht::grad_scaler<Device> scaler{device, {.init_scale = 0x1p19f, .growth_interval = 3, .enabled = ht::model_needs_scaling<model_type>}};
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc{model};
    ht::tape<Device> tape{device};
    ht::outlier_guard<Device> guard{device, {.window = 4, .warm_up = 2}};
    ht::batch_memory memory;
    int micro_batches;

    explicit run(int micro = 1) : micro_batches(micro) {
        optimizer.set_schedule({.shape = ht::cosine, .total_steps = 20, .warmup_steps = 2});
        tape.seed(5);
    }

    /// One step on rows of its own; returns the sum of its losses.
    float step(std::int64_t number) {
        float sum = 0;
        for (int m = 0; m < micro_batches; ++m) sum += pass(number, m);
        update();
        return sum;
    }
    /// One step on the rows of a batch.
    float step(const row_batch& batch) {
        float sum = 0;
        for (const row_batch& micro : batch.split(micro_batches)) sum += pass(micro);
        update();
        return sum;
    }
    /// A forward and a backward pass.
    float pass(std::int64_t number, int micro) {
        std::array<row, 4> rows;
        for (std::size_t r = 0; r < 4; ++r) rows[r] = row_of(static_cast<std::uint64_t>(40 * number + 4 * micro) + r + 1);
        memory.reset();
        return pass(collate(rows, memory));
    }
    float pass(const row_batch& micro) {
        const auto loss = model.loss(tape, micro);
        const float value = loss.item();
        tape.backward(scaler.scale(loss / static_cast<float>(micro_batches)), acc);
        return value;
    }
    void update() {
        auto grads = scaler.unscale(acc.take());
        guard.watch(grads);
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
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
        for (const std::byte b : support::bytes_of(model.parameters())) all += static_cast<char>(b);
        optimizer.visit_slabs([&](const ht::optimizer_slab& s) {
            std::string slab(s.bytes(), '\0');
            device.memory().read(slab.data(), s.data, slab.size());
            all += slab;
        });
        for (const ht::detail::checkpoint_part& p : with_parts([](auto&... parts) { return ht::detail::parts_of(parts...); })) all += p.state().dump();
        return all;
    }
};

}  // namespace keeping
