// SPDX-License-Identifier: MIT
/// \file
/// Error bounds of products, for shadow runs: what all of them share, and matmul.
///
/// An element of a product is a sum of k terms. Its error is at most the sum of the relative errors of operands as read
/// and of float sums (kernel/matmul/matmul.hpp), times sum |a||b|, which is at most the product of the norms of the row
/// and the column (Cauchy-Schwarz). If a result is read again within the operation (the perceptron's hidden layer,
/// logits), its error propagates in the same way.
#pragma once

#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/exec/simt/simt.hpp>
#include <halftone/memory/weight_values.hpp>
#include <halftone/observe/shadow/tape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

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

/// Two relative errors, one after the other.
constexpr double both(double a, double b) { return a + b + a * b; }

/// How far a number as read may be from the stored one: relative to it and, for types without ieee_spacing, by a step.
struct operand_rounding {
    double relative = 0, step = 0;

    template <class T>
    static constexpr operand_rounding to() {
        using traits = number_traits<T>;
        return {traits::unit_roundoff, traits::ieee_spacing && traits::unit_roundoff > 0 ? 0.0 : traits::min_subnormal / 2};
    }
    /// Rounded again by another.
    constexpr operand_rounding then(const operand_rounding& other) const {
        return {both(relative, other.relative), step * (1 + other.relative) + other.step};
    }
};

/// The rounding of an operand that is stored as T and read as Compute.
template <class Compute, class T>
constexpr operand_rounding reading_of = contains<Compute, T> ? operand_rounding{} : operand_rounding::to<Compute>();

/// The relative error alone, for the rules of operations that know no other.
template <bool HasStep>
consteval bool check_no_step() {
    static_assert(!HasStep,
                  "halftone: a shadow run judges this operation by the relative errors of its operands, and the number type "
                  "that they are read in is rounded by absolute steps, too, as fixed-point numbers are: only linear layers "
                  "and perceptrons with such operands can be judged; give the others another `compute`");
    return true;
}
template <class Compute, class T>
consteval double relative_reading() {
    static_assert(check_no_step<reading_of<Compute, T>.step != 0>());
    return reading_of<Compute, T>.relative;
}
template <class Compute, class T>
constexpr double read_error = relative_reading<Compute, T>();

