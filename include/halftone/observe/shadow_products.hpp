// SPDX-License-Identifier: MIT
/// \file
/// What rounding does to products, for shadow runs: linear layers, perceptrons, matmul, the end of a language model.
///
/// An element of a product is a sum of k terms. Its error is at most the relative errors of the operands as they are
/// read, and of the float sums (kernel/matmul/matmul.hpp), times sum |a||b|, which is at most the product of the norms
/// of the row and the column (Cauchy-Schwarz). Where a result is read again within the operation (the perceptron's
/// hidden layer, logits), the error of it goes on in the same way.
#pragma once

#include <halftone/autodiff/matmul.hpp>
#include <halftone/exec/simt/simt.hpp>
#include <halftone/observe/shadow_tape.hpp>

namespace halftone::inline HALFTONE_ABI::detail {

/// A matrix in host memory, with the norms of its rows and columns.
struct shadow_matrix {
    extent rows = 0, columns = 0;
    std::vector<double> of_rows, of_columns;

    shadow_matrix() = default;
    template <class T>
    shadow_matrix(const T* values, extent r, extent c)
        : rows(r), columns(c), of_rows(static_cast<std::size_t>(r)), of_columns(static_cast<std::size_t>(c)) {
        for (extent i = 0; i < r; ++i) {
            for (extent j = 0; j < c; ++j) {
                const auto v = static_cast<double>(values[i * c + j]);
                of_rows[static_cast<std::size_t>(i)] += v * v;
                of_columns[static_cast<std::size_t>(j)] += v * v;
            }
        }
        for (double& v : of_rows) v = std::sqrt(v);
        for (double& v : of_columns) v = std::sqrt(v);
    }
};
template <class Notes, class T>
shadow_matrix matrix_of(const Notes& notes, const view<T, 2>& v) {
    return {notes.read(v).data(), v.extent_of(0), v.extent_of(1)};
}

/// to[i][j] += factor a[i] b[j].
inline void add_products(std::vector<double>& to, double factor, const std::vector<double>& a,
                         const std::vector<double>& b) {
    to.resize(a.size() * b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = 0; j < b.size(); ++j) to[i * b.size() + j] += factor * a[i] * b[j];
    }
}
inline std::vector<double> products(double factor, const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> all;
    add_products(all, factor, a, b);
    return all;
}

/// The relative error of an operand that lies as T and is read as Compute.
template <class Compute, class T>
constexpr double read_error = contains<Compute, T> ? 0.0 : number_traits<Compute>::unit_roundoff;

/// The sums of the policy's product and of its twin's.
template <class Compute, class Device>
double sum_error(extent terms) {
    const double u = unit_roundoff<float>, n = static_cast<double>(terms) + 2;
    // What matrix units cut off, or an engine where it reads a float for tfloat32.
    constexpr bool is_split = requires { Compute::dropped; };
    const bool is_exact = std::is_same_v<Compute, float> || is_split || !simt_device<Device>;
    const double reads = std::is_same_v<Compute, tfloat32> && !is_exact ? 4 * unit_roundoff<tfloat32> : 0;
    const double twin = shadow_gamma(n, u), own = shadow_gamma(n, is_exact ? u : 2 * u);
    if constexpr (is_split) {
        return twin + Compute::first * own + Compute::later * shadow_gamma(6 * n, u) + Compute::dropped;
    } else {
        return twin + own + reads;
    }
}

/// The relative error with which a weight is read, the twin holding what the copy holds.
template <class Compute, class Storage, int Rank>
constexpr double weight_error(const parameter<Storage, Rank>&) {
    using copy = typename Storage::compute;
    if constexpr (contains<copy, Compute>) return read_error<Compute, copy>;
    return unit_roundoff<copy> + read_error<Compute, typename Storage::param>;
}
template <class Compute, class Weight>
    requires(Weight::is_variable)
constexpr double weight_error(const Weight&) { return read_error<Compute, typename Weight::compute>; }

/// Magnitudes of a weight as it is read: where that is the master, with room for what the copy lacks of the smallest.
template <class Compute, class Notes, class Weight>
std::vector<float> weight_magnitudes(const Notes& notes, const Weight& weight) {
    auto values = notes.read(values_for<Compute>(weight));
    using copy = typename Weight::compute;
    float floor = 0;
    if constexpr (!contains<copy, Compute>)
        floor = static_cast<float>(rounding_rule::to<copy>(root_mean_square(values)).floor);
    for (float& v : values) v = std::max(std::fabs(v), floor);
    return values;
}
template <class Compute, class Notes, class Weight>
shadow_matrix weight_matrix(const Notes& notes, const Weight& weight) {
    return {weight_magnitudes<Compute>(notes, weight).data(), weight.shape()[0], weight.shape()[1]};
}

