// SPDX-License-Identifier: MIT
/// \file
/// The rules of a tape for second derivatives: the gradients of halftone's operations, expressed in operations. The
/// formulas are those of kernel/*/reference.hpp.
///
/// Numeric contract: intermediate results of a formula are float, a gradient is rounded once to the type of the value
/// that it belongs to; products are computed in the types in which a plain tape computes them.
#pragma once

#include <halftone/autodiff/double_backward/shape_rules.hpp>
#include <halftone/autodiff/op/embedding.hpp>
#include <halftone/autodiff/op/linear.hpp>
#include <halftone/autodiff/op/loss.hpp>
#include <halftone/autodiff/op/norm.hpp>
#include <halftone/autodiff/op/products.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/softmax.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// f of variables, with the shape of the first and the type Y.
template <class Y, class Root, class F, class First, class... Rest>
variable<Y, First::rank> compute(Root& root, const F& f, const First& first, const Rest&... rest) {
    return evaluate<op::map, Y>(root, first.shape(), halftone::trace<1 + sizeof...(Rest)>(f), first, rest...);
}

/// Input J of an expression if E reads it; otherwise a variable of its shape that takes no gradient.
template <std::size_t J, class E, class Inputs, class Other>
auto read_or(const Inputs& inputs, const Other& other) {
    if constexpr (reads<static_cast<int>(J), E>) {
        return std::get<J>(inputs);
    } else {
        return other;
    }
}

template <class Op, class E, class Y, int Rank, class... Inputs>
struct rule<map_record<Op, E, Y, Rank, Inputs...>> {
    using record = map_record<Op, E, Y, Rank, Inputs...>;

    template <class Tape>
    static void run(Tape& tape, const record& r, const variable<Y, Rank>& dy) {
        give_each(tape, r, dy, tape.detach(dy), std::index_sequence_for<Inputs...>{});
    }

  private:
    template <class Tape, std::size_t... I>
    static void give_each(Tape& tape, const record& r, const variable<Y, Rank>& dy, const variable<Y, Rank>& other,
                          std::index_sequence<I...> all) {
        (give<I>(tape, r, dy, other, all), ...);
    }
    template <std::size_t I, class Tape, std::size_t... J>
    static void give(Tape& tape, const record& r, const variable<Y, Rank>& dy, const variable<Y, Rank>& other,
                     std::index_sequence<J...>) {
        using X = std::tuple_element_t<I, std::tuple<Inputs...>>;
        using T = typename X::value_type;
        const auto& dx = std::get<I>(r.gradients);
        if (!tape.takes(dx)) return;
        const auto slope =
            detail::gradient_expression<static_cast<int>(I), static_cast<int>(sizeof...(Inputs))>(r.expression);
        using S = std::remove_const_t<decltype(slope)>;
        if constexpr (std::is_same_v<S, symbolic::zero>) {
            return;
        } else if (lifted<Rank>(dx.shape()) == dy.shape()) {
            tape.give(dx, evaluate<Op, T>(tape.inner(), dy.shape(), slope, read_or<J, S>(r.inputs, other)..., dy));
        } else {
            const auto each =
                evaluate<Op, float>(tape.inner(), dy.shape(), slope, read_or<J, S>(r.inputs, other)..., dy);
            if (X::rank > 1 || !fits_as_it_is(dx.shape(), dy.shape())) {
                tape.give(dx, sum_to<T>(tape.inner(), each, dx.shape()));
            } else if constexpr (X::rank == 0) {
                tape.give(dx, reduce<op::sum, T>(tape.inner(), 1.0, identity_function{}, each));
            } else if constexpr (X::rank == 1) {
                tape.give(dx, column_sums<T>(tape.inner(), flat(each), dx.shape()[0]));
            }
        }
    }
};

template <class Op, class E, class Y, class... Inputs>
struct rule<reduce_record<Op, E, Y, Inputs...>> {
    using record = reduce_record<Op, E, Y, Inputs...>;

    template <class Tape>
    static void run(Tape& tape, const record& r, const variable<Y, 0>& dy) {
        give_each(tape, r, dy, tape.detach(dy), std::index_sequence_for<Inputs...>{});
    }

