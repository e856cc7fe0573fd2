// SPDX-License-Identifier: MIT
/// \file
/// Error bounds of cross-entropies, for shadow runs.
///
/// A row's loss changes by at most twice the change of its logits, its probabilities by a factor of exp of that. If
/// logits are not kept, they are computed in double to get the probabilities: one more product of the head's size, on
/// the host.
#pragma once

#include <halftone/autodiff/op/loss.hpp>
#include <halftone/observe/shadow/products.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Rows of logits stored as Logit, with errors of at most `error` (one for each row), and what depends on them.
struct shadow_logits {
    extent classes = 0;
    std::vector<float> logits;
    std::vector<std::int32_t> targets;
    std::vector<double> error;
    double count = 0;

    bool counts(std::size_t row) const { return targets[row] >= 0 && targets[row] < classes; }
    /// The error of a row's loss: logsumexp changes at most as much as the logits do, and so does the target's logit.
    double of_row(std::size_t row) const { return 2 * error[row] + floats(row); }
    /// The errors of exp, log and sums in float, in the policy's computation and the twin's.
    double floats(std::size_t row) const {
        double largest = 0;
        for (extent j = 0; j < classes; ++j) largest = std::max(largest, std::fabs(at(row, j)));
        return 2 * shadow_gamma(static_cast<double>(classes) + 16, unit_roundoff<float>) * (1 + largest);
    }
    double at(std::size_t row, extent j) const {
        return static_cast<double>(logits[row * static_cast<std::size_t>(classes) + static_cast<std::size_t>(j)]);
    }
    std::vector<double> probabilities(std::size_t row) const {
        std::vector<double> p(static_cast<std::size_t>(classes));
        double largest = -HUGE_VAL, sum = 0;
        for (extent j = 0; j < classes; ++j) largest = std::max(largest, at(row, j));
        for (extent j = 0; j < classes; ++j) sum += p[static_cast<std::size_t>(j)] = std::exp(at(row, j) - largest);
        for (double& v : p) v /= sum;
        return p;
    }
    double loss() const {
        double sum = 0, most = 0;
        for (std::size_t row = 0; row < targets.size(); ++row) {
            if (!counts(row)) continue;
            double largest = 0;
            for (extent j = 0; j < classes; ++j) largest = std::max(largest, std::fabs(at(row, j)));
            sum += of_row(row);
            most = std::max(most, 2 * largest + std::log(static_cast<double>(classes)));
        }
        return sum / count + 2 * shadow_gamma(static_cast<double>(targets.size()) + 2, unit_roundoff<float>) * most;
    }
    /// The gradient of a row's logits, at most |gradient| (p + 1 at the target) / count, and its error before it is
    /// rounded.
    template <class F>
    void each_gradient(std::size_t row, double gradient, const F& f) const {
        if (!counts(row)) return;
        const std::vector<double> p = probabilities(row);
        const double relative = std::expm1(2 * error[row] + floats(row)) + 8 * unit_roundoff<float>;
        for (extent j = 0; j < classes; ++j) {
            const double one = j == targets[row] ? 1 : 0, k = std::fabs(gradient) / count;
            const double q = p[static_cast<std::size_t>(j)];
            f(j, k * std::fabs(q - one), k * (relative * q + 8 * unit_roundoff<float> * one));
        }
    }
};

template <class Notes, class Record>
void read_targets(const Notes& notes, const Record& r, shadow_logits& to) {
    to.targets.resize(static_cast<std::size_t>(r.targets.size()));
    notes.device().memory().read(to.targets.data(), r.targets.view().data(), to.targets.size() * sizeof(std::int32_t));
    to.count = std::max(1.0, static_cast<double>(notes.read(r.count.view())[0]));
}

template <class X, int Rank>
struct cross_entropy_bounds<cross_entropy_record<X, Rank>> {
    using record = cross_entropy_record<X, Rank>;
    template <class Notes>
    static shadow_logits of(const Notes& notes, const record& r) {
        shadow_logits all{r.logits.shape()[Rank - 1], notes.read(r.logits.view()), {}, {}};
        read_targets(notes, r, all);
        all.error.assign(all.targets.size(), 0);
        return all;
    }
    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        notes.bound_value(notes.value_of(r.dy), {of(notes, r).loss()});
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        std::vector<double> bound;
        if (r.dy.is_there()) {
            const shadow_logits all = of(notes, r);
            const auto seed = static_cast<double>(notes.read(r.dy.view())[0]);
            bound.resize(all.logits.size());
            for (std::size_t row = 0; row < all.targets.size(); ++row) {
                all.each_gradient(row, seed, [&](extent j, double, double error) {
                    bound[row * static_cast<std::size_t>(all.classes) + static_cast<std::size_t>(j)] = error;
                });
            }
        }
        return [&notes, &r, bound] {
            if (!bound.empty()) notes.bound_gradient(r.dlogits, bound);
        };
    }
};

