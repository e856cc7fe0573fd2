// SPDX-License-Identifier: MIT
/// \file
/// Functions of maps at special values: zeros of both signs, subnormal numbers, infinities, NaNs, the ends of their domains. The
/// results of <cmath> in double (C23, Annex F) determine which results are NaN, infinite or zero, and their signs.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/map/map.hpp>
#include <halftone/tensor/host_tensor.hpp>

namespace special_checks {

namespace ht = halftone;

/// Numbers of T, each with both signs.
template <class T>
std::vector<T> places() {
    using limits = std::numeric_limits<T>;
    std::vector<T> all;
    for (const T x : {T(0), limits::denorm_min(), limits::min(), T(1e-10), T(0.5), T(1), T(3), T(20), T(89), T(2000),
                      limits::max(), limits::infinity(), limits::quiet_NaN()}) {
        all.push_back(x);
        all.push_back(-x);
    }
    return all;
}

/// Compares f(x) on the device with the definition: both are NaN, or both have the same sign and are both zero, infinite or
/// neither in T. At the edge of T's range, where rounding decides, results up to `edge` may also be zero.
template <class T, class Device, class F, class Definition>
void check(Device& device, const std::string& name, const F& f, const Definition& definition,
           double edge = static_cast<double>(std::numeric_limits<T>::min())) {
    CAPTURE(name);
    const std::vector<T> x = places<T>();
    const auto n = static_cast<ht::extent>(x.size());
    const auto in = ht::to_device(device, ht::const_view<T, 1>(x.data(), {n}));
    const ht::tensor<T, 1> out{device.memory(), {n}};
    ht::map(device, f, in, out);
    const auto got = ht::to_host(device, out);
    for (ht::extent i = 0; i < n; ++i) {
        const T at = x[static_cast<std::size_t>(i)], expected = static_cast<T>(definition(static_cast<double>(at)));
        CAPTURE(at);
        CAPTURE(expected);
        CAPTURE(got(i));
        CHECK(std::isnan(got(i)) == std::isnan(expected));
        if (std::isnan(expected)) continue;
        CHECK(std::signbit(got(i)) == std::signbit(expected));
        CHECK(std::isinf(got(i)) == std::isinf(expected));
        if (std::abs(expected) == 0 || static_cast<double>(std::abs(expected)) > edge)
            CHECK((got(i) == 0) == (expected == 0));
    }
}

template <class T, class Device>
void all_of(Device& device) {
    const auto sigmoid = [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); };
    check<T>(
        device, "negate", [](auto x) { return -x; }, [](double x) { return -x; });
    check<T>(
        device, "abs", [](auto x) { return ht::abs(x); }, [](double x) { return std::fabs(x); });
    check<T>(
        device, "exp", [](auto x) { return ht::exp(x); }, [](double x) { return std::exp(x); });
    check<T>(
        device, "expm1", [](auto x) { return ht::expm1(x); }, [](double x) { return std::expm1(x); });
    check<T>(
        device, "log", [](auto x) { return ht::log(x); }, [](double x) { return std::log(x); });
    check<T>(
        device, "log1p", [](auto x) { return ht::log1p(x); }, [](double x) { return std::log1p(x); });
    check<T>(
        device, "sqrt", [](auto x) { return ht::sqrt(x); }, [](double x) { return std::sqrt(x); });
    check<T>(
        device, "rsqrt", [](auto x) { return ht::rsqrt(x); }, [](double x) { return 1 / std::sqrt(x); });
    check<T>(
        device, "tanh", [](auto x) { return ht::tanh(x); }, [](double x) { return std::tanh(x); });
    check<T>(
        device, "erf", [](auto x) { return ht::erf(x); }, [](double x) { return std::erf(x); });
    check<T>(
        device, "sinh", [](auto x) { return ht::sinh(x); }, [](double x) { return std::sinh(x); });
    check<T>(
        device, "cosh", [](auto x) { return ht::cosh(x); }, [](double x) { return std::cosh(x); });
    check<T>(
        device, "tan", [](auto x) { return ht::tan(x); }, [](double x) { return std::tan(x); });
    check<T>(
        device, "sigmoid", [](auto x) { return ht::sigmoid(x); }, sigmoid);
    check<T>(
        device, "softplus", [](auto x) { return ht::softplus(x); },
        [](double x) { return std::isnan(x) ? x : std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); });
    // Where its sigmoid is subnormal, silu has an absolute error of 2^-120 (exec/cpu/simd/math.simd.hpp).
    check<T>(
        device, "silu", [](auto x) { return ht::silu(x); }, [&](double x) { return x * sigmoid(x); }, 0x1p-120);
    check<T>(
        device, "pow", [](auto x) { return ht::pow(x, 1.5f); }, [](double x) { return std::pow(x, 1.5); });
    check<T>(
        device, "atan2", [](auto x) { return ht::atan2(x, -1.0f); }, [](double x) { return std::atan2(x, -1.0); });
    check<T>(
        device, "min", [](auto x) { return ht::min(x, 1.0f); },
        [](double x) { return std::isnan(x) || x < 1 ? x : 1; });
    check<T>(
        device, "max", [](auto x) { return ht::max(1.0f, x); },
        [](double x) { return std::isnan(x) || x > 1 ? x : 1; });
    // The derivative of abs, which is the sign.
    const std::vector<T> x = places<T>();
    const auto n = static_cast<ht::extent>(x.size());
    const auto in = ht::to_device(device, ht::const_view<T, 1>(x.data(), {n}));
    const ht::tensor<T, 1> out{device.memory(), {n}};
    ht::kernel::map<Device>::run(device, ht::make_pack(ht::derivative<0>(ht::abs(ht::symbolic::argument<0>{}))),
                                 ht::make_pack(out.view()), ht::make_pack(in.const_view()));
    const auto signs = ht::to_host(device, out);
    for (ht::extent i = 0; i < n; ++i) {
        const T at = x[static_cast<std::size_t>(i)];
        CAPTURE(at);
        CHECK(std::isnan(signs(i)) == std::isnan(at));
        if (!std::isnan(at)) CHECK(signs(i) == (at < 0 ? -1 : at > 0 ? 1 : 0));
    }
}

template <class Device>
void all(Device& device) {
    all_of<float>(device);
    all_of<double>(device);
}

}  // namespace special_checks
