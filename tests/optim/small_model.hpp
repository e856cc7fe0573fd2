// SPDX-License-Identifier: MIT
/// \file
/// A model with a few parameters and a tape that gives it chosen gradients, to test scalers, accumulators and optimizers without
/// a forward pass, on any device.
///
///     small::model<ht::amp_fp16> model{device};
///     small::tape tape;
///     tape.gradients = [&](std::size_t entry, std::size_t i) { return ...; };           // of the loss itself
///     tape.backward(scaler.scale(small::loss{}), acc);                                  // adds seed * gradient
#pragma once

#include <functional>
#include <vector>

#include <halftone/kernel/gradient_norm/cpu.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/quantize/cpu.hpp>
#include <halftone/memory/gradient_slabs.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/policy.hpp>

namespace small {

namespace ht = halftone;

template <class P, class Op>
struct layer {
    using policy = P;
    using operation = Op;
    static constexpr bool owns_parameters = true;
    ht::parameter<ht::storage_signature<P, Op>, 1> weight;

    layer(ht::store& s, ht::extent width, float mean = 0)
        : weight(s.add<P, Op>("weight", ht::shape<1>{width}, {.mean = mean, .deviation = 0.5f})) {}
};

/// fc1.weight, norm.weight, fc2.weight, head.weight, of widths that are no multiples of a vector.
template <class P>
struct model : ht::nn::model {
    using policy = P;
    layer<ht::at<P, "fc1">, ht::op::linear> fc1;
    layer<ht::at<P, "norm">, ht::op::layer_norm> norm;
    layer<ht::at<P, "fc2">, ht::op::linear> fc2;
    layer<ht::at<P, "head">, ht::op::linear> head;

    template <class Device>
    explicit model(Device& device, ht::extent width = 67)
        : ht::nn::model(device),
          fc1(parameters(), width),
          norm(parameters(), 5, 1),
          fc2(parameters(), width + 3),
          head(parameters(), 3) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc1, self.norm, self.fc2, self.head); }
};

struct loss {
    float factor = 1;
};
inline loss operator/(const loss& l, float divisor) { return {l.factor / divisor}; }
inline const loss& loss_variable(const loss& l) { return l; }
inline ht::gradient_seed loss_seed(const loss& l) { return {l.factor}; }

struct tape {
    /// The unscaled gradient of the loss with respect to element `i` of entry `entry`.
    std::function<float(std::size_t entry, std::size_t i)> gradients;
    /// Whether the loss depends on entry `entry`; if empty, it depends on all.
    std::function<bool(std::size_t entry)> reaches;

    template <class Loss, class Accumulator>
    void backward(const Loss& l, Accumulator& acc, ht::store& parameters) {
        acc.receive(l);
        (void)loss_variable(l);
        const ht::gradient_seed begin = loss_seed(l);
        float scale = 1;
        if (begin.scale != nullptr) parameters.memory().read(&scale, begin.scale, sizeof scale);
        const float seed = begin.factor * scale;
        ht::gradient_slabs* slabs = acc.find(parameters);
        for (std::size_t entry = 0; entry < parameters.entries().size(); ++entry) {
            if (reaches && !reaches(entry)) continue;
            const ht::gradient_slabs::place place = slabs->claim(entry);
            if (place.data == nullptr) continue;
            std::vector<float> to(parameters.entries()[entry].count);
            const std::size_t bytes = to.size() * sizeof(float);
            if (!place.is_first) parameters.memory().read(to.data(), place.data, bytes);
            for (std::size_t i = 0; i < to.size(); ++i) {
                const float g = gradients(entry, i) * seed;
                to[i] = place.is_first ? g : to[i] + g;
            }
            parameters.memory().write(place.data, to.data(), bytes);
        }
    }
};

/// The bytes of a piece of a device's memory.
inline std::vector<std::byte> bytes_at(ht::store& parameters, const std::byte* data, std::size_t count) {
    std::vector<std::byte> bytes(count);
    parameters.memory().read(bytes.data(), data, count);
    return bytes;
}
/// The master of a parameter, read from the device's memory.
template <class Storage, int Rank>
std::vector<typename Storage::param> master_of(const ht::parameter<Storage, Rank>& p) {
    std::vector<typename Storage::param> values(static_cast<std::size_t>(p.shape().size()));
    p.owner().memory().read(values.data(), p.master().data(), values.size() * sizeof values[0]);
    return values;
}

}  // namespace small
