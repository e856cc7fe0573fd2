// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on a tape, compared with PyTorch's: values, gradients and exceptions, over a table of shapes and types
/// (golden/reductions.py).
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/axis_reduction.hpp>
#include <halftone/kernel.hpp>

#include "support/bounds.hpp"

namespace autodiff_axis_reduction_golden_tests {

namespace ht = halftone;
using ht::axes, ht::bfloat16, ht::extent, ht::float16;
using doubles = std::vector<double>;

/// Element by element: (((by i + start) mod modulus) - modulus / 2) / divisor.
template <class T>
std::vector<T> numbers(extent count, extent by, extent start, extent modulus, float divisor) {
    std::vector<T> all;
    for (extent i = 0; i < count; ++i)
        all.push_back(T(static_cast<float>((by * i + start) % modulus - modulus / 2) / divisor));
    return all;
}

struct found {
    doubles y, dx;
};
using function = std::function<found(ht::cpu&, const ht::shape<3>&)>;

template <class T, class Run>
function case_of(const Run& run) {
    return [run](ht::cpu& device, const ht::shape<3>& s) {
        const auto x = numbers<T>(s.size(), 7, 3, 11, 4);
        ht::tape tape{device};
        const auto leaf = tape.leaf(ht::const_view<T, 3>(x.data(), s));
        const auto y = run(tape, leaf);
        using Y = typename decltype(y)::value_type;
        found f;
        for (extent i = 0; i < y.size(); ++i) f.y.push_back(static_cast<double>(y.view().data()[i]));
        if constexpr (!std::is_same_v<Y, std::int32_t>) {
            static_assert(std::is_same_v<Y, T>);
            const auto dy = numbers<float>(y.size(), 5, 2, 7, 2);
            const auto slope = tape.constant(ht::const_view<float, 1>(dy.data(), {y.size()}));
            tape.backward(ht::sum<float>(tape, ht::mul<float>(tape, ht::detail::flat(y), slope)));
            if (s.size() == 0) return f;
            const auto dx = tape.gradient(leaf);
            for (extent i = 0; i < s.size(); ++i) f.dx.push_back(static_cast<double>(dx.data()[i]));
        }
        return f;
    };
}

template <class T, int... Axes>
void add_along(std::map<std::string, function>& all, const std::string& key, ht::axis_list<Axes...> along) {
    const auto add = [&](const char* name, const auto& run) { all[name + (" " + key)] = case_of<T>(run); };
    add("sum", [=](auto& c, auto& x) { return ht::sum(c, x, along); });
    add("mean", [=](auto& c, auto& x) { return ht::mean(c, x, along); });
    add("var", [=](auto& c, auto& x) { return ht::var(c, x, along); });
    add("var0", [=](auto& c, auto& x) { return ht::var(c, x, along, {.correction = 0}); });
    add("std", [=](auto& c, auto& x) { return ht::std(c, x, along); });
    add("logsumexp", [=](auto& c, auto& x) { return ht::logsumexp(c, x, along); });
    add("amax", [=](auto& c, auto& x) { return ht::amax(c, x, along); });
    add("amin", [=](auto& c, auto& x) { return ht::amin(c, x, along); });
    if constexpr (sizeof...(Axes) == 1) {
        add("argmax", [=](auto& c, auto& x) { return ht::argmax(c, x, along); });
        add("argmin", [=](auto& c, auto& x) { return ht::argmin(c, x, along); });
        add("prod", [=](auto& c, auto& x) { return ht::prod(c, x, along); });
        add("cumsum", [=](auto& c, auto& x) { return ht::cumsum(c, x, along); });
        add("softmax", [=](auto& c, auto& x) { return ht::softmax(c, x, along); });
        add("log_softmax", [=](auto& c, auto& x) { return ht::log_softmax(c, x, along); });
    }
}
template <class T>
void add_type(std::map<std::string, function>& all, const std::string& type) {
    add_along<T>(all, "2 " + type, axes<2>);
    add_along<T>(all, "1 " + type, axes<1>);
    add_along<T>(all, "02 " + type, axes<0, 2>);
}

doubles read(std::istringstream& words) {
    doubles all;
    for (std::string word; words >> word && word != "|";) all.push_back(std::strtod(word.c_str(), nullptr));
    return all;
}

void expect(support::comparison& c, double got, double want, double bound) {
    if (std::isnan(want)) return c.expect(std::isnan(got) ? 0 : 1, 0, 0);
    if (std::isinf(want)) return c.expect(got == want ? 0 : 1, 0, 0);
    c.expect(got, want, bound);
}

/// How far the numbers of both may lie apart. They are at most 3/2, of 36 elements at most, and their results at most some
/// times that: a float's sums and functions have less than 60 roundings in each. Into 16 bits both round once; PyTorch's
/// gradients read what is rounded to the type, the mean, the deviation or the result, and round up to four times on the way.
/// Logarithms in 16 bits have a bound of their own (log_bounds).
struct distance {
    double roundoff, roundings, magnitude;

    static distance of(const std::string& operation, double roundoff, bool is_gradient) {
        if (operation.substr(0, 3) == "arg") return {0, 0, 0};
        if (roundoff <= support::u) return {roundoff, 120, 4.5};
        if (is_gradient) return {roundoff, 6, 3};
        return {roundoff, 2, 0.125};
    }
    double bound(double want) const { return support::gamma(roundings, roundoff) * (std::fabs(want) + magnitude); }
};

/// How far logsumexp and log_softmax in 16 bits and their gradients may lie from PyTorch's, from the inputs and the type's unit
/// roundoff u. PyTorch computes in that type, and rounds after each step:
///
///     d = x - max x,   s = sum of exp d,   l = log s,   y = l + max x or d - l
///     dx = exp(x - y) dy, or dy - exp(y) (the sum of dy along the row)
///
/// Halftone computes in float and rounds each result once.
struct log_bounds {
    doubles y, dx;