  private:
    template <class Tape, std::size_t... I>
    static void give_each(Tape& tape, const record& r, const variable<Y, 0>& dy, const variable<Y, 0>& other,
                          std::index_sequence<I...> all) {
        (give<I>(tape, r, dy, other, all), ...);
    }
    template <std::size_t I, class Tape, std::size_t... J>
    static void give(Tape& tape, const record& r, const variable<Y, 0>& dy, const variable<Y, 0>& other,
                     std::index_sequence<J...>) {
        using T = typename std::tuple_element_t<I, std::tuple<Inputs...>>::value_type;
        const auto& dx = std::get<I>(r.gradients);
        if (!tape.takes(dx)) return;
        const auto slope = static_cast<float>(r.factor) * symbolic::argument<sizeof...(Inputs)>{} *
                           derivative<static_cast<int>(I)>(r.expression);
        using S = std::remove_const_t<decltype(slope)>;
        if constexpr (!std::is_same_v<S, symbolic::zero>) {
            tape.give(dx, evaluate<Op, T>(tape.inner(), dx.shape(), slope, read_or<J, S>(r.inputs, other)..., dy));
        }
    }
};

/// The type of a weight's gradient: float on the tape for a parameter; for a variable in a parameter's place, the
/// variable's type.
template <class Weight>
struct weight_gradient {
    using type = float;
};
template <class Weight>
    requires(Weight::is_variable)
struct weight_gradient<Weight> {
    using type = typename Weight::compute;
};
template <class Compute, class Tape, class Storage, int Rank>
variable<float, Rank> read_weight(Tape& tape, const parameter<Storage, Rank>& weight) {
    return tape.template variable_of<Compute>(weight);
}
template <class Compute, class Tape, class Weight>
    requires(Weight::is_variable)
auto read_weight(Tape&, const Weight& weight) { return weight.value; }

/// True, or a compile-time error, for a product in Compute of variables with these types; their gradients have the same
/// types.
template <class Compute, class... Operands>
consteval bool check_double_backward_operands() {
    static_assert(
        !eight_bit<Compute> && !(eight_bit<Operands> || ...),
        "halftone: matmul: products of eight-bit operands have no second derivatives, since the gradients of "
        "these would be rounded to eight bits; cast them first, ht::cast<ht::bfloat16>(tape, x), or record on "
        "ht::tape tape{device}");
    return true;
}

/// The gradients of weight and bias, from dy and x (…, in).
template <class Compute, class Tape, class Dy, class X, int Rank, class Weight, class Bias>
void give_parameters(Tape& tape, const variable<Dy, 1>& dy, extent rows, const variable<X, Rank>& x,
                     const Weight& weight, const Bias& bias) {
    const extent out = weight.shape()[0], in = weight.shape()[1];
    if (tape.takes(weight)) {
        tape.give(weight, recorded_product<Compute, typename weight_gradient<Weight>::type>(
                              tape.inner(), factor_of(dy, {1, rows, out}, orientation::transposed),
                              factor_of(x, {1, rows, in})));
    }
    if constexpr (!is_absent<Bias>) {
        if (tape.takes(bias)) tape.give(bias, column_sums<typename weight_gradient<Bias>::type>(tape.inner(), dy, out));
    }
}

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct rule<linear_record<Roles, X, Y, Rank, Weight, Bias>> {
    template <class Tape>
    static void run(Tape& tape, const linear_record<Roles, X, Y, Rank, Weight, Bias>& r, const variable<Y, Rank>& dy) {
        static_assert(
            check_double_backward_operands<typename Roles::compute, X, typename weight_gradient<Weight>::type>());
        const extent out = r.weight.shape()[0], in = r.weight.shape()[1], rows = rows_of(r.dy.shape());
        if (tape.takes(r.dx)) {
            const auto w = read_weight<typename Roles::compute>(tape, r.weight);
            tape.give(r.dx, recorded_product<typename Roles::input_grad, X>(tape.inner(), factor_of(dy, {1, rows, out}),
                                                                            factor_of(w, {1, out, in})));
        }
        give_parameters<typename Roles::weight_grad>(tape, flat(dy), rows, r.x, r.weight, r.bias);
        if (r.has_residual && tape.takes(r.dresidual)) tape.give(r.dresidual, dy);
    }
};

