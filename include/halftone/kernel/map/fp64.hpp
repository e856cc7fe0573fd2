// SPDX-License-Identifier: MIT
/// \file
/// Pointwise operations, and sums over them, in double: map.hpp and sum/sum.hpp have the rules, common/fp64/each.hpp
/// the contract. Functions are <cmath>'s, within 4 ulp according to glibc's manual and the CUDA Programming Guide.
#pragma once

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/map/expression/scalar.hpp>
#include <halftone/kernel/map/map.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

/// An operand of a map: element (row, column) is at row * row_step + column * column_step, or at its index times the
/// axes' strides.
template <class T>
struct map_values {
    global_span<T> values;
    extent row_step, column_step, first = 0;
    map_strides strides{};

    map_values(const map_operand& o, const map_shape& s)
        : values{reinterpret_cast<T*>(o.data), 1}, row_step(0), column_step(o.access == map_access::scalar ? 0 : 1) {
        if (o.access == map_access::each) row_step = o.row_stride;
        values.count = s.rows * s.columns == 0 ? 0 : (s.rows - 1) * row_step + (s.columns - 1) * column_step + 1;
        if (o.access == map_access::strided) walk_by(o.strides);
    }

    HALFTONE_HD extent place(extent row, extent column) const {
        if (strides.axes == 0) return row * row_step + column * column_step;
        extent at = first + column * strides.steps.of[strides.axes - 1];
        for (int axis = strides.axes - 2; axis >= 0; --axis) {
            at += row % strides.extents.of[axis] * strides.steps.of[axis];
            row /= strides.extents.of[axis];
        }
        return at;
    }

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double load(Thread thread, extent row, extent column) const {
        return static_cast<double>(thread.load(values, place(row, column)));
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void store(Thread thread, extent row, extent column, double value, write_mode mode) const {
        if (!values.is_there()) return;
        const extent at = place(row, column);
        if (mode == write_mode::add) value = static_cast<double>(thread.load(values, at)) + value;
        thread.store(values, at, static_cast<T>(value));
    }

  private:
    /// Counts from the first element in memory, so that strides may be negative.
    void walk_by(const map_strides& s) {
        strides = s;
        extent length = 1;
        for (int axis = 0; axis < s.axes; ++axis) {
            const extent span = (s.extents.of[axis] - 1) * s.steps.of[axis];
            length += span < 0 ? -span : span;
            if (span < 0) first -= span;
        }
        values = {values.data - first, length};
    }
};
struct map_unread_values {
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double load(Thread, extent, extent) const {
        return 0;
    }
};

/// An output of a map, or the gradient of an input with the outputs' shape; without data it is dropped.
template <class T>
struct map_result {
    map_values<T> to;
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void store(Thread thread, extent row, extent column, double value) const {
        to.store(thread, row, column, value, mode);
    }
};
/// In place of an operand that is summed, or not needed.
struct map_no_result {
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void store(Thread, extent, extent, double) const {}
};

// Whether an expression calls a functor that only takes floats.
template <class E>
inline constexpr bool calls_floats = false;
template <class F, class... A>
inline constexpr bool calls_floats<symbolic::external<F, A...>> =
    !std::is_same_v<decltype(std::declval<const F&>()((static_cast<void>(sizeof(A)), 0.0)...)), double> ||
    (calls_floats<A> || ...);
template <class Op, class A>
inline constexpr bool calls_floats<symbolic::unary<Op, A>> = calls_floats<A>;
template <class Op, class A, class B>
inline constexpr bool calls_floats<symbolic::binary<Op, A, B>> = calls_floats<A> || calls_floats<B>;
template <class C, class A, class B>
inline constexpr bool calls_floats<symbolic::choice<C, A, B>> = calls_floats<C> || calls_floats<A> || calls_floats<B>;
template <class Op, class A, class B>
inline constexpr bool calls_floats<symbolic::comparison<Op, A, B>> = calls_floats<A> || calls_floats<B>;
template <class Op, class A, class B>
inline constexpr bool calls_floats<symbolic::logical<Op, A, B>> = calls_floats<A> || calls_floats<B>;
template <class A>
inline constexpr bool calls_floats<symbolic::complement<A>> = calls_floats<A>;

/// The value of an expression over a map's inputs.
HALFTONE_KERNEL template <class Thread, class E, class... Input, std::size_t... I>
HALFTONE_HD double map_value(Thread thread, const E& e, const pack<Input...>& inputs, extent row, extent column,
                             std::index_sequence<I...>) {
    static_assert(!calls_floats<E>,
                  "halftone: map: this map computes in double, and an opaque functor in it gives floats; give its call "
                  "operator doubles (template <class T> T operator()(T) const serves both), or cast the inputs: "
                  "ht::cast<float>(ctx, x)");
    const double x[] = {inputs.template at<I>().load(thread, row, column)..., 0.0};
    return scalar::evaluate(e, x);
}

template <class Expressions, class Outputs, class Inputs>
struct map_work {
    Expressions expressions;
    Outputs outputs;
    Inputs inputs;
    extent columns;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        run(thread, i / columns, i % columns, std::make_index_sequence<Outputs::count>{});
    }

