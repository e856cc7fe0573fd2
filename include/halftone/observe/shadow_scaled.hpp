// SPDX-License-Identifier: MIT
/// \file
/// What rounding to eight bits does to linear layers and perceptrons (autodiff/scaled_linear.hpp), for shadow runs.
///
/// An operand is held to what the scale of its own amax gives: a unit roundoff of the format, and half of its least
/// subnormal number near zero. So what a stale scale (delayed scaling) cuts off or takes for zero lies beyond the bound.
/// With errors a' of a and b' of b, an element of the product is off by at most |a||b'| + |a'||b| + 2 |a'||b'| in
/// norms of the row and the column; both norms may be those of what was read or those of what was meant.
#pragma once

#include <halftone/autodiff/scaled_linear.hpp>
#include <halftone/observe/shadow_products.hpp>

namespace halftone::inline HALFTONE_ABI::detail {

/// A matrix, and how far each element as a product reads it may be from what it was.
struct shadow_operand {
    shadow_matrix values, errors;

    /// Read in Read by a product, of values that lie as T; eight bits are scaled as the rule says.
    template <class Read, class T>
    static shadow_operand as(const std::vector<float>& v, extent columns, const scaling_rule& rule) {
        const extent rows = static_cast<extent>(v.size()) / columns;
        std::vector<double> errors(v.size());
        if constexpr (eight_bit<Read>) {
            using traits = number_traits<Read>;
            float amax = 0;
            for (const float x : v) {
                if (is_finite(x)) amax = std::max(amax, std::fabs(x));
            }
            const auto scale = static_cast<double>(scale_for(amax, static_cast<float>(traits::max), rule, 1));
            const double floor = std::min(traits::min_normal / scale, root_mean_square(v));
            // The scale, its inverse, and the products with both are floats.
            constexpr double u = traits::unit_roundoff + 4 * unit_roundoff<float>;
            for (std::size_t i = 0; i < v.size(); ++i)
                errors[i] = u * std::max(std::fabs(static_cast<double>(v[i])), floor);
        } else {
            for (std::size_t i = 0; i < v.size(); ++i)
                errors[i] = read_error<Read, T> * std::fabs(static_cast<double>(v[i]));
        }
        return {{v.data(), rows, columns}, {errors.data(), rows, columns}};
    }
    extent rows() const { return values.rows; }
    extent columns() const { return values.columns; }
    /// Of what is read: no less than |values| + |errors|.
    std::vector<double> magnitudes_of_rows() const { return sum(values.of_rows, errors.of_rows); }
    std::vector<double> magnitudes_of_columns() const { return sum(values.of_columns, errors.of_columns); }

    static std::vector<double> sum(std::vector<double> a, const std::vector<double>& b) {
        for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
        return a;
    }
};

enum class along { rows, columns };

/// How far products of a's rows or columns with b's may be off, sums included.
inline std::vector<double> product_bound(const shadow_operand& a, along a_side, const shadow_operand& b, along b_side,
                                         double of_sums) {
    const auto side = [](const shadow_matrix& m, along s) -> const std::vector<double>& {
        return s == along::rows ? m.of_rows : m.of_columns;
    };
    const auto &av = side(a.values, a_side), &ae = side(a.errors, a_side), &bv = side(b.values, b_side),
               &be = side(b.errors, b_side);
    std::vector<double> bound = products(1, av, be);
    add_products(bound, 1, ae, bv);
    add_products(bound, 2, ae, be);
    add_products(bound, of_sums, shadow_operand::sum(av, ae), shadow_operand::sum(bv, be));
    return bound;
}

/// The operands of a layer with these roles.
template <class Roles, class Notes, class Y>
struct scaled_operands {
    using compute = typename Roles::compute;
    using input_grad = typename Roles::input_grad;
    using weight_grad = typename Roles::weight_grad;
    using device = std::remove_cvref_t<decltype(std::declval<Notes&>().device())>;
    static constexpr scaling_rule rule = Roles::scaling::rule;
    static constexpr double by_input(extent terms) { return sum_error<exact_compute<input_grad>, device>(terms); }
    static constexpr double by_weight(extent terms) { return sum_error<exact_compute<weight_grad>, device>(terms); }
    static constexpr double forward(extent terms) { return sum_error<exact_compute<compute>, device>(terms); }

    const Notes* notes;

