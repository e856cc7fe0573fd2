// SPDX-License-Identifier: MIT
/// \file
/// Fused pointwise operations: a generic lambda over any number of inputs becomes one kernel, and so does its gradient.
///
///     ht::map(device, [k](auto x, auto y) { return x * y + k * ht::tanh(x); }, x, y, out);
///     ht::map(device, [](auto x, auto y) { return ht::results(x + y, x - y); }, x, y, sum, difference);
///
/// Outputs come last, one for each result, and have one shape. An input has that shape, or rank 0 (one value for all
/// elements), or rank 1 if the outputs have rank 2 or higher (one value for each index of the last axis). Views may
/// have any strides, as those of ht::permute, ht::slice and ht::expand; ht::expand gives a smaller tensor the outputs'
/// shape. Views with contiguous rows at a constant distance, which most tensors have, take a kernel that does not pay
/// for this. An output may be an input of the same type, shape and strides; it shares no memory with other ones: a row that is
/// taken from all rows of its own matrix is copied first.
///
/// Numeric contract: inputs are widened to float, the expression is evaluated in float with the errors that its device
/// states (kernel/map/evaluate.hpp for the CPU), and every result is rounded once, to nearest even; with results of 16
/// bits or fewer, gelu and silu may have an error of an eighth of half a unit in the last place
/// (expression/short_form.hpp). Gradients of broadcast inputs are summed in float by a tree that depends on the shape.
/// If an input or an output is a double, all of that is in double (kernel/common/fp64/each.hpp), including constants.
#pragma once

#include <cstddef>
#include <utility>

#include <halftone/kernel/common/strided/axes.hpp>
#include <halftone/kernel/map/expression/derivative.hpp>
#include <halftone/kernel/map/expression/short_form.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/number/in_float.hpp>
#include <halftone/tensor/tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace kernel {

/// Specialised for each device:
///
///     run<Layout>(device, expressions, outputs, inputs)                                all packs
///     backward<Layout>(device, expressions, output_gradients, inputs, gradients)
///
/// Layout, by default map_layout::rows, says which views may occur. `gradients` has a `gradient` or `no_gradient` for each
/// input, in the input's shape. Inputs that no gradient reads may be views without data.
template <class Device>
struct map;

/// Where the gradient of an input is written; a view without data drops it.
template <class T, int Rank>
struct gradient {
    static_assert(detail::check_in_float<T>());
    view<T, Rank> to;
    write_mode mode = write_mode::overwrite;
};
template <class T, int Rank>
gradient(view<T, Rank>, write_mode) -> gradient<T, Rank>;

/// In place of a gradient that is not needed.
struct no_gradient {};

/// The expressions, with short forms where the outputs' types allow them.
template <class... E, class... Outputs, std::size_t... K>
auto expressions_for(const pack<E...>& expressions, const pack<Outputs...>&, std::index_sequence<K...>) {
    return make_pack(symbolic::shorten<typename Outputs::value_type>(expressions.template at<K>())...);
}
/// The expression of an input's gradient, for a map with that number of inputs and outputs of that rank. Gradients of
/// broadcast inputs are summed in float, so they get no short forms.
template <int TargetRank, int Index, int Inputs, class E>
symbolic::zero gradient_of(const E&, const no_gradient&) {
    return {};
}
template <int TargetRank, int Index, int Inputs, class E, class T, int Rank>
auto gradient_of(const E& expressions, const gradient<T, Rank>&) {
    return symbolic::shorten<std::conditional_t<Rank == TargetRank, T, float>>(
        detail::gradient_expression<Index, Inputs>(expressions));
}

/// How an operand's elements correspond to those of the outputs.
enum class map_access {
    each,     ///< one for each output, in rows at a constant distance
    column,   ///< one for each column, the same in all rows
    scalar,   ///< one for all
    strided,  ///< with any stride along each axis of the outputs
};

/// Which views a call of a map may have.
enum class map_layout {
    rows,     ///< with contiguous rows at a constant distance: those of operations on tapes
    strided,  ///< with the outputs' rank and any strides: those of operations on tapes that broadcast by NumPy's rules
    any,      ///< both: those of users
};

