// SPDX-License-Identifier: MIT
/// \file
/// The inputs of a captured step: views, or values that have with_views; compares their types and shapes, and owns
/// device memory for a copy of each.
///
///     detail::step_inputs own(device, tokens, targets);          // allocates memory for inputs of these types and shapes
///     own.fill(device, tokens, targets);                         // copies their current values
///     own.call(step, tokens, targets);                           // step(views of that memory)
#pragma once

#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <halftone/memory/resource.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class T>
inline constexpr bool is_view = false;
template <class T, int Rank>
inline constexpr bool is_view<view<T, Rank>> = true;

template <class T, int Rank>
const_view<std::remove_const_t<T>, Rank> view_of_constants(const view<T, Rank>& v) {
    return v;
}

/// The input with f(view) in place of each view, which has const elements.
template <class Input, class Function>
auto map_views(const Input& input, const Function& f) {
    if constexpr (is_view<Input>) {
        return f(view_of_constants(input));
    } else {
        static_assert(
            requires { input.with_views(f); },
            "halftone: captured_step: a step is called with views (ht::view), or with values that have with_views as "
            "ht::language_batch has; all other values that it reads would be those of the capture: keep them in "
            "device memory");
        return input.with_views([&f](const auto& v) { return f(view_of_constants(v)); });
    }
}

class step_inputs {
  public:
    /// Throws shape_error for a view that is not contiguous, and out_of_memory.
    template <class Device, class... Inputs>
    explicit step_inputs(Device& device, const Inputs&... inputs) : types_(&key_of<Inputs...>) {
        for_each_view(
            [&](const auto& v) {
                expect_contiguous("captured_step", "an input", v);
                add_extents(extents_, v);
                text_ += (text_.empty() ? "" : ", ") + sentence(v.shape());
                memory_.emplace_back(device.memory(), static_cast<std::size_t>(v.size()) * sizeof(*v.data()),
                                     memory_kind::other);
            },
            inputs...);
    }

    /// Whether inputs have these types and shapes.
    template <class... Inputs>
    bool fits(const Inputs&... inputs) const {
        if (types_ != &key_of<Inputs...>) return false;
        std::size_t next = 0;
        bool same = true;
        for_each_view(
            [&](const auto& v) {
                for (int axis = 0; axis < std::remove_cvref_t<decltype(v)>::rank; ++axis)
                    same = extents_[next++] == v.extent_of(axis) && same;
                same = same && v.is_contiguous();
            },
            inputs...);
        return same;
    }
    template <class Device, class... Inputs>
    void fill(Device& device, const Inputs&... inputs) const {
        std::size_t next = 0;
        for_each_view(
            [&](const auto& v) {
                const buffer& to = memory_[next++];
                const std::size_t bytes = static_cast<std::size_t>(v.size()) * sizeof(*v.data());
                if (bytes == 0) return;
                if (device.reaches(v.data())) {
                    device.copy(to.data(), v.data(), bytes);
                } else {
                    device.upload(to.data(), v.data(), bytes);
                }
            },
            inputs...);
    }
    /// Calls step(inputs...) with the copies.
    template <class Step, class... Inputs>
    void call(const Step& step, const Inputs&... inputs) const {
        std::size_t next = 0;
        [[maybe_unused]] const auto own = [&]<class T, int Rank>(const view<T, Rank>& v) {
            return view<T, Rank>{reinterpret_cast<T*>(memory_[next++].data()), v.shape()};
        };
        const std::tuple all{map_views(inputs, own)...};  // braces guarantee the order of evaluation
        std::apply(step, all);
    }
    /// The shapes as text: "(8, 128), (8, 128)".
    const std::string& text() const { return text_; }

  private:
    template <class...>
    static constexpr char key_of = 0;

    template <class Function, class... Inputs>
    static void for_each_view(const Function& f, const Inputs&... inputs) {
        [[maybe_unused]] const auto see = [&f](const auto& v) {
            f(v);
            return v;
        };
        (map_views(inputs, see), ...);
    }
    template <class T, int Rank>
    static void add_extents(std::vector<extent>& to, const view<T, Rank>& v) {
        for (int axis = 0; axis < Rank; ++axis) to.push_back(v.extent_of(axis));
    }

    const void* types_;
    std::vector<extent> extents_;
    std::vector<buffer> memory_;
    std::string text_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
