// SPDX-License-Identifier: MIT
/// \file
/// A trainer with each of some optimizers, of the library and of a rule outside of it, for a model whose steps take
/// microseconds:
///
///     TEST_CASE_TEMPLATE("...", Options, ANY_OPTIMIZER) {
///         any::run<Options> r{device, {.max_steps = 5}};
///         r.trainer.train(r.data);
///     }
#pragma once

#include <vector>

#include <halftone/amp.hpp>
#include <halftone/optim/muon.hpp>
#include <halftone/train/trainer.hpp>

#include "optim/ademamix.hpp"
#include "support/random.hpp"
#include "support/store_bytes.hpp"

namespace any {

namespace ht = halftone;

#define ANY_OPTIMIZER own::ademamix_options, ht::lion_options, ht::muon_options, ht::sgd_options

/// Options under which a step changes a bfloat16 copy.
template <class Options>
Options options() {
    if constexpr (std::is_same_v<Options, ht::sgd_options>) {
        return {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .kind = ht::nesterov, .seed = 9};
    } else if constexpr (std::is_same_v<Options, ht::muon_options>) {
        return {.hidden = {"up", "down"}, .lr = 0.02, .adamw = {.lr = 1e-2, .seed = 9}};
    } else if constexpr (std::is_same_v<Options, ht::lion_options>) {
        return {.lr = 5e-3, .weight_decay = 0.1, .seed = 9};
    } else {
        return {.lr = 1e-2, .beta3 = 0.99, .weight_decay = 0.1, .seed = 9};
    }
}

/// Rows of 64 numbers, and the three that belong to them.
struct rows {
    ht::const_view<ht::bfloat16, 2> inputs;
    ht::const_view<float, 2> wanted;

    template <class Function>
    rows with_views(const Function& f) const {
        return {f(inputs), f(wanted)};
    }
    ht::extent size() const { return inputs.extent_of(0); }
    std::vector<rows> split(ht::extent count) const {
        const ht::extent each = size() / count;
        std::vector<rows> parts;
        for (ht::extent i = 0; i < count; ++i)
            parts.push_back({{inputs.data() + i * each * 64, {each, 64}}, {wanted.data() + i * each * 3, {each, 3}}});
        return parts;
    }
};

/// Rows that depend on the step.
class rows_data {
  public:
    rows sample(std::uint32_t step, ht::extent count) {
        const auto n = static_cast<std::size_t>(count);
        inputs_ = support::random(step + 1).normals<ht::bfloat16>(64 * n);
        wanted_.resize(3 * n);
        for (std::size_t r = 0; r < n; ++r) {
            for (std::size_t j = 0; j < 3; ++j)
                wanted_[3 * r + j] = static_cast<float>(inputs_[64 * r + j]) - 0.5f * static_cast<float>(inputs_[64 * r + j + 2]);
        }
        return {{inputs_.data(), {count, 64}}, {wanted_.data(), {count, 3}}};
    }

  private:
    std::vector<ht::bfloat16> inputs_;
    std::vector<float> wanted_;
};

/// A perceptron with a norm; its first matrix has 64 elements for each of `width`, and from 4,096 on there are moments in 8 bits.
template <class P>
struct net : ht::nn::model {
    using policy = P;
    struct config_type {
        ht::extent width = 64;
    };
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::linear<ht::at<P, "down">> down;

    template <class Device>
    explicit net(Device& device, const config_type& c = {})
        : ht::nn::model(device), up(parameters(), 64, c.width), norm(parameters(), c.width), down(parameters(), c.width, 3), config_(c) {
        commit(*this, 3);
    }
    const config_type& config() const { return config_; }
    template <class Context>
    ht::variable<float, 0> loss(Context&& ctx, const rows& b) const {
        const auto x = ht::dropout(ctx, ctx.root().to_device(b.inputs), {.p = 0.25f});
        return ht::mean_squared_error(ctx, down(ctx, norm(ctx, up(ctx, x))), b.wanted);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.norm, self.down); }

  private:
    config_type config_;
};

// Moments in bfloat16, which are rounded with random numbers.
using policy = ht::with_state<ht::amp_bf16, ht::bfloat16>;

inline const ht::training_arguments arguments{.per_device_train_batch_size = 2,
                                              .gradient_accumulation_steps = 2,
                                              .max_steps = 6,
                                              .lr_scheduler_type = ht::cosine,
                                              .warmup_steps = 2,
                                              .logging_steps = 1};

template <class Options, class Device = ht::cpu>
struct run {
    using model_type = net<policy>;
    Device& device;
    model_type model;
    rows_data data;
    ht::trainer<Device, model_type, ht::plain_tape, Options> trainer;

    explicit run(Device& d, const ht::training_arguments& a = arguments, const std::vector<ht::parameter_group>& groups = {},
                 ht::extent width = 64)
        : device(d), model(device, {width}), trainer(device, model, a, options<Options>(), groups) {}

    /// Parameters, and all of the optimizer that a step changes, read from the device's memory.
    std::vector<std::byte> bytes() {
        std::vector<std::byte> all = support::bytes_of(model.parameters());
        trainer.visit_optimizer([&](auto& o) {
            o.visit_slabs([&](const ht::optimizer_slab& s) {
                all.resize(all.size() + s.bytes());
                model.parameters().memory().read(all.data() + all.size() - s.bytes(), s.data, s.bytes());
            });
        });
        return all;
    }
};

}  // namespace any
