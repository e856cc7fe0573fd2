// SPDX-License-Identifier: MIT
/// \file
/// The vectors of every instruction set, compared with <cmath> and number/.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/map/expression/function.hpp>
#include <halftone/number.hpp>

#include "exec/cpu/simd_functions.hpp"
#include "support/each_set.hpp"
#include "support/fused.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

#if defined(__unix__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#define HALFTONE_BODY "exec/cpu/simd_functions.simd.hpp"
#include <halftone/exec/cpu/each_set.hpp>

#define BODY(name) device.select(&ht::portable::name, &ht::avx2::name, &ht::avx512::name)

namespace ht = halftone;

namespace {

using ht::block;
using ht::simd_function;

float float_of(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
/// Equal bits, or both NaN.
bool same(float a, float b) { return bits_of(a) == bits_of(b) || (ht::is_nan(a) && ht::is_nan(b)); }

/// The distance between the floats around x.
double ulp(double x) {
    int exponent;
    std::frexp(x, &exponent);
    return std::ldexp(1.0, std::max(exponent, -125) - 24);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double sigmoid_derivative(double x) {
    const double e = std::exp(-std::fabs(x));
    return e / ((1 + e) * (1 + e));
}
double gelu_argument(double x) { return 2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double gated_derivative(double x, double t, double t_derivative) {
    const double e = sigmoid_derivative(t);
    return sigmoid(t) + (e == 0 ? 0 : x * t_derivative * e);
}

/// The bound of silu and gelu, whose relative error where their sigmoid is normal is `relative`: t is its argument.
double gated_bound(double t, double y, double relative) {
    return t < -87 ? 0x1p-120 : relative * std::fabs(y) + 0x1p-149;
}
double gated_bound(double t, double y) { return gated_bound(t, y, (6 + 4 * std::fabs(t)) * 0x1p-24); }
/// Of their short forms.
double float16_bound(double t, double y) { return gated_bound(t, y, (1 + std::fabs(t) / 16) * 0x1p-18); }
double bfloat16_bound(double t, double y) { return gated_bound(t, y, 1.125 * 0x1p-13 + std::fabs(t) * 0x1p-22); }

double silu(double x) { return x * sigmoid(x); }
double silu_derivative(double x) { return gated_derivative(x, x, 1); }
double gelu(double x) { return x * sigmoid(gelu_argument(x)); }
double gelu_derivative(double x) {
    return gated_derivative(x, gelu_argument(x), 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x));
}

namespace op = ht::symbolic::op;
/// The bound that a function of expressions states.
template <class Op>
double in_ulps(double, double y) {
    return Op::ulp * ulp(y);
}

// Raising one of these loosens other tests, too.
static_assert(op::exp::ulp == 2 && op::log::ulp == 2 && op::rsqrt::ulp == 2 && op::erf::ulp == 2 && op::sqrt::ulp == 0.5);
static_assert(op::tanh::ulp == 3 && op::sigmoid::ulp == 3 && op::expm1::ulp == 3 && op::log1p::ulp == 3);
static_assert(op::softplus::ulp == 4 && op::sinh::ulp == 4 && op::cosh::ulp == 4 && op::tan::ulp == 4);
static_assert(op::tanh_derivative::ulp == 5 && op::sigmoid_derivative::ulp == 5);

struct definition {
    simd_function function;
    const char* name;
    double (*exact)(double x);
    double (*bound)(double x, double y);  ///< as exec/cpu/simd/math.simd.hpp states it
};

const definition definitions[] = {
    {simd_function::exp, "exp", [](double x) { return std::exp(x); }, in_ulps<op::exp>},
    {simd_function::exp_below_zero, "exp_below_zero", [](double x) { return std::exp(-std::fabs(x)); },
     [](double, double y) { return 2 * ulp(y); }},
    {simd_function::exp2_below_zero, "exp2_below_zero", [](double x) { return std::exp2(-std::fabs(x)); },
     [](double, double y) { return 2 * ulp(y); }},
    {simd_function::exp2_by_floor, "exp2_by_floor",
     [](double x) { return std::exp2(std::isnan(x) ? x : std::min(x, 60.0)); },
     [](double, double y) { return 3 * ulp(y); }},
    {simd_function::short_exp_below_zero, "short_exp_below_zero", [](double x) { return std::exp(-std::fabs(x)); },
     [](double x, double y) { return (0.875 + std::fabs(x) / 16) * 0x1p-18 * y + 0x1p-149; }},
    {simd_function::expm1, "expm1", [](double x) { return std::expm1(x); },
     in_ulps<op::expm1>},
    {simd_function::log1p, "log1p", [](double x) { return std::log1p(x); },
     in_ulps<op::log1p>},
    {simd_function::softplus, "softplus",
     [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); },
     in_ulps<op::softplus>},
    {simd_function::erf, "erf", [](double x) { return std::erf(x); }, in_ulps<op::erf>},
    {simd_function::exp2, "exp2", [](double x) { return std::exp2(x); }, [](double, double y) { return 2 * ulp(y); }},
    {simd_function::log, "log", [](double x) { return std::log(x); }, in_ulps<op::log>},
    {simd_function::rsqrt, "rsqrt", [](double x) { return 1 / std::sqrt(x); },
     in_ulps<op::rsqrt>},
    {simd_function::tanh, "tanh", [](double x) { return std::tanh(x); }, in_ulps<op::tanh>},
    {simd_function::sigmoid, "sigmoid", sigmoid, in_ulps<op::sigmoid>},
    {simd_function::tanh_derivative, "tanh_derivative", [](double x) { return 4 * sigmoid_derivative(2 * x); },
     in_ulps<op::tanh_derivative>},
    {simd_function::sigmoid_derivative, "sigmoid_derivative", sigmoid_derivative, in_ulps<op::sigmoid_derivative>},
    {simd_function::silu, "silu", silu, gated_bound},
    {simd_function::gelu, "gelu", gelu, [](double x, double y) { return gated_bound(gelu_argument(x), y); }},
    {simd_function::silu_derivative, "silu_derivative", silu_derivative, [](double, double) { return 0x1p-21; }},
    {simd_function::gelu_derivative, "gelu_derivative", gelu_derivative, [](double, double) { return 0x1p-21; }},
    {simd_function::silu_for_float16, "silu<float16>", silu, float16_bound},
    {simd_function::gelu_for_float16, "gelu<float16>", gelu,
     [](double x, double y) { return float16_bound(gelu_argument(x), y); }},
    {simd_function::short_silu_slope, "silu_derivative<bfloat16>", silu_derivative, [](double, double) { return 0x1p-17; }},
    {simd_function::short_gelu_slope, "gelu_derivative<bfloat16>", gelu_derivative, [](double, double) { return 0x1p-17; }},
    {simd_function::silu_for_bfloat16, "silu<bfloat16>", silu, bfloat16_bound},
    {simd_function::gelu_for_bfloat16, "gelu<bfloat16>", gelu,
     [](double x, double y) { return bfloat16_bound(gelu_argument(x), y); }},
    // Exact by IEEE 754.
    {simd_function::sqrt, "sqrt", [](double x) { return std::sqrt(x); }, in_ulps<op::sqrt>},
    {simd_function::round_even, "round_even", [](double x) { return std::nearbyint(x); },
     [](double, double) { return 0.0; }},
    {simd_function::abs, "abs", [](double x) { return std::fabs(x); }, [](double, double) { return 0.0; }},
    {simd_function::negate, "negate", [](double x) { return -x; }, [](double, double) { return 0.0; }},
};

/// Overflow counts as the power of two behind the largest float.
double capped(double y) { return std::clamp(y, -0x1p128, 0x1p128); }

struct measure {
    double ratio = 0;  ///< the largest error, in bounds
    float at = 0;
    std::int64_t wrong = 0;  ///< NaN where there is a value, or the other way round

    void look(const definition& f, float x, double exact, float got) {
        if (ht::is_nan(got) || std::isnan(exact)) {
            if (ht::is_nan(got) != std::isnan(exact)) ++wrong, at = x;
            return;
        }
        const double error = std::fabs(capped(static_cast<double>(got)) - capped(exact));
        if (error == 0) return;
        const double bound = f.bound(static_cast<double>(x), capped(exact));
        const double r = bound > 0 ? error / bound : HUGE_VAL;
        if (r > ratio) ratio = r, at = x;
    }
};

/// Every `step`-th float, all sets at once, since the exact values cost most.
void measure_floats(std::uint64_t step) {
    for (const definition& f : definitions) {
        std::vector<std::unique_ptr<ht::cpu>> devices;
        support::for_each_set([&](ht::isa set) {
            devices.push_back(std::make_unique<ht::cpu>(ht::cpu_options{.threads = 1, .instruction_set = set}));
        });
        std::vector<measure> measures(devices.size());
        std::vector<float> x(block), y(block);
        std::vector<double> exact(block);
        for (std::uint64_t first = 0; first < std::uint64_t{1} << 32; first += step * block) {
            for (std::size_t i = 0; i < block; ++i) {
                x[i] = float_of(static_cast<std::uint32_t>(first + i * step));
                exact[i] = f.exact(static_cast<double>(x[i]));
            }
            for (std::size_t s = 0; s < devices.size(); ++s) {
                const ht::cpu& device = *devices[s];
                BODY(simd_unary)(f.function, x.data(), y.data(), block);
                for (std::size_t i = 0; i < block; ++i) measures[s].look(f, x[i], exact[i], y[i]);
            }
        }
        for (std::size_t s = 0; s < devices.size(); ++s) {
            const std::string here = std::string(f.name) + " on " + ht::name(devices[s]->instruction_set());
            CHECK_MESSAGE(measures[s].wrong == 0, here, ": NaN or no NaN at ", measures[s].at);
            CHECK_MESSAGE(measures[s].ratio <= 1, here, ": error / bound ", measures[s].ratio, " at ", measures[s].at);
        }
    }
}

const float infinity = std::numeric_limits<float>::infinity();

/// Zeros, the ends of the ranges, the neighbours of ones and twos, halves, and others.
std::vector<float> specials() {
    std::vector<float> values;
    for (const float x : {0.0f,
                          0x1p-149f,
                          0x1.fffffcp-127f,
                          0x1p-126f,
                          0.5f,
                          0.625f,
                          1.0f,
                          1.5f,
                          2.0f,
                          2.5f,
                          3.0f,
                          16.0f,
                          87.3f,
                          88.72283f,
                          88.72284f,
                          103.97f,
                          104.0f,
                          128.0f,
                          0x1.8p22f,
                          0x1.000002p23f,
                          0x1p24f,
                          0x1p100f,
                          std::numeric_limits<float>::max(),
                          infinity,
                          float_of(0x7fc00000),
                          float_of(0x7f800001)}) {
        for (const float y : {x, -x, std::nextafter(x, 0.0f), std::nextafter(x, infinity)}) values.push_back(y);
    }
    while (values.size() % 16 != 0) values.push_back(1);
    return values;
}

}  // namespace

TEST_CASE("simd: functions keep their stated bounds on a million floats") { measure_floats(4093); }

TEST_CASE("simd: functions keep their stated bounds on 70 million floats" * doctest::skip()) { measure_floats(61); }

TEST_CASE("simd: functions at special values") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        const std::vector<float> x = specials();
        std::vector<float> y(x.size());
        for (const definition& f : definitions) {
            CAPTURE(std::string(f.name));
            measure m;
            BODY(simd_unary)(f.function, x.data(), y.data(), static_cast<int>(x.size()));
            for (std::size_t i = 0; i < x.size(); ++i) m.look(f, x[i], f.exact(static_cast<double>(x[i])), y[i]);
            CHECK_MESSAGE(m.wrong == 0, "at ", m.at);
            CHECK_MESSAGE(m.ratio <= 1, m.ratio, " at ", m.at);
        }
        // Signs of zeros, which an error in ulp does not show.
        const auto at = [&](simd_function f, float value) {
            std::vector<float> in(16, value), out(16);
            BODY(simd_unary)(f, in.data(), out.data(), 16);
            return out[0];
        };
        CHECK(same(at(simd_function::tanh, -0.0f), -0.0f));
        CHECK(same(at(simd_function::sqrt, -0.0f), -0.0f));
        CHECK(same(at(simd_function::negate, 0.0f), -0.0f));
        CHECK(same(at(simd_function::abs, -0.0f), 0.0f));
        CHECK(same(at(simd_function::round_even, -0.25f), -0.0f));
        CHECK(same(at(simd_function::gelu, -0.0f), -0.0f));
        CHECK(same(at(simd_function::gelu_for_bfloat16, -0.0f), -0.0f));
        for (const float value : x) CHECK(at(simd_function::not_finite, value) == (ht::is_finite(value) ? 0.0f : 1.0f));
    });
}

