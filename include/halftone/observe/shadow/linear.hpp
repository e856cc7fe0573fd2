// SPDX-License-Identifier: MIT
/// \file
/// Error bounds of linear layers and perceptrons, for shadow runs, whether their products read operands as stored or
/// quantised to eight bits (autodiff/op/scaled_linear.hpp). The bounds are the same; a `reading` says how far an
/// operand as read may be from the operand as stored.
///
/// An 8-bit operand may differ by what the scale of its own amax allows: a unit roundoff of the format, and half of its
/// least subnormal number near zero. So values that a stale scale (delayed scaling) saturates or rounds to zero exceed
/// the bound.
#pragma once

#include <halftone/autodiff/op/scaled_linear.hpp>
#include <halftone/observe/shadow/products.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Operands as stored, converted to the type that a product reads.
template <class Roles>
struct plain_reading {
    using compute = typename Roles::compute;
    using input_grad = typename Roles::input_grad;
    using weight_grad = typename Roles::weight_grad;
    /// The storage type of the perceptron's hidden activations.
    using hidden = storage_of<compute>;
    /// The type in which a product multiplies operands read as Read.
    template <class Read>
    using multiplied = Read;

    template <class X>
    static shadow_operand input(const std::vector<float>& values, extent columns) {
        return {values, reading_of<compute, X>, columns};
    }
    template <class Notes, class Weight>
    static shadow_operand weight(const Notes& notes, const Weight& w) {
        return {weight_magnitudes<compute>(notes, w), weight_reading<compute, Weight>(), w.shape()[1]};
    }
    template <class Notes, class Weight>
    static shadow_operand weight_beside_gradient(const Notes& notes, const Weight& w) {
        using T = typename weight_number<compute, Weight>::type;
        return {weight_magnitudes<compute>(notes, w), weight_reading<compute, Weight>().then(reading_of<input_grad, T>),
                w.shape()[1]};
    }
    template <class Read, class Y>
    static shadow_operand gradient(const std::vector<float>& values, extent columns) {
        return {values, reading_of<Read, Y>, columns};
    }
    template <class T, int Rank>
    static bool is_there(const variable<T, Rank>& kept) {
        return !kept.is_empty();
    }
    /// The input that was kept for the weight's gradient.
    template <class Notes, class T, int Rank>
    static shadow_operand kept(const Notes& notes, const variable<T, Rank>& v) {
        const auto rows = as_rows(as_const(v.view()));
        return {notes.read(rows), reading_of<weight_grad, T>, rows.extent_of(1)};
    }
};

/// 8-bit operands, and 8-bit gradients if the roles say so.
template <class Roles>
struct scaled_reading {
    using compute = typename Roles::compute;
    using hidden = typename Roles::output;
    template <class Read>
    using multiplied = exact_compute<Read, compute>;

    template <class Read>
    static shadow_operand scaled(const std::vector<float>& values, extent columns) {
        using traits = number_traits<Read>;
        const float scale =
            scale_for(largest_magnitude(values), static_cast<float>(traits::max), Roles::scaling::rule, 1);
        const auto to_read = rounding_rule::to<Read>(root_mean_square(values) * static_cast<double>(scale));
        // The scale, its inverse, and products with both are floats.
        const rounding_rule round{to_read.u + 4 * unit_roundoff<float>, to_read.floor / static_cast<double>(scale),
                                  to_read.step / static_cast<double>(scale)};
        std::vector<double> errors(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) errors[i] = round(static_cast<double>(values[i]));
        return {values, errors, columns};
    }
    template <class X>
    static shadow_operand input(const std::vector<float>& values, extent columns) {
        return scaled<compute>(values, columns);
    }
    template <class Notes, class Weight>
    static shadow_operand weight(const Notes& notes, const Weight& w) {
        return scaled<compute>(weight_magnitudes<compute>(notes, w), w.shape()[1]);
    }
    template <class Notes, class Weight>
    static shadow_operand weight_beside_gradient(const Notes& notes, const Weight& w) {
        return weight(notes, w);
    }
    template <class Read, class Y>
    static shadow_operand gradient(const std::vector<float>& values, extent columns) {
        if constexpr (eight_bit<Read>) {
            return scaled<Read>(values, columns);
        } else {
            return {values, reading_of<Read, Y>, columns};
        }
    }
    template <class Q, int Rank>
    static bool is_there(const quantized<Q, Rank>& kept) {
        return !kept.values.is_empty();
    }
    /// q is read in place of the input: bounds its difference from it.
    template <class Notes, class Q, int Rank>
    static shadow_operand kept(const Notes& notes, const quantized<Q, Rank>& q) {
        tensor_scale scale;
        notes.device().memory().read(&scale, q.scale.view().data(), sizeof scale);
        const auto rows = as_rows(as_const(q.values.view()));
        auto values = notes.read(rows);
        for (float& v : values) v *= scale.inverse;
        return scaled<Q>(values, rows.extent_of(1));
    }
};

template <class Notes, class T, int Rank>
auto value_as_rows(const Notes& notes, const gradient_of<T, Rank>& g) {
    return as_rows(const_view<T, Rank>(notes.value_of(g), g.shape()));
}

