// SPDX-License-Identifier: MIT
/// \file
/// A tensor owns its memory, which is contiguous and row-major.
///
///     ht::tensor<float, 2> x{device.memory(), {128, 256}};       // contents undefined
#pragma once

#include <utility>

#include <halftone/memory/resource.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A contiguous row-major array of Rank axes that owns its memory; contents undefined until written. Movable, not
/// copyable. Throws shape_error for a shape with a negative extent, and out_of_memory.
template <class T, int Rank>
class tensor {
  public:
    using value_type = T;
    static constexpr int rank = Rank;

    tensor() = default;
    tensor(memory_resource& memory, const halftone::shape<Rank>& shape, memory_kind kind = memory_kind::other)
        : block_(memory, bytes_of(shape), kind), view_(reinterpret_cast<T*>(block_.data()), shape) {}

    /// A tensor that was moved from is as one made by the default constructor.
    tensor(tensor&& other) noexcept : block_(std::move(other.block_)), view_(std::exchange(other.view_, {})) {}
    tensor& operator=(tensor&& other) noexcept {
        block_ = std::move(other.block_);
        view_ = std::exchange(other.view_, {});
        return *this;
    }

    T* data() const { return view_.data(); }
    const halftone::shape<Rank>& shape() const { return view_.shape(); }
    extent size() const { return view_.size(); }
    halftone::view<T, Rank> view() const { return view_; }
    halftone::const_view<T, Rank> const_view() const { return view_; }
    operator halftone::view<T, Rank>() const { return view_; }              // NOLINT(google-explicit-constructor)
    operator halftone::const_view<T, Rank>() const { return view_; }        // NOLINT(google-explicit-constructor)
    /// The element at the given indices; only if the host can read the device's memory.
    template <class... Indices>
    T& operator()(Indices... indices) const {
        return view_(indices...);
    }

  private:
    static std::size_t bytes_of(const halftone::shape<Rank>& shape) {
        check_shape("tensor", shape);
        return static_cast<std::size_t>(shape.size()) * sizeof(T);
    }

    buffer block_;
    halftone::view<T, Rank> view_;
};

/// The view of a tensor's elements.
template <class T, int Rank>
view<T, Rank> as_view(const tensor<T, Rank>& t) {
    return t.view();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