TEST_CASE("simd: arithmetic, comparisons and selections are those of single floats") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        const std::vector<float> values = specials();
        support::random data{1};
        auto results = std::make_unique<ht::simd_results>();
        std::vector<float> a(block), b(block), c(block);
        std::size_t pair = 0;
        for (int round = 0; round < 8; ++round) {
            for (std::size_t i = 0; i < block; ++i, ++pair) {
                a[i] = round < 4 ? values[pair / values.size() % values.size()] : static_cast<float>(data.normal());
                b[i] = round < 4 ? values[pair % values.size()] : static_cast<float>(data.normal());
                c[i] = static_cast<float>(data.normal());
            }
            BODY(simd_binary)(a.data(), b.data(), c.data(), *results, block);
            const ht::simd_results& r = *results;
            std::int64_t wrong = 0;
            const auto expect = [&wrong](float got, float want) { wrong += same(got, want) ? 0 : 1; };
            const int lanes = BODY(simd_lanes)();
            for (std::size_t i = 0; i < block; ++i) {
                const float x = a[i], y = b[i];
                expect(r.sum[i], x + y);
                expect(r.difference[i], x - y);
                expect(r.product[i], x * y);
                expect(r.quotient[i], x / y);
                const float product = x * y, fused = support::fused(x, y, c[i]);
                if (!same(r.fused[i], fused)) expect(r.fused[i], set == ht::isa::portable ? product + c[i] : fused);
                // The second operand where either is NaN, and of two zeros.
                expect(r.smaller[i], x < y ? x : y);
                expect(r.larger[i], y < x ? x : y);
                expect(r.signed_as[i], std::copysign(x, y));
                expect(r.less[i], x < y ? 1.0f : 0.0f);
                expect(r.less_equal[i], x <= y ? 1.0f : 0.0f);
                expect(r.equal[i], x == y ? 1.0f : 0.0f);
                expect(r.both[i], x < y && x < 0 ? 1.0f : 0.0f);
                expect(r.either[i], x < y || x < 0 ? 1.0f : 0.0f);
                expect(r.complement[i], x < y ? 0.0f : 1.0f);
                bool any = false;
                for (std::size_t first = i / static_cast<std::size_t>(lanes) * static_cast<std::size_t>(lanes), l = 0;
                     l < static_cast<std::size_t>(lanes); ++l) {
                    any = any || a[first + l] < b[first + l];
                }
                expect(r.any[i], any ? 1.0f : 0.0f);
            }
            CHECK(wrong == 0);
        }
    });
}

