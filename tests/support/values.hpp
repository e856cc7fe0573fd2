// SPDX-License-Identifier: MIT
/// \file
/// The elements of a view in a device's memory, as doubles.
///
///     CHECK(support::values(device, tape.gradient(x)) == want);
#pragma once

#include <type_traits>
#include <vector>

#include <halftone/tensor/view.hpp>

namespace support {

template <class Device, class T, int Rank>
std::vector<double> values(Device& device, const halftone::view<T, Rank>& v) {
    std::vector<std::remove_const_t<T>> copy(static_cast<std::size_t>(v.size()));
    if (!copy.empty()) device.memory().read(copy.data(), v.data(), copy.size() * sizeof(T));
    std::vector<double> all;
    for (const auto& x : copy) all.push_back(static_cast<double>(x));
    return all;
}

}  // namespace support
