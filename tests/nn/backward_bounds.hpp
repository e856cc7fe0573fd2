// SPDX-License-Identifier: MIT
/// \file
/// Layers whose backward products have other types than the forward product, in plain loops over `tracked` numbers: the
/// gradients of parameters and input, each with the bound that follows from the types in which every product reads its
/// operands.
///
///     using types = nn_test::read_types<P>;
///     const auto want = nn_test::attention_bounds<types>(x, parameters, heads, batch);   // followed by dx
#pragma once

#include <vector>

#include <halftone/autodiff/engine/operation.hpp>

#include "support/layers.hpp"

namespace nn_test {

using tracked_matrix = support::matrix<support::tracked>;
using tracked_matrices = std::vector<tracked_matrix>;

/// The types in which a layer of products reads its operands and stores its result under P.
template <class P>
struct read_types {
    using compute = halftone::compute_type<P, halftone::op::linear>;
    using input_grad = halftone::input_grad_type<P, halftone::op::linear>;
    using weight_grad = halftone::weight_grad_type<P, halftone::op::linear>;
    using output = typename P::output;
};

/// As a product reads it that rounds its operands to T, or as a kernel leaves it that stores T. What is a float is one,
/// and what is known to be a number of type T stays it.
template <class T>
struct rounded_to {
    support::tracked operator()(const support::tracked& t) const {
        if (std::is_same_v<T, float>) return t;
        const support::stored_as<T> store;
        return t.error == 0 && store(t.value) == t.value ? t : store(t);
    }
};
template <class T>
tracked_matrix as(const tracked_matrix& m) {
    return each(m, rounded_to<T>{});
}
inline tracked_matrix part_of(const tracked_matrix& m, int row, int rows, int column, int columns) {
    tracked_matrix part(rows, columns);
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) part(i, j) = m(row + i, column + j);
    }
    return part;
}
inline void put(const tracked_matrix& part, tracked_matrix& all, int row, int column) {
    for (int i = 0; i < part.rows; ++i) {
        for (int j = 0; j < part.columns; ++j) all(row + i, column + j) = part(i, j);
    }
}

/// The sums of y = x weightᵀ + bias.
template <class Types>
tracked_matrix linear_sums(const tracked_matrix& x, const tracked_matrix& weight, const tracked_matrix& bias) {
    using C = typename Types::compute;
    return plus_row(product(as<C>(x), transposed(as<C>(weight))), as<C>(bias));
}
/// dy w, where the weight is the copy that the forward pass read.
template <class Types>
tracked_matrix input_gradient(const tracked_matrix& dy, const tracked_matrix& weight) {
    using I = typename Types::input_grad;
    return product(as<I>(dy), as<I>(as<typename Types::compute>(weight)));
}
template <class Types>
tracked_matrix weight_gradient(const tracked_matrix& dy, const tracked_matrix& x) {
    using G = typename Types::weight_grad;
    return product(transposed(as<G>(dy)), as<G>(x));
}

/// Of the sum of squares of x + mlp(x). Parameters: up.weight, up.bias, down.weight, down.bias; matrices, and rows.
template <class Types>
tracked_matrices mlp_bounds(const tracked_matrix& x, const tracked_matrices& p) {
    using O = typename Types::output;
    const tracked_matrix pre = linear_sums<Types>(x, p[0], p[1]), kept = as<O>(pre);
    using C = typename Types::compute;
    const tracked_matrix hidden = as<C>(each(pre, [](const support::tracked& v) { return support::gelu<C>(v); }));
    const tracked_matrix y = plus(linear_sums<Types>(hidden, p[2], p[3]), x), dy = plus(y, y);
    tracked_matrix dpre = input_gradient<Types>(dy, p[2]);
    for (std::size_t i = 0; i < dpre.values.size(); ++i)
        dpre.values[i] = dpre.values[i] * support::gelu_derivative<O>(kept.values[i]);
    dpre = as<O>(dpre);
    return {weight_gradient<Types>(dpre, x), column_sums(dpre), weight_gradient<Types>(dy, hidden), column_sums(dy),
            plus(dy, input_gradient<Types>(dpre, p[0]))};
}

