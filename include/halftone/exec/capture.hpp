// SPDX-License-Identifier: MIT
/// \file
/// Captured work: operations that a device records instead of running them, to replay them as a whole later; on a GPU a
/// CUDA graph.
///
///     typename Device::captured work = device.capture([&] { optimizer.step(grads); });    // records, runs nothing yet
///     device.replay(work);                                                               // runs it, without waiting
///
/// A capture records launches, functions, fills, copies and clears with the arguments of that moment: addresses,
/// shapes, scalars. The host's part of the work runs once, during the capture. Whatever would wait for the device,
/// upload host memory or allocate memory throws capture_error (a state_error), and the capture is dropped without
/// effect on the device. The same is thrown while the program itself captures a GPU's stream; that capture goes on.
/// memory().capture_dependencies() tells whether a capture's addresses are still valid. train/captured_step.hpp handles
/// all of this for training steps.
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

// The messages of capture_error.
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
