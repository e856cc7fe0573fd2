// SPDX-License-Identifier: MIT
/// \file
/// What all scalers have in common: the scale, in the device's memory; scaling losses and unscaling gradients; and the
/// order of calls, the same as for torch.amp.GradScaler: for each model unscale once, step once, then update.
///
/// A scaler is referred to by the losses and gradients that it made, and stays where it is.
#pragma once

#include <memory>

#include <halftone/scale/gradients.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// How a scale moves; see grad_scaler_options.
struct scale_rules {
    double growth_factor = 1, backoff_factor = 1;
    int growth_interval = 1;
    float min_scale = 0, max_scale = 0;
    int hysteresis = 1;
};

/// The part of a scaler that lives in the device's memory: its rules as well, so that an update that was captured
/// follows later ones.
struct scale_record {
    float scale = 1;
    std::int32_t growth_tracker = 0;  ///< steps since the scale changed, or since an overflow
    std::int32_t hysteresis = 1;      ///< overflows until the scale is reduced
    std::int32_t found_inf = 0;       ///< in any gradients unscaled since the last update
    std::int64_t overflows = 0;       ///< updates that met a gradient that was not finite
    scale_rules rules{};
};

/// Whether 1 / scale is a float. The scale 0, which a minimum of 0 lets come, has made zeros of all gradients.
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
/// Where the scale has no inverse, no optimizer steps.
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

/// Whether a scaler looks at gradients and at the order of calls, or lets everything pass.
enum class scaling_checks { on, off };

template <class Device>
class scaler {
  public:
    scaler(Device& device, const scale_record& start, scaling_checks checks)
        : record_(device, start), checks_(checks) {}
    scaler(const scaler&) = delete;
    scaler& operator=(const scaler&) = delete;
    ~scaler() { ++*clock_; }

    /// Anything that has loss_variable and loss_seed, to be differentiated with its seed times the scale.
    template <class T>
    scaled<std::remove_cvref_t<T>> scale(T&& loss) const {
        static_assert(!is_scaled<std::remove_cvref_t<T>>, "halftone: scale: this loss is scaled already");
        return {std::forward<T>(loss), &record_.data()->scale, now()};
    }

    /// Gradients whose values are to be read times 1 / scale. Reads them once: finds whether one is not finite, and
    /// their norm. Throws state_error where these models' gradients were unscaled since the last update(), and where
    /// update() stood between the backward pass and this call.
    template <class T>
    auto unscale(T&& scaled_gradients) {
        using type = std::remove_cvref_t<T>;
        static_assert(
            is_scaled<type>,
            "halftone: unscale: these gradients are not scaled: they come from an accumulator with ht::unscaled, or "
            "were unscaled before; only what acc.take() of an ht::accumulator acc{model} returns can be unscaled");
        static_assert(!std::is_lvalue_reference_v<T>,
                      "halftone: unscale consumes the scaled gradients, so that nobody unscales them twice: write "
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

    /// The present scale. On a GPU it waits for the device.
    float get_scale() const { return record_.read().scale; }
    /// Updates that met a gradient that was not finite: the steps that at least one optimizer skipped.
    std::int64_t overflows() const { return record_.read().overflows; }

  protected:
    Device& device() const { return record_.device(); }
    detail::device_value<scale_record, Device>& record() { return record_; }
    const detail::device_value<scale_record, Device>& record() const { return record_; }
    bool is_checking() const { return checks_ == scaling_checks::on; }

    /// Throws where no gradients were unscaled since the last round; then begins the next one.
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
    /// Another scale, by hand: begins a round, and counts the overflow of the one that it breaks off.
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
    /// Variables of a tape (autodiff/double_backward/double_backward.hpp), which are part of a further loss: overflows
    /// show in its gradients.
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