/// Adds the errors of sums with a bias and a residual, of magnitudes up to |y| + 2 |bias| + |x||w|; and the bias's own
/// error.
template <class Compute, class Notes, class Y, int Rank, class Bias>
void add_epilogue(const Notes& notes, std::vector<double>& bound, const gradient_of<Y, Rank>& dy, const Bias& bias,
                  const shadow_operand& x, const shadow_operand& w) {
    const double g = 2 * shadow_gamma(3, unit_roundoff<float>);
    const auto y = notes.read(value_as_rows(notes, dy));
    std::vector<float> beta(static_cast<std::size_t>(w.rows()));
    std::vector<double> errors(beta.size());
    if constexpr (!is_absent<Bias>) {
        beta = notes.read(values_for<Compute>(bias));
        errors = bias_errors<Compute>(bias, beta);
    }
    add_products(bound, g, x.read_rows(), w.read_rows());
    for (std::size_t i = 0; i < bound.size(); ++i) {
        const std::size_t column = i % beta.size();
        bound[i] += g * (std::fabs(static_cast<double>(y[i])) + 2 * std::fabs(static_cast<double>(beta[column]))) +
                    errors[column];
    }
}

template <class Roles, class X, class Y, class Reading>
struct shadow_linear {
    using compute = typename Roles::compute;
    using input_grad = typename Roles::input_grad;
    using weight_grad = typename Roles::weight_grad;
    template <class Read, class Notes>
    static double sums(const Notes& notes, extent terms) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        return sum_error<typename Reading::template multiplied<Read>, device>(terms);
    }

    template <class Notes, class Record>
    static void forward(Notes& notes, const Record& r) {
        const auto rows = value_as_rows(notes, r.dx);
        const auto x = Reading::template input<X>(notes.read(rows), rows.extent_of(1));
        const auto w = Reading::weight(notes, r.weight);
        auto bound = product_bound(x, along::rows, w, along::rows, sums<compute>(notes, x.columns()));
        add_epilogue<compute>(notes, bound, r.dy, r.bias, x, w);
        notes.bound_value(notes.value_of(r.dy), std::move(bound));
    }
    template <class Notes, class Record>
    static auto backward(Notes& notes, const Record& r) {
        std::vector<double> of_x, of_weight, of_bias;
        if (r.dy.is_there()) {
            const auto dy = as_rows(as_const(r.dy.view()));
            const auto values = notes.read(dy);
            const extent count = dy.extent_of(0), width = dy.extent_of(1);
            of_x = product_bound(Reading::template gradient<input_grad, Y>(values, width), along::rows,
                                 Reading::weight_beside_gradient(notes, r.weight), along::columns,
                                 sums<input_grad>(notes, width));
            if (Reading::is_there(r.x)) {
                of_weight = product_bound(Reading::template gradient<weight_grad, Y>(values, width), along::columns,
                                          Reading::kept(notes, r.x), along::columns, sums<weight_grad>(notes, count));
            }
            of_bias = times(column_magnitudes(values, width), column_sum_error(count));
        }
        return [&notes, &r, of_x, of_weight, of_bias] {
            if (of_x.empty()) return;
            notes.bound_gradient(r.dx, of_x);
            if (!of_weight.empty()) notes.bound_gradient(r.weight, of_weight);
            notes.bound_gradient(r.bias, of_bias);
        };
    }
};

/// An upper bound of |gelu'|, including the error of its evaluation in float.
inline constexpr double steepest_gelu = 1.13;

template <class Roles, class X, class Y, class Reading>
struct shadow_perceptron : private shadow_linear<Roles, X, Y, Reading> {
    using linear = shadow_linear<Roles, X, Y, Reading>;
    using typename linear::compute;
    using typename linear::input_grad;
    using typename linear::weight_grad;
    using output = typename Roles::output;
    using H = typename Reading::hidden;

    /// The errors of values that are rounded to T.
    template <class T>
    static shadow_matrix rounded(std::vector<double> error, const std::vector<float>& values, extent columns) {
        const auto round = rounding_rule::to<T>(root_mean_square(values));
        for (std::size_t i = 0; i < error.size(); ++i) error[i] += round(static_cast<double>(values[i]));
        return {error.data(), static_cast<extent>(values.size()) / columns, columns};
    }

