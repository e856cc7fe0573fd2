// SPDX-License-Identifier: MIT
/// \file
/// Ranks whose gradients are whole numbers, so that no addition rounds: under every strategy, and on any device, they have exactly the
/// parameters of a program without ranks.
///
///     whole_numbers::check<ht::amp_bf16, rank_loop::on_cpu>(3, whole_numbers::adamw, 3.0f);       // ranks, optimizer, clipping
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "ranks/rank_loop.hpp"
#include "optim/small_model.hpp"

namespace whole_numbers {

namespace ht = halftone;

template <class P>
using model = small::model<P>;
using numbers = std::vector<float>;

/// A part of the loss of all ranks that is the loss itself: gradients are then whole numbers.
inline ht::rank_loss<small::loss> loss_of(ht::communicator& comm) { return {{1.0f}, comm.size()}; }

inline float whole(int rank, int window, std::size_t entry, std::size_t i) {
    return static_cast<float>((7 * rank + 3 * window + 5 * static_cast<int>(entry) + static_cast<int>(i)) % 23 - 11);
}

/// Calls f with each parameter.
template <class P, class F>
void each_parameter(const model<P>& m, const F& f) {
    f(m.fc1.weight), f(m.norm.weight), f(m.fc2.weight), f(m.head.weight);
}
template <class P>
numbers values_of(const auto& sharded, const model<P>& m) {
    numbers all;
    each_parameter(m, [&](const auto& p) {
        for (const auto x : sharded.read(p)) all.push_back(static_cast<float>(x));
    });
    return all;
}
template <class P>
numbers masters_of(auto& device, const model<P>& m) {
    numbers all;
    each_parameter(m, [&](const auto& p) {
        const auto host = ht::to_host(device, p.master());
        for (ht::extent i = 0; i < p.shape().size(); ++i) all.push_back(static_cast<float>(host.data()[i]));
    });
    return all;
}

inline constexpr auto adamw = [](auto& device, auto& m) {
    using device_type = std::remove_reference_t<decltype(device)>;
    using model_type = std::remove_reference_t<decltype(m)>;
    return std::make_unique<ht::adamw<device_type, model_type>>(device, m, ht::adamw_options{.lr = 0.01});
};
inline constexpr auto eight_bit = [](auto& device, auto& m) {
    using device_type = std::remove_reference_t<decltype(device)>;
    using model_type = std::remove_reference_t<decltype(m)>;
    return std::make_unique<ht::adamw_8bit<device_type, model_type>>(
        device, m, ht::adamw_8bit_options{.lr = 0.01, .min_8bit_size = 64});
};

/// Three windows, of which the gradients are gradient(window, entry, i).
template <class P, class Optimizer, class Loss, class Gradient>
void train(auto& device, model<P>& m, auto& acc, Optimizer& optimizer, const Loss& loss, float clip,
           const Gradient& gradient) {
    small::tape tape;
    for (int window = 0; window < 3; ++window) {
        tape.gradients = [&](std::size_t entry, std::size_t i) { return gradient(window, entry, i); };
        tape.backward(loss, acc, m.parameters());
        auto grads = acc.take();
        if (clip > 0) ht::clip_grad_norm(device, grads, clip);
        optimizer.step(grads);
    }
}

/// The parameters of each rank, whose gradients are gradient(rank, window, entry, i). `stage`: -1: ht::data_parallel.
template <class P, class Machine, class Make, class Gradient>
std::vector<numbers> trained(int ranks, int stage, const Make& make, const Gradient& gradient, float clip,
                             const typename Machine::options& how, const ht::thread_options& threads) {
    std::vector<numbers> all(static_cast<std::size_t>(ranks));
    const auto train_rank = [&](ht::communicator& host) {
        using device_type = typename Machine::device_type;
        Machine machine(host, how);
        device_type& device = machine.device;
        model<P> m{device, 700};
        std::optional<ht::shard<device_type, model<P>, ht::zero>> sharded;
        if (stage >= 0) sharded.emplace(device, m, machine.comm, ht::zero(stage));
        ht::accumulator acc{m, ht::unscaled};
        std::optional<ht::data_parallel<device_type, decltype(acc)>> plain;
        if (stage < 0) plain.emplace(device, machine.comm, acc, ht::data_parallel_options{.bucket_bytes = 1024});
        const auto optimizer = make(device, m);
        train(device, m, acc, *optimizer, loss_of(machine.comm), clip,
              [&](int window, std::size_t entry, std::size_t i) { return gradient(host.rank(), window, entry, i); });
        all[static_cast<std::size_t>(host.rank())] = sharded ? values_of<P>(*sharded, m) : masters_of<P>(device, m);
    };
    ht::run_ranks(ranks, train_rank, threads);
    return all;
}

/// The parameters after the same windows of a program without ranks, which gets the sums.
template <class P, class Machine, class Make, class Gradient>
numbers trained_alone(int ranks, const Make& make, const Gradient& gradient, float clip) {
    numbers all;
    ht::run_ranks(1, [&](ht::communicator& host) {
        Machine machine(host, {});
        model<P> m{machine.device, 700};
        ht::accumulator acc{m, ht::unscaled};
        const auto optimizer = make(machine.device, m);
        train(machine.device, m, acc, *optimizer, small::loss{}, clip,
              [&](int window, std::size_t entry, std::size_t i) {
                  float sum = 0;
                  for (int rank = 0; rank < ranks; ++rank) sum += gradient(rank, window, entry, i);
                  return sum;
              });
        all = masters_of<P>(machine.device, m);
    });
    return all;
}

/// Checks every strategy at a number of ranks.
template <class P, class Machine, class Make, class Gradient = decltype(&whole)>
void check(int ranks, const Make& make, float clip, const Gradient& gradient = &whole,
           const typename Machine::options& how = {}, const ht::thread_options& threads = {}) {
    CAPTURE(ranks);
    const numbers want = trained_alone<P, Machine>(ranks, make, gradient, clip);
    for (int stage = -1; stage <= 3; ++stage) {
        CAPTURE(stage);
        for (const numbers& got : trained<P, Machine>(ranks, stage, make, gradient, clip, how, threads))
            CHECK(got == want);
    }
}

}  // namespace whole_numbers