inline double both(double a, double b) { return a + b + a * b; }

/// Sums of magnitudes along the columns.
inline std::vector<double> column_magnitudes(const std::vector<float>& v, extent columns) {
    std::vector<double> sums(static_cast<std::size_t>(columns));
    for (std::size_t i = 0; i < v.size(); ++i)
        sums[i % static_cast<std::size_t>(columns)] += std::fabs(static_cast<double>(v[i]));
    return sums;
}
inline std::vector<double> times(std::vector<double> v, double factor) {
    for (double& x : v) x *= factor;
    return v;
}

template <class Notes, class T, int Rank>
auto shape_as_rows(const Notes&, const gradient_of<T, Rank>& g, const T* data) {
    return as_rows(const_view<T, Rank>(data, g.shape()));
}

/// Adds what sums of a bias and a residual err by: of magnitudes up to |y| + 2 |bias| + |x||w|.
template <class Notes, class Y, int Rank, class Bias>
void add_epilogue(const Notes& notes, std::vector<double>& bound, const gradient_of<Y, Rank>& dy, const Bias& bias,
                  const std::vector<double>& a, const std::vector<double>& b) {
    const double g = 2 * shadow_gamma(3, unit_roundoff<float>);
    const auto y = notes.read(const_view<Y, Rank>(notes.value_of(dy), dy.shape()));
    std::vector<float> beta(b.size());
    if constexpr (!is_absent<Bias>) beta = notes.read(bias.values());
    for (std::size_t i = 0; i < bound.size(); ++i) {
        bound[i] += g * (std::fabs(static_cast<double>(y[i])) + 2 * std::fabs(static_cast<double>(beta[i % b.size()])) +
                         a[i / b.size()] * b[i % b.size()]);
    }
}

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct shadow_rule<linear_record<Roles, X, Y, Rank, Weight, Bias>> {
    using record = linear_record<Roles, X, Y, Rank, Weight, Bias>;
    using compute = typename Roles::compute;
    using input_grad = typename Roles::input_grad;
    using weight_grad = typename Roles::weight_grad;

    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        const auto x = matrix_of(notes, shape_as_rows(notes, r.dx, notes.value_of(r.dx)));
        const auto w = weight_matrix<compute>(notes, r.weight);
        auto bound = products(
            both(read_error<compute, X>, weight_error<compute>(r.weight)) + sum_error<compute, device>(x.columns),
            x.of_rows, w.of_rows);
        add_epilogue(notes, bound, r.dy, r.bias, x.of_rows, w.of_rows);
        notes.bound_value(notes.value_of(r.dy), std::move(bound));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        std::vector<double> of_x, of_weight, of_bias;
        if (r.dy.is_there()) {
            const auto dy = as_rows(as_const(r.dy.view()));
            const auto values = notes.read(dy);
            const shadow_matrix g(values.data(), dy.extent_of(0), dy.extent_of(1));
            const auto w = weight_matrix<compute>(notes, r.weight);
            of_x = products(
                both(read_error<input_grad, Y>,
                     both(weight_error<compute>(r.weight),
                          read_error<input_grad, typename decltype(values_for<compute>(r.weight))::value_type>)) +
                    sum_error<input_grad, device>(g.columns),
                g.of_rows, w.of_columns);
            if (!r.x.is_empty()) {
                const auto x = matrix_of(notes, as_rows(as_const(r.x.view())));
                of_weight = products(both(read_error<weight_grad, Y>, read_error<weight_grad, X>) +
                                         sum_error<weight_grad, device>(g.rows),
                                     g.of_columns, x.of_columns);
            }
            of_bias = times(column_magnitudes(values, g.columns), sum_error<float, device>(g.rows));
        }
        return [&notes, &r, of_x, of_weight, of_bias] {
            if (of_x.empty()) return;
            notes.bound_gradient(r.dx, of_x);
            if (!of_weight.empty()) notes.bound_gradient(r.weight, of_weight);
            notes.bound_gradient(r.bias, of_bias);
        };
    }
};