  private:
    HALFTONE_KERNEL template <class Thread, std::size_t... K>
    HALFTONE_HD void run(Thread thread, extent row, extent column, std::index_sequence<K...>) const {
        // All are evaluated before the first is stored, since an output may be an input.
        const double y[] = {map_value(thread, expressions.template at<K>(), inputs, row, column,
                                      std::make_index_sequence<Inputs::count>{})...};
        (outputs.template at<K>().store(thread, row, column, y[K]), ...);
    }
};

/// The terms of a sum over rows; if `columns` is not 0, the terms of a sum over all elements, with `columns` of them
/// per row.
template <class E, class Inputs>
struct map_term {
    E expression;
    Inputs inputs;
    extent columns;  // 0: the sum's own

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double operator()(Thread thread, extent row, extent column) const {
        return map_value(thread, expression, inputs, columns == 0 ? row : row / columns,
                         columns == 0 ? column : row % columns, std::make_index_sequence<Inputs::count>{});
    }
};

template <class Device>
struct map_of {
    template <map_layout Layout, class... E, class... Outputs, class... Inputs, std::size_t... K, std::size_t... I>
    static void run(Device& device, const pack<E...>& expressions, const pack<Outputs...>& outputs,
                    const pack<Inputs...>& inputs, std::index_sequence<K...>, std::index_sequence<I...>) {
        const auto& target = outputs.first.shape();
        work(device, expressions,
             make_pack(result<Layout>("output", K, outputs.template at<K>(), target, write_mode::overwrite)...),
             make_pack(input<Layout, pack<E...>, I>("input", I, inputs.template at<I>(), target)...), map_shape_of(target));
    }

    template <map_layout Layout, class... E, class... OutputGradients, class... Inputs, class... Gradients,
              std::size_t... K, std::size_t... I>
    static void backward(Device& device, const pack<E...>& expressions,
                         const pack<OutputGradients...>& output_gradients, const pack<Inputs...>& inputs,
                         const pack<Gradients...>& gradients, std::index_sequence<K...>, std::index_sequence<I...>) {
        constexpr int count = sizeof...(I), rank = std::remove_cvref_t<decltype(output_gradients.first)>::rank;
        const auto& target = output_gradients.first.shape();
        const auto wanted =
            make_pack(gradient_of<rank, static_cast<int>(I), count>(expressions, gradients.template at<I>())...);
        using wanted_pack = std::remove_const_t<decltype(wanted)>;
        const auto operands = make_pack(
            input<Layout, wanted_pack, I>("input", I, inputs.template at<I>(), target)...,
            input<Layout, wanted_pack, count + K>("gradient of output", K, output_gradients.template at<K>(), target)...);
        // Sums first, because a gradient may overwrite the outputs' gradient.
        (add_up(device, wanted.template at<I>(), operands, gradients.template at<I>(), I, target), ...);
        work(device, wanted, make_pack(gradient_result<Layout>(gradients.template at<I>(), I, target)...), operands,
             map_shape_of(target));
    }