// Linear layers with 8-bit operands have no rule and do not compile: check_once (op/scaled_linear.hpp) has the only
// message.
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct rule<scaled_linear_record<Roles, X, Y, Rank, Weight, Bias>> {
    template <class Tape>
    static void run(Tape&, const scaled_linear_record<Roles, X, Y, Rank, Weight, Bias>&) {}
};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct rule<scaled_mlp_record<Roles, X, Y, Rank, Weight, Bias>> {
    template <class Tape>
    static void run(Tape&, const scaled_mlp_record<Roles, X, Y, Rank, Weight, Bias>&) {}
};

template <class X, class Y, int Rank>
struct rule<softmax_record<op::softmax, kernel::softmax, X, Y, Rank>> {
    template <class Tape>
    static void run(Tape& tape, const softmax_record<op::softmax, kernel::softmax, X, Y, Rank>& r,
                    const auto& gradient) {
        const auto y = flat(r.y), dy = flat(gradient);
        if (!tape.takes(r.dx)) return;
        const auto dot =
            row_totals(tape.inner(), compute<float>(tape.inner(), multiply_function{}, y, dy), rows_of(r.dy.shape()));
        tape.give(r.dx,
                  compute<X>(
                      tape.inner(), [s = r.scale](auto p, auto d, auto sum) { return s * p * (d - sum); }, y, dy, dot));
    }
};
template <class X, class Y, int Rank>
struct rule<softmax_record<op::log_softmax, kernel::log_softmax, X, Y, Rank>> {
    template <class Tape>
    static void run(Tape& tape, const softmax_record<op::log_softmax, kernel::log_softmax, X, Y, Rank>& r,
                    const auto& gradient) {
        const auto y = flat(r.y), dy = flat(gradient);
        if (!tape.takes(r.dx)) return;
        const auto sum =
            row_totals(tape.inner(), compute<float>(tape.inner(), identity_function{}, dy), rows_of(r.dy.shape()));
        tape.give(r.dx, compute<X>(
                            tape.inner(),
                            [s = r.scale](auto l, auto d, auto all) { return s * (d - halftone::exp(l) * all); }, y, dy,
                            sum));
    }
};

/// The gradients of y = n gain + bias, and dx, where n is x rstd, or, centred, (x - mean of x) rstd.
enum class centring { on, off };
template <centring Centring, class X, class Tape, class Record, class Bias>
void give_normalised(Tape& tape, const Record& r, const Bias& bias, const auto& gradient) {
    auto& root = tape.inner();
    const extent width = r.gain.shape()[0], rows = rows_of(r.dy.shape());
    const float share = 1.0f / static_cast<float>(width);
    const auto dy = flat(gradient);
    const auto gain = tape.template variable_of<typename decltype(r.gain)::compute>(r.gain);
    auto centred = compute<float>(root, identity_function{}, flat(r.x));
    if constexpr (Centring == centring::on) {
        centred = compute<float>(
            root, [share](auto x, auto sum) { return x - share * sum; }, centred, row_totals(root, centred, rows));
    }
    const auto squares = row_sums(root,
                                  compute<float>(
                                      root, [](auto c) { return halftone::square(c); }, centred),
                                  rows);
    const auto rstd =
        in_columns(root,
                   compute<float>(
                       root, [share, e = r.epsilon](auto s) { return halftone::rsqrt(share * s + e); }, squares),
                   width);
    const auto n = compute<float>(root, multiply_function{}, centred, rstd);
    if (tape.takes(r.gain))
        tape.give(r.gain, column_sums<float>(root, compute<float>(root, multiply_function{}, dy, n), width));
    if constexpr (!is_absent<Bias>) {
        if (tape.takes(bias)) tape.give(bias, column_sums<float>(root, dy, width));
    }
    if (!tape.takes(r.dx)) return;
    const auto h = flat(compute<float>(root, multiply_function{}, reshaped(dy, shape<2>{rows, width}), gain));
    const auto along = row_totals(root, compute<float>(root, multiply_function{}, h, n), rows);
    const auto back = [share](auto d, auto c, auto normal, auto s) { return s * (d - share * normal * c); };
    if constexpr (Centring == centring::on) {
        const auto total = row_totals(root, h, rows);
        tape.give(r.dx, compute<X>(
                            root,
                            [share, back](auto d, auto c, auto normal, auto s, auto t) {
                                return back(d - share * t, c, normal, s);
                            },
                            h, along, n, rstd, total));
    } else {
        tape.give(r.dx, compute<X>(root, back, h, along, n, rstd));
    }
}