/// The steepest that gelu is, with room for what its float evaluation errs by.
inline constexpr double steepest_gelu = 1.13;

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct shadow_rule<mlp_record<Roles, X, Y, Rank, Weight, Bias>> {
    using record = mlp_record<Roles, X, Y, Rank, Weight, Bias>;
    using compute = typename Roles::compute;
    using input_grad = typename Roles::input_grad;
    using weight_grad = typename Roles::weight_grad;
    using output = typename Roles::output;
    using H = typename record::H;

    template <class T>
    static shadow_matrix rounded(std::vector<double> error, const std::vector<float>& values, extent columns) {
        const auto round = rounding_rule::to<T>(root_mean_square(values));
        for (std::size_t i = 0; i < error.size(); ++i) error[i] += round(static_cast<double>(values[i]));
        return {error.data(), static_cast<extent>(values.size()) / columns, columns};
    }

    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        constexpr double u = unit_roundoff<float>;
        const auto x = matrix_of(notes, shape_as_rows(notes, r.dx, notes.value_of(r.dx)));
        const auto up = weight_matrix<compute>(notes, r.up), down = weight_matrix<compute>(notes, r.down);
        auto inner = products(
            both(read_error<compute, X>, weight_error<compute>(r.up)) + sum_error<compute, device>(x.columns) + 4 * u,
            x.of_rows, up.of_rows);
        const auto up_bias = notes.read(r.up_bias.values());
        for (std::size_t i = 0; i < inner.size(); ++i)
            inner[i] += 4 * u * std::fabs(static_cast<double>(up_bias[i % up_bias.size()]));
        if (!r.pre.is_empty()) notes.bound_value(r.pre.view().data(), inner);
        // gelu(x) = x times something from 0 to 1, evaluated in float by both.
        for (std::size_t i = 0; i < inner.size(); ++i)
            inner[i] = steepest_gelu * inner[i] + 32 * u *
                                                      (x.of_rows[i / up_bias.size()] * up.of_rows[i % up_bias.size()] +
                                                       std::fabs(static_cast<double>(up_bias[i % up_bias.size()])));
        // A frozen layer keeps nothing; |gelu(x)| is at most |x|.
        std::vector<float> values;
        if (r.hidden.is_empty()) {
            for (std::size_t i = 0; i < inner.size(); ++i) {
                const double product = x.of_rows[i / up_bias.size()] * up.of_rows[i % up_bias.size()];
                values.push_back(static_cast<float>(product) + std::fabs(up_bias[i % up_bias.size()]));
            }
        } else {
            values = notes.read(r.hidden.view());
            notes.bound_value(r.hidden.view().data(), inner);
        }
        const shadow_matrix h(values.data(), x.rows, up.rows), error = rounded<H>(inner, values, up.rows);
        auto bound = products(
            both(read_error<compute, H>, weight_error<compute>(r.down)) + sum_error<compute, device>(h.columns),
            h.of_rows, down.of_rows);
        add_products(bound, 1 + weight_error<compute>(r.down), error.of_rows, down.of_rows);
        add_epilogue(notes, bound, r.dy, r.down_bias, h.of_rows, down.of_rows);
        notes.bound_value(notes.value_of(r.dy), std::move(bound));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        std::vector<float> values;
        shadow_matrix g, h;
        if (r.dy.is_there()) {
            const auto dy = as_rows(as_const(r.dy.view()));
            values = notes.read(dy);
            g = shadow_matrix(values.data(), dy.extent_of(0), dy.extent_of(1));
            if (!r.hidden.is_empty()) h = matrix_of(notes, as_rows(as_const(r.hidden.view())));
        }
        return [&notes, &r, values, g, h] {
            if (values.empty()) return;
            constexpr double u = unit_roundoff<float>;
            if (h.rows != 0) {
                notes.bound_gradient(r.down, products(both(read_error<weight_grad, Y>, read_error<weight_grad, H>) +
                                                          sum_error<weight_grad, device>(g.rows),
                                                      g.of_columns, h.of_columns));
            }
            notes.bound_gradient(r.down_bias,
                                 times(column_magnitudes(values, g.columns), sum_error<float, device>(g.rows)));
            if (r.pre.is_empty()) return;
            // Where pre lay lies its gradient now.
            const auto inner = notes.read(as_rows(as_const(r.pre.view())));
            const auto up = weight_matrix<compute>(notes, r.up), down = weight_matrix<compute>(notes, r.down);
            const shadow_matrix dpre(inner.data(), g.rows, up.rows);
            const double read_down = both(weight_error<compute>(r.down), read_error<input_grad, weight_type>);
            const auto error = rounded<output>(products(steepest_gelu * (both(read_error<input_grad, Y>, read_down) +
                                                                         sum_error<input_grad, device>(g.columns)) +
                                                            32 * u,
                                                        g.of_rows, down.of_columns),
                                               inner, up.rows);
            const double read_up = both(weight_error<compute>(r.up), read_error<input_grad, weight_type>);
            auto of_x = products(both(read_error<input_grad, output>, read_up) + sum_error<input_grad, device>(up.rows),
                                 dpre.of_rows, up.of_columns);
            add_products(of_x, 1 + read_up, error.of_rows, up.of_columns);
            notes.bound_gradient(r.dx, std::move(of_x));
            if (!r.x.is_empty()) {
                const auto x = matrix_of(notes, as_rows(as_const(r.x.view())));
                auto of_up = products(both(read_error<weight_grad, output>, read_error<weight_grad, X>) +
                                          sum_error<weight_grad, device>(g.rows),
                                      dpre.of_columns, x.of_columns);
                add_products(of_up, 1 + read_error<weight_grad, X>, error.of_columns, x.of_columns);
                notes.bound_gradient(r.up, std::move(of_up));
            }
            auto of_bias = times(column_magnitudes(inner, up.rows), sum_error<float, device>(g.rows));
            // A sum of magnitudes is at most the root of their number times their norm.
            for (std::size_t i = 0; i < of_bias.size(); ++i)
                of_bias[i] += std::sqrt(static_cast<double>(g.rows)) * error.of_columns[i];
            notes.bound_gradient(r.up_bias, std::move(of_bias));
        };
    }

  private:
    using weight_type = typename decltype(values_for<compute>(std::declval<const Weight&>()))::value_type;
};