/// The gradient of attention's core, without a mask; o as it was stored. Scores are computed again, in the type of the
/// backward products, and meet the logsumexp that the forward pass left, which is as exact as its own type: the weights
/// are no better than the less exact of the two.
template <class Types>
tracked_matrix attention_core_gradient(const tracked_matrix& qkv, const tracked_matrix& o, const tracked_matrix& d_o,
                                       int heads) {
    using C = typename Types::compute;
    using I = typename Types::input_grad;
    const int time = qkv.rows, width = o.columns;
    const auto third = [&](int which) { return part_of(qkv, 0, time, which * width, width); };
    const auto read = [](const tracked_matrix& m) { return as<I>(as<C>(m)); };
    const rounded_to<I> store;
    support::attention_of<support::tracked> a(read(third(0)), read(third(1)), read(third(2)), heads, false, store);
    a.q = as<I>(third(0)), a.k = as<I>(third(1)), a.v = as<I>(third(2));
    tracked_matrix dq, dk, dv, all(time, 3 * width);
    a.backward(as<I>(d_o), o, dq, dk, dv, store);
    put(dq, all, 0, 0), put(dk, all, 0, width), put(dv, all, 0, 2 * width);
    return as<typename Types::output>(all);
}
template <class Types>
tracked_matrix attention_core(const tracked_matrix& qkv, int width, int heads) {
    using C = typename Types::compute;
    const auto third = [&](int which) { return as<C>(part_of(qkv, 0, qkv.rows, which * width, width)); };
    const support::attention_of<support::tracked> a(third(0), third(1), third(2), heads, false, rounded_to<C>{});
    return as<typename Types::output>(a.o);
}

/// Of the sum of squares of x + attention(x). Parameters: qkv.weight, qkv.bias, proj.weight, proj.bias.
template <class Types>
tracked_matrices attention_bounds(const tracked_matrix& x, const tracked_matrices& p, int heads, int batch) {
    const int time = x.rows / batch, width = x.columns;
    const tracked_matrix qkv = as<typename Types::output>(linear_sums<Types>(x, p[0], p[1]));
    tracked_matrix o(x.rows, width), dqkv(x.rows, 3 * width);
    for (int b = 0; b < batch; ++b)
        put(attention_core<Types>(part_of(qkv, b * time, time, 0, 3 * width), width, heads), o, b * time, 0);
    const tracked_matrix y = plus(linear_sums<Types>(o, p[2], p[3]), x), dy = plus(y, y);
    const tracked_matrix d_o = as<typename Types::output>(input_gradient<Types>(dy, p[2]));
    for (int b = 0; b < batch; ++b) {
        put(attention_core_gradient<Types>(part_of(qkv, b * time, time, 0, 3 * width),
                                           part_of(o, b * time, time, 0, width), part_of(d_o, b * time, time, 0, width),
                                           heads),
            dqkv, b * time, 0);
    }
    return {weight_gradient<Types>(dqkv, x), column_sums(dqkv), weight_gradient<Types>(dy, o), column_sums(dy),
            plus(dy, input_gradient<Types>(dqkv, p[0]))};
}

/// Of the sum of squares of x weightᵀ + bias + x.
template <class Types>
tracked_matrices linear_bounds(const tracked_matrix& x, const tracked_matrices& p) {
    const tracked_matrix y = plus(linear_sums<Types>(x, p[0], p[1]), x), dy = plus(y, y);
    return {weight_gradient<Types>(dy, x), column_sums(dy), plus(dy, input_gradient<Types>(dy, p[0]))};
}

/// Of the mean cross-entropy of x weightᵀ, whose logits and their gradients are stored in Types::output. Parameters:
/// weight; other parameters get no gradient.
template <class Types>
tracked_matrices linear_cross_entropy_bounds(const tracked_matrix& x, const tracked_matrix& weight,
                                             const std::vector<std::int32_t>& targets) {
    using C = typename Types::compute;
    using O = typename Types::output;
    const tracked_matrix logits = as<O>(product(as<C>(x), transposed(as<C>(weight))));
    const tracked_matrix dlogits = as<O>(support::cross_entropy_of<support::tracked>(logits, targets).dlogits);
    return {weight_gradient<Types>(dlogits, x), input_gradient<Types>(dlogits, weight)};
}

}  // namespace nn_test
