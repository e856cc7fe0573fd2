// SPDX-License-Identifier: MIT
/// \file
/// Work that a device notes down in place of doing it, and then does again and again, in one go: on a GPU a CUDA graph.
///
///     typename Device::captured work = device.capture([&] { optimizer.step(grads); });    // notes, does nothing yet
///     device.replay(work);                                                               // does it, without waiting
///
/// Noted down are launches, functions, fills, copies and clearing, with their arguments as they are then: addresses,
/// shapes, scalars. The host's part of the work runs once, while it is noted down. What would wait for the device, bring
/// host memory to it, or take memory throws capture_error, a state_error, and the capture is dropped; the device is as
/// before then. The same is thrown where the program captures a GPU's stream itself, and that capture goes on.
/// memory().capture_dependencies() tells whether addresses are still good. train/captured_step.hpp has the care that a
/// step wants.
#pragma once

#include <concepts>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A device whose work can be captured and replayed.
template <class Device>
concept capturing_device = requires(Device& device, typename Device::captured& work, void (&f)()) {
    { device.capture(f) } -> std::same_as<typename Device::captured>;
    device.replay(work);
};

namespace detail {

// What devices say where a capture cannot have it.
inline constexpr const char* read_in_capture =
    "the host reads device memory inside the step and would wait for it; return the loss from the step, and read after "
    "it";
inline constexpr const char* write_in_capture =
    "the host writes device memory inside the step, and replays would not see later values; hand inputs to the step as "
    "arguments";
inline constexpr const char* wait_in_capture =
    "synchronize() inside the step waits for the device; call it after the step";
inline constexpr const char* default_stream_in_capture =
    "the context was given the default stream (0), which CUDA does not capture; make the context with ht::own_stream, or "
    "with another stream of yours";
inline constexpr const char* replay_in_capture = "a captured step is replayed inside another; call one after the other";

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