TEST_CASE("simd: powers of two, sums, maxima, transposes") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        const int lanes = BODY(simd_lanes)();
        const auto width = static_cast<std::size_t>(lanes);

        std::vector<float> x(block), n(block), scaled(block), exponents(block), significands(block);
        support::random data{2};
        for (std::size_t i = 0; i < block; ++i) {
            x[i] = std::ldexp(static_cast<float>(1 + std::fabs(data.normal())), data.below(200) - 100);
            n[i] = static_cast<float>(data.below(481) - 240);
        }
        BODY(simd_powers)(x.data(), n.data(), scaled.data(), exponents.data(), significands.data(), block);
        for (std::size_t i = 0; i < block; ++i) {
            const double exact = std::ldexp(static_cast<double>(x[i]), static_cast<int>(n[i]));
            CHECK(std::fabs(capped(static_cast<double>(scaled[i])) - capped(exact)) <=
                  (exact < 0x1p-126 ? 0x1p-149 : 0));
            int exponent;
            CHECK(significands[i] == std::frexp(x[i], &exponent));
            CHECK(exponents[i] == static_cast<float>(exponent));
        }

        for (int round = 0; round < 100; ++round) {
            const std::vector<float> integers = data.integers<float>(lanes, 1000);
            float total = 0, largest = -infinity, got_total = 0, got_largest = 0;
            for (const float value : integers) total += value, largest = std::max(largest, value);
            BODY(simd_reduce)(integers.data(), got_total, got_largest);
            CHECK(got_total == total);
            CHECK(got_largest == largest);
        }

        std::vector<float> square(width * width);
        for (std::size_t i = 0; i < square.size(); ++i) square[i] = static_cast<float>(i);
        BODY(simd_transpose)(square.data());
        for (std::size_t i = 0; i < square.size(); ++i)
            CHECK(square[i] == static_cast<float>(i % width * width + i / width));
    });
}

