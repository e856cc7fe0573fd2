// SPDX-License-Identifier: MIT
/// \file
/// Operations that are linear in their only differentiable input, such as taking a part of a tensor. Their gradient is the
/// transposed map of the result's gradient, which is a linear map, too, whose transpose is the first one: with the two maps,
/// the operation and its first and second derivatives are complete.
///
///     struct halves {                                               // a map: y[i] = x[2 i]
///         using operation = op::slice;
///         template <class Device, class T>
///         void run(Device& device, const view<const T, 1>& x, const view<T, 1>& y) const;      // overwrites y
///         spread_halves transposed() const;                         // another map: x[2 i] = y[i], and 0 elsewhere
///     };
///     auto y = mapped<T>(root, x, halves{}, shape<1>{x.size() / 2});
///
/// If a kernel can add its result to memory, run has a fourth argument, the write mode; with three arguments it overwrites.
/// Members for shadow runs (observe/operations.hpp) are those of the record: `roundings`, `sum_length()`.
#pragma once

#include <tuple>
#include <utility>

#include <halftone/autodiff/engine/rule.hpp>
#include <halftone/autodiff/op/pointwise.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// y = map(x), of shape s, on a tape or an inference context.
template <class Y, class Root, class X, int From, class Map, int Rank>
variable<Y, Rank> mapped(Root& root, const variable<X, From>& x, const Map& map, const shape<Rank>& s);

template <class Map, class X, int From, class Y, int Rank>
struct linear_map_record : Map {
    using reads = reads_nothing;
    std::tuple<gradient_of<X, From>> gradients;
    gradient_of<Y, Rank> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        const auto& dx = std::get<0>(gradients);
        const auto transposed = this->transposed();
        const const_view<Y, Rank> from = dy.view();
        if constexpr (requires(view<X, From> out) { transposed.run(tape.device(), from, out, write_mode::add); }) {
            if (const auto to = tape.gradient_target(dx))
                transposed.run(tape.device(), from, view<X, From>(to.data, dx.shape()), to.mode);
        } else {
            contribute(tape, dx, [&](const view<X, From>& out) { transposed.run(tape.device(), from, out); });
        }
    }
    template <class Tape>
    void differentiate(Tape& tape, const variable<Y, Rank>& gradient) const {
        const auto& dx = std::get<0>(gradients);
        if (tape.takes(dx)) tape.give(dx, mapped<X>(tape.inner(), gradient, this->transposed(), dx.shape()));
    }
};

template <class Y, class Root, class X, int From, class Map, int Rank>
variable<Y, Rank> mapped(Root& root, const variable<X, From>& x, const Map& map, const shape<Rank>& s) {
    const bool wanted = x.wants_gradient();
    auto y = root.template make<Y>(s, wanted);
    map.run(root.device(), as_const(x.view()), y.view());
    if constexpr (std::remove_cvref_t<Root>::records) {
        if (wanted) root.record(linear_map_record<Map, X, From, Y, Rank>{map, {gradient_of(x)}, gradient_of(y)});
    }
    return y;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
