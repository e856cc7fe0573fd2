// SPDX-License-Identifier: MIT
/// \file
/// A small value that lives in the device's memory, where the device's own work reads and changes it: the loss scale, a
/// step count. The host looks at it only when asked, since on a GPU that means to wait.
///
///     ht::resident<kernel::step_record, cpu> steps{device};
///     ht::device_order<cpu>::run(device, count_one{steps.data()});       // in order with the device's other work
///     steps.read().steps                                                  // waits for it
#pragma once

#include <type_traits>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/memory/resource.hpp>

namespace halftone::inline HALFTONE_ABI {

/// How a device runs one small function in order with its other work, and how the host reads and writes its memory. A
/// specialisation for each device.
template <class Device>
struct device_order;

template <>
struct device_order<cpu> {
    template <class Function>
    static void run(cpu&, const Function& f) {
        f();
    }
    template <class T>
    static T read(cpu&, const T* from) {
        return *from;
    }
    template <class T>
    static void write(cpu&, T* to, const T& value) {
        *to = value;
    }
};

template <class T, class Device>
class resident {
  public:
    static_assert(std::is_trivially_copyable_v<T>);

    explicit resident(Device& device, const T& value = {})
        : device_(&device), memory_(device.memory(), sizeof(T), memory_kind::other) {
        write(value);
    }

    /// A pointer of the device's.
    T* data() const { return reinterpret_cast<T*>(memory_.data()); }
    T read() const { return device_order<Device>::read(*device_, data()); }
    void write(const T& value) { device_order<Device>::write(*device_, data(), value); }
    Device& device() const { return *device_; }

  private:
    Device* device_;
    buffer memory_;
};

}  // namespace halftone::inline HALFTONE_ABI