    template <class Notes, class Record>
    static void forward(Notes& notes, const Record& r) {
        constexpr double u = unit_roundoff<float>;
        const auto rows = value_as_rows(notes, r.dx);
        const auto x = Reading::template input<X>(notes.read(rows), rows.extent_of(1));
        const auto up = Reading::weight(notes, r.up), down = Reading::weight(notes, r.down);
        auto inner =
            product_bound(x, along::rows, up, along::rows, linear::template sums<compute>(notes, x.columns()) + 4 * u);
        const auto up_bias = notes.read(values_for<compute>(r.up_bias));
        const auto of_bias = bias_errors<compute>(r.up_bias, up_bias);
        const auto beta = [&](std::size_t i) { return std::fabs(static_cast<double>(up_bias[i % up_bias.size()])); };
        for (std::size_t i = 0; i < inner.size(); ++i) inner[i] += 4 * u * beta(i) + of_bias[i % of_bias.size()];
        if (!r.pre.is_empty()) notes.bound_value(r.pre.view().data(), inner);
        // gelu(x) = x times a factor from 0 to 1, evaluated in float by both.
        for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = steepest_gelu * inner[i] + 32 * u * beta(i);
        add_products(inner, 32 * u, x.read_rows(), up.read_rows());
        // The operation's first result is its hidden activations; a frozen layer keeps none.
        const const_view<H, 2> activations(static_cast<const H*>(notes.first_made()), {x.rows(), up.rows()});
        const auto values = notes.read(activations);
        for (std::size_t i = 0; i < inner.size(); ++i)
            inner[i] += symbolic::short_form_error<H> * std::fabs(static_cast<double>(values[i]));
        const auto h = Reading::template input<H>(values, up.rows());
        const shadow_matrix error = rounded<H>(inner, values, up.rows());
        notes.bound_value(activations.data(), std::move(inner));
        auto bound =
            product_bound(h, along::rows, down, along::rows, linear::template sums<compute>(notes, h.columns()));
        add_products(bound, 1, error.of_rows, down.read_rows());
        add_epilogue<compute>(notes, bound, r.dy, r.down_bias, h, down);
        notes.bound_value(notes.value_of(r.dy), std::move(bound));
    }
    template <class Notes, class Record>
    static auto backward(Notes& notes, const Record& r) {
        std::vector<float> values;
        extent width = 0;
        shadow_operand h;
        if (r.dy.is_there()) {
            const auto dy = as_rows(as_const(r.dy.view()));
            values = notes.read(dy);
            width = dy.extent_of(1);
            if (Reading::is_there(r.hidden)) h = Reading::kept(notes, r.hidden);
        }
        return [&notes, &r, values, width, h] {
            if (values.empty()) return;
            constexpr double u = unit_roundoff<float>;
            const extent count = static_cast<extent>(values.size()) / width;
            const auto by_weight = linear::template sums<weight_grad>(notes, count);
            if (h.rows() != 0) {
                notes.bound_gradient(r.down, product_bound(Reading::template gradient<weight_grad, Y>(values, width),
                                                           along::columns, h, along::columns, by_weight));
            }
            notes.bound_gradient(r.down_bias, times(column_magnitudes(values, width), column_sum_error(count)));
            if (r.pre.is_empty()) return;
            // The memory of pre now holds its gradient: a product times gelu's derivative, rounded.
            const auto inner = notes.read(as_rows(as_const(r.pre.view())));
            const auto up = Reading::weight_beside_gradient(notes, r.up),
                       down = Reading::weight_beside_gradient(notes, r.down);
            const auto error = rounded<output>(
                times(product_bound(Reading::template gradient<input_grad, Y>(values, width), along::rows, down,
                                    along::columns,
                                    linear::template sums<input_grad>(notes, width) + 32 * u +
                                        symbolic::short_form_error<output>),
                      steepest_gelu),
                inner, up.rows());
            auto of_x = product_bound(Reading::template gradient<input_grad, output>(inner, up.rows()), along::rows, up,
                                      along::columns, linear::template sums<input_grad>(notes, up.rows()));
            add_products(of_x, 1, error.of_rows, up.read_columns());
            notes.bound_gradient(r.dx, std::move(of_x));
            if (Reading::is_there(r.x)) {
                const auto x = Reading::kept(notes, r.x);
                auto of_up = product_bound(Reading::template gradient<weight_grad, output>(inner, up.rows()),
                                           along::columns, x, along::columns, by_weight);
                add_products(of_up, 1, error.of_columns, x.read_columns());
                notes.bound_gradient(r.up, std::move(of_up));
            }
            auto of_bias = times(column_magnitudes(inner, up.rows()), column_sum_error(count));
            // A sum of n magnitudes is at most sqrt(n) times their Euclidean norm.
            for (std::size_t i = 0; i < of_bias.size(); ++i)
                of_bias[i] += std::sqrt(static_cast<double>(count)) * error.of_columns[i];
            notes.bound_gradient(r.up_bias, std::move(of_bias));
        };
    }
};

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct linear_bounds<linear_record<Roles, X, Y, Rank, Weight, Bias>>
    : shadow_linear<Roles, X, Y, plain_reading<Roles>> {};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct linear_bounds<scaled_linear_record<Roles, X, Y, Rank, Weight, Bias>>
    : shadow_linear<Roles, X, Y, scaled_reading<Roles>> {};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct mlp_bounds<mlp_record<Roles, X, Y, Rank, Weight, Bias>>
    : shadow_perceptron<Roles, X, Y, plain_reading<Roles>> {};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct mlp_bounds<scaled_mlp_record<Roles, X, Y, Rank, Weight, Bias>>
    : shadow_perceptron<Roles, X, Y, scaled_reading<Roles>> {};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
