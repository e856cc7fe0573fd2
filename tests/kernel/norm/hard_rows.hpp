// SPDX-License-Identifier: MIT
/// \file
/// Rows whose mean, variance or squares float arithmetic does not resolve: constant, nearly constant, far from zero, with one
/// outlier, at both ends of the range, infinite and NaN; among ordinary ones, and in matrices with a row stride. Layer and RMS
/// normalisation of any device are compared with sums in long double.
///
///     hard_rows::check_layer_norm<float, float>(device, width);
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

#include "kernel/norm/checks.hpp"
#include "support/bounds.hpp"
#include "support/random.hpp"

namespace hard_rows {

namespace ht = halftone;
using ht::extent;
using ht::write_mode;
using exact = long double;

/// Rows with a stride; the NaNs between them must not be read or written.
template <class T>
struct matrix {
    extent rows, width, stride;
    std::vector<T> values;

    matrix(extent r, extent w, extent gap)
        : rows(r), width(w), stride(w + gap), values(static_cast<std::size_t>(r * (w + gap)), none()) {}

    static T none() { return T(std::numeric_limits<float>::quiet_NaN()); }
    T& operator()(extent i, extent j) { return values[static_cast<std::size_t>(i * stride + j)]; }
    T at(extent i, extent j) const { return values[static_cast<std::size_t>(i * stride + j)]; }
    ht::view<T, 2> view() { return {values.data(), {rows, width}, {stride, 1}}; }
    ht::const_view<T, 2> view() const { return {values.data(), {rows, width}, {stride, 1}}; }
    bool gaps_intact() const {
        for (extent i = 0; i < rows; ++i) {
            for (extent j = width; j < stride; ++j) {
                if (at(i, j) == at(i, j)) return false;
            }
        }
        return true;
    }
};
/// NaNs are the same, whatever their bits.
template <class T>
bool same(T a, T b) {
    return (a != a && b != b) ||
           (a == b && std::signbit(static_cast<double>(a)) == std::signbit(static_cast<double>(b)));
}
template <class T>
bool same(const matrix<T>& a, const matrix<T>& b) {
    for (extent i = 0; i < a.rows; ++i) {
        for (extent j = 0; j < a.width; ++j) {
            if (!same(a.at(i, j), b.at(i, j))) return false;
        }
    }
    return true;
}
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](T x, T y) { return same(x, y); });
}

template <class X>
struct ends {
    using traits = ht::number_traits<X>;
    static double largest() { return std::is_same_v<X, double> ? std::numeric_limits<double>::max() : traits::max; }
    static double least() {
        return std::is_same_v<X, double> ? std::numeric_limits<double>::denorm_min() : traits::min_subnormal;
    }
    /// Numbers whose squares clearly overflow or underflow; those of float16 do not.
    static double large() { return std::is_same_v<X, double> ? 1e200 : sizeof(X) == 2 && least() > 1e-10 ? 1e4 : 1e30; }
    static double small() {
        return std::is_same_v<X, double> ? 1e-200 : sizeof(X) == 2 && least() > 1e-10 ? 1e-4 : 1e-30;
    }
};

