// SPDX-License-Identifier: MIT
/// \file
/// A loss scale that stays as it is, and none: the same interface as grad_scaler's, so that a program swaps them by
/// type.
///
///     ht::static_scaler scaler{device, {.scale = 1024.0f}};   // steps with an overflow are skipped, the scale stays
///     ht::no_scaling scaler{device};                          // for bf16 and fp32: nothing is scaled
#pragma once

#include <halftone/scale/grad_scaler.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A loss scale that does not move, or none.
struct static_scaler_options {
    float scale = 1024.0f;
    bool enabled = true;
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

/// A loss scale that stays as it is: steps with an overflow are skipped. It refers to the device, which must live
/// longer.
template <class Device>
class static_scaler : public detail::scaler<Device> {
    using base = detail::scaler<Device>;

  public:
    /// Throws argument_error unless the scale is positive and finite.
    explicit static_scaler(Device& device, const static_scaler_options& options = {})
        : base(device, {.scale = options.enabled ? options.scale : 1.0f},
               options.enabled ? detail::scaling_checks::on : detail::scaling_checks::off),
          options_(options) {
        check_scale(options.scale);
    }

    /// Ends a round of unscale and step. Throws state_error where no gradients were unscaled.
    void update() {
        if (!is_enabled()) return;
        base::end_round("static_scaler");
        base::device().run(detail::count_overflow{base::record().data()});
    }
    /// Sets another scale, in place of update(); open windows are refused like those that an update() has passed.
    /// Throws as the constructor does.
    void update(float new_scale) {
        if (!is_enabled()) return;
        check_scale(new_scale);
        base::set_scale(new_scale);
        options_.scale = new_scale;
    }
    bool is_enabled() const { return base::is_checking(); }
    const static_scaler_options& options() const { return options_; }

    /// Scale and count, for a checkpoint. On a GPU it waits for the device.
    scaler_state state() const {
        if (!is_enabled()) return {};
        const detail::scale_record r = base::record().read();
        return {.scale = r.scale, .overflows = r.overflows, .enabled = true};
    }
    /// Takes over scale and count; the rules of a scale that moves say nothing here. A disabled scaler ignores it.
    /// Throws state_error for the state of a disabled scaler, argument_error for one out of range; nothing changes then.
    void load(const scaler_state& s) {
        if (!is_enabled()) return;
        if (!s.enabled) fail<state_error>("static_scaler: this state is that of a disabled scaler and holds no scale");
        check_scale(s.scale);
        if (s.overflows < 0) fail<argument_error>("static_scaler: a state with ", s.overflows, " overflows");
        base::begin_round();
        base::record().write({.scale = s.scale, .overflows = s.overflows});
        options_.scale = s.scale;
    }

  private:
    static void check_scale(float scale) {
        if (!detail::is_scale(scale))
            fail<argument_error>("static_scaler: the scale is ", scale,
                                 "; expected a positive finite number of 2^-126 or more");
    }

    static_scaler_options options_;
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

    /// Does nothing, as every call here.
    void update() {}
    void update(float) {}
    bool is_enabled() const { return false; }
    scaler_state state() const { return {}; }
    /// Takes no state over.
    void load(const scaler_state&) {}
};

template <class Device>
no_scaling(Device&) -> no_scaling<Device>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
