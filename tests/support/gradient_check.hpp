// SPDX-License-Identifier: MIT
/// \file
/// Compares a gradient with central differences, in double.
///
///     support::check_gradient([&](const std::vector<double>& x) { return loss(x); }, x, gradient);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/number/traits.hpp>

namespace support {

/// The derivative of f along axis i by differences at h and h / 2, combined so that the error is of order h^4
/// (Richardson extrapolation); `error` gets the remaining error: the size of the correction, and the rounding of f
/// divided by the step.
template <class F>
double central_difference(const F& f, std::vector<double> x, std::size_t i, double& error) {
    const double h = 1e-3 * std::max(1.0, std::fabs(x[i])), at = x[i];
    double slope[2], largest = 0;
    for (int halving = 0; halving < 2; ++halving) {
        const double step = std::ldexp(h, -halving);
        x[i] = at + step;
        const double above = f(x);
        x[i] = at - step;
        const double below = f(x);
        largest = std::max({largest, std::fabs(above), std::fabs(below)});
        slope[halving] = (above - below) / (2 * step);
    }
    const double correction = (slope[1] - slope[0]) / 3;
    // An upper bound: none of the tested functions has a thousand roundings for one value.
    error = std::fabs(correction) * h + 1000 * halftone::unit_roundoff<double> * std::max(1.0, largest) / (h / 2);
    return slope[1] + correction;
}

template <class F>
void check_gradient(const F& f, const std::vector<double>& x, const std::vector<double>& gradient) {
    REQUIRE(x.size() == gradient.size());
    double largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        double error = 0;
        const double slope = central_difference(f, x, i, error);
        largest = std::max(largest, std::fabs(slope) - 2 * error);
        CHECK_MESSAGE(std::fabs(gradient[i] - slope) <= error, "element ", i, ": gradient ", gradient[i],
                      ", differences ", slope, ", error ", error);
    }
    CHECK_MESSAGE(largest > 0, "all differences are zero: nothing was tested");
}

}  // namespace support
