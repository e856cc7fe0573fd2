// SPDX-License-Identifier: MIT
/// \file
/// A constant loss scale, and no loss scale, with the interface of grad_scaler, so that a program can change the type
/// alone.
///
///     ht::static_scaler scaler{device, {.scale = 1024.0f}};   // steps with an overflow are skipped; the scale is constant
///     ht::no_scaling scaler{device};                          // for bf16 and fp32: nothing is scaled
#pragma once

#include <halftone/scale/grad_scaler.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of a constant loss scale.
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

/// A constant loss scale; steps with an overflow are skipped. The device must outlive it.
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

    /// Ends a round of unscale and step. Throws state_error if no gradients were unscaled.
    void update() {
        if (!is_enabled()) return;
        base::end_round("static_scaler");
        base::device().run(detail::count_overflow{base::record().data()});
    }
    /// Sets another scale, in place of update(); open windows then throw, like those that an update() has passed.
    /// Throws as the constructor does.
    void update(float new_scale) {
        if (!is_enabled()) return;
        check_scale(new_scale);
        base::set_scale(new_scale);
        options_.scale = new_scale;
    }
    bool is_enabled() const { return base::is_checking(); }
    const static_scaler_options& options() const { return options_; }

    /// The scale and count, for a checkpoint. On a GPU it waits for the device.
    scaler_state state() const {
        if (!is_enabled()) return {};
        const detail::scale_record r = base::record().read();
        return {.scale = r.scale, .overflows = r.overflows, .enabled = true};
    }
    /// Restores scale and count; the rules of a dynamic scale are ignored. A disabled scaler ignores everything. Throws
    /// state_error for the state of a disabled scaler, and argument_error for one out of range; nothing changes then.
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

/// Every call returns its argument unchanged. Finiteness of gradients is checked by the step itself, or by
/// clip_grad_norm before it.
template <class Device>
class no_scaling : public detail::scaler<Device> {
  public:
    explicit no_scaling(Device& device) : detail::scaler<Device>(device, {}, detail::scaling_checks::off) {}

    /// Does nothing.
    void update() {}
    void update(float) {}
    bool is_enabled() const { return false; }
    scaler_state state() const { return {}; }
    /// Ignores the state.
    void load(const scaler_state&) {}
};

template <class Device>
no_scaling(Device&) -> no_scaling<Device>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
