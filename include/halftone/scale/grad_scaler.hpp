// SPDX-License-Identifier: MIT
/// \file
/// Dynamic loss scaling (Micikevicius et al. 2018, section 3.2), with the rules of torch.amp.GradScaler: after an
/// overflow the scale is halved and the step is skipped; after a number of good steps it is doubled.
///
///     ht::grad_scaler scaler{device, {.growth_interval = 2000}};
///     for (...) {
///         tape.backward(scaler.scale(loss), acc);
///         auto grads = scaler.unscale(acc.take());
///         optimizer.step(grads);                   // skipped when a gradient is not finite
///         scaler.update();                         // after all optimizers
///     }
///
/// The state is in the device's memory, and only calls that return it wait. With `.enabled = false` every call returns
/// its argument unchanged: nothing is scaled, the order of calls is not checked, and only the step itself checks for
/// overflow.
#pragma once

#include <halftone/number/classify.hpp>
#include <halftone/scale/scaler.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The rules of a dynamic loss scale, as those of torch.amp.GradScaler.
struct grad_scaler_options {
    float init_scale = 65536.0f;
    double growth_factor = 2.0;         ///< above 1
    double backoff_factor = 0.5;        ///< between 0 and 1
    int growth_interval = 2000;         ///< consecutive updates without overflow after which the scale grows
    float min_scale =
        1.17549435e-38f;  ///< lower limit; by default the least number whose inverse is a float
    float max_scale = 3.40282347e+38f;  ///< upper limit, finite
    int hysteresis = 1;                 ///< consecutive overflows before the scale backs off
    bool enabled = true;
};

/// The state of any kind of scaler, for resuming a run. Read it after update().
struct scaler_state {
    float scale = 1.0f;
    double growth_factor = 2.0;  ///< this and the following, up to `hysteresis`: see grad_scaler_options
    double backoff_factor = 0.5;
    int growth_interval = 2000;
    float min_scale = grad_scaler_options{}.min_scale;
    float max_scale = grad_scaler_options{}.max_scale;
    int hysteresis = 1;
    int growth_tracker = 0;           ///< updates since the last change of the scale or overflow
    int overflows_until_backoff = 1;  ///< 0: it has backed off, and every further overflow backs off again, until a good step
    std::int64_t overflows = 0;
    bool enabled = false;  ///< false: the state of a disabled scaler, which is empty

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("scale", self.scale), f("growth_factor", self.growth_factor), f("backoff_factor", self.backoff_factor);
        f("growth_interval", self.growth_interval), f("min_scale", self.min_scale), f("max_scale", self.max_scale);
        f("hysteresis", self.hysteresis), f("growth_tracker", self.growth_tracker);
        f("overflows_until_backoff", self.overflows_until_backoff), f("overflows", self.overflows);
        f("enabled", self.enabled);
    }
};

namespace detail {

struct update_scale {
    scale_record* record;

    HALFTONE_HD void operator()() const {
        scale_record& r = *record;
        const scale_rules& rules = r.rules;
        if (r.found_inf != 0) {
            r.found_inf = 0;
            r.growth_tracker = 0;
            ++r.overflows;
            if (r.hysteresis > 0) --r.hysteresis;
            if (r.hysteresis > 0) return;
            const auto reduced = static_cast<float>(static_cast<double>(r.scale) * rules.backoff_factor);
            r.scale = reduced < rules.min_scale ? rules.min_scale : reduced;
            return;
        }
        r.hysteresis = rules.hysteresis;
        // Not ==, so that a shorter interval that is loaded in the middle of a run takes effect.
        if (r.growth_tracker < rules.growth_interval - 1) {
            ++r.growth_tracker;
            return;
        }
        const double grown = static_cast<double>(r.scale) * rules.growth_factor;
        if (grown <= static_cast<double>(rules.max_scale)) r.scale = static_cast<float>(grown);
        r.growth_tracker = 0;
    }
};

/// Whether x is positive, finite, and has a float as its inverse; decided by bits.
inline bool is_scale(float x) { return is_finite(x) && bit_cast<std::uint32_t>(x) - 0x00800000 < 0x7f000000; }

}  // namespace detail

/// Dynamic loss scaling (Micikevicius et al. 2018): the scale backs off when gradients overflow, and grows after
/// `growth_interval` steps without overflow. Scale and counters are on the device; only state() and other functions
/// that return values wait for it. The device must outlive the scaler.
template <class Device>
class grad_scaler : public detail::scaler<Device> {
    using base = detail::scaler<Device>;

  public:
    /// Throws argument_error for factors, intervals and scales outside their ranges.
    explicit grad_scaler(Device& device, const grad_scaler_options& options = {})
        : base(device,
               {.scale = options.enabled ? options.init_scale : 1.0f,
                .hysteresis = options.hysteresis,
                .rules = rules_of(options)},
               options.enabled ? detail::scaling_checks::on : detail::scaling_checks::off),
          options_(options) {
        check(options);
    }

