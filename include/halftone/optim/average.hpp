// SPDX-License-Identifier: MIT
/// \file
/// The exponential moving average of a model's parameters, which an optimizer with `ema_decay` keeps in the pass of its step,
/// and the scope in which the model is evaluated with it.
///
///     ht::adamw optimizer{device, model, {.lr = 3e-4, .ema_decay = 0.999}};
///     { const auto averaged = optimizer.average_parameters(); evaluate(model); }       // then the parameters are back
///     optimizer.ema(model.fc.weight)                                          // the average of one, floats
///
/// The average is that of torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(ema_decay), updated after each step:
/// the parameters themselves after the first one, then ema + (1 - ema_decay) (w - ema), in fp32 whatever `param` is, 4 bytes a
/// parameter. A step that is skipped leaves it.
#pragma once

#include <optional>
#include <vector>

#include <halftone/kernel/optimizer_step/rule/assign.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/optim/groups.hpp>
#include <halftone/scale/device_value.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// While it lives, a model has the averages of its parameters in their place, rounded as parameters and copies are; then it has
/// its parameters again, with the same bits. Made by an optimizer's average_parameters(), whose step() throws state_error
/// meanwhile.
template <class Optimizer>
class averaged_parameters {
  public:
    explicit averaged_parameters(Optimizer& optimizer) : optimizer_(&optimizer) { optimizer.begin_average(); }
    averaged_parameters(const averaged_parameters&) = delete;
    averaged_parameters& operator=(const averaged_parameters&) = delete;
    ~averaged_parameters() { optimizer_->end_average(); }

  private:
    Optimizer* optimizer_;
};

namespace detail {

/// What a pass that assigns reads of a step: nothing that a parameter depends on.
struct assign_records {
    kernel::step_record step{.steps = 1};
    kernel::gradient_factors factors{};
};

/// What is kept while a model has its averages.
template <class Device>
struct average_scope {
    std::vector<buffer> saved;             // the parameters as floats, as gradients lie
    std::vector<update_segment> segments;  // those that have an average
    device_value<assign_records, Device> records;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
