// SPDX-License-Identifier: MIT
/// \file
/// A small value in the device's memory, which the device's own work reads and changes: the loss scale, a step count.
/// The host reads it only on request, since on a GPU that means waiting.
///
///     detail::device_value<kernel::step_record, cpu> steps{device};
///     device.run(count_one{steps.data()});                                // in order with the device's other work
///     steps.read().steps                                                  // waits for the device
#pragma once

#include <type_traits>

#include <halftone/memory/resource.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The value at an address in the device's memory. On a GPU it waits for the device.
template <class T, class Device>
T read_value(Device& device, const T* from) {
    T value;
    device.memory().read(&value, from, sizeof(T));
    return value;
}

/// A value of type T in a device's memory. The device must outlive it.
template <class T, class Device>
class device_value {
  public:
    static_assert(std::is_trivially_copyable_v<T>);

    explicit device_value(Device& device, const T& value = {})
        : device_(&device), memory_(device.memory(), sizeof(T), memory_kind::other) {
        write(value);
    }

    /// The value's address in the device's memory.
    T* data() const { return reinterpret_cast<T*>(memory_.data()); }
    /// The value. On a GPU it waits for the device.
    T read() const { return read_value(*device_, data()); }
    /// Sets the value, in order with the device's other work.
    void write(const T& value) { device_->memory().write(data(), &value, sizeof(T)); }
    Device& device() const { return *device_; }

  private:
    Device* device_;
    buffer memory_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