    log_bounds(bool is_softmax, const ht::kernel::axis_layout& l, double u) {
        const auto size = static_cast<std::size_t>(l.outputs * l.reduced_size);
        const auto x = numbers<double>(l.outputs * l.reduced_size, 7, 3, 11, 4);
        const auto dy = numbers<double>(is_softmax ? l.outputs * l.reduced_size : l.outputs, 5, 2, 7, 2);
        y.resize(dy.size()), dx.resize(size);
        for (extent o = 0; o < l.outputs && l.reduced_size > 0; ++o) {
            const auto at = [&](extent i) { return static_cast<std::size_t>(l.output_offset(o) + l.reduced_offset(i)); };
            double largest = x[at(0)], sum = 0, off = 0, slopes = 0;
            for (extent i = 0; i < l.reduced_size; ++i) largest = std::max(largest, x[at(i)]);
            for (extent i = 0; i < l.reduced_size; ++i) {
                const double d = largest - x[at(i)], e = std::exp(-d);
                sum += e, off += e * (std::exp(d * u) * (1 + u) - 1);
                slopes += is_softmax ? dy[at(i)] : 0;
            }
            // Errors of s, relative, and of l. A float's are 64 roundings at most.
            const double in_float = support::gamma(64), of_sum = (1 + off / sum) * (1 + u) * (1 + in_float) - 1;
            const double log = std::log(sum), of_log = -std::log1p(-of_sum) * (1 + u) + std::fabs(log) * u;
            const auto k = static_cast<std::size_t>(o);
            if (!is_softmax) {
                const double value = largest + log, theirs = of_log * (1 + u) + std::fabs(value) * u;
                y[k] = theirs + std::fabs(value) * u + in_float * (1 + std::fabs(value));
                for (extent i = 0; i < l.reduced_size; ++i) {
                    const double d = std::fabs(x[at(i)] - value), want = std::exp(-d) * std::fabs(dy[k]);
                    dx[at(i)] = want * (std::exp(theirs + (d + theirs) * u) * (1 + u) * (1 + u) - 1 + u + in_float);
                }
                continue;
            }
            for (extent i = 0; i < l.reduced_size; ++i) {
                const double d = largest - x[at(i)], value = d + log;
                const double theirs = (d * u + of_log) * (1 + u) + value * u;
                y[at(i)] = theirs + value * u + in_float * (1 + value);
                const double share = std::exp(-value) * slopes, want = dy[at(i)] - share;
                const double product = std::fabs(share) * (std::exp(theirs) * std::pow(1 + u, 3) - 1);
                dx[at(i)] = product * (1 + u) + 2 * u * std::fabs(want) + in_float * (1 + std::fabs(slopes));
            }
        }
    }
};
ht::kernel::axis_layout layout_of(const std::string& along, const ht::shape<3>& s) {
    const ht::const_view<float, 3> v(nullptr, s);
    return along == "2"   ? ht::kernel::axis_layout_of(v, axes<2>)
           : along == "1" ? ht::kernel::axis_layout_of(v, axes<1>)
                          : ht::kernel::axis_layout_of(v, axes<0, 2>);
}

TEST_CASE("axis reductions on a tape: values and gradients of PyTorch") {
    std::map<std::string, function> all;
    add_type<float>(all, "fp32"), add_type<bfloat16>(all, "bf16"), add_type<float16>(all, "fp16");
    ht::cpu device{{.threads = 2}};
    std::ifstream file(HALFTONE_TEST_DATA "/reductions.txt");
    REQUIRE(file);
    std::size_t lines = 0;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        ++lines;
        std::istringstream words(line);
        std::string operation, along, type, bar;
        ht::shape<3> s{};
        words >> operation >> along >> type >> s[0] >> s[1] >> s[2] >> bar;
        const std::string key = operation + " " + along + " " + type;
        CAPTURE(key);
        CAPTURE(s);
        REQUIRE(all.count(key) == 1);
        if (bar == "throws") {
            CHECK_THROWS_AS(all[key](device, s), ht::shape_error);
            continue;
        }
        const doubles y = read(words), dx = read(words);
        const found got = all[key](device, s);
        REQUIRE(got.y.size() == y.size());
        REQUIRE(got.dx.size() == dx.size());
        const double roundoff = type == "bf16"   ? ht::unit_roundoff<bfloat16>
                                : type == "fp16" ? ht::unit_roundoff<float16>
                                                 : support::u;
        support::comparison results, gradients;
        if (type != "fp32" && operation.find("log") != std::string::npos) {
            const log_bounds bounds(operation == "log_softmax", layout_of(along, s), roundoff);
            for (std::size_t i = 0; i < y.size(); ++i) expect(results, got.y[i], y[i], bounds.y[i]);
            for (std::size_t i = 0; i < dx.size(); ++i) expect(gradients, got.dx[i], dx[i], bounds.dx[i]);
        } else {
            const distance of_results = distance::of(operation, roundoff, false);
            const distance of_gradients = distance::of(operation, roundoff, true);
            for (std::size_t i = 0; i < y.size(); ++i) expect(results, got.y[i], y[i], of_results.bound(y[i]));
            for (std::size_t i = 0; i < dx.size(); ++i) expect(gradients, got.dx[i], dx[i], of_gradients.bound(dx[i]));
        }
        if (!y.empty()) CHECK_MESSAGE(results.within(), results);
        if (!dx.empty()) CHECK_MESSAGE(gradients.within(), gradients);
    }
    CHECK(lines == 864);
}

}  // namespace autodiff_axis_reduction_golden_tests
