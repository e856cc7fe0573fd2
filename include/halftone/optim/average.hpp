// SPDX-License-Identifier: MIT
/// \file
/// The exponential moving average of a model's parameters, which an optimizer with `ema_decay` updates in the pass of
/// its step, and the scope in which the model is evaluated with it.
///
///     ht::adamw optimizer{device, model, {.lr = 3e-4, .ema_decay = 0.999}};
///     { const auto averaged = optimizer.average_parameters(); evaluate(model); }       // then parameters are restored
///     optimizer.ema(model.fc.weight)                                          // the average of one parameter, in float
///
/// The average is that of torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(ema_decay), updated after each
/// step: the parameters themselves after the first step, then ema + (1 - ema_decay) (w - ema). It is in fp32 for every
/// `param` type, 4 bytes per parameter. A step that is skipped does not change it.
#pragma once

#include <optional>
#include <vector>

#include <halftone/kernel/optimizer_step/rule/assign.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/optim/groups.hpp>
#include <halftone/scale/device_value.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// While it exists, a model's parameters are replaced by their averages, rounded as parameters and copies are; its
/// destructor restores the parameters, with the same bits. Returned by an optimizer's average_parameters(); the
/// optimizer's step() throws state_error while it exists.
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

/// The records of a step for a pass that assigns, which uses nothing from them.
struct assign_records {
    kernel::step_record step{.steps = 1};
    kernel::gradient_factors factors{};
};

/// The data that is kept while a model has its averages.
template <class Device>
struct average_scope {
    std::vector<buffer> saved;             // the parameters as floats, in the layout of gradients
    std::vector<update_segment> segments;  // the segments that have an average
    device_value<assign_records, Device> records;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