/// The errors of the sums of the policy's product and of its twin's.
template <class Compute, class Device>
double sum_error(extent terms) {
    const double u = unit_roundoff<float>, n = static_cast<double>(terms) + 2;
    // What matrix units truncate, or an engine that reads a float as tfloat32.
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

/// The rounding of a weight as read, where the twin has the values of the copy.
template <class Compute, class Weight>
consteval operand_rounding weight_reading() {
    using copy = typename Weight::compute;
    if constexpr (requires { Weight::is_variable; } || contains<copy, Compute>) {
        return reading_of<Compute, copy>;
    } else {
        const auto of_copy = operand_rounding::to<copy>(), read = reading_of<Compute, typename Weight::param>;
        return {of_copy.relative + read.relative, of_copy.step + read.step};
    }
}
/// The relative error alone, as read_error.
template <class Compute, class Weight>
consteval double relative_weight_reading() {
    static_assert(check_no_step<weight_reading<Compute, Weight>().step != 0>());
    return weight_reading<Compute, Weight>().relative;
}
template <class Compute, class Weight>
constexpr double weight_error(const Weight&) {
    return relative_weight_reading<Compute, Weight>();
}

/// The numbers of a weight as read, before they are rounded to Compute.
template <class Compute, class Notes, class Weight>
std::vector<float> weight_numbers(const Notes& notes, const Weight& weight) {
    return notes.read(values_for<Compute>(weight));
}
template <class Compute, class Notes, coded Storage>
std::vector<float> weight_numbers(const Notes&, const parameter<Storage, 2>& weight) {
    const store& parameters = weight.owner();
    std::vector<float> values;
    for (const auto x : weight_values<Storage>(parameters, parameters.entries()[weight.entry()]))
        values.push_back(static_cast<float>(x));
    return values;
}
/// The type of the numbers of a weight as read.
template <class Compute, class Weight>
struct weight_number {
    using type = typename decltype(values_for<Compute>(std::declval<const Weight&>()))::value_type;
};
template <class Compute, coded Storage>
struct weight_number<Compute, parameter<Storage, 2>> {
    using type = typename Storage::compute;
};

/// The magnitudes of a weight as read: for a master, with a margin for what the copy lacks of the smallest numbers.
template <class Compute, class Notes, class Weight>
std::vector<float> weight_magnitudes(const Notes& notes, const Weight& weight) {
    auto values = weight_numbers<Compute>(notes, weight);
    using copy = typename Weight::compute;
    float floor = 0;
    if constexpr (!contains<copy, Compute>)
        floor = static_cast<float>(rounding_rule::to<copy>(root_mean_square(values)).floor);
    for (float& v : values) v = std::max(std::fabs(v), floor);
    return values;
}

/// How far a bias as read may be from the twin's, which has the values of the copy.
template <class Compute, class Bias>
std::vector<double> bias_errors(const Bias&, const std::vector<float>& values) {
    std::vector<double> errors(values.size());
    using copy = typename Bias::compute;
    if constexpr (!contains<copy, Compute> && !requires { Bias::is_variable; }) {
        const auto round = rounding_rule::to<copy>(root_mean_square(values));
        for (std::size_t i = 0; i < values.size(); ++i) errors[i] = round(static_cast<double>(values[i]));
    }
    return errors;
}

/// The errors of sums along columns in float, the policy's and its twin's, relative to the sums of magnitudes.
inline double column_sum_error(extent rows) {
    return 2 * shadow_gamma(static_cast<double>(rows) + 2, unit_roundoff<float>);
}
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

/// A matrix that a product reads, and bounds of how far each element as read is from the stored one.
struct shadow_operand {
    shadow_matrix values, errors;

    shadow_operand() = default;
    /// (rows, columns), row-major.
    shadow_operand(const std::vector<float>& v, const std::vector<double>& error, extent columns)
        : values(v.data(), static_cast<extent>(v.size()) / columns, columns),
          errors(error.data(), values.rows, columns) {}
    /// An operand (rows, columns), row-major, with errors relative to the elements, and a step: the norm of n steps is
    /// sqrt(n) times one.
    shadow_operand(const std::vector<float>& v, const operand_rounding& by, extent columns)
        : values(v.data(), static_cast<extent>(v.size()) / columns, columns), errors(values) {
        const double of_row = by.step * std::sqrt(static_cast<double>(columns)),
                     of_column = by.step * std::sqrt(static_cast<double>(values.rows));
        for (double& e : errors.of_rows) e = e * by.relative + of_row;
        for (double& e : errors.of_columns) e = e * by.relative + of_column;
    }
    extent rows() const { return values.rows; }
    extent columns() const { return values.columns; }
    /// Upper bounds of the norms of the operands.
    std::vector<double> read_rows() const { return sum(values.of_rows, errors.of_rows); }
    std::vector<double> read_columns() const { return sum(values.of_columns, errors.of_columns); }

  private:
    static std::vector<double> sum(std::vector<double> a, const std::vector<double>& b) {
        for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
        return a;
    }
};

enum class along { rows, columns };

/// Bounds of the errors of products of a's rows or columns with b's: with errors a' and b' they are |a||b'| + |a'||b| +
/// 2 |a'||b'|, whether a and b are the values as read or as stored, plus the errors of the sums.
inline std::vector<double> product_bound(const shadow_operand& a, along a_side, const shadow_operand& b, along b_side,
                                         double of_sums) {
    const auto side = [](const shadow_matrix& m, along s) -> const std::vector<double>& {
        return s == along::rows ? m.of_rows : m.of_columns;
    };
    const auto read = [](const shadow_operand& o, along s) {
        return s == along::rows ? o.read_rows() : o.read_columns();
    };
    const auto &a_errors = side(a.errors, a_side), &b_errors = side(b.errors, b_side);
    auto bound = products(1, side(a.values, a_side), b_errors);
    add_products(bound, 1, a_errors, side(b.values, b_side));
    add_products(bound, 2, a_errors, b_errors);
    add_products(bound, of_sums, read(a, a_side), read(b, b_side));
    return bound;
}

template <class Roles, class A, class B, class Y, int Rank, orientation OfA, orientation OfB>
struct matmul_bounds<matmul_record<Roles, A, B, Y, Rank, OfA, OfB>> {
    using record = matmul_record<Roles, A, B, Y, Rank, OfA, OfB>;
    static constexpr bool a_lies = OfA == orientation::straight, b_lies = OfB == orientation::straight;
    using compute = typename Roles::compute;
    using input_grad = typename Roles::input_grad;
    using weight_grad = typename Roles::weight_grad;

    /// The bounds for each matrix of a with each of b, by rows or columns.
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
                          each<compute, A, B>(a, matrices_of(r.da), a_lies, b, matrices_of(r.db), !b_lies, notes.device()));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        std::vector<double> of_a, of_b;
        if (r.dy.is_there()) {
            const auto g = notes.read(r.dy.view());
            // In the order of the record's gradients.
            if (!r.b.is_empty()) {
                const auto b = notes.read(r.b.view());
                const auto sg = matrices_of(r.dy), sb = matrices_of(r.db);
                of_a = a_lies ? each<input_grad, Y, B>(g, sg, true, b, sb, b_lies, notes.device())
                              : each<input_grad, B, Y>(b, sb, b_lies, g, sg, true, notes.device());
            }
            if (!r.a.is_empty()) {
                const auto a = notes.read(r.a.view());
                const auto sg = matrices_of(r.dy), sa = matrices_of(r.da);
                of_b = b_lies ? each<weight_grad, A, Y>(a, sa, !a_lies, g, sg, false, notes.device())
                              : each<weight_grad, Y, A>(g, sg, false, a, sa, !a_lies, notes.device());
            }
        }
        return [&notes, &r, of_a, of_b] {
            if (!of_a.empty()) notes.bound_gradient(r.da, of_a);
            if (!of_b.empty()) notes.bound_gradient(r.db, of_b);
        };
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
