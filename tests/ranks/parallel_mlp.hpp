// SPDX-License-Identifier: MIT
/// \file
/// A small perceptron that ranks train together under any strategy, on any device: a list of blocks, each a unit, and a head. And a
/// model whose layer has a state, running statistics.
///
///     const auto got = parallel_mlp::train<ht::amp_bf16>(2, {.stage = 3, .units = {"h.*"}});
///     got[1].logits                                          // all parameters of rank 1 after each step, one after the other
#pragma once

#include <optional>
#include <vector>

#include <halftone/nn/channel_norm.hpp>
#include <halftone/optim/adamw.hpp>

#include "ranks/rank_loop.hpp"

namespace parallel_mlp {

namespace ht = halftone;
using rank_loop::options, rank_loop::seen, rank_loop::on_cpu;

inline constexpr ht::extent width = 16, rows = 8;

template <class P>
struct block {
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::mlp<ht::at<P, "mlp">> mlp;

    explicit block(ht::store& s) : norm{s, width}, mlp{s, width, 2 * width} {}
    template <class Context, class X>
    X operator()(Context&& ctx, const X& x) const {
        return mlp(ctx, norm(ctx, x), x);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.mlp); }
};

template <class P>
struct model : ht::nn::model {
    using policy = P;
    ht::nn::stack<block, P, "h"> h;
    ht::nn::linear<ht::at<P, "head">> head;

    template <class Device>
    model(Device& device, int layers, std::uint64_t seed)
        : ht::nn::model{device}, h{parameters(), layers}, head{parameters(), width, 8} {
        commit(*this, seed);
    }
    /// The mean square of the head's values.
    template <class Context>
    auto loss(Context& ctx, const std::vector<typename P::output>& values) const {
        const auto x = ctx.to_device(ht::const_view<typename P::output, 2>(values.data(), {rows, width}));
        const auto y = head(ctx, h(ctx, x));
        return ht::mean(ctx, ht::mul(ctx, y, y));
    }
    /// Calls f with each parameter, and with states.
    template <class F>
    void each(const F& f) const {
        h.each([&](const auto& b) {
            f(b.norm.gain), f(b.norm.bias);
            f(b.mlp.up.weight), f(b.mlp.up.bias), f(b.mlp.down.weight), f(b.mlp.down.bias);
        });
        f(head.weight), f(head.bias);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.h, self.head); }
};

/// The values as images of 4 channels, normalised over the batch.
template <class P>
struct normalised : ht::nn::model {
    using policy = P;
    ht::nn::batch_norm2d<ht::at<P, "bn">> bn;

    template <class Device>
    normalised(Device& device, int, std::uint64_t seed) : ht::nn::model{device}, bn{parameters(), 4} {
        commit(*this, seed);
    }
    template <class Context>
    auto loss(Context& ctx, const std::vector<typename P::output>& values) const {
        const auto x = ctx.to_device(ht::const_view<typename P::output, 4>(values.data(), {rows, 4, 2, width / 8}));
        const auto y = bn(ctx, x);
        return ht::mean(ctx, ht::mul(ctx, y, ht::mul(ctx, y, x)));
    }
    template <class F>
    void each(const F& f) const {
        f(bn.weight), f(bn.bias), f(bn.running_mean), f(bn.running_var);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.bn); }
};

/// Rows in [-1, 1), different ones on each rank.
template <class T>
std::vector<T> rows_of(int rank, int step, int micro) {
    auto state = static_cast<unsigned>(977 * rank + 131 * step + 17 * micro + 5);
    std::vector<T> values;
    for (ht::extent i = 0; i < rows * width; ++i) {
        state = state * 1664525u + 1013904223u;
        values.push_back(static_cast<T>(static_cast<float>(state >> 24) / 128 - 1));
    }
    return values;
}

template <class P, class Machine = on_cpu, template <class> class Model = model>
std::vector<seen> train(int ranks, const options& o, const typename Machine::options& how = {},
                        const ht::thread_options& threads = {}) {
    return rank_loop::run(ranks, threads, [&](ht::communicator& host, seen& mine) {
        using device_type = typename Machine::device_type;
        Machine machine(host, how);
        device_type& device = machine.device;
        Model<P> m{device, o.layers, 7 + static_cast<std::uint64_t>(host.rank())};  // rank 0's is copied
        std::optional<ht::shard<device_type, Model<P>, ht::zero>> sharded;
        rank_loop::divide(sharded, o, device, m, machine.comm);
        ht::adamw optimizer{device, m, {.lr = 0.01}};
        const auto rows_at = [&](int step, int micro) { return rows_of<typename P::output>(host.rank(), step, micro); };
        const auto look = [&](int) {
            m.each([&](const auto& p) {
                if (sharded) {
                    for (const auto x : sharded->read(p)) mine.logits.push_back(static_cast<float>(x));
                } else {
                    const auto read = ht::to_host(device, p.master());
                    for (ht::extent i = 0; i < p.shape().size(); ++i)
                        mine.logits.push_back(static_cast<float>(read.data()[i]));
                }
            });
        };
        rank_loop::train(
            machine, o, m, optimizer, mine, rows_at, [&](auto& tape, const auto& x) { return m.loss(tape, x); }, look);
        // Copies of the trained parameters, too.
        ht::inference eval{device};
        const auto last = rows_at(o.steps, 0);
        mine.losses.push_back(m.loss(eval, last).item());
    });
}

}  // namespace parallel_mlp
