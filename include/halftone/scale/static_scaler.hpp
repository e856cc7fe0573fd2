// SPDX-License-Identifier: MIT
/// \file
/// A loss scale that stays as it is, and none: the same interface as grad_scaler's, so that a program swaps them by
/// type.
///
///     ht::static_scaler scaler{device, {.scale = 1024.0f}};   // steps with an overflow are skipped, the scale stays
///     ht::no_scaling scaler{device};                          // for bf16 and fp32: nothing is scaled
#pragma once

#include <halftone/scale/grad_scaler.hpp>

namespace halftone::inline HALFTONE_ABI {

struct static_scaler_options {
    float scale = 1024.0f;
};

namespace detail {

struct count_overflow {
    scale_record* record;
    HALFTONE_HD void operator()() const {
        record->overflows += record->found_inf;
        record->found_inf = 0;
    }
};

}  // namespace detail

template <class Device>
class static_scaler : public detail::scaler<Device> {
    using base = detail::scaler<Device>;

  public:
    /// Throws argument_error unless the scale is positive and finite.
    explicit static_scaler(Device& device, const static_scaler_options& options = {})
        : base(device, {.scale = options.scale}, detail::scaling_checks::on) {
        if (!detail::is_scale(options.scale)) {
            fail<argument_error>("static_scaler: the scale is ", options.scale, "; expected a positive finite number");
        }
    }

    /// Ends a round of unscale and step. Throws state_error where no gradients were unscaled.
    void update() {
        base::end_round("static_scaler");
        base::device().run(detail::count_overflow{base::record().data()});
    }
    bool is_enabled() const { return true; }
};

template <class Device>
static_scaler(Device&) -> static_scaler<Device>;
template <class Device>
static_scaler(Device&, const static_scaler_options&) -> static_scaler<Device>;

/// Every call lets pass what it is given. Whether gradients are finite, the step itself looks, or clip_grad_norm before
/// it.
template <class Device>
class no_scaling : public detail::scaler<Device> {
  public:
    explicit no_scaling(Device& device) : detail::scaler<Device>(device, {}, detail::scaling_checks::off) {}

    void update() {}
    bool is_enabled() const { return false; }
};

template <class Device>
no_scaling(Device&) -> no_scaling<Device>;

}  // namespace halftone::inline HALFTONE_ABI