template <class Roles, class A, class B, class Y, int Rank>
struct shadow_rule<matmul_record<Roles, A, B, Y, Rank>> {
    using record = matmul_record<Roles, A, B, Y, Rank>;
    using compute = typename Roles::compute;
    using input_grad = typename Roles::input_grad;

    /// Each matrix of a with each of b, by rows or columns.
    template <class ReadAs, class S, class T, class Device>
    static std::vector<double> each(const std::vector<float>& a, shape<3> sa, bool a_rows, const std::vector<float>& b,
                                    shape<3> sb, bool b_rows, Device&) {
        std::vector<double> all;
        for (extent i = 0; i < sa[0]; ++i) {
            const shadow_matrix left(a.data() + i * sa[1] * sa[2], sa[1], sa[2]),
                right(b.data() + i * sb[1] * sb[2], sb[1], sb[2]);
            const auto one = products(
                both(read_error<ReadAs, S>, read_error<ReadAs, T>) + sum_error<ReadAs, Device>(a_rows ? sa[2] : sa[1]),
                a_rows ? left.of_rows : left.of_columns, b_rows ? right.of_rows : right.of_columns);
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }
    template <class T>
    static shape<3> matrices_of(const gradient_of<T, Rank>& g) {
        return as_matrices(const_view<T, Rank>(nullptr, g.shape())).shape();
    }

    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        const auto a = notes.read(const_view<A, Rank>(notes.value_of(r.da), r.da.shape()));
        const auto b = notes.read(const_view<B, Rank>(notes.value_of(r.db), r.db.shape()));
        notes.bound_value(notes.value_of(r.dy),
                          each<compute, A, B>(a, matrices_of(r.da), true, b, matrices_of(r.db), false, notes.device()));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        std::vector<double> of_a, of_b;
        if (r.dy.is_there()) {
            const auto g = notes.read(r.dy.view());
            if (!r.b.is_empty())
                of_a = each<input_grad, Y, B>(g, matrices_of(r.dy), true, notes.read(r.b.view()), matrices_of(r.db),
                                              true, notes.device());
            if (!r.a.is_empty())
                of_b = each<input_grad, A, Y>(notes.read(r.a.view()), matrices_of(r.da), false, g, matrices_of(r.dy),
                                              false, notes.device());
        }
        return [&notes, &r, of_a, of_b] {
            if (!of_a.empty()) notes.bound_gradient(r.da, of_a);
            if (!of_b.empty()) notes.bound_gradient(r.db, of_b);
        };
    }
};

}  // namespace halftone::inline HALFTONE_ABI::detail