    template <class X>
    shadow_operand of(const std::vector<float>& values, extent columns) const {
        return shadow_operand::as<compute, X>(values, columns, rule);
    }
    template <class Weight>
    shadow_operand of_weight(const Weight& w) const {
        return of<float>(weight_magnitudes<compute>(*notes, w), w.shape()[1]);
    }
    /// What was kept of an operand stands for it: it is as near to it as it is to that.
    template <class Q, int Rank>
    shadow_operand of_kept(const quantized<Q, Rank>& q) const {
        tensor_scale scale;
        notes->device().memory().read(&scale, q.scale.view().data(), sizeof scale);
        const auto rows = as_rows(as_const(q.values.view()));
        auto values = notes->read(rows);
        for (float& v : values) v *= scale.inverse;
        return of<float>(values, rows.extent_of(1));
    }
    /// An incoming gradient, as the product that is read in Read has it.
    template <class Read>
    shadow_operand of_gradient(const std::vector<float>& values, extent columns) const {
        return shadow_operand::as<Read, Y>(values, columns, rule);
    }
};

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct shadow_rule<scaled_linear_record<Roles, X, Y, Rank, Weight, Bias>> {
    using record = scaled_linear_record<Roles, X, Y, Rank, Weight, Bias>;

    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        const scaled_operands<Roles, Notes, Y> operands{&notes};
        const auto rows = shape_as_rows(notes, r.dx, notes.value_of(r.dx));
        const auto x = operands.template of<X>(notes.read(rows), rows.extent_of(1));
        const auto w = operands.of_weight(r.weight);
        auto bound = product_bound(x, along::rows, w, along::rows, operands.forward(x.columns()));
        add_epilogue(notes, bound, r.dy, r.bias, x.magnitudes_of_rows(), w.magnitudes_of_rows());
        notes.bound_value(notes.value_of(r.dy), std::move(bound));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        using operands_type = scaled_operands<Roles, Notes, Y>;
        using device = typename operands_type::device;
        std::vector<double> of_x, of_weight, of_bias;
        if (r.dy.is_there()) {
            const operands_type operands{&notes};
            const auto dy = as_rows(as_const(r.dy.view()));
            const auto values = notes.read(dy);
            const extent count = dy.extent_of(0), width = dy.extent_of(1);
            const auto w = operands.of_weight(r.weight);
            of_x = product_bound(operands.template of_gradient<typename Roles::input_grad>(values, width), along::rows,
                                 w, along::columns, operands.by_input(width));
            if (!r.x.values.is_empty()) {
                of_weight =
                    product_bound(operands.template of_gradient<typename Roles::weight_grad>(values, width),
                                  along::columns, operands.of_kept(r.x), along::columns, operands.by_weight(count));
            }
            of_bias = times(column_magnitudes(values, width), sum_error<float, device>(count));
        }
        return [&notes, &r, of_x, of_weight, of_bias] {
            if (of_x.empty()) return;
            notes.bound_gradient(r.dx, of_x);
            if (!of_weight.empty()) notes.bound_gradient(r.weight, of_weight);
            notes.bound_gradient(r.bias, of_bias);
        };
    }
};

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct shadow_rule<scaled_mlp_record<Roles, X, Y, Rank, Weight, Bias>> {
    using record = scaled_mlp_record<Roles, X, Y, Rank, Weight, Bias>;
    using output = typename Roles::output;

    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        constexpr double u = unit_roundoff<float>;
        const scaled_operands<Roles, Notes, Y> operands{&notes};
        const auto rows = shape_as_rows(notes, r.dx, notes.value_of(r.dx));
        const auto x = operands.template of<X>(notes.read(rows), rows.extent_of(1));
        const auto up = operands.of_weight(r.up), down = operands.of_weight(r.down);
        auto inner = product_bound(x, along::rows, up, along::rows, operands.forward(x.columns()) + 4 * u);
        const auto up_bias = notes.read(r.up_bias.values());
        const auto beta = [&](std::size_t i) { return std::fabs(static_cast<double>(up_bias[i % up_bias.size()])); };
        for (std::size_t i = 0; i < inner.size(); ++i) inner[i] += 4 * u * beta(i);
        if (!r.pre.is_empty()) notes.bound_value(r.pre.view().data(), inner);
        const auto x_rows = x.magnitudes_of_rows(), up_rows = up.magnitudes_of_rows();
        // gelu(x) = x times something from 0 to 1, evaluated in float by both.
        for (std::size_t i = 0; i < inner.size(); ++i)
            inner[i] = steepest_gelu * inner[i] +
                       32 * u * (x_rows[i / up_bias.size()] * up_rows[i % up_bias.size()] + beta(i));
        // The operation made its hidden activations first.
        const auto* const hidden = static_cast<const output*>(notes.first_made());
        const auto values = notes.read(const_view<output, 2>(hidden, {x.rows(), up.rows()}));
        auto h = operands.template of<output>(values, up.rows());
        const auto round = rounding_rule::to<output>(root_mean_square(values));
        std::vector<double> error(inner);
        for (std::size_t i = 0; i < error.size(); ++i) error[i] += round(static_cast<double>(values[i]));
        notes.bound_value(hidden, std::move(inner));
        auto bound = product_bound(h, along::rows, down, along::rows, operands.forward(h.columns()));
        add_products(bound, 1, shadow_matrix(error.data(), h.rows(), h.columns()).of_rows, down.magnitudes_of_rows());
        add_epilogue(notes, bound, r.dy, r.down_bias, h.magnitudes_of_rows(), down.magnitudes_of_rows());
        notes.bound_value(notes.value_of(r.dy), std::move(bound));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        using operands_type = scaled_operands<Roles, Notes, Y>;
        using device = typename operands_type::device;
        using input_grad = typename Roles::input_grad;
        using weight_grad = typename Roles::weight_grad;
        std::vector<float> values;
        shadow_operand h;
        extent width = 0;
        if (r.dy.is_there()) {
            const auto dy = as_rows(as_const(r.dy.view()));
            values = notes.read(dy);
            width = dy.extent_of(1);
            if (!r.hidden.values.is_empty()) h = operands_type{&notes}.of_kept(r.hidden);
        }
        return [&notes, &r, values, h, width] {
            if (values.empty()) return;
            constexpr double u = unit_roundoff<float>;
            const operands_type operands{&notes};
            const extent count = static_cast<extent>(values.size()) / width;
            if (h.rows() != 0) {
                notes.bound_gradient(
                    r.down, product_bound(operands.template of_gradient<weight_grad>(values, width), along::columns, h,
                                          along::columns, operands.by_weight(count)));
            }
            notes.bound_gradient(r.down_bias, times(column_magnitudes(values, width), sum_error<float, device>(count)));
            if (r.pre.is_empty()) return;
            const auto up = operands.of_weight(r.up), down = operands.of_weight(r.down);
            const auto g = operands.template of_gradient<input_grad>(values, width);
            // Where pre lay lies its gradient now: a product times gelu's slope, rounded.
            const auto inner = notes.read(as_rows(as_const(r.pre.view())));
            auto off = times(product_bound(g, along::rows, down, along::columns, operands.by_input(width) + 32 * u),
                             steepest_gelu);
            const auto round = rounding_rule::to<output>(root_mean_square(inner));
            for (std::size_t i = 0; i < off.size(); ++i) off[i] += round(static_cast<double>(inner[i]));
            const shadow_matrix error(off.data(), count, up.rows());
            auto of_x = product_bound(shadow_operand::as<input_grad, output>(inner, up.rows(), operands_type::rule),
                                      along::rows, up, along::columns, operands.by_input(up.rows()));
            add_products(of_x, 1, error.of_rows, up.magnitudes_of_columns());
            notes.bound_gradient(r.dx, std::move(of_x));
            if (!r.x.values.is_empty()) {
                const auto x = operands.of_kept(r.x);
                auto of_up =
                    product_bound(shadow_operand::as<weight_grad, output>(inner, up.rows(), operands_type::rule),
                                  along::columns, x, along::columns, operands.by_weight(count));
                add_products(of_up, 1, error.of_columns, x.magnitudes_of_columns());
                notes.bound_gradient(r.up, std::move(of_up));
            }
            auto of_bias = times(column_magnitudes(inner, up.rows()), sum_error<float, device>(count));
            // A sum of magnitudes is at most the root of their number times their norm.
            for (std::size_t i = 0; i < of_bias.size(); ++i)
                of_bias[i] += std::sqrt(static_cast<double>(count)) * error.of_columns[i];
            notes.bound_gradient(r.up_bias, std::move(of_bias));
        };
    }
};

}  // namespace halftone::inline HALFTONE_ABI::detail