/// Every third row is an ordinary one. With epsilon 0 no row is constant.
template <class X>
matrix<X> hard(extent width, bool with_epsilon, extent gap = 0) {
    using e = ends<X>;
    const auto last = [](double v) { return static_cast<X>(v); };
    const auto cycle = [](extent j) { return static_cast<double>(1 + j % 4); };
    std::vector<std::vector<X>> rows;
    support::random data(static_cast<std::uint64_t>(width));
    const auto row = [&](auto value) {
        std::vector<X> r;
        for (extent j = 0; j < width; ++j) r.push_back(last(value(j)));
        rows.push_back(r);
        if (rows.size() % 3 == 2) rows.push_back(data.normals<X>(width, 1, 0.5));
    };
    if (with_epsilon) {
        for (const double c :
             {12345.678, 1000000.3, -0.001, 0.1, e::large(), e::largest(), -e::largest(), e::small(), e::least(), 0.0})
            row([&](extent) { return std::min(c, e::largest()); });
    }
    const double middle = std::min(1000000.3, e::largest() / 2);
    const double next = static_cast<double>(last(middle)) * (1 + 2.5 * ht::number_traits<X>::unit_roundoff);
    row([&](extent j) { return j % 2 == 0 ? middle : next; });  // neighbouring numbers
    row([&](extent j) { return j == 0 ? next : middle; });      // constant except for one element
    row([&](extent) { return 10000 + data.normal(); });         // far from 0
    row([&](extent) { return 300 + data.normal(); });
    row([&](extent j) {
        return j == 0 ? std::min(1e8, e::largest()) : 1 + 0.5 * data.normal();
    });  // an outlier, first and last
    row([&](extent j) { return j == width - 1 ? -std::min(1e8, e::largest()) : 1 + 0.5 * data.normal(); });
    row([&](extent j) { return j == width / 2 ? e::large() : 1 + 0.5 * data.normal(); });
    row([&](extent j) { return cycle(j) * e::large(); });
    row([&](extent j) { return cycle(j) * e::small(); });
    row([&](extent j) { return j % 2 == 0 ? e::largest() : -e::largest(); });
    row([&](extent j) { return j % 3 == 0 ? -e::largest() : e::largest(); });
    row([&](extent j) { return cycle(j) * 3 * e::least(); });
    row([&](extent j) { return j % 2 == 0 ? e::least() : 0.0; });
    matrix<X> m(static_cast<extent>(rows.size()), width, gap);
    for (extent i = 0; i < m.rows; ++i)
        for (extent j = 0; j < width; ++j) m(i, j) = rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
    return m;
}

/// The exact normalisation of a row: its numbers, optionally minus their mean, divided by their deviation.
struct exact_row {
    exact mean = 0, correction = 0, variance = 0, magnitude = 0, rstd = 0;

    template <class X>
    exact_row(const matrix<X>& x, extent i, exact epsilon, bool centred) {
        const auto n = static_cast<exact>(x.width);
        const auto sum = [&](auto term) {
            exact s = 0;
            for (extent j = 0; j < x.width; ++j) s += term(static_cast<exact>(static_cast<double>(x.at(i, j)))) / n;
            return s;
        };
        if (centred) {
            mean = sum([](exact v) { return v; });
            correction = sum([&](exact v) { return v - mean; });
        }
        variance = sum([&](exact v) { return deviation(v) * deviation(v); });
        // The variance of a constant row is 0; the rounding of the mean would hide that.
        if (centred && std::all_of(&x.values[static_cast<std::size_t>(i * x.stride)],
                                   &x.values[static_cast<std::size_t>(i * x.stride)] + x.width,
                                   [&](X v) { return v == x.at(i, 0); }))
            mean = static_cast<exact>(static_cast<double>(x.at(i, 0))), correction = variance = 0;
        magnitude = sum([](exact v) { return std::fabs(v); });
        rstd = 1 / std::sqrt(variance + epsilon);
    }
    exact deviation(exact v) const { return v - mean - correction; }
};

/// Errors of one row, relative to its deviation: of the mean, and of rstd. The mean's error is that of its sum or the 64th in the
/// contract, whichever is smaller.
template <class S>
struct row_errors {
    double of_mean, of_rstd;

    row_errors(const exact_row& r, extent width) {
        constexpr double v = ht::number_traits<S>::unit_roundoff;
        const double depth = static_cast<double>(std::is_same_v<S, double> ? width : ht::kernel::sum_depth(width));
        const double sum = support::gamma(depth + 1, v);
        const double moved = static_cast<double>(r.magnitude * r.rstd) * sum;
        const double held = static_cast<double>(std::sqrt(r.variance) * r.rstd) * (1.0 / 64 + sum) * (1 + 0x1p-10);
        // If the square of the mean underflows, the kernel cannot detect that the row is constant.
        of_mean =
            std::fabs(r.mean) < (std::is_same_v<S, double> ? 0x1p-450L : 0x1p-45L) ? moved : std::min(moved, held);
        const double relative = support::gamma(depth + 5, v) + of_mean * of_mean;
        of_rstd = relative / 2 / ((1 - relative) * (1 - relative)) + support::gamma(2, v);
    }
};