/// The outputs' extents, and an operand's strides along their axes.
struct map_strides {
    int axes = 0;
    axis_values extents{}, steps{};
};

/// A view without its type. `row_stride` in elements, for `each`; `strides` for `strided`.
struct map_operand {
    std::byte* data = nullptr;
    extent element_bytes = 0, row_stride = 0;
    map_access access = map_access::each;
    map_strides strides{};
};

/// The strides of any operand along the axes of outputs of shape `target`.
template <int TargetRank>
map_strides map_strides_of(const map_operand& o, const shape<TargetRank>& target) {
    if (o.access == map_access::strided) return o.strides;
    map_strides all{TargetRank, axis_values_of(target), {}};
    if constexpr (TargetRank > 0) {
        if (o.access == map_access::scalar || o.data == nullptr) return all;
        all.steps.of[TargetRank - 1] = 1;
        extent step = o.access == map_access::each ? o.row_stride : 0;
        for (int axis = TargetRank - 2; axis >= 0; --axis) {
            all.steps.of[axis] = step;
            step *= target[axis];
        }
    }
    return all;
}

/// The outputs as a matrix, with the leading axes merged into rows.
struct map_shape {
    extent rows = 1, columns = 1;
};

/// The shape as a matrix with rows of the last extent.
template <int Rank>
map_shape map_shape_of(const shape<Rank>& s) {
    if constexpr (Rank == 0) {
        return {};
    } else {
        const extent columns = s[Rank - 1];
        return {columns == 0 ? 0 : s.size() / columns, columns};
    }
}

/// A view with elements of this number of bytes, and strides in elements, as an operand of outputs of shape `target`.
template <int Rank, int TargetRank>
map_operand operand_by_strides(const view<std::byte, Rank>& v, extent bytes, const shape<TargetRank>& target) {
    map_operand o{v.data(), bytes, 0, map_access::strided, {TargetRank, axis_values_of(target), {}}};
    for (int axis = 0; axis < Rank; ++axis) o.strides.steps.of[TargetRank - Rank + axis] = v.stride_of(axis);
    return o;
}

/// A view that Layout allows, with elements of this number of bytes, as an operand of outputs of shape `target`.
template <map_layout Layout, int Rank, int TargetRank>
map_operand map_operand_of(const char* role, int index, const view<std::byte, Rank>& v, extent bytes,
                           const shape<TargetRank>& target) {
    if constexpr (Rank == TargetRank) {
        if (!(v.shape() == target))
            fail<shape_error>("map: ", role, " ", index, " is ", v.shape(), ", the output ", target);
        extent row_stride = 0, next = 0;
        bool is_innermost = true, in_rows = Rank == 0 || v.extent_of(Rank - 1) <= 1 || v.stride_of(Rank - 1) == 1;
        for (int axis = Rank - 2; axis >= 0; --axis) {
            if (v.extent_of(axis) == 1) continue;
            if (std::exchange(is_innermost, false)) {
                row_stride = v.stride_of(axis);
            } else {
                in_rows = in_rows && v.stride_of(axis) == next;
            }
            next = v.stride_of(axis) * v.extent_of(axis);
        }
        if constexpr (Layout != map_layout::rows) {
            if ((!in_rows || row_stride < 0) && target.size() != 0) return operand_by_strides(v, bytes, target);
        }
        if (!in_rows && target.size() != 0) {
            fail<shape_error>("map: ", role, " ", index, " ", v.shape(),
                              " does not have contiguous rows at one distance; its strides are ", v.strides());
        }
        return {v.data(), bytes, row_stride, map_access::each};
    } else if constexpr (Rank == 0) {
        return {v.data(), bytes, 0, map_access::scalar};
    } else {
        static_assert(
            Rank == 1 && TargetRank >= 2,
            "halftone: map: an input has the output's rank, or rank 0 (one value), or rank 1 if the outputs have "
            "rank 2 or more (one value for each column); ht::expand(v, shape) gives it the output's shape");
        if (v.extent_of(0) != target[TargetRank - 1]) {
            fail<shape_error>("map: ", role, " ", index, " has ", v.extent_of(0), " values, the output ", target,
                              " has ", target[TargetRank - 1], " columns");
        }
        if (!v.is_contiguous()) {
            if constexpr (Layout != map_layout::rows) return operand_by_strides(v, bytes, target);
            fail<shape_error>("map: ", role, " ", index, " is not contiguous");
        }
        return {v.data(), bytes, 0, map_access::column};
    }
}