TEST_CASE_TEMPLATE("simd: all 65,536 patterns widen as in number/", T, ht::bfloat16, ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        std::vector<T> patterns(65536);
        std::vector<float> wide(65536);
        for (std::size_t i = 0; i < 65536; ++i) patterns[i] = T::from_bits(static_cast<std::uint16_t>(i));
        BODY(simd_widen<T>)(patterns.data(), wide.data(), 65536);
        std::int64_t wrong = 0;
        for (std::size_t i = 0; i < 65536; ++i) wrong += same(wide[i], static_cast<float>(patterns[i])) ? 0 : 1;
        CHECK(wrong == 0);
    });
}

namespace {

/// Floats of every upper half, with the lower halves that begin at `first` and come `step` after each other; ordinary
/// ones, subnormals and NaNs share vectors.
template <class T>
std::int64_t wrongly_narrowed(ht::cpu& device, std::uint32_t first, std::uint32_t step) {
    std::vector<float> wide(65536), rounded(65536), apart(65536);
    std::vector<T> narrow(65536), together(65536);
    std::int64_t wrong = 0;
    for (std::uint32_t low = first; low < 65536; low += step) {
        for (std::uint32_t i = 0; i < 65536; ++i) wide[i] = float_of((i * 40503u & 0xffffu) << 16 | low);
        BODY(simd_narrow<T>)(wide.data(), narrow.data(), 65536);
        BODY(simd_narrow_four<T>)(wide.data(), together.data(), 65536);
        BODY(simd_round<T>)(wide.data(), rounded.data(), 65536);
        BODY(simd_round_apart<T>)(wide.data(), apart.data(), 65536);
        for (std::size_t i = 0; i < 65536; ++i) {
            const T want(wide[i]);
            for (const T got : {narrow[i], together[i]})
                wrong += got.bits() == want.bits() || (ht::is_nan(got) && ht::is_nan(want)) ? 0 : 1;
            for (const float got : {rounded[i], apart[i]}) wrong += same(got, static_cast<float>(want)) ? 0 : 1;
        }
    }
    return wrong;
}

}  // namespace

