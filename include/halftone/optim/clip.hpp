// SPDX-License-Identifier: MIT
/// \file
/// Clipping gradients, by their norm or by value. Only factors are recorded, which readers of the gradients apply. So
/// clipping needs no pass over memory except the read pass that computes the norm, which has already run if a scaler
/// unscaled the gradients.
///
///     auto norm = ht::clip_grad_norm(grads, 1.0f);         // over all parameters of all models in grads
///     optimizer.step(grads);
///     log(norm.value());                                   // the norm before clipping, as torch.nn.utils.clip_grad_norm_
///     ht::clip_grad_value(grads, 0.5f);
///
/// Several clips apply in the order of their calls: after clipping by value, clipping by norm computes the norm of the
/// clamped values, in a separate pass. Gradients of an accumulator with ht::unscaled do not know their device; pass it
/// as the first argument.
#pragma once

#include <memory>

#include <halftone/number/classify.hpp>
#include <halftone/scale/gradients.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The norm that clip_grad_norm computed, read on request. Valid until the next window of its accumulator begins or the
/// accumulator is destroyed.
template <class Device>
class measured_norm {
  public:
    template <class Any, class Models>
    measured_norm(Device& device, const gradients<Any, Models>& g)
        : device_(&device), window_(&g.check("clip_grad_norm")), clock_(window_->clock), serial_(clock_->serial) {}

    /// The norm before the last clip_grad_norm; NaN if a gradient is NaN, infinity if one is infinite and none NaN. On a GPU
    /// it waits for the device.
    /// Throws state_error once another window has begun or the accumulator has been destroyed.
    float value() const {
        if (clock_->is_gone || clock_->serial != serial_) {
            fail<state_error>(
                "clip_grad_norm: its norm was read after a further backward pass, or once the accumulator was destroyed; "
                "read it before");
        }
        return detail::read_value(*device_, window_->record()).norm_before;
    }
    operator float() const { return value(); }  // NOLINT(google-explicit-constructor)

  private:
    Device* device_;
    const detail::window* window_;
    std::shared_ptr<const detail::window_clock> clock_;
    std::uint64_t serial_;
};

namespace detail {

struct clip_norm {
    kernel::gradient_record* record;
    float max_norm;
    HALFTONE_HD void operator()() const { kernel::clip_by_norm(*record, max_norm); }
};
struct clip_value {
    kernel::gradient_record* record;
    float limit;
    HALFTONE_HD void operator()() const { kernel::clip_by_value(*record, limit); }
};

/// Throws state_error if an optimizer has stepped with these gradients already.
template <class Gradients>
window& check_clip(const char* operation, const Gradients& g) {
    window& w = g.check(operation);
    for (const window::part& p : w.parts) {
        if (p.stepped) fail<state_error>(operation, ": after a step with these gradients; clip before all steps");
    }
    return w;
}

template <class Device, class Gradients>
void check_clip_device() {
    static_assert(
        std::is_void_v<typename Gradients::device_type> || std::is_same_v<Device, typename Gradients::device_type>,
        "halftone: clip: these gradients were unscaled on another kind of device");
}

}  // namespace detail

/// Clips the Euclidean norm of all gradients together to max_norm, as torch.nn.utils.clip_grad_norm_: multiplies them
/// by max_norm / (norm + 1e-6) if that is below 1. With an infinite max_norm it only computes the norm. Returns the
/// norm before clipping, to be read on request; the host does not wait. If a gradient is NaN the norm is NaN, if one is
/// infinite and none NaN it is infinite, as in PyTorch, and the step that follows is skipped. Throws argument_error for a
/// max_norm that is negative or NaN, and state_error after a step with these gradients.
template <class Device, class Any, class Models>
measured_norm<Device> clip_grad_norm(Device& device, gradients<Any, Models>& g, float max_norm) {
    detail::check_clip_device<Device, gradients<Any, Models>>();
    if (is_nan(max_norm) || max_norm < 0)
        fail<argument_error>("clip_grad_norm: max_norm is ", max_norm, "; expected 0 or more");
    detail::window& w = detail::check_clip("clip_grad_norm", g);
    g.measure(device);
    device.run(detail::clip_norm{w.record(), max_norm});
    w.is_clipped = true;
    return {device, g};
}

/// Clips every gradient's magnitude to `limit`. Throws argument_error for a limit that is negative or NaN, and
/// state_error after a step with these gradients.
template <class Device, class Any, class Models>
void clip_grad_value(Device& device, gradients<Any, Models>& g, float limit) {
    detail::check_clip_device<Device, gradients<Any, Models>>();
    if (is_nan(limit) || limit < 0)
        fail<argument_error>("clip_grad_value: the limit is ", limit, "; expected 0 or more");
    detail::window& w = detail::check_clip("clip_grad_value", g);
    g.prepare(device);
    device.run(detail::clip_value{w.record(), limit});
    w.is_clipped = true;
    if (w.known == detail::window::knowledge::norm) w.known = detail::window::knowledge::finite;
}

/// Scales all gradients so that their norm is at most max_norm, on the device whose scaler unscaled them. Throws as
/// with a device.
template <class Device, class Models>
auto clip_grad_norm(gradients<Device, Models>& g, float max_norm) {
    static_assert(
        !std::is_void_v<Device>,
        "halftone: clip_grad_norm: gradients of an accumulator with ht::unscaled know no device to be read with: write "
        "ht::clip_grad_norm(device, grads, max_norm)");
    if constexpr (!std::is_void_v<Device>) return clip_grad_norm(*g.device(), g, max_norm);
}
/// Clips every gradient's magnitude to `limit`, on the device whose scaler unscaled them. Throws as with a device.
template <class Device, class Models>
void clip_grad_value(gradients<Device, Models>& g, float limit) {
    static_assert(!std::is_void_v<Device>,
                  "halftone: clip_grad_value: gradients of an accumulator with ht::unscaled know no device: write "
                  "ht::clip_grad_value(device, grads, limit)");
    if constexpr (!std::is_void_v<Device>) clip_grad_value(*g.device(), g, limit);
}

/// Does not compile: scaled gradients are too large, and their norm is meaningless.
template <class T>
void clip_grad_norm(const scaled<T>&, float) {
    static_assert(
        !is_gradients<T>,
        "halftone: clip_grad_norm: these gradients are still scaled by the loss scale; call scaler.unscale first: auto "
        "grads = scaler.unscale(acc.take());");
}
/// Does not compile, for the same reason.
template <class T>
void clip_grad_value(const scaled<T>&, float) {
    static_assert(!is_gradients<T>,
                  "halftone: clip_grad_value: these gradients are still scaled by the loss scale; call scaler.unscale "
                  "first: auto "
                  "grads = scaler.unscale(acc.take());");
}
/// Does not compile, for the same reason.
template <class Device, class T>
void clip_grad_norm(Device&, const scaled<T>& g, float max_norm) {
    clip_grad_norm(g, max_norm);
}
/// Does not compile, for the same reason.
template <class Device, class T>
void clip_grad_value(Device&, const scaled<T>& g, float limit) {
    clip_grad_value(g, limit);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