    /// Adapts the scale, once for all gradients that were unscaled since the last update(). Throws state_error if there
    /// are none.
    void update() {
        if (!is_enabled()) return;
        base::end_round("grad_scaler");
        base::device().run(detail::update_scale{base::record().data()});
    }
    /// Sets the scale, in place of update(); the growth tracker is unchanged. Open windows then belong to the old scale
    /// and throw, like those that an update() has passed. Throws argument_error for a scale that is not positive,
    /// finite, and between min_scale and max_scale.
    void update(float new_scale) {
        if (!is_enabled()) return;
        check_scale(new_scale);
        check_bounds(new_scale, options_);
        base::set_scale(new_scale);
    }

    bool is_enabled() const { return base::is_checking(); }
    const grad_scaler_options& options() const { return options_; }

    /// The scale and counters, for a checkpoint. On a GPU it waits for the device.
    scaler_state state() const {
        if (!is_enabled()) return {};
        const detail::scale_record r = base::record().read();
        return {r.scale,
                options_.growth_factor,
                options_.backoff_factor,
                options_.growth_interval,
                options_.min_scale,
                options_.max_scale,
                options_.hysteresis,
                r.growth_tracker,
                r.hysteresis,
                r.overflows,
                true};
    }
    /// Restores the scale, its rules and its counters. A disabled scaler ignores it. Throws state_error for the state
    /// of a disabled scaler, and argument_error for one out of range; nothing changes then.
    void load(const scaler_state& s) {
        if (!is_enabled()) return;
        if (!s.enabled) fail<state_error>("grad_scaler: this state is that of a disabled scaler and holds no scale");
        grad_scaler_options options = options_;
        options.growth_factor = s.growth_factor;
        options.backoff_factor = s.backoff_factor;
        options.growth_interval = s.growth_interval;
        options.min_scale = s.min_scale;
        options.max_scale = s.max_scale;
        options.hysteresis = s.hysteresis;
        check_rules(options);
        check_bounds(s.scale, options);
        if (s.growth_tracker < 0 || s.overflows_until_backoff < 0 || s.overflows_until_backoff > s.hysteresis ||
            s.overflows < 0) {
            fail<argument_error>("grad_scaler: a state with a growth tracker of ", s.growth_tracker, ", ",
                                 s.overflows_until_backoff, " overflows until it backs off and ", s.overflows,
                                 " overflows; expected 0 or more, 0 to ", s.hysteresis, ", and 0 or more");
        }
        options_ = options;
        base::begin_round();
        base::record().write({s.scale, s.growth_tracker, s.overflows_until_backoff, 0, s.overflows, rules_of(options)});
    }

  private:
    static detail::scale_rules rules_of(const grad_scaler_options& o) {
        return {o.growth_factor, o.backoff_factor, o.growth_interval, o.min_scale, o.max_scale, o.hysteresis};
    }
    static void check_scale(float scale) {
        if (!detail::is_scale(scale))
            fail<argument_error>("grad_scaler: the scale is ", scale,
                                 "; expected a positive finite number of 2^-126 or more");
    }
    static void check_bounds(float scale, const grad_scaler_options& o) {
        // Written so that NaN fails, too.
        if (!(o.min_scale >= 0 && o.min_scale <= scale && scale <= o.max_scale && is_finite(o.max_scale))) {
            fail<argument_error>("grad_scaler: the scale is ", scale, ", min_scale ", o.min_scale, ", max_scale ",
                                 o.max_scale, "; expected 0 <= min_scale <= scale <= max_scale, all finite");
        }
    }
    static void check_rules(const grad_scaler_options& o) {
        if (!(o.growth_factor > 1 && is_finite(o.growth_factor))) {
            fail<argument_error>("grad_scaler: growth_factor is ", o.growth_factor, "; expected more than 1");
        }
        if (!(o.backoff_factor > 0 && o.backoff_factor < 1)) {
            fail<argument_error>("grad_scaler: backoff_factor is ", o.backoff_factor,
                                 "; expected more than 0 and less than 1");
        }
        if (o.growth_interval < 1)
            fail<argument_error>("grad_scaler: growth_interval is ", o.growth_interval, "; expected 1 or more");
        if (o.hysteresis < 1) fail<argument_error>("grad_scaler: hysteresis is ", o.hysteresis, "; expected 1 or more");
    }
    static void check(const grad_scaler_options& o) {
        check_scale(o.init_scale);
        check_rules(o);
        check_bounds(o.init_scale, o);
    }

    grad_scaler_options options_;
};

template <class Device>
grad_scaler(Device&) -> grad_scaler<Device>;
template <class Device>
grad_scaler(Device&, const grad_scaler_options&) -> grad_scaler<Device>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
