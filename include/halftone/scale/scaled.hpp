// SPDX-License-Identifier: MIT
/// \file
/// The type of something that was multiplied by a loss scale. It differs from the type of the thing itself, so that
/// code which must not get scaled numbers does not compile with them.
///
///     tape.backward(scaler.scale(loss / 4), acc);        // ht::scaled<...>: the gradients will be scaled
///     auto grads = scaler.unscale(acc.take());           // ht::scaled<ht::gradients<...>> in, ht::gradients<...> out
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <halftone/autodiff/engine/variable.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Identifies a scale: the clock of a scaler, and its time. The clock advances when the scale may change, and when its
/// scaler is destroyed. Stamps share ownership of the clock, so that no other scaler can have a clock at the same
/// address.
struct scale_stamp {
    std::shared_ptr<const std::uint64_t> clock{};
    std::uint64_t time = 0;

    bool is_current() const { return clock != nullptr && *clock == time; }
    friend bool operator==(const scale_stamp& a, const scale_stamp& b) {
        return a.clock == b.clock && a.time == b.time;
    }
};

/// A `T` (a loss, gradients) times a loss scale. Made by scalers.
template <class T>
class scaled {
  public:
    using value_type = T;

    scaled(T value, const float* scale, scale_stamp stamp)
        : value_(std::move(value)), scale_(scale), stamp_(std::move(stamp)) {}

    /// The scaled thing.
    const T& value() const& { return value_; }
    T&& value() && { return std::move(value_); }
    /// The address of a loss's scale, in the device's memory; nullptr for gradients, whose scale only their scaler
    /// knows.
    const float* scale() const { return scale_; }
    const scale_stamp& stamp() const { return stamp_; }

  private:
    T value_;
    const float* scale_;
    scale_stamp stamp_;
};

/// Whether T is a `scaled`.
template <class T>
inline constexpr bool is_scaled = false;
template <class T>
inline constexpr bool is_scaled<scaled<T>> = true;

/// The variable of the loss inside, from which a backward pass starts. Any loss type with this function and the next
/// can be scaled, once.
template <class T>
decltype(auto) loss_variable(const scaled<T>& loss) {
    return loss_variable(loss.value());
}
/// The seed of the loss inside, times the scale in the device's memory.
template <class T>
gradient_seed loss_seed(const scaled<T>& loss) {
    gradient_seed seed = loss_seed(loss.value());
    seed.scale = loss.scale();
    return seed;
}
/// `value` with the loss's scale: ht::scaled.
template <class T, class Value>
scaled<Value> scaled_as(const scaled<T>& loss, Value value) {
    return {std::move(value), nullptr, loss.stamp()};
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
