// SPDX-License-Identifier: MIT
/// \file
/// The optimizers that a trainer can have, made of its arguments. Included by trainer.hpp.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include <halftone/exec/ranges.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/train/training_arguments.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class Device, class Model>
using trainer_optimizers = std::variant<adamw<Device, Model>, adamw_8bit<Device, Model>>;

inline adamw_options adamw_of(const training_arguments& a) {
    return {.lr = a.learning_rate, .beta1 = a.adam_beta1, .beta2 = a.adam_beta2, .epsilon = a.adam_epsilon,
            .weight_decay = a.weight_decay, .seed = a.seed};
}
inline adamw_8bit_options adamw_8bit_of(const training_arguments& a) {
    return {.lr = a.learning_rate, .beta1 = a.adam_beta1, .beta2 = a.adam_beta2, .epsilon = a.adam_epsilon,
            .weight_decay = a.weight_decay, .seed = a.seed};
}

/// The optimizer that the arguments name.
template <class Device, class Model>
trainer_optimizers<Device, Model> make_optimizer(Device& device, Model& model, const training_arguments& a,
                                                 std::vector<parameter_group> groups) {
    using all = trainer_optimizers<Device, Model>;
    if (a.optim == optimizer_name::adamw)
        return all(std::in_place_index<0>, device, model, adamw_of(a), std::move(groups));
    return all(std::in_place_index<1>, device, model, adamw_8bit_of(a), std::move(groups));
}
/// The same in place of `which`, whose moments are freed first.
template <class Device, class Model>
void remake_optimizer(trainer_optimizers<Device, Model>& which, Device& device, Model& model, const training_arguments& a,
                      std::vector<parameter_group> groups) {
    if (a.optim == optimizer_name::adamw) {
        which.template emplace<0>(device, model, adamw_of(a), std::move(groups));
    } else {
        which.template emplace<1>(device, model, adamw_8bit_of(a), std::move(groups));
    }
}

/// A step of AdamW: 15 flops an element; it reads gradients, reads and writes masters and moments, writes copies.
inline operation_work update_work(const memory_usage& usage, const store& parameters) {
    const auto bytes = [&](memory_kind kind) { return static_cast<double>(usage.live(kind)); };
    return {15.0 * static_cast<double>(parameters.size()),
            bytes(memory_kind::gradient) + 2 * bytes(memory_kind::master) + 2 * bytes(memory_kind::moment) +
                bytes(memory_kind::copy),
            0, arithmetic::fp32, false};
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
