// SPDX-License-Identifier: MIT
/// \file
/// Error bounds of norms, tables, sums and pointwise maps, and the bounds for custom operations, for shadow runs.
///
/// All of these compute in float, whatever the types, and round once: policy and twin differ by the order of float
/// sums, which is counted for both, and by that rounding.
#pragma once

#include <halftone/autodiff/op/apply.hpp>
#include <halftone/autodiff/op/axis_reduction.hpp>
#include <halftone/autodiff/op/embedding.hpp>
#include <halftone/autodiff/op/norm.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/observe/shadow/products.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

// ---- norms

/// Rows of x minus their means, divided by their deviations; for RMS norm the means are 0.
struct shadow_norm {
    extent width;
    std::vector<float> x, gain, bias, mean, rstd;

    double standard(std::size_t i) const {
        const std::size_t row = i / static_cast<std::size_t>(width);
        const double m = mean.empty() ? 0 : static_cast<double>(mean[row]);
        return (static_cast<double>(x[i]) - m) * static_cast<double>(rstd[row]);
    }
    std::size_t rows() const { return rstd.size(); }
    double gain_at(std::size_t i) const { return static_cast<double>(gain[i % gain.size()]); }

    /// The errors of y, mean and rstd. Two passes: the mean's error is gamma times the mean of |x|, and shifts every
    /// difference; the sum of squares has its own gamma, and the square of the shift.
    void forward(std::vector<double>& y, std::vector<double>& of_mean, std::vector<double>& of_rstd) const {
        constexpr double u = unit_roundoff<float>;
        const double g = shadow_gamma(static_cast<double>(width) + 4, u);
        y.resize(x.size()), of_mean.resize(rows()), of_rstd.resize(rows());
        for (std::size_t row = 0; row < rows(); ++row) {
            const std::size_t w = static_cast<std::size_t>(width);
            double magnitude = 0;
            for (std::size_t j = 0; j < w; ++j) magnitude += std::fabs(static_cast<double>(x[row * w + j]));
            const double shift = mean.empty() ? 0 : g * magnitude / static_cast<double>(width);
            const double r = static_cast<double>(rstd[row]), moved = shift * r;
            const double relative = g + moved + moved * moved + 4 * u;
            of_mean[row] = 2 * shift, of_rstd[row] = 2 * relative * r;
            for (std::size_t j = 0; j < w; ++j) {
                const std::size_t i = row * w + j;
                const double s = std::fabs(standard(i)), k = std::fabs(gain_at(i));
                const double b = bias.empty() ? 0 : std::fabs(static_cast<double>(bias[j]));
                y[i] = 2 * (k * (moved + s * (relative + 4 * u)) + 2 * u * (k * s + b));
            }
        }
    }
    /// The errors of dx = rstd (g - mean(g) - standard(x) mean(g standard(x))), g = dy gain, and of the sums over rows.
    void backward(const std::vector<float>& dy, std::vector<double>& dx, std::vector<double>& dgain,
                  std::vector<double>& dbias) const {
        constexpr double u = unit_roundoff<float>;
        const double along = shadow_gamma(static_cast<double>(width) + 8, u);
        const double down = 2 * shadow_gamma(static_cast<double>(rows()) + 8, u);
        const std::size_t w = static_cast<std::size_t>(width);
        dx.resize(x.size()), dgain.assign(w, 0), dbias.assign(w, 0);
        for (std::size_t row = 0; row < rows(); ++row) {
            double plain = 0, weighed = 0;
            for (std::size_t j = 0; j < w; ++j) {
                const std::size_t i = row * w + j;
                const double d = std::fabs(static_cast<double>(dy[i])), s = std::fabs(standard(i));
                plain += d * std::fabs(gain_at(i)), weighed += d * std::fabs(gain_at(i)) * s;
                dgain[j] += down * d * s, dbias[j] += down * d;
            }
            plain = mean.empty() ? 0 : plain / static_cast<double>(width);
            weighed /= static_cast<double>(width);
            for (std::size_t j = 0; j < w; ++j) {
                const std::size_t i = row * w + j;
                const double g = std::fabs(static_cast<double>(dy[i]) * gain_at(i));
                dx[i] = 2 * std::fabs(static_cast<double>(rstd[row])) *
                        (8 * u * g + along * (plain + std::fabs(standard(i)) * weighed));
            }
        }
    }
};