template <class X, class Y, class S>
struct outcome {
    matrix<Y> y;
    std::vector<S> mean, rstd;
};

template <class W>
std::vector<W> weights(extent width, std::uint64_t seed) {
    return support::random(seed).normals<W>(width, 0.5, 1);
}

/// Layer normalisation, or RMS normalisation.
template <bool Centred>
using norm_of = std::conditional_t<Centred, norm_checks::layer_norm, norm_checks::rms_norm>;

/// Norm: layer normalisation or RMS normalisation of one device, with the functions that both tests need.
template <class Device, bool Centred>
struct norm {
    using N = norm_of<Centred>;
    template <class X, class Y>
    using statistic = ht::kernel::statistic<X, float, Y>;

    template <class X, class Y>
    static void forward(Device& device, const ht::const_view<X, 2>& x, const std::vector<float>& gain,
                        const std::vector<float>& bias, const ht::view<Y, 2>& y, std::vector<statistic<X, Y>>& mean,
                        std::vector<statistic<X, Y>>& rstd, double epsilon) {
        using S = statistic<X, Y>;
        const ht::shape<1> width{x.extent_of(1)}, rows{x.extent_of(0)};
        typename N::template forward_arguments<X, float, Y> a{};
        a.x = x, a.gain = {gain.data(), width}, a.y = y, a.rstd = {rstd.data(), rows};
        a.epsilon = static_cast<S>(epsilon);
        if constexpr (Centred) a.bias = {bias.data(), width}, a.mean = {mean.data(), rows};
        N::template kernel<Device>::forward(device, a);
    }
    template <class X, class Y>
    static outcome<X, Y, statistic<X, Y>> forward(Device& device, const matrix<X>& x, double epsilon, extent gap) {
        using S = statistic<X, Y>;
        const auto rows = static_cast<std::size_t>(x.rows);
        outcome<X, Y, S> out{matrix<Y>(x.rows, x.width, gap), std::vector<S>(rows), std::vector<S>(rows)};
        forward<X, Y>(device, x.view(), weights<float>(x.width, 3), weights<float>(x.width, 4), out.y.view(), out.mean,
                      out.rstd, epsilon);
        return out;
    }
    template <class X, class Y>
    static void backward(Device& device, const matrix<X>& x, const matrix<Y>& dy,
                         const outcome<X, Y, statistic<X, Y>>& saved, matrix<X>& dx, std::vector<float>& dgain) {
        const ht::shape<1> width{x.width}, rows{x.rows};
        const auto gain = weights<float>(x.width, 3);
        typename N::template backward_arguments<X, float, Y, float> a{};
        a.x = x.view(), a.gain = {gain.data(), width}, a.dy = dy.view(), a.dx = dx.view();
        a.rstd = {saved.rstd.data(), rows}, a.dgain = {dgain.data(), width};
        a.parameter_mode = write_mode::overwrite;
        if constexpr (Centred) a.mean = {saved.mean.data(), rows};
        N::template kernel<Device>::backward(device, a);
    }
};