template <class Roles, class X, int Rank, class Weight>
struct linear_cross_entropy_bounds<linear_cross_entropy_record<Roles, X, Rank, Weight>> {
    using record = linear_cross_entropy_record<Roles, X, Rank, Weight>;
    using compute = typename Roles::compute;
    using logit = typename Roles::output;
    using input_grad = typename Roles::input_grad;
    using weight_grad = typename Roles::weight_grad;

    struct operands {
        extent rows, width;
        std::vector<float> x, w;
        double read;
        std::vector<float> magnitudes;  // magnitudes of w
        shadow_logits all;
    };
    template <class Notes>
    static operands of(const Notes& notes, const record& r) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        const auto weight = values_for<compute>(r.weight);
        operands o{as_rows(r.x.view()).extent_of(0), r.x.shape()[Rank - 1],
                   notes.read(r.x.view()),           notes.read(weight),
                   weight_error<compute>(r.weight),  weight_magnitudes<compute>(notes, r.weight),
                   {weight.extent_of(0), {}, {}, {}}};
        read_targets(notes, r, o.all);
        const shadow_matrix x(o.x.data(), o.rows, o.width), w(o.magnitudes.data(), o.all.classes, o.width);
        const double product = both(read_error<compute, X>, o.read) + sum_error<compute, device>(o.width);
        double largest_weight = 0;
        for (const double n : w.of_rows) largest_weight = std::max(largest_weight, n);
        o.all.logits.resize(static_cast<std::size_t>(o.rows * o.all.classes));
        for (extent i = 0; i < o.rows; ++i) {
            for (extent j = 0; j < o.all.classes; ++j) {
                double sum = 0;
                for (extent d = 0; d < o.width; ++d)
                    sum +=
                        static_cast<double>(o.x[at(i * o.width + d)]) * static_cast<double>(o.w[at(j * o.width + d)]);
                o.all.logits[at(i * o.all.classes + j)] = static_cast<float>(sum);
            }
        }
        const auto round = rounding_rule::to<logit>(root_mean_square(o.all.logits));
        for (extent i = 0; i < o.rows; ++i) {
            const double bound = product * x.of_rows[at(i)] * largest_weight;
            double largest = 0;
            for (extent j = 0; j < o.all.classes; ++j) largest = std::max(largest, std::fabs(o.all.at(at(i), j)));
            o.all.error.push_back(bound + round(largest + bound));
        }
        return o;
    }
    template <class Notes>
    static void forward(Notes& notes, const record& r) {
        notes.bound_value(notes.value_of(r.dy), {of(notes, r).all.loss()});
    }
    template <class Notes>
    static auto backward(Notes& notes, const record& r) {
        using device = std::remove_cvref_t<decltype(notes.device())>;
        std::vector<double> dx, dw;
        if (r.dy.is_there()) {
            const operands o = of(notes, r);
            const auto seed = static_cast<double>(notes.read(r.dy.view())[0]);
            dx.resize(o.x.size()), dw.resize(o.w.size());
            using weight = typename decltype(values_for<compute>(r.weight))::value_type;
            const double by_input = both(read_error<input_grad, logit>, both(o.read, read_error<input_grad, weight>)) +
                                    sum_error<input_grad, device>(o.all.classes);
            const double by_weight = both(read_error<weight_grad, logit>, read_error<weight_grad, X>) +
                                     sum_error<weight_grad, device>(o.rows);
            double squares = 0;
            for (std::size_t i = 0; i < o.all.targets.size(); ++i)
                o.all.each_gradient(i, seed, [&](extent, double g, double) { squares += g * g; });
            const auto round = rounding_rule::to<logit>(
                std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, o.all.logits.size()))));
            for (extent i = 0; i < o.rows; ++i) {
                o.all.each_gradient(at(i), seed, [&](extent j, double g, double error) {
                    const double off = error + round(g + error), whole = g + off;
                    for (extent d = 0; d < o.width; ++d) {
                        const double x = std::fabs(static_cast<double>(o.x[at(i * o.width + d)])),
                                     w = static_cast<double>(o.magnitudes[at(j * o.width + d)]);
                        dx[at(i * o.width + d)] += (off + by_input * whole) * w;
                        dw[at(j * o.width + d)] += (off + by_weight * whole) * x;
                    }
                });
            }
        }
        return [&notes, &r, dx, dw] {
            if (dx.empty()) return;
            notes.bound_gradient(r.dx, dx);
            notes.bound_gradient(r.weight, dw);
        };
    }

  private:
    static std::size_t at(extent i) { return static_cast<std::size_t>(i); }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