template <class X, class Y, int Rank, class Gain, class Bias>
struct rule<layer_norm_record<X, Y, Rank, Gain, Bias>> {
    template <class Tape>
    static void run(Tape& tape, const layer_norm_record<X, Y, Rank, Gain, Bias>& r, const auto& gradient) {
        give_normalised<centring::on, X>(tape, r, r.bias, gradient);
    }
};
template <class X, class Y, int Rank, class Gain>
struct rule<rms_norm_record<X, Y, Rank, Gain>> {
    template <class Tape>
    static void run(Tape& tape, const rms_norm_record<X, Y, Rank, Gain>& r, const auto& gradient) {
        give_normalised<centring::off, X>(tape, r, absent{}, gradient);
    }
};

/// A table (rows, width) with zeros in one row.
template <class Root>
variable<float, 1> without_row(Root& root, const variable<float, 1>& table, extent row, extent width) {
    const auto mask = root.template make<float8_e5m2>(table.shape(), false);
    kernel::mask_row(root.device(), row, width, mask.view());
    return compute<float>(root, [](auto a, auto is) { return halftone::where(is != 0.0f, 0.0f, a); }, table, mask);
}

template <class Y, class Table, class Positions>
struct rule<embedding_record<Y, Table, Positions>> {
    template <class Tape>
    static void run(Tape& tape, const embedding_record<Y, Table, Positions>& r, const auto& gradient) {
        const auto dy = flat(gradient);
        const extent width = r.table.shape()[1];
        if (tape.takes(r.table)) {
            const auto sums = scatter(tape.inner(), flat(r.tokens), dy, r.table.shape()[0], width);
            tape.give(r.table, r.padding < 0 ? sums : without_row(tape.inner(), sums, r.padding, width));
        }
        if constexpr (!is_absent<Positions>) {
            if (!tape.takes(r.positions)) return;
            if (!r.position_of.is_empty()) {
                tape.give(r.positions, scatter(tape.inner(), flat(r.position_of), dy, r.positions.shape()[0], width));
                return;
            }
            // The gradient of a position is the sum over the batch; positions beyond its length have none.
            const auto sum = column_sums<float>(tape.inner(), dy, r.tokens.shape()[1] * width);
            tape.give(r.positions, extended(tape.inner(), sum, r.positions.shape()[0] * width));
        }
    }
};

template <class X, int Rank>
struct rule<cross_entropy_record<X, Rank>> {
    template <class Tape>
    static void run(Tape& tape, const cross_entropy_record<X, Rank>& r, const variable<float, 0>& dloss) {
        if (!tape.takes(r.dlogits)) return;
        auto& root = tape.inner();
        const extent classes = r.dlogits.shape()[Rank - 1], rows = rows_of(r.dlogits.shape());
        // One-hot targets divided by the count: the kernel's gradient, (p - [class is the target]) g / count, with p = 0
        // (from a maximum of 3e38) and g = -1.
        const auto targets = filled(root, rows * classes, 0), nowhere = filled(root, rows, 3.0e38f),
                   one = filled(root, rows, 1), minus_one = filled(root, 1, -1);
        const view<float, 2> marks(targets.view().data(), {rows, classes});
        kernel::cross_entropy<typename Tape::device_type>::backward(
            root.device(), kernel::cross_entropy_backward<float, float>{.logits = marks,
                                                                        .targets = r.targets.view(),
                                                                        .maximum = nowhere.view(),
                                                                        .sum = one.view(),
                                                                        .gradient = minus_one.view(),
                                                                        .count = r.count.view(),
                                                                        .dlogits = marks});
        const auto share = row_totals(root, targets, rows);
        // Rows that do not count have a gradient of 0 whatever their logits are; multiplying by 0 would keep a NaN.
        const auto counted = compute<X>(
            root, [](auto x, auto of_row) { return halftone::where(of_row == 0.0f, 0.0f, x); }, flat(r.logits), share);
        const auto p = flat(softmax(autocast<full_fp32>(root), reshaped(counted, r.logits.shape())));
        const auto f = [](auto probability, auto of_row, auto target, auto g) {
            return (probability * of_row - target) * g;
        };
        tape.give(r.dlogits, compute<X>(root, f, p, share, targets, dloss));
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