template <class Notes, class Record>
auto shadow_norm_backward(Notes& notes, const Record& r, const shadow_norm& norm) {
    std::vector<double> dx, dgain, dbias;
    if (r.dy.is_there()) norm.backward(notes.read(r.dy.view()), dx, dgain, dbias);
    return [&notes, &r, dx, dgain, dbias] {
        if (dx.empty()) return;
        notes.bound_gradient(r.dx, dx);
        notes.bound_gradient(r.gain, dgain);
        if constexpr (requires { r.bias; }) notes.bound_gradient(r.bias, dbias);
    };
}

template <class X, class Y, int Rank, class Gain, class Bias>
struct norm_bounds<layer_norm_record<X, Y, Rank, Gain, Bias>> {
    using record = layer_norm_record<X, Y, Rank, Gain, Bias>;
    template <class Notes>
    static shadow_norm of(const Notes& notes, const record& r) {
        return {r.x.shape()[Rank - 1],       notes.read(r.x.view()),    notes.read(r.gain.values()),
                notes.read(r.bias.values()), notes.read(r.mean.view()), notes.read(r.rstd.view())};
    }
    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        std::vector<double> y, mean, rstd;
        of(notes, r).forward(y, mean, rstd);
        notes.bound_value(notes.value_of(r.dy), std::move(y));
        notes.bound_value(r.mean.view().data(), std::move(mean));
        notes.bound_value(r.rstd.view().data(), std::move(rstd));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        return shadow_norm_backward(notes, r, of(notes, r));
    }
};

template <class X, class Y, int Rank, class Gain>
struct norm_bounds<rms_norm_record<X, Y, Rank, Gain>> {
    using record = rms_norm_record<X, Y, Rank, Gain>;
    template <class Notes>
    static shadow_norm of(const Notes& notes, const record& r) {
        return {r.x.shape()[Rank - 1],    notes.read(r.x.view()), notes.read(r.gain.values()), {}, {},
                notes.read(r.rstd.view())};
    }
    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        std::vector<double> y, mean, rstd;
        of(notes, r).forward(y, mean, rstd);
        notes.bound_value(notes.value_of(r.dy), std::move(y));
        notes.bound_value(r.rstd.view().data(), std::move(rstd));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        return shadow_norm_backward(notes, r, of(notes, r));
    }
};

// ---- tables, sums, maps, custom operations

/// Results may differ by one rounding from what floats give, and by another for the differences of floats; or as the
/// record states: `roundings`, and the number of terms of its longest sum, `sum_length()`.
template <class Record>
struct usual_bounds {
    template <class Notes>
    static void forward(Notes& notes, const Record& r) {
        int roundings = 1;
        if constexpr (requires { Record::roundings; }) roundings = Record::roundings;
        if constexpr (requires { r.sum_length(); }) notes.expect(roundings, r.sum_length());
    }
    template <class Notes>
    static auto backward(Notes& notes, const Record& r) {
        return [&notes, &r] { forward(notes, r); };
    }
};

template <class Y, class Table, class Positions>
struct embedding_bounds<embedding_record<Y, Table, Positions>> {
    using record = embedding_record<Y, Table, Positions>;
    /// The bound of one sum of two values.
    template <class Notes>
    static void forward(Notes& notes, const record&) {
        notes.expect(0, 2);
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        std::vector<double> table, positions;
        constexpr bool is_dense = !has_sparse_gradient<typename Table::storage>;
        if (is_dense && r.dy.is_there()) {
            const auto dy = notes.read(r.dy.view());
            const auto width = static_cast<std::size_t>(r.table.shape()[1]),
                       time = static_cast<std::size_t>(r.tokens.shape()[1]);
            std::vector<std::int32_t> tokens(static_cast<std::size_t>(r.tokens.size()));
            notes.device().memory().read(tokens.data(), r.tokens.view().data(), tokens.size() * sizeof tokens[0]);
            std::vector<std::int32_t> named(r.position_of.is_empty() ? 0 : tokens.size());
            if (!named.empty())
                notes.device().memory().read(named.data(), r.position_of.view().data(), named.size() * sizeof named[0]);
            table.resize(static_cast<std::size_t>(r.table.shape().size()));
            if constexpr (!is_absent<Positions>) positions.resize(static_cast<std::size_t>(r.positions.shape().size()));
            const double g = 2 * shadow_gamma(static_cast<double>(tokens.size()), unit_roundoff<float>);
            for (std::size_t i = 0; i < dy.size(); ++i) {
                const double d = g * std::fabs(static_cast<double>(dy[i]));
                const std::size_t row = i / width, at = static_cast<std::size_t>(tokens[row]) * width + i % width;
                if (at < table.size()) table[at] += d;
                const std::size_t place = named.empty() ? row % time : static_cast<std::size_t>(named[row]);
                if (place * width < positions.size()) positions[place * width + i % width] += d;
            }
        }
        return [&notes, &r, table, positions] {
            if (table.empty()) return;
            notes.bound_gradient(r.table, table);
            if constexpr (!is_absent<Positions>) notes.bound_gradient(r.positions, positions);
        };
    }
};

