// SPDX-License-Identifier: MIT
/// \file
/// Copies of a device's values in host memory, and back. The host cannot read a GPU's memory through a pointer; a
/// program that copies with to_host and to_device runs on every device.
///
///     const auto slopes = ht::to_host(device, grads.of(model.fit.weight));      // a copy in host memory: waits for the device
///     std::cout << slopes(0, 1);
///     model.fit.weight.assign(slopes);                                          // a parameter takes values from the host
///     const auto x = ht::to_device(device, ht::const_view<float, 2>(rows, {8, 2}));       // a tensor in its memory
///     ht::to_device(device, next_rows, x);                                      // other values into the same memory
///     ht::softmax<ht::full_fp32>(cpu, host_scores, host_weights);               // on a CPU host tensors are views, too
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include <halftone/tensor/split_view.hpp>
#include <halftone/tensor/tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Numbers in host memory, contiguous in row-major order. Copying it copies the numbers.
template <class T, int Rank>
class host_tensor {
  public:
    using value_type = T;
    static constexpr int rank = Rank;

    host_tensor() = default;
    /// Zeros. Throws shape_error for an invalid shape (a negative extent, say).
    explicit host_tensor(const halftone::shape<Rank>& shape) : shape_(shape) {
        check_shape("host_tensor", shape);
        values_.resize(static_cast<std::size_t>(shape.size()));
    }

    host_tensor(const host_tensor&) = default;
    host_tensor& operator=(const host_tensor&) = default;
    /// A host_tensor that was moved from is as one made by the default constructor.
    host_tensor(host_tensor&& other) noexcept
        : shape_(std::exchange(other.shape_, {})), values_(std::exchange(other.values_, {})) {}
    host_tensor& operator=(host_tensor&& other) noexcept {
        shape_ = std::exchange(other.shape_, {});
        values_ = std::exchange(other.values_, {});
        return *this;
    }

    const halftone::shape<Rank>& shape() const { return shape_; }
    extent size() const { return static_cast<extent>(values_.size()); }
    halftone::view<T, Rank> view() { return {values_.data(), shape_}; }
    halftone::const_view<T, Rank> view() const { return {values_.data(), shape_}; }
    /// The element at the given indices.
    template <class... Indices>
    T& operator()(Indices... indices) {
        return view()(indices...);
    }
    /// The element at the given indices.
    template <class... Indices>
    const T& operator()(Indices... indices) const {
        return view()(indices...);
    }

    // data, size, begin and end make it a range, from which a std::span can be made.
    T* data() { return values_.data(); }
    const T* data() const { return values_.data(); }
    T* begin() { return data(); }
    T* end() { return data() + size(); }
    const T* begin() const { return data(); }
    const T* end() const { return data() + size(); }

  private:
    halftone::shape<Rank> shape_{};
    std::vector<T> values_;
};

/// The view of a host tensor's elements. Only kernels of a CPU can read it.
template <class T, int Rank>
view<T, Rank> as_view(host_tensor<T, Rank>& t) {
    return t.view();
}
template <class T, int Rank>
const_view<T, Rank> as_view(const host_tensor<T, Rank>& t) {
    return t.view();
}
template <class T, int Rank>
void as_view(const host_tensor<T, Rank>&&) = delete;  // its memory ends with the expression

/// A copy, in host memory, of the elements of a view with any strides, after the device has finished its earlier work.
/// The view may be of the device's or of the host's memory.
template <class Device, class T, int Rank>
host_tensor<std::remove_const_t<T>, Rank> to_host(Device& device, const view<T, Rank>& values) {
    using element = std::remove_const_t<T>;
    host_tensor<element, Rank> result(values.shape());
    if (result.size() == 0) return result;
    if (values.is_contiguous()) {
        device.memory().read(result.data(), values.data(), static_cast<std::size_t>(result.size()) * sizeof(element));
        return result;
    }
    // One transfer of the whole bounding span and not one a row, because each would wait for the device.
    std::vector<element> bounds(static_cast<std::size_t>(values.bounding_size()));
    const extent before = values.elements_before();
    device.memory().read(bounds.data(), values.data() - before, bounds.size() * sizeof(element));
    shape<Rank> at{};
    for (element& to : result) {
        extent offset = before;
        for (int axis = 0; axis < Rank; ++axis) offset += at[axis] * values.stride_of(axis);
        to = bounds[static_cast<std::size_t>(offset)];
        for (int axis = Rank - 1; axis >= 0 && ++at[axis] == values.extent_of(axis); --axis) at[axis] = 0;
    }
    return result;
}

/// A copy of a split master in host memory, whose halves are joined to floats. Waits for the device.
template <class Device, int Rank>
host_tensor<float, Rank> to_host(Device& device, const split_view<Rank>& values) {
    const auto nearest = to_host(device, values.nearest);
    const auto rest = to_host(device, values.rest);
    host_tensor<float, Rank> result(values.shape());
    for (extent i = 0; i < result.size(); ++i) result.data()[i] = join({nearest.data()[i], rest.data()[i]});
    return result;
}

template <class Device, class Source>
    requires requires(const Source& s) { s.view().is_contiguous(); }
/// A copy, in host memory, of anything that has a view, such as a tensor or a variable. Waits for the device.
auto to_host(Device& device, const Source& source) {
    return to_host(device, source.view());
}

/// A tensor in the device's memory with these values; the host memory may be changed when the call returns. Throws
/// shape_error for a view that is not contiguous.
template <class Device, class T, int Rank>
tensor<std::remove_const_t<T>, Rank> to_device(Device& device, const view<T, Rank>& values) {
    detail::expect_contiguous("to_device", "the view", values);
    tensor<std::remove_const_t<T>, Rank> result{device.memory(), values.shape()};
    device.memory().write(result.data(), values.data(), static_cast<std::size_t>(values.size()) * sizeof(T));
    return result;
}
template <class Device, class T, int Rank>
tensor<T, Rank> to_device(Device& device, const host_tensor<T, Rank>& values) {
    return to_device(device, values.view());
}
/// Writes values to existing memory of the device: a tensor, or a view of one. Both are contiguous, and of one shape
/// and type. Throws shape_error.
template <class Device, class T, int Rank, class To>
void to_device(Device& device, const view<T, Rank>& values, const To& to) {
    const auto out = as_view(to);
    static_assert(std::is_same_v<decltype(out), const view<std::remove_const_t<T>, Rank>>,
                  "halftone: to_device copies into memory of the same rank and element type; ht::convert rounds");
    if (!(out.shape() == values.shape()))
        fail<shape_error>("to_device: values are ", values.shape(), ", the memory that they go to ", out.shape());
    detail::expect_contiguous("to_device", "the view", values);
    detail::expect_contiguous("to_device", "the memory that they go to", out);
    device.memory().write(out.data(), values.data(), static_cast<std::size_t>(values.size()) * sizeof(T));
}
template <class Device, class T, int Rank, class To>
void to_device(Device& device, const host_tensor<T, Rank>& values, const To& to) {
    to_device(device, values.view(), to);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