template <class X, class Y, bool Centred, class Device>
void check_forward(Device& device, const matrix<X>& x, double epsilon) {
    using support::gamma;
    using S = ht::kernel::statistic<X, float, Y>;
    constexpr double v = ht::number_traits<S>::unit_roundoff, tiny = ht::number_traits<S>::min_subnormal;
    const auto out = norm<Device, Centred>::template forward<X, Y>(device, x, epsilon, x.stride - x.width);
    CHECK(out.y.gaps_intact());
    const auto gain = weights<float>(x.width, 3), bias = weights<float>(x.width, 4);
    support::comparison ys, means, rstds;
    for (extent i = 0; i < x.rows; ++i) {
        const exact_row r(x, i, static_cast<exact>(static_cast<S>(epsilon)), Centred);
        const row_errors<S> errors(r, x.width);
        const auto at = static_cast<std::size_t>(i);
        CAPTURE(i);
        if (r.variance == 0 && epsilon == 0) continue;  // 0 over 0
        const double scale = static_cast<double>(r.rstd), average = static_cast<double>(r.mean + r.correction);
        if (Centred)
            means.expect(static_cast<double>(out.mean[at]), average,
                         errors.of_mean / scale * (1 + 0x1p-20) + 2 * v * std::fabs(average) + tiny);
        if (r.rstd < static_cast<exact>(std::numeric_limits<S>::max()) / 2)
            rstds.expect(static_cast<double>(out.rstd[at]), scale, (errors.of_rstd + v) * scale + tiny);
        else
            CHECK(static_cast<double>(out.rstd[at]) >= scale / 2);
        for (extent j = 0; j < x.width; ++j) {
            const auto k = static_cast<std::size_t>(j);
            const double n =
                static_cast<double>(r.deviation(static_cast<exact>(static_cast<double>(x.at(i, j)))) * r.rstd);
            const double g = static_cast<double>(gain[k]), b = Centred ? static_cast<double>(bias[k]) : 0;
            const double want = n * g + b;
            const double of_n = (Centred ? errors.of_mean * (1 + errors.of_rstd + gamma(3, v)) : 0) +
                                std::fabs(n) * (errors.of_rstd + gamma(3, v));
            const double error =
                std::fabs(g) * of_n * (1 + v) + 2 * v * (std::fabs(g * n) + std::fabs(b)) + tiny * (1 + std::fabs(g));
            ys.expect(static_cast<double>(out.y.at(i, j)), want, support::rounded<Y>(want, error));
        }
    }
    if (Centred) CHECK_MESSAGE(means.within(), means);
    CHECK_MESSAGE(rstds.within(), rstds);
    CHECK_MESSAGE(ys.within(), ys);
}

/// The result of a constant row is exactly the bias.
template <class X, class Device>
void check_constants(Device& device, extent width) {
    CAPTURE(width);
    using S = ht::kernel::statistic<X, float, float>;
    const auto bias = weights<float>(width, 4);
    for (const double c : {12345.678, 1000000.3, -0.001, 0.1, 1 / 3.0, 1e30, ends<X>::largest(), -ends<X>::largest()}) {
        CAPTURE(c);
        matrix<X> x(1, width, 0);
        for (extent j = 0; j < width; ++j) x(0, j) = static_cast<X>(c);
        const auto out = norm<Device, true>::template forward<X, float>(device, x, 1e-5, 0);
        CHECK(out.mean[0] == static_cast<S>(x.at(0, 0)));
        CHECK(std::equal(bias.begin(), bias.end(), out.y.values.begin()));
    }
}

