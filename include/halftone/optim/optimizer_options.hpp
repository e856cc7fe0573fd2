// SPDX-License-Identifier: MIT
/// \file
/// What the struct of an optimizer's options says about the optimizer, so that a trainer can make it (train/trainer.hpp).
///
///     struct lion_options {
///         double lr = 1e-4;                                             // and its other options
///
///         static constexpr const char* name = "lion";
///         template <class Device, class Model>
///         using optimizer = lion<Device, Model>;                        // made of (device, model, options, groups)
///         using eight_bit = lion_8bit_options;                          // if there is a form with moments in 8 bits
///         static constexpr double flops_per_element = 11;               // of a step, if it is known
///     };
///
/// The options of a form with moments in 8 bits have a static function of(options), which returns a std::optional: its
/// options, or nothing if the optimizer stores no moments with these.
#pragma once

#include <concepts>
#include <optional>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The options of an optimizer, which name it, and have its learning rate.
template <class Options>
concept optimizer_options = requires(const Options& o) {
    { Options::name } -> std::convertible_to<const char*>;
    { o.lr } -> std::convertible_to<double>;
};

namespace detail {

/// Whether there is a form of the optimizer with moments in 8 bits.
template <class Options>
concept has_eight_bit_form = optimizer_options<Options> && requires(const Options& o) {
    { Options::eight_bit::of(o) } -> std::same_as<std::optional<typename Options::eight_bit>>;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
