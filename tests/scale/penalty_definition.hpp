// SPDX-License-Identifier: MIT
/// \file
/// The step of tests/golden/penalty.py in double, with an error bound for each number in a program that stores in float16 what
/// autocast stores in float16: gradients, their gradients, and the intermediate values of gelu's second derivative, if it is
/// composed of operations as in PyTorch.
#pragma once

#include <vector>

#include <halftone/number/float16.hpp>

#include "support/layers.hpp"

namespace penalty {

using support::tracked;
using matrix = support::matrix<tracked>;

struct definition {
    matrix up, up_bias, down, down_bias, x;
    std::vector<float> t;
    double scale;  ///< the loss scale, by which gradients are larger as they are stored

    struct result {
        tracked loss, total;
        std::vector<tracked> gradients;  ///< of the total, by all parameters
    };

    result operator()() const {
        const matrix w1 = narrow(up), w2 = narrow(down);
        const matrix z = narrow(support::plus_row(product(x, transposed(w1)), narrow(up_bias)));
        const matrix h = narrow(each(z, [](const tracked& v) { return support::gelu<halftone::float16>(v); }));
        const matrix y = narrow(support::plus_row(product(h, transposed(w2)), narrow(down_bias)));
        result r;
        matrix dy = y;
        support::sum_of<tracked> losses;
        for (std::size_t i = 0; i < t.size(); ++i) {
            const tracked d = y.values[i] - tracked(static_cast<double>(t[i]));
            losses.add(d * d);
            dy.values[i] = d * share();
        }
        r.loss = support::further_roundings(losses.total() / tracked(static_cast<double>(t.size())), 2);
        dy = narrow(dy, scale);
        const matrix slopes = each(z, [](const tracked& v) { return support::gelu_derivative<halftone::float16>(v); });
        const matrix dh = narrow(product(dy, w2), scale), dz = narrow(times(dh, slopes), scale);
        const matrix first[] = {narrow(product(transposed(dz), x), scale), narrow(support::column_sums(dz), scale),
                                narrow(product(transposed(dy), h), scale), narrow(support::column_sums(dy), scale)};
        support::sum_of<tracked> squares;
        for (const matrix& g : first) {
            for (const tracked& v : g.values) squares.add(v * v);
        }
        const tracked inverse = support::further_roundings(rsqrt(squares.total()), 8);
        r.total = support::further_roundings(r.loss + squares.total() * inverse, 2);

        // The gradient of the norm is the Hessian times g / |g|: each forward value's derivative in that direction is
        // the gradient that arrives at its gradient.
        const auto direction = [&](const matrix& g) {
            return narrow(each(g, [&](const tracked& v) { return v * inverse; }));
        };
        const matrix u1 = direction(first[0]), c1 = direction(first[1]), u2 = direction(first[2]),
                     c2 = direction(first[3]);
        const matrix rz = narrow(support::plus_row(narrow(product(x, transposed(u1))), c1));
        const matrix rh = narrow(times(rz, slopes));
        const matrix ry = narrow(support::plus_row(
            narrow(support::plus(narrow(product(h, transposed(u2))), narrow(product(rh, transposed(w2))))), c2));
        const matrix back = narrow(each(ry, [&](const tracked& v) { return v * share(); }), scale);
        const matrix dy_all = sum(dy, back);
        const matrix dh_all = sum(product(dy_all, w2), product(dy, u2));
        matrix bent = times(dh, rz);
        for (std::size_t i = 0; i < bent.values.size(); ++i)
            bent.values[i] = narrow(narrow(bent.values[i], scale) * second_slope(z.values[i]), scale);
        const matrix dz_all = sum(times(dh_all, slopes), bent);
        const matrix all[] = {narrow(product(transposed(dz_all), x), scale),
                              narrow(support::column_sums(dz_all), scale),
                              sum(product(transposed(dy_all), h), product(transposed(dy), rh)),
                              narrow(support::column_sums(dy_all), scale)};
        for (const matrix& g : all) r.gradients.insert(r.gradients.end(), g.values.begin(), g.values.end());
        return r;
    }

  private:
    using half = halftone::number_traits<halftone::float16>;

    static tracked narrow(const tracked& v, double larger_by = 1) {
        return {v.value,
                v.error + half::unit_roundoff * (std::fabs(v.value) + v.error) + half::min_subnormal / 2 / larger_by};
    }
    static matrix narrow(matrix m, double larger_by = 1) {
        for (tracked& v : m.values) v = narrow(v, larger_by);
        return m;
    }
    tracked share() const { return support::further_roundings(tracked(2.0 / static_cast<double>(t.size())), 4); }
    /// Two gradients of one value, each stored and then their sum.
    matrix sum(const matrix& a, const matrix& b) const {
        return narrow(support::plus(narrow(a, scale), narrow(b, scale)), scale);
    }
    static matrix times(matrix a, const matrix& b) {
        for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] = a.values[i] * b.values[i];
        return a;
    }

    /// The second derivative of z (1 + tanh v) / 2, v = beta (z + kappa z^3), every operation stored.
    static tracked second_slope(const tracked& z) {
        const double beta = 0.7978845608028654, kappa = 0.044715;
        const auto mul = [](const tracked& a, const tracked& b) { return narrow(a * b); };
        const auto add = [](const tracked& a, const tracked& b) { return narrow(a + b); };
        const tracked v = mul(beta, add(z, mul(kappa, mul(mul(z, z), z))));
        const tracked tanh_v = narrow(tanh(v));
        // sech is nowhere steeper than 1/2; cosh is stored before its inverse.
        const tracked sech = narrow(narrow(tracked(1 / std::cosh(v.value), 0.5 * v.error)));
        const tracked f = mul(0.5, z), g = add(1.0, -mul(tanh_v, tanh_v));
        const tracked slope = mul(beta, add(1.0, mul(3 * kappa, mul(z, z)))), bend = mul(6 * kappa * beta, z);
        const tracked g_slope = mul(mul(-2.0, sech), mul(sech, tanh_v));
        return add(add(mul(g, slope), mul(mul(f, g_slope), mul(slope, slope))), mul(mul(f, g), bend));
    }
};

}  // namespace penalty