/// The backward pass, from the saved mean and rstd.
template <class X, class Y, bool Centred, class Device>
void check_backward(Device& device, const matrix<X>& x, double epsilon) {
    using support::gamma;
    using S = ht::kernel::statistic<X, float, Y>;
    constexpr double v = ht::number_traits<S>::unit_roundoff;
    const extent gap = x.stride - x.width;
    auto saved = norm<Device, Centred>::template forward<X, Y>(device, x, epsilon, gap);
    for (S& r : saved.rstd) {
        if (!(r <= S(0x1p100))) r = 1;  // otherwise gradients exceed float's range, as they should
    }
    matrix<Y> dy(x.rows, x.width, gap);
    support::random data(5);
    for (extent i = 0; i < x.rows; ++i)
        for (extent j = 0; j < x.width; ++j) dy(i, j) = static_cast<Y>(data.normal());
    matrix<X> dx(x.rows, x.width, gap);
    std::vector<float> dgain(static_cast<std::size_t>(x.width));
    norm<Device, Centred>::template backward<X, Y>(device, x, dy, saved, dx, dgain);

    const auto gain = weights<float>(x.width, 3);
    const double depth = static_cast<double>(std::is_same_v<S, double> ? x.width : ht::kernel::sum_depth(x.width));
    support::comparison dxs, dgains;
    int beyond = 0;  // number of infinite results with the wrong sign
    std::vector<double> sums(dgain.size()), sizes(dgain.size());
    for (extent i = 0; i < x.rows; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto scale = static_cast<exact>(saved.rstd[at]), mean = Centred ? static_cast<exact>(saved.mean[at]) : 0;
        const auto n = [&](extent j) {
            return static_cast<double>((static_cast<exact>(static_cast<double>(x.at(i, j))) - mean) * scale);
        };
        const auto h = [&](extent j) {
            return static_cast<double>(dy.at(i, j)) * static_cast<double>(gain[static_cast<std::size_t>(j)]);
        };
        exact mean_h = 0, mean_hn = 0;
        double size_h = 0, size_hn = 0;
        const auto count = static_cast<double>(x.width);
        for (extent j = 0; j < x.width; ++j) {
            mean_h += static_cast<exact>(Centred ? h(j) : 0) / static_cast<exact>(count);
            mean_hn += static_cast<exact>(h(j)) * static_cast<exact>(n(j)) / static_cast<exact>(count);
            size_h += Centred ? std::fabs(h(j)) / count : 0, size_hn += std::fabs(h(j) * n(j)) / count;
            const double term = static_cast<double>(dy.at(i, j)) * n(j);
            sums[static_cast<std::size_t>(j)] += term, sizes[static_cast<std::size_t>(j)] += std::fabs(term);
        }
        const auto r = static_cast<double>(scale);
        for (extent j = 0; j < x.width; ++j) {
            const double along = std::fabs(n(j)) * size_hn, size = std::fabs(h(j)) + size_h + along;
            const double want =
                static_cast<double>(scale * (static_cast<exact>(h(j)) - mean_h - static_cast<exact>(n(j)) * mean_hn));
            const double error = r * (gamma(depth + 8, v) * (size_h + along) + gamma(6, v) * size) +
                                 2 * ht::number_traits<S>::min_subnormal;
            const auto got = static_cast<double>(dx.at(i, j));
            const bool can_hold = std::fabs(want) + error <= ends<X>::largest();  // float16 often cannot
            if (!can_hold && std::isinf(got)) {
                beyond += std::signbit(got) == std::signbit(want) ? 0 : 1;
            } else {
                dxs.expect(got, want, support::rounded<X>(want, error));
            }
        }
    }
    const double chain = static_cast<double>(x.rows) + 6;
    for (std::size_t j = 0; j < sums.size(); ++j)
        dgains.expect(static_cast<double>(dgain[j]), sums[j],
                      support::rounded<float>(sums[j], gamma(chain) * sizes[j]));
    CHECK(dx.gaps_intact());
    CHECK_MESSAGE(dxs.within(), dxs);
    CHECK_MESSAGE(dgains.within(), dgains);
    CHECK(beyond == 0);
}

