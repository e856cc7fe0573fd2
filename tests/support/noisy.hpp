// SPDX-License-Identifier: MIT
/// \file
/// A number with a random error at every operation, as large as a float kernel's rounding may be. Running a definition
/// many times with it shows how rounding propagates through a whole model, for which worst-case bounds would exceed the
/// values.
///
/// Rounding errors are assumed to be independent and bounded, as in probabilistic error analysis (Higham and Mary
/// 2019). To first order the error of a result is then a sum of bounded independent terms, which by Hoeffding's
/// inequality exceeds lambda times the root of the sum of their squared bounds with a probability of at most 2
/// exp(-lambda^2 / 2). The noise here is uniform within the bounds, so that this root is sqrt(3) times the standard
/// deviation that it causes.
///
///     support::spread s(exact.size());
///     for (int i = 0; i < support::spread::samples; ++i) s.add(values of a noisy run, exact);
///     comparison.expect(got, exact[j], s.bound(j));
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/tracked.hpp"

namespace support {

/// Uniform in [-1, 1], the same in every run of a test (xorshift, Marsaglia 2003).
class noise_source {
  public:
    double operator()() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return static_cast<double>(static_cast<std::int64_t>(state_)) * 0x1p-63;
    }

  private:
    std::uint64_t state_ = 0x9e3779b97f4a7c15u;
};
inline noise_source noise;

struct noisy {
    double value = 0;

    noisy() = default;
    noisy(double exact) : value(exact) {}  // NOLINT(google-explicit-constructor)

    /// With an additional relative error of at most `roundoff`.
    noisy rounded(double roundoff = u) const { return value * (1 + roundoff * noise()); }

    friend noisy operator-(const noisy& a) { return -a.value; }
    friend noisy operator+(const noisy& a, const noisy& b) { return noisy(a.value + b.value).rounded(); }
    friend noisy operator-(const noisy& a, const noisy& b) { return noisy(a.value - b.value).rounded(); }
    friend noisy operator*(const noisy& a, const noisy& b) { return noisy(a.value * b.value).rounded(); }
    friend noisy operator/(const noisy& a, const noisy& b) { return noisy(a.value / b.value).rounded(); }
};

/// With the errors that exec/cpu/simd/math.simd.hpp states.
inline noisy exp(const noisy& x) { return noisy(std::exp(x.value)).rounded(4 * u); }
inline noisy log(const noisy& x) { return noisy(std::log(x.value)).rounded(4 * u); }
inline noisy rsqrt(const noisy& x) { return noisy(1 / std::sqrt(x.value)).rounded(4 * u); }
template <class T = float>
noisy gelu(const noisy& x) {
    return noisy(gelu(x.value)).rounded(gated_error<T>(detail::gelu_argument(x.value)));
}
template <class T = float>
noisy gelu_derivative(const noisy& x) {
    return gelu_derivative(x.value) + gated_slope_error<T>() * noise();
}
inline noisy larger(const noisy& a, const noisy& b) { return std::max(a.value, b.value); }
inline noisy further_roundings(noisy x, int count) {
    for (int i = 0; i < count; ++i) x = x.rounded();
    return x;
}

/// Stored as T: adds an error of half a unit in T's last place, or of half a subnormal number.
template <class T>
struct noisily_stored_as {
    noisy operator()(const noisy& x) const { return x.value + support::rounding<T>(x.value) * noise(); }
};

/// The standard deviations of several results, over samples.
class spread {
  public:
    static constexpr int samples = 48;
    /// The bound is exceeded with a probability of at most 2 exp(-lambda^2 / 2), 3e-8.
    static constexpr double lambda = 6;

    explicit spread(std::size_t count = 0) : squares_(count) {}
    void add(const std::vector<noisy>& sample, const std::vector<double>& exact) {
        for (std::size_t i = 0; i < squares_.size(); ++i)
            squares_[i] += (sample[i].value - exact[i]) * (sample[i].value - exact[i]);
        ++count_;
    }
    double bound(std::size_t i) const { return lambda * std::sqrt(3 * squares_[i] / count_); }

  private:
    std::vector<double> squares_;
    double count_ = 0;
};

}  // namespace support
