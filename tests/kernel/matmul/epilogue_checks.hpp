// SPDX-License-Identifier: MIT
/// \file
/// Every epilogue of a product of any device, compared with the definition: the error of the sum propagates through the epilogue,
/// whose operations add their errors, and the result is rounded once.
///
///     matmul_test::every_epilogue<ht::amp_bf16, bfloat16, float, matmul_test::errors_in_float>({35, 37, 67}, layouts[2], run);
///
/// It contains subcases.
#pragma once

#include "kernel/matmul/checks.hpp"

namespace matmul_test {

using support::gamma, support::u;

inline double gelu_argument(double x) { return 1.5957691216057308 * (x + 0.044715 * x * x * x); }
inline double gelu(double x) { return x / (1 + std::exp(-gelu_argument(x))); }
inline double gelu_derivative(double x) {
    const double s = 1 / (1 + std::exp(-gelu_argument(x)));
    return s + x * s * (1 - s) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
}
constexpr double largest_gelu_slope = 1.13;

/// The errors of a CPU's functions with results in T, and of a GPU's if T has 16 bits.
struct errors_on_vectors {
    template <class T>
    static double of_gelu(double x) {
        return std::fabs(gelu(x)) * support::gated_error<T>(gelu_argument(x));
    }
    template <class T>
    static double of_gelu_slope(double) {
        return support::gated_slope_error<T>();
    }
};
/// The errors of the functions in kernel/map/expression/scalar.hpp with results in float, where the error of exp is two units
/// in the last place. t, the argument of the sigmoid, has seven roundings, two of them in its constants; e^-|t|, the sum with
/// 1 and the quotient add six to the sigmoid s, and eight to its derivative; the derivative of t and the products with it add
/// eight more.
struct errors_in_float {
    template <class T>
    static double of_gelu(double x) {
        if constexpr (sizeof(T) < sizeof(float)) return errors_on_vectors::of_gelu<T>(x);
        return std::fabs(gelu(x)) * (7 + 7 * std::fabs(gelu_argument(x))) * u;
    }
    template <class T>
    static double of_gelu_slope(double x) {
        if constexpr (sizeof(T) < sizeof(float)) return errors_on_vectors::of_gelu_slope<T>(x);
        const double t = std::fabs(gelu_argument(x)), s = 1 / (1 + std::exp(-gelu_argument(x))),
                     other = std::fabs(gelu_derivative(x) - s);
        return u * (other * (7 * t + 16) + s * ((1 - s) * 7 * t + 6) + std::fabs(gelu_derivative(x)));
    }
};

/// A computed value, and the bound of its error.
struct approximate {
    double value, error;
};
inline approximate operator+(const approximate& a, double b) {
    return {a.value + b, a.error + u * (std::fabs(a.value + b) + a.error)};
}
inline approximate operator*(const approximate& a, double b) {
    return {a.value * b, (a.error + u * (std::fabs(a.value) + a.error)) * std::fabs(b)};
}
template <class Errors, class T>
approximate gelu(const approximate& a) {
    return {gelu(a.value),
            largest_gelu_slope * a.error + Errors::template of_gelu<T>(std::fabs(a.value) + a.error)};
}
template <class Errors, class T>
approximate times_gelu_slope(const approximate& a, double x) {
    approximate product = a * gelu_derivative(x);
    product.error += (std::fabs(a.value) + a.error) * Errors::template of_gelu_slope<T>(x);
    return product;
}

/// One product of random numbers, with all operands that an epilogue may read. Its sums have deviation 1, the range in which gelu
/// is curved.
template <class P, class T, class Bias>
struct problem {
    sizes s;
    operand<T> a, b, c, extra;
    operand<T> before;  // the initial contents of c
    support::guarded<Bias> bias_memory;
    ht::view<Bias, 1> bias = bias_memory.view();
    double roundoff;  // of the additions of a product

    problem(const sizes& all, const layout& of_c, double of_additions)
        : s(all),
          a(s.rows, s.depth, layouts[0], normals(1)),
          b(s.depth, s.columns, layouts[1], normals(2, 1 / std::sqrt(static_cast<double>(s.depth)))),
          c(s.rows, s.columns, of_c, normals(3)),
          extra(s.rows, s.columns, of_c, normals(4)),
          before(s.rows, s.columns, of_c, normals(3)),
          bias_memory(support::random(5).normals<Bias>(s.columns), 3 * of_c.offset),
          roundoff(of_additions) {}

