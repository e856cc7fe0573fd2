// SPDX-License-Identifier: MIT
/// \file
/// What all scalers share: the scale, in the device's memory; scaling losses and unscaling gradients; and the order of
/// calls, which is that of torch.amp.GradScaler: for each model unscale once and step once, then update.
///
/// Losses and gradients that a scaler made refer to it, so a scaler is not movable.
#pragma once

#include <memory>

#include <halftone/scale/gradients.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The rules of a scale; see grad_scaler_options.
struct scale_rules {
    double growth_factor = 1, backoff_factor = 1;
    int growth_interval = 1;
    float min_scale = 0, max_scale = 0;
    int hysteresis = 1;
};

/// A scaler's state in the device's memory, including its rules, so that a captured update follows later changes of
/// them.
struct scale_record {
    float scale = 1;
    std::int32_t growth_tracker = 0;  ///< steps since the last change of the scale or overflow
    std::int32_t hysteresis = 1;      ///< overflows until the scale is reduced
    std::int32_t found_inf = 0;       ///< whether any gradients unscaled since the last update were not finite
    std::int64_t overflows = 0;       ///< number of updates with a gradient that was not finite
    scale_rules rules{};
};

/// Whether 1 / scale is a float. A scale of 0, possible with a min_scale of 0, has turned all gradients into zeros.
HALFTONE_HD inline bool has_inverse(const scale_record& r) {
    return 1.0 <= static_cast<double>(r.scale) * static_cast<double>(kernel::gradient_factors::no_limit);
}
struct set_inverse_scale {
    kernel::gradient_record* gradients;
    const scale_record* scale;
    HALFTONE_HD void operator()() const {
        gradients->factors.inv_scale =
            has_inverse(*scale) ? static_cast<float>(1.0 / static_cast<double>(scale->scale)) : 1.0f;
    }
};
/// If the scale has no inverse, the step counts as an overflow and is skipped.
struct note_overflow {
    scale_record* scale;
    kernel::gradient_record* gradients;
    std::int32_t* found_inf;
    std::size_t parts;
    HALFTONE_HD void operator()() const {
        if (!has_inverse(*scale)) {
            for (std::size_t i = 0; i < parts; ++i)
                kernel::add_slab(*gradients, found_inf[i], 0, kernel::found_infinity);
        }
        if (gradients->found_inf != 0) scale->found_inf = 1;
    }
};

/// Whether a scaler checks gradients and the order of calls, or is disabled.
enum class scaling_checks { on, off };

template <class Device>
class scaler {
  public:
    scaler(Device& device, const scale_record& start, scaling_checks checks)
        : record_(device, start), checks_(checks) {}
    scaler(const scaler&) = delete;
    scaler& operator=(const scaler&) = delete;
    ~scaler() { ++*clock_; }

    /// Scales a loss: anything with loss_variable and loss_seed; its backward pass begins with its seed times the
    /// scale.
    template <class T>
    scaled<std::remove_cvref_t<T>> scale(T&& loss) const {
        static_assert(!is_scaled<std::remove_cvref_t<T>>, "halftone: scale: this loss is scaled already");
        return {std::forward<T>(loss), &record_.data()->scale, now()};
    }

    /// Gradients whose values are to be read times 1 / scale. Runs the read pass, which finds whether one is not
    /// finite, and their norm. Throws state_error if these models' gradients were unscaled already since the last
    /// update(), and if update() was called between the backward pass and this call.
    template <class T>
    auto unscale(T&& scaled_gradients) {
        using type = std::remove_cvref_t<T>;
        static_assert(
            is_scaled<type>,
            "halftone: unscale: these gradients are not scaled: they come from an accumulator with ht::unscaled, or "
            "were unscaled before; only what acc.take() of an ht::accumulator acc{model} returns can be unscaled");
        static_assert(!std::is_lvalue_reference_v<T>,
                      "halftone: unscale consumes the scaled gradients, so that they cannot be unscaled twice: write "
                      "scaler.unscale(acc.take()), or std::move them");
        if constexpr (is_scaled<type> && !std::is_lvalue_reference_v<T>) {
            if constexpr (requires { std::move(scaled_gradients).value().over(&record_.data()->scale); }) {
                return unscale_variables(std::move(scaled_gradients));
            } else {
                static_assert(is_gradients<typename type::value_type>,
                              "halftone: unscale: only gradients can be unscaled");
                return unscale_gradients(std::move(scaled_gradients));
            }
        }
    }

    /// The current scale. On a GPU it waits for the device.
    float get_scale() const { return record_.read().scale; }
    /// The number of updates with a gradient that was not finite, that is, of steps that at least one optimizer
    /// skipped.
    std::int64_t overflows() const { return record_.read().overflows; }

  protected:
    Device& device() const { return record_.device(); }
    detail::device_value<scale_record, Device>& record() { return record_; }
    const detail::device_value<scale_record, Device>& record() const { return record_; }
    bool is_checking() const { return checks_ == scaling_checks::on; }

    /// Ends a round (unscale and step) and begins the next one. Throws if no gradients were unscaled in it.
    void end_round(const char* operation) {
        if (is_checking() && unscaled_.empty()) {
            fail<state_error>(operation,
                              ": update() before any gradients were unscaled; call scaler.unscale(acc.take()) and "
                              "optimizer.step first");
        }
        begin_round();
    }
    void begin_round() {
        unscaled_.clear();
        if (is_checking()) ++*clock_;
    }
    /// Sets another scale: begins a round, and counts the overflow of the one that it ends.
    void set_scale(float scale) {
        begin_round();
        scale_record r = record_.read();
        r.scale = scale;
        r.overflows += r.found_inf;
        r.found_inf = 0;
        record_.write(r);
    }

  private:
    scale_stamp now() const { return {clock_, *clock_}; }
    template <class T>
    void check_stamp(const scaled<T>& s) const {
        if (s.stamp().clock != clock_)
            fail<state_error>("unscale: another scaler scaled the losses of these gradients");
        if (!s.stamp().is_current()) {
            fail<state_error>(
                "unscale: update() was called after the backward pass and before unscale(); the scale is no longer "
                "theirs");
        }
    }
    /// Unscales variables of a tape (autodiff/double_backward/double_backward.hpp), which are part of another loss:
    /// overflows in them show in that loss's gradients.
    template <class Variables>
    Variables unscale_variables(scaled<Variables>&& s) const {
        check_stamp(s);
        return std::move(s).value().over(&record_.data()->scale);
    }

    template <class Models>
    gradients<Device, Models> unscale_gradients(scaled<gradients<void, Models>>&& s) {
        gradients<void, Models> raw = std::move(s).value();
        detail::window& w = raw.check("unscale");
        check_stamp(s);
        gradients<Device, Models> result(w, &device());
        result.prepare(device());
        device().run(set_inverse_scale{w.record(), record_.data()});
        if (!is_checking()) return result;

        for (const window::part& p : w.parts) {
            for (const store* seen : unscaled_) {
                if (seen == &p.slabs.owner()) {
                    fail<state_error>(
                        "unscale: called twice for the same model since the last update(); step and update once per "
                        "window");
                }
            }
        }
        result.measure(device());
        device().run(note_overflow{record_.data(), w.record(), w.found_inf(), w.parts.size()});
        for (const window::part& p : w.parts) unscaled_.push_back(&p.slabs.owner());
        return result;
    }

    detail::device_value<scale_record, Device> record_;
    scaling_checks checks_;
    std::shared_ptr<std::uint64_t> clock_ = std::make_shared<std::uint64_t>(0);
    std::vector<const store*> unscaled_;
};

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