/// On a GPU only for rows of whole, aligned vectors: in other rows the first vector depends on the address.
///
/// NaNs and infinities affect only their rows, whose results are PyTorch's. All other rows keep their bits, whatever the other rows
/// are, in place, and with a row stride.
template <class X, bool Centred, class Device>
void check_bits(Device& device, extent width) {
    CAPTURE(width);
    using n = norm<Device, Centred>;
    using S = ht::kernel::statistic<X, float, X>;
    const matrix<X> x = hard<X>(width, true);
    const auto out = n::template forward<X, X>(device, x, 1e-5, 0);
    {  // alone
        for (extent i = 0; i < x.rows; ++i) {
            matrix<X> one(1, width, 0);
            for (extent j = 0; j < width; ++j) one(0, j) = x.at(i, j);
            const auto alone = n::template forward<X, X>(device, one, 1e-5, 0);
            bool are_same = same(alone.rstd[0], out.rstd[static_cast<std::size_t>(i)]);
            for (extent j = 0; j < width; ++j) are_same = are_same && same(alone.y.at(0, j), out.y.at(i, j));
            CHECK_MESSAGE(are_same, "row ", i);
        }
    }
    {  // in place
        matrix<X> both = x;
        std::vector<S> mean(static_cast<std::size_t>(x.rows)), rstd = mean;
        n::template forward<X, X>(device, std::as_const(both).view(), weights<float>(width, 3),
                                  weights<float>(width, 4), both.view(), mean, rstd, 1e-5);
        CHECK(same(both, out.y));
        CHECK(same(rstd, out.rstd));
    }
    {  // apart
        for (const extent gap : {1, 3, 8, 24}) {
            if (gap % 8 != 0 && !support::is_on_cpu<Device>) continue;
            CAPTURE(gap);
            const matrix<X> spaced = hard<X>(width, true, gap);
            const auto other = n::template forward<X, X>(device, spaced, 1e-5, gap + 8);
            CHECK(same(other.y, out.y));
            CHECK(same(other.rstd, out.rstd));
            CHECK(other.y.gaps_intact());
            matrix<X> dy(x.rows, width, 0), spaced_dy(x.rows, width, gap), dx(x.rows, width, 0),
                spaced_dx(x.rows, width, 2 * gap);
            dy.values = support::random(5).normals<X>(x.rows * width);
            for (extent i = 0; i < x.rows; ++i)
                for (extent j = 0; j < width; ++j) spaced_dy(i, j) = dy.at(i, j);
            std::vector<float> dgain(static_cast<std::size_t>(width)), spaced_dgain = dgain;
            n::template backward<X, X>(device, x, dy, out, dx, dgain);
            n::template backward<X, X>(device, spaced, spaced_dy, other, spaced_dx, spaced_dgain);
            CHECK(same(dx, spaced_dx));
            CHECK(same(dgain, spaced_dgain));
            CHECK(spaced_dx.gaps_intact());
        }
    }
    {  // together with rows of infinities and NaNs
        matrix<X> bad = x;
        const extent k = width / 2;
        const auto infinity = static_cast<X>(std::numeric_limits<float>::infinity());
        bad(1, k) = matrix<X>::none(), bad(4, k) = infinity, bad(7, k) = static_cast<X>(-infinity);
        const auto other = n::template forward<X, X>(device, bad, 1e-5, 0);
        for (extent i = 0; i < x.rows; ++i) {
            bool is_right = true;
            for (extent j = 0; j < width; ++j) {
                const auto got = static_cast<double>(other.y.at(i, j));
                const bool is_nan = i == 1 || ((i == 4 || i == 7) && (Centred || j == k));
                is_right = is_right && (is_nan             ? got != got
                                        : i == 4 || i == 7 ? got == 0
                                                           : same(other.y.at(i, j), out.y.at(i, j)));
            }
            CHECK_MESSAGE(is_right, "row ", i);
        }
    }
}

template <class X, class Y, bool Centred, class Device>
void check(Device& device, extent width, extent gap = 0) {
    CAPTURE(width);
    for (const bool with_epsilon : {true, false}) {
        CAPTURE(with_epsilon);
        if (width == 1 && !with_epsilon) continue;  // 0 over 0
        const matrix<X> x = hard<X>(width, with_epsilon, gap);
        check_forward<X, Y, Centred>(device, x, with_epsilon ? 1e-5 : 0);
        check_backward<X, Y, Centred>(device, x, with_epsilon ? 1e-5 : 0);
    }
}
template <class X, class Y, class Device>
void check_layer_norm(Device& device, extent width, extent gap = 0) {
    check<X, Y, true>(device, width, gap);
}
template <class X, class Y, class Device>
void check_rms_norm(Device& device, extent width, extent gap = 0) {
    check<X, Y, false>(device, width, gap);
}

}  // namespace hard_rows