TEST_CASE_TEMPLATE("simd: floats round as in number/", T, ht::bfloat16, ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        // Ties of both types, their neighbours, and others.
        for (const std::uint32_t low :
             {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2000u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu, 0x5a5au}) {
            CHECK(wrongly_narrowed<T>(device, low, 65536) == 0);
        }
    });
}

TEST_CASE_TEMPLATE("simd: every float rounds as in number/" * doctest::skip(), T, ht::bfloat16,
                   ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        CHECK(wrongly_narrowed<T>(device, 0, 1) == 0);
    });
}

TEST_CASE("simd: floats round to tfloat32 as in number/") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        std::vector<float> wide(65536), rounded(65536);
        for (const std::uint32_t low :
             {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x1fffu, 0x2000u, 0x3000u, 0xefffu, 0xf000u, 0xffffu}) {
            for (std::uint32_t high = 0; high < 65536; ++high) wide[high] = float_of(high << 16 | low);
            BODY(simd_round<ht::tfloat32>)(wide.data(), rounded.data(), 65536);
            std::int64_t wrong = 0;
            for (std::size_t i = 0; i < 65536; ++i)
                wrong += same(rounded[i], static_cast<float>(ht::tfloat32(wide[i]))) ? 0 : 1;
            CHECK(wrong == 0);
        }
    });
}

