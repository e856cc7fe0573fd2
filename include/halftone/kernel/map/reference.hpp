// SPDX-License-Identifier: MIT
/// \file
/// The definition of pointwise operations: one element after the other, in double, rounded once.
///
///     reference::map(ht::make_pack(e), ht::make_pack(out), ht::make_pack(x, y));
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <halftone/kernel/map/expression/scalar.hpp>
#include <halftone/kernel/map/map.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The value of an expression at some arguments.
template <expression E>
double evaluate(const E& e, const double* arguments) {
    return scalar::evaluate(e, arguments);
}

namespace maps {

/// The distance from a view's first element to its element at `place`, an index into outputs of shape `target`: a view
/// of rank 0 has one element; if the outputs have a higher rank, a view of rank 1 has one element for each column.
template <class T, int Rank, int TargetRank>
extent offset_at(const view<T, Rank>& v, const shape<TargetRank>& place) {
    extent offset = 0;
    for (int axis = 0; axis < Rank; ++axis) offset += place[axis + TargetRank - Rank] * v.stride_of(axis);
    return offset;
}

/// Calls f(place) for every index of a tensor of this shape.
template <int Rank, class F>
void for_each_place(const shape<Rank>& s, const F& f) {
    for (extent i = 0; i < s.size(); ++i) {
        shape<Rank> place{};
        extent rest = i;
        for (int axis = Rank - 1; axis >= 0; --axis) place[axis] = rest % s[axis], rest /= s[axis];
        f(place);
    }
}

template <class... V, int Rank, std::size_t... I>
std::vector<double> read(const pack<V...>& views, const shape<Rank>& place, std::index_sequence<I...>) {
    return {static_cast<double>(views.template at<I>().data()[offset_at(views.template at<I>(), place)])..., 0.0};
}

}  // namespace maps

/// output[k] = expressions[k](inputs), element by element.
template <class... E, class... Outputs, class... Inputs>
void map(const pack<E...>& expressions, const pack<Outputs...>& outputs, const pack<Inputs...>& inputs) {
    maps::for_each_place(outputs.first.shape(), [&](const auto& place) {
        const std::vector<double> x = maps::read(inputs, place, std::index_sequence_for<Inputs...>{});
        const auto write = [&](const auto& e, const auto& output) {
            using T = typename std::remove_cvref_t<decltype(output)>::value_type;
            output.data()[maps::offset_at(output, place)] = static_cast<T>(evaluate(e, x.data()));
        };
        [&]<std::size_t... K>(std::index_sequence<K...>) {
            (write(expressions.template at<K>(), outputs.template at<K>()), ...);
        }
        (std::index_sequence_for<Outputs...>{});
    });
}

/// The gradient of input `Index`, in the order of its elements: the output gradients times the derivatives of the
/// expressions, summed over all places at which the element is read.
template <int Index, class... E, class... OutputGradients, class... Inputs>
std::vector<double> map_gradient(const pack<E...>& expressions, const pack<OutputGradients...>& output_gradients,
                                 const pack<Inputs...>& inputs) {
    const auto& v = inputs.template at<Index>();
    std::vector<double> gradient(static_cast<std::size_t>(v.size()));
    const view<double, std::remove_cvref_t<decltype(v)>::rank> sums(gradient.data(), v.shape());
    maps::for_each_place(output_gradients.first.shape(), [&](const auto& place) {
        const std::vector<double> x = maps::read(inputs, place, std::index_sequence_for<Inputs...>{});
        const std::vector<double> dy =
            maps::read(output_gradients, place, std::index_sequence_for<OutputGradients...>{});
        double& sum = sums.data()[maps::offset_at(sums, place)];
        [&]<std::size_t... K>(std::index_sequence<K...>) {
            ((sum += dy[K] * evaluate(derivative<Index>(expressions.template at<K>()), x.data())), ...);
        }
        (std::index_sequence_for<E...>{});
    });
    return gradient;
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
