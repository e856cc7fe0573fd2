// SPDX-License-Identifier: MIT
/// \file
/// A model and a tape whose backward passes give chosen gradients in a chosen order, as one of several ranks.
///
///     scripted::rank<ht::full_fp32> r{comm, {.micro_batches = 2}};
///     r.tape.gradients = [&](std::size_t entry, std::size_t i) { return ...; };       // of this rank
///     r.backward(); r.backward();
///     r.sums()                                                                        // after take(): of all ranks
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/ranks/data_parallel.hpp>
#include <halftone/ranks/threads.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/small_model.hpp"

namespace scripted {

namespace ht = halftone;

/// Gives each gradient in an operation of its own, those of the last entries first; `operations` may say otherwise.
struct tape {
    std::function<float(std::size_t entry, std::size_t i)> gradients;
    std::vector<std::vector<std::size_t>> operations;  ///< the entries that each of them claims; empty: see above
    std::chrono::duration<double> pause{0};            ///< what an operation takes beside that

    template <class Loss, class Accumulator>
    void backward(const Loss& l, Accumulator& acc, ht::store& parameters) {
        acc.receive(l);
        (void)loss_variable(l);
        const ht::gradient_seed begin = loss_seed(l);
        const float seed = static_cast<float>(begin.factor) * (begin.scale == nullptr ? 1.0f : *begin.scale);
        auto all = operations;
        if (all.empty()) {
            for (std::size_t entry = parameters.entries().size(); entry-- > 0;) all.push_back({entry});
        }
        for (const std::vector<std::size_t>& operation : all) {
            std::vector<ht::gradient_slabs::place> places;
            for (const std::size_t entry : operation) places.push_back(acc.find(parameters)->claim(entry));
            if (pause.count() > 0) std::this_thread::sleep_for(pause);
            for (std::size_t o = 0; o < operation.size(); ++o) write(operation[o], places[o], parameters, seed);
            if (acc.listener() != nullptr) acc.listener()->end_operation();
        }
        acc.end_pass();
    }

  private:
    void write(std::size_t entry, const ht::gradient_slabs::place& place, ht::store& parameters, float seed) const {
        if (place.data == nullptr) return;
        auto* const to = reinterpret_cast<float*>(place.data);
        for (std::size_t i = 0; i < parameters.entries()[entry].count; ++i) {
            const float g = gradients(entry, i) * seed;
            to[i] = place.is_first ? g : to[i] + g;
        }
    }
};

/// One rank, with all that a training loop has.
template <class P>
struct rank {
    using model_type = small::model<P>;
    using accumulator_type = ht::accumulator<ht::unscaled_t, ht::types<model_type>>;

    explicit rank(ht::communicator& comm, const ht::data_parallel_options& options = {}, ht::extent width = 67)
        : model(device, width), acc(model, ht::unscaled), ranks(device, comm, acc, options) {}

    void backward() { tape.backward(small::loss{static_cast<float>(ranks.size())} / ranks, acc, model.parameters()); }
    /// take(), and the gradients of all parameters, one after the other.
    std::vector<float> sums() {
        const auto taken = acc.take();
        std::vector<float> all;
        const auto add = [&](const auto& p) {
            if (p.is_frozen()) return;
            const auto g = taken.of(p);
            all.insert(all.end(), g.data(), g.data() + g.size());
        };
        add(model.fc1.weight), add(model.norm.weight), add(model.fc2.weight), add(model.head.weight);
        return all;
    }

    ht::cpu device{{.threads = 1}};
    model_type model;
    accumulator_type acc;
    scripted::tape tape;
    ht::data_parallel<ht::cpu, accumulator_type> ranks;
};

}  // namespace scripted