TEST_CASE("simd: floats split into two bfloat16 as in number/") {
    using two = ht::split<ht::bfloat16, 2>;
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        std::vector<float> wide(65536), rounded(65536);
        for (const std::uint32_t low : {0u, 1u, 0x3fu, 0x40u, 0x41u, 0x80u, 0xc0u, 0x7f80u, 0x7fffu, 0x8000u, 0x8001u,
                                        0x80c0u, 0xff40u, 0xff80u, 0xffffu}) {
            for (std::uint32_t high = 0; high < 65536; ++high) wide[high] = float_of(high << 16 | low);
            BODY(simd_round<two>)(wide.data(), rounded.data(), 65536);
            std::int64_t wrong = 0;
            for (std::size_t i = 0; i < 65536; ++i)
                wrong += same(rounded[i], static_cast<float>(two(wide[i]))) ? 0 : 1;
            CHECK(wrong == 0);
        }
    });
}

TEST_CASE_TEMPLATE("simd: the last, partial vector of an array", T, float, ht::bfloat16, ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        const int lanes = BODY(simd_lanes)();
        for (int n = 0; n <= lanes; ++n) {
            CAPTURE(n);
            std::vector<float> values(static_cast<std::size_t>(lanes));
            for (int i = 0; i < lanes; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);

            const support::guarded<T> stored(n, 3);
            BODY(simd_store_first<T>)(values.data(), stored.data(), n);
            CHECK(stored.intact());
            for (int i = 0; i < n; ++i) CHECK(static_cast<float>(stored[i]) == static_cast<float>(i + 1));

            std::vector<float> loaded(static_cast<std::size_t>(lanes), -1.0f);
            BODY(simd_load_first<T>)(stored.data(), loaded.data(), n);
            for (int i = 0; i < lanes; ++i)
                CHECK(loaded[static_cast<std::size_t>(i)] == (i < n ? static_cast<float>(i + 1) : 0.0f));
        }
    });
}

#if defined(__unix__)
TEST_CASE_TEMPLATE("simd: nothing past the end of an array is read", T, float, ht::bfloat16, ht::float16) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* const two = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(two != MAP_FAILED);
    T* const end = reinterpret_cast<T*>(static_cast<char*>(two) + page);
    REQUIRE(mprotect(end, page, PROT_NONE) == 0);  // reading the second page ends the program
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        const int lanes = BODY(simd_lanes)();
        for (int n = 0; n <= lanes; ++n) {
            std::vector<float> values(static_cast<std::size_t>(lanes), 2.0f), loaded(static_cast<std::size_t>(lanes));
            BODY(simd_store_first<T>)(values.data(), end - n, n);
            BODY(simd_load_first<T>)(end - n, loaded.data(), n);
            for (int i = 0; i < lanes; ++i) CHECK(loaded[static_cast<std::size_t>(i)] == (i < n ? 2.0f : 0.0f));
        }
    });
    munmap(two, 2 * page);
}
#endif