template <class Op, class Expression, class Y, class... Inputs>
struct usual_bounds<reduce_record<Op, Expression, Y, Inputs...>> {
    using record = reduce_record<Op, Expression, Y, Inputs...>;
    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        const auto& first = std::get<0>(r.gradients);
        const extent n = first.shape().size();
        notes.expect(0, n + 16);  // the terms of other losses have one sign
        if constexpr (is_of_kind<Op, operation_kind::sum>) {
            double sum = 0;
            using input = typename std::tuple_element_t<0, std::tuple<Inputs...>>::value_type;
            for (const float v : notes.read(const_view<input, 1>(notes.value_of(first), {n})))
                sum += std::fabs(static_cast<double>(v));
            notes.bound_value(notes.value_of(r.dy),
                              {2 * shadow_gamma(static_cast<double>(n) + 2, unit_roundoff<float>) * r.factor * sum});
        }
    }
    template <class Notes>
    static auto backward(Notes& notes, const record&) {
        return [&notes] { notes.expect(1, 16); };
    }
};

/// Sums along axes may cancel: the bound of each follows from the magnitudes of its terms.
template <class Op, kernel::axis_operation Kind, class X, int Rank, class Y, class Along>
struct usual_bounds<axis_record<Op, Kind, X, Rank, Y, Along>> {
    using record = axis_record<Op, Kind, X, Rank, Y, Along>;
    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        notes.expect(0, r.sum_length());
        if constexpr (Kind == kernel::axis_operation::sum) {
            const const_view<X, Rank> x(notes.value_of(r.dx()), r.dx().shape());
            const auto in = notes.read(x);
            const kernel::axis_layout l = kernel::axis_layout_of(x, Along{});
            const double each =
                2 * shadow_gamma(static_cast<double>(l.reduced_size) + 2, unit_roundoff<float>) * std::fabs(r.factor);
            std::vector<double> bound(static_cast<std::size_t>(l.outputs));
            for (extent o = 0; o < l.outputs; ++o) {
                for (extent i = 0; i < l.reduced_size; ++i) {
                    const auto at = static_cast<std::size_t>(l.output_offset(o) + l.reduced_offset(i));
                    bound[static_cast<std::size_t>(o)] += each * std::fabs(static_cast<double>(in[at]));
                }
            }
            notes.bound_value(notes.value_of(r.dy), std::move(bound));
        }
    }
    template <class Notes>
    static auto backward(Notes& notes, const record&) {
        return [&notes] { notes.expect(1, 16); };
    }
};

template <class Op, class Expression, class Y, int Rank, class... Inputs>
struct usual_bounds<map_record<Op, Expression, Y, Rank, Inputs...>> {
    using record = map_record<Op, Expression, Y, Rank, Inputs...>;
    template <class Notes>
    static void forward(Notes& notes, const record&) {
        notes.expect(1, 16);
    }
    /// The gradient of an input that is broadcast is a sum. Where the input is neither one value nor one for each
    /// column, its addends are rounded before (autodiff/op/pointwise.hpp), which weighs as that many more of them in
    /// float, and adds its step for each of them.
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        const bool in_one_pass = std::apply(
            [&](const auto&... dx) { return (fits_as_it_is(dx.shape(), r.dy.shape()) && ...); }, r.gradients);
        const double unit = std::max({unit_roundoff<float>, unit_roundoff<typename Inputs::value_type>...});
        const double weight = in_one_pass ? 1 : unit / unit_roundoff<float>;
        const double step =
            in_one_pass ? 0 : std::max({0.0, operand_rounding::to<typename Inputs::value_type>().step...});
        const auto addends = static_cast<double>(r.dy.shape().size());
        return [&notes, all = static_cast<extent>(addends * weight), steps = addends * step] {
            notes.expect(1, 16, 0, all, steps);
        };
    }
};

template <class Storage, class T, int Rank>
struct parameter_bounds<parameter_read_record<Storage, T, Rank>> {
    using record = parameter_read_record<Storage, T, Rank>;
    /// The twin has the values of the copy, also where the master is read.
    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        const auto values = notes.read(const_view<T, Rank>(notes.value_of(r.dy), r.dy.shape()));
        const auto round = rounding_rule::to<typename Storage::compute>(root_mean_square(values));
        std::vector<double> bound;
        for (const float v : values) bound.push_back(round(static_cast<double>(v)));
        notes.bound_value(notes.value_of(r.dy), std::move(bound));
    }
    template <class Notes>
    static auto backward(Notes& notes, const record&) {
        return [&notes] { notes.expect(0, 1); };
    }
};