  private:
    template <map_layout Layout, class E, std::size_t Index, class T, int Rank, int TargetRank>
    static auto input(const char* role, std::size_t number, const view<T, Rank>& v, const shape<TargetRank>& target) {
        const map_operand operand = map_operand_of<Layout>(role, static_cast<int>(number), v, target);
        if constexpr (reads<static_cast<int>(Index), E>) {
            return map_values<const T>(operand, map_shape_of(target));
        } else {
            return map_unread_values{};
        }
    }
    template <map_layout Layout, class T, int Rank>
    static map_result<T> result(const char* role, std::size_t number, const view<T, Rank>& v, const shape<Rank>& target,
                                write_mode mode) {
        return {{map_result_of<Layout>(role, static_cast<int>(number), v, target), map_shape_of(target)}, mode};
    }

    template <class Expressions, class Outputs, class Inputs>
    static void work(Device& device, const Expressions& expressions, const Outputs& outputs, const Inputs& inputs,
                     const map_shape& s) {
        for_each(device, s.rows * s.columns, static_cast<extent>(Inputs::count + Outputs::count),
                 map_work<Expressions, Outputs, Inputs>{expressions, outputs, inputs, s.columns});
    }

    template <map_layout, int TargetRank>
    static map_no_result gradient_result(const no_gradient&, std::size_t, const shape<TargetRank>&) {
        return {};
    }
    template <map_layout Layout, class T, int Rank, int TargetRank>
    static auto gradient_result(const gradient<T, Rank>& g, std::size_t number, const shape<TargetRank>& target) {
        if constexpr (Rank == TargetRank) {
            return result<Layout>("gradient of input", number, g.to, target, g.mode);
        } else {
            return map_no_result{};
        }
    }

    // The gradient of a broadcast input.
    template <class E, class Operands, int TargetRank>
    static void add_up(Device&, const E&, const Operands&, const no_gradient&, std::size_t, const shape<TargetRank>&) {}
    template <class E, class Operands, class T, int Rank, int TargetRank>
    static void add_up(Device& device, const E& e, const Operands& operands, const gradient<T, Rank>& g,
                       std::size_t number, const shape<TargetRank>& target) {
        if constexpr (Rank != TargetRank) {
            if (g.to.data() == nullptr) return;
            const map_operand to = map_result_of("gradient of input", static_cast<int>(number), g.to, target);
            const map_shape s = map_shape_of(target);
            const bool by_column = to.access == map_access::column;
            const map_term<E, Operands> term{e, operands, by_column ? 0 : s.columns};
            sum_rows(device, by_column ? s.rows : s.rows * s.columns, by_column ? s.columns : 1,
                     static_cast<extent>(Operands::count), term, 1.0, g.to.data(), g.mode);
        }
    }
};

/// out = factor times the sum of e over all elements of the inputs.
template <class Device, class E, class... X, class Y>
void sum(Device& device, const E& e, const pack<view<const X, 1>...>& inputs, double factor, const view<Y, 0>& out) {
    const map_shape s = map_shape_of(inputs.first.shape());
    [&]<std::size_t... I>(std::index_sequence<I...>) {
        const auto operands = make_pack(map_values<const X>(
            map_operand_of("input", static_cast<int>(I), inputs.template at<I>(), inputs.first.shape()), s)...);
        sum_rows(device, s.columns, 1, static_cast<extent>(sizeof...(X)),
                 map_term<E, std::remove_const_t<decltype(operands)>>{e, operands, s.columns}, factor, out.data(),
                 write_mode::overwrite);
    }
    (std::index_sequence_for<X...>{});
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