    /// want(sum, i, j) returns the expected element of c.
    template <class Want>
    void check(const ht::view<T, 2>& got, const Want& want) {
        support::comparison all;
        using compute = typename P::compute;
        ht::reference::matmul<compute>(a.view, b.view, [&](double sum, extent i, extent j) {
            double magnitude = 0;
            for (extent p = 0; p < s.depth; ++p)
                magnitude += std::fabs(number(compute(number(a.view(i, p)))) * number(compute(number(b.view(p, j)))));
            const approximate w =
                want(approximate{sum, gamma(static_cast<double>(s.depth) + 1, roundoff) * magnitude}, i, j);
            all.expect(number(got(i, j)), w.value, support::rounded<T>(w.value, w.error));
        });
        CHECK_WITHIN(all);
        CHECK(c.intact());
        CHECK(extra.intact());
    }
};

/// run(test) calls test(device) for each device to be tested.
template <class P, class T, class Bias, class Errors, class Run>
void every_epilogue(const sizes& s, const layout& of_c, const Run& run, double roundoff = support::u) {
    using problem = problem<P, T, Bias>;
    const auto with_problem = [&](const auto& test) {
        run([&](auto& device) {
            problem p(s, of_c, roundoff);
            test(device, p);
        });
    };
    SUBCASE("plain") {
        with_problem([](auto& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::plain{});
            p.check(p.c.view, [](const approximate& sum, extent, extent) { return sum; });
        });
    }
    SUBCASE("add_product") {
        with_problem([](auto& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::add_product{});
            p.check(p.c.view,
                    [&](const approximate& sum, extent i, extent j) { return sum + number(p.before.view(i, j)); });
        });
    }
    SUBCASE("bias") {
        with_problem([](auto& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::bias{p.bias});
            p.check(p.c.view, [&](const approximate& sum, extent, extent j) { return sum + number(p.bias(j)); });
        });
    }
    SUBCASE("bias_gelu") {
        with_problem([](auto& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::bias_gelu{p.bias});
            p.check(p.c.view,
                    [&](const approximate& sum, extent, extent j) { return gelu<Errors, T>(sum + number(p.bias(j))); });
        });
    }
    SUBCASE("bias_gelu_keep") {
        with_problem([](auto& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::bias_gelu_keep{p.bias, p.extra.view});
            p.check(p.c.view,
                    [&](const approximate& sum, extent, extent j) { return gelu<Errors, T>(sum + number(p.bias(j))); });
            p.check(p.extra.view, [&](const approximate& sum, extent, extent j) { return sum + number(p.bias(j)); });
        });
    }
    SUBCASE("bias_residual") {
        with_problem([](auto& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::bias_residual{p.bias, p.extra.view});
            p.check(p.c.view, [&](const approximate& sum, extent i, extent j) {
                return sum + number(p.bias(j)) + number(p.extra.view(i, j));
            });
        });
    }
    SUBCASE("gelu_gradient") {
        with_problem([](auto& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::gelu_gradient{p.extra.view});
            p.check(p.c.view, [&](const approximate& sum, extent i, extent j) {
                return times_gelu_slope<Errors, T>(sum, number(p.extra.view(i, j)));
            });
        });
    }
    SUBCASE("gelu_gradient where the operand is the result") {
        with_problem([](auto& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view, ht::gelu_gradient{p.c.view});
            p.check(p.c.view, [&](const approximate& sum, extent i, extent j) {
                return times_gelu_slope<Errors, T>(sum, number(p.before.view(i, j)));
            });
        });
    }
    SUBCASE("then") {
        with_problem([](auto& device, problem& p) {
            ht::matmul<P>(device, p.a.view, p.b.view, p.c.view,
                          ht::then{[](auto sum, auto x, auto beta) { return sum * x + beta; }, p.extra.view, p.bias});
            p.check(p.c.view, [&](const approximate& sum, extent i, extent j) {
                return sum * number(p.extra.view(i, j)) + number(p.bias(j));
            });
        });
    }
}

}  // namespace matmul_test
