// SPDX-License-Identifier: MIT
/// \file
/// AdamW on one parameter in double, with a bound of what float arithmetic may add:
///
///     golden::tracked_adamw p{.w = 0.5};
///     p.step(g, 0, options, options.lr, options.weight_decay, t);      // t counts from 1
///     c.expect(ours, p.w, p.bound());
#pragma once

#include <cmath>

#include <halftone/optim/adamw.hpp>

#include "support/bounds.hpp"

namespace golden {

namespace ht = halftone;
using support::u;

/// One parameter in nearly exact arithmetic (double), with a bound of the error that float arithmetic may have
/// added: the errors of earlier steps and the roundings of this one, to first order (Higham 2002, section 3.3).
struct tracked_adamw {
    double w = 0, m = 0, v = 0;
    double error_w = 0, error_m = 0, error_v = 0;

    void step(double g, double error_g, const ht::adamw_options& o, double lr, double weight_decay, int t) {
        const double a = 1 - o.beta1, b = 1 - o.beta2;
        error_m = o.beta1 * error_m + a * error_g + 3 * u * a * std::fabs(g - m);
        m += a * (g - m);
        error_m += u * std::fabs(m);
        error_v = o.beta2 * error_v + 2 * b * std::fabs(g) * error_g + 2 * u * o.beta2 * v + 3 * u * b * g * g;
        v = o.beta2 * v + b * g * g;
        error_v += u * v;

        const double root = std::sqrt(v) / std::sqrt(1 - std::pow(o.beta2, t)), denominator = root + o.epsilon;
        const double error_root = v == 0 ? 0 : root * (error_v / (2 * v) + 3 * u);
        const double error_denominator = error_root + u * (denominator + o.epsilon);
        const double size = lr / (1 - std::pow(o.beta1, t)), update = size * m / denominator;
        error_w += 3 * u * std::fabs(w);  // the factor of the decay, the product with it, the sum below
        w = w * (1 - lr * weight_decay) - update;
        error_w += std::fabs(update) * (error_denominator / denominator + 4 * u) + size * error_m / denominator +
                   u * std::fabs(w);
    }
    /// The terms of second order are less than a thousandth of those of first order.
    double bound() const { return 1.001 * error_w; }
};

}  // namespace golden