/// How often values are rounded to its types within a custom operation: one, or what the operation states,
/// `static constexpr int roundings = 2;`.
template <class Op>
inline constexpr int own_roundings = 1;
template <class Op>
    requires requires { Op::roundings; }
inline constexpr int own_roundings<Op> = Op::roundings;

template <int Rank>
extent longest_axis(const shape<Rank>& s) {
    extent n = 1;
    for (int axis = 0; axis < Rank; ++axis) n = std::max(n, s[axis]);
    return n;
}
/// Whether a map could have this input for such a result: its axes are the result's last ones, or have one element.
template <int In, int Out>
bool is_broadcast(const shape<In>& input, const shape<Out>& result) {
    for (int axis = 1; axis <= In; ++axis) {
        if (input[In - axis] != 1 && (axis > Out || input[In - axis] != result[Out - axis])) return false;
    }
    return true;
}

/// The number of terms of the longest sum in a custom operation, estimated from the shapes of its result
/// and inputs. If the shapes are those of a map, it sums along at most one axis (softmax, norms, attention); otherwise
/// it may be a product, a look-up or a reduction, which sums over rows, or over what its result lacks.
template <int Rank, class... Inputs>
extent usual_sum_length(const shape<Rank>& result, const Inputs&... inputs) {
    extent n = longest_axis(result);
    const auto see = [&](const auto& input) {
        n = std::max(n, longest_axis(input));
        if (!is_broadcast(input, result))
            n = std::max({n, rows_of(result), rows_of(input), input.size() / std::max<extent>(result.size(), 1)});
    };
    (see(inputs), ...);
    return n;
}

template <class Op, class... Shapes>
concept counts_sum_length = requires(const Shapes&... shapes) {
    { Op::sum_length(shapes...) } -> std::convertible_to<extent>;
};
template <class Op>
concept states_sum_length = requires {
    { Op::sum_length } -> std::convertible_to<extent>;
};
/// Detects whether there is a member of that name at all, even an unusable one: with two bases that have it, its name
/// is ambiguous.
struct has_a_sum_length {
    int sum_length;
};
template <class Op>
struct with_a_sum_length : Op, has_a_sum_length {};
template <class Op>
concept names_sum_length = !std::is_final_v<Op> && !requires { &with_a_sum_length<Op>::sum_length; };

/// The number that the operation states, `static constexpr ht::extent sum_length = 1;`, or the function of these
/// shapes; otherwise the estimate.
template <class Op, class... Shapes>
extent own_sum_length(const Shapes&... shapes) {
    constexpr bool is_usable = counts_sum_length<Op, Shapes...> || states_sum_length<Op> || !names_sum_length<Op>;
    static_assert(is_usable,
                  "halftone: shadow_run: the `sum_length` of this operation is not a public static number, `static "
                  "constexpr ht::extent sum_length = 1;`, and no static function of the shapes of its result and of "
                  "each of its inputs that are variables or parameters of numbers: `static ht::extent "
                  "sum_length(const auto& y, const auto& x) { return x.size(); }`");
    if constexpr (counts_sum_length<Op, Shapes...>) {
        return Op::sum_length(shapes...);
    } else if constexpr (states_sum_length<Op>) {
        return Op::sum_length;
    } else {
        return usual_sum_length(shapes...);
    }
}

template <class Op, class Y, class Destinations>
extent own_sum_length_of(const Y& y, const Destinations& destinations) {
    return std::apply([&](const auto&... d) { return own_sum_length<Op>(y.shape(), d.shape()...); }, destinations);
}
template <class Op>
struct own_bounds {
    template <class Notes, class Y, class... Arguments>
    static void forward(Notes& notes, const Y& y, const Arguments&... arguments) {
        notes.expect(own_roundings<Op>, own_sum_length_of<Op>(y, std::tuple_cat(destination_of(arguments)...)));
    }
};
template <class Op, class Y, int Rank, class Kept, class Destinations, class To, class Policy>
struct usual_bounds<apply_record<Op, Y, Rank, Kept, Destinations, To, Policy>> {
    using record = apply_record<Op, Y, Rank, Kept, Destinations, To, Policy>;
    template <class Notes>
    static void forward(Notes&, const record&) {}  // done by own_bounds
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        // Its gradients may have the type of the incoming gradient.
        return [&notes, n = own_sum_length_of<Op>(r.dy, r.destinations), all = r.dy.shape().size()] {
            notes.expect(own_roundings<Op>, n, number_traits<Y>::unit_roundoff, all);
        };
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