/// The view as an operand of outputs of shape `target`. Throws shape_error, which names the view by `role` and `index`.
template <map_layout Layout = map_layout::rows, class T, int Rank, int TargetRank>
map_operand map_operand_of(const char* role, int index, const view<T, Rank>& v, const shape<TargetRank>& target) {
    auto* const data = reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(v.data()));
    return map_operand_of<Layout>(role, index, view<std::byte, Rank>(data, v.shape(), v.strides()),
                                  static_cast<extent>(sizeof(T)), target);
}
[[noreturn]] void refuse_sums_beside_strides();

/// A view that is written to as a result of shape `target`. Throws shape_error, which names the view by `role` and
/// `index`.
template <map_layout Layout = map_layout::rows, class T, int Rank, int TargetRank>
map_operand map_result_of(const char* role, int index, const view<T, Rank>& v, const shape<TargetRank>& target) {
    const map_operand result = map_operand_of<Layout>(role, index, v, target);
    if (!v.shows_elements_once()) {
        fail<shape_error>("map: ", role, " ", index, " ", v.shape(), " is written to and overlaps itself; its strides are ",
                          v.strides());
    }
    return result;
}

}  // namespace kernel

namespace detail {

/// The number of views that are outputs: all after the lambda's arguments.
template <class F, int Views, int Outputs = 1>
constexpr int count_outputs() {
    if constexpr (Outputs >= Views || takes_arguments<F>(std::make_integer_sequence<int, Views - Outputs>{})) {
        return Outputs;
    } else {
        return count_outputs<F, Views, Outputs + 1>();
    }
}

template <int First, class... T, int... Index>
constexpr auto slice(const pack<T...>& all, std::integer_sequence<int, Index...>) {
    return make_pack(all.template at<First + Index>()...);
}

/// Throws shape_error where an output of a map shares memory with an input, unless it is the same view, or with another output.
/// `all`: the inputs, then the outputs.
template <int Inputs, class... T, int... Index>
void expect_map_apart(const pack<T...>& all, std::integer_sequence<int, Index...>) {
    constexpr int count = sizeof...(T);
    const named_elements each[] = {elements_of(Index < Inputs ? "input" : "output", all.template at<Index>(),
                                               Index < Inputs ? Index : Index - Inputs)...};
    for (int output = Inputs; output < count; ++output) {
        for (int input = 0; input < Inputs; ++input) expect_apart_or_same("map", each[input], each[output]);
        for (int other = Inputs; other < output; ++other) expect_apart("map", each[other], each[output]);
    }
}

}  // namespace detail

/// out = f(inputs…) for every element; the file's head has the rules. f is a generic lambda over ht:: functions and
/// operators, or `ht::opaque(functor)`; it is called once, on the host, with symbolic arguments. Throws shape_error.
template <class Device, class F, class... Views>
    requires(sizeof...(Views) > 0 && (detail::viewable<Views> && ...))
void map(Device& device, const F& f, const Views&... views) {
    constexpr int count = sizeof...(Views), outputs = detail::count_outputs<F, count>(), inputs = count - outputs;
    const auto expressions = detail::as_pack(trace<inputs>(f));
    static_assert(
        decltype(expressions)::count == outputs,
        "halftone: map: the function returns another number of results than there are views left for outputs");
    const auto all = make_pack(as_view(views)...);
    if (!device.scratch().is_measuring())
        detail::expect_map_apart<inputs>(all, std::make_integer_sequence<int, count>{});
    kernel::map<Device>::template run<kernel::map_layout::any>(
        device, expressions, detail::slice<inputs>(all, std::make_integer_sequence<int, outputs>{}),
                             detail::slice<0>(all, std::make_integer_sequence<int, inputs>{}));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/map/map.body.hpp>
#endif
