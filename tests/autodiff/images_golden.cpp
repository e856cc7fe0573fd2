// SPDX-License-Identifier: MIT
/// \file
/// Pooling, batch norm and group norm on a tape, compared with PyTorch's: values, gradients, running statistics and
/// errors, over a table of shapes and types (golden/images.py).
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/engine/gradient_variables.hpp>
#include <halftone/autodiff/op/channel_norm.hpp>
#include <halftone/autodiff/op/pooling.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel.hpp>

#include "support/bounds.hpp"

namespace autodiff_images_golden_tests {

namespace ht = halftone;
using ht::bfloat16, ht::extent, ht::float16;
using doubles = std::vector<double>;
using lists = std::vector<doubles>;

/// Element by element: (((by i + start) mod modulus) - modulus / 2) / divisor + more.
template <class T>
std::vector<T> numbers(extent count, extent by, extent start, extent modulus, float divisor, float more = 0) {
    std::vector<T> all;
    for (extent i = 0; i < count; ++i)
        all.push_back(T(static_cast<float>((by * i + start) % modulus - modulus / 2) / divisor + more));
    return all;
}
template <class T, int Rank>
doubles read(const ht::view<T, Rank>& v) {
    doubles all;
    for (extent i = 0; i < v.size(); ++i) all.push_back(static_cast<double>(v.data()[i]));
    return all;
}
ht::view<float, 1> shown(std::vector<float>& v) { return {v.data(), {static_cast<extent>(v.size())}}; }

using function = std::function<lists(ht::cpu&, const ht::shape<4>&)>;

template <class Tape, class Y>
void backward(Tape& tape, const Y& y) {
    static const std::vector<float> nothing(1);
    const auto dy = numbers<float>(y.size(), 5, 2, 7, 2);
    const auto slope = tape.constant(ht::const_view<float, 1>(dy.empty() ? nothing.data() : dy.data(), {y.size()}));
    tape.backward(ht::sum<float>(tape, ht::mul<float>(tape, ht::detail::flat(y), slope)));
}

template <class T, class Run>
function pooled(const Run& run) {
    return [run](ht::cpu& device, const ht::shape<4>& s) {
        const auto x = numbers<T>(s.size(), 7, 3, 11, 4);
        ht::tape tape{device};
        const auto leaf = tape.leaf(ht::const_view<T, 4>(x.data(), s));
        const ht::variable<T, 4> y = run(tape, leaf);
        lists all{read(y.view())};
        backward(tape, y);
        all.push_back(s.size() == 0 ? doubles{} : read(tape.gradient(leaf)));
        return all;
    };
}
template <class T, class Run>
function normed(const Run& run) {
    return [run](ht::cpu& device, const ht::shape<4>& s) {
        const extent channels = s[1];
        const auto x = numbers<T>(s.size(), 7, 3, 11, 4);
        const auto w = numbers<float>(channels, 3, 1, 5, 2, 1.5f), b = numbers<float>(channels, 2, 0, 3, 4);
        std::vector<float> mean(w.size(), 0.5f), var(w.size(), 2.0f);
        ht::tape tape{device};
        const auto leaf = tape.leaf(ht::const_view<T, 4>(x.data(), s));
        const auto weight = tape.leaf(ht::const_view<float, 1>(w.data(), {channels}));
        const auto bias = tape.leaf(ht::const_view<float, 1>(b.data(), {channels}));
        const ht::variable<T, 4> y = run(tape, leaf, shown(mean), shown(var), weight, bias);
        lists all{read(y.view())};
        backward(tape, y);
        all.push_back(s.size() == 0 ? doubles{} : read(tape.gradient(leaf)));
        all.push_back(read(tape.gradient(weight))), all.push_back(read(tape.gradient(bias)));
        all.push_back(read(shown(mean))), all.push_back(read(shown(var)));
        return all;
    };
}

template <class T>
void add_type(std::map<std::string, function>& all, const std::string& type) {
    const auto max = [&](const char* name, const ht::max_pool_options& o) {
        all[name + (" " + type)] = pooled<T>([o](auto& t, auto& x) { return ht::max_pool2d(t, x, o); });
    };
    const auto avg = [&](const char* name, const ht::avg_pool_options& o) {
        all[name + (" " + type)] = pooled<T>([o](auto& t, auto& x) { return ht::avg_pool2d(t, x, o); });
    };
    max("max2", {2}), max("max3", {3, 2, 1}), max("max23", {{2, 3}, {1, 2}, {1, 1}, {2, 1}});
    max("maxceil", {.kernel_size = 3, .stride = 2, .padding = 1, .ceil_mode = true});
    avg("avg2", {2}), avg("avg3", {3, 2, 1}), avg("avgceil", {{3, 2}, 2, 1, true});
    avg("avginside", {.kernel_size = 3, .stride = 2, .padding = 1, .count_include_pad = false});
    avg("avgby", {.kernel_size = 2, .stride = 1, .divisor_override = 3});
    for (const ht::height_width out : {ht::height_width(1), ht::height_width(3, 2)}) {
        all[(out == 1 ? "adaptive1 " : "adaptive32 ") + type] =
            pooled<T>([out](auto& t, auto& x) { return ht::adaptive_avg_pool2d(t, x, out); });
    }
    for (const bool training : {true, false}) {
        all[(training ? "batch " : "eval ") + type] =
            normed<T>([=](auto& t, auto& x, auto mean, auto var, auto& w, auto& b) {
                return ht::batch_norm(t, x, mean, var, w, b, {training, 0.3, 0.01});
            });
    }
    for (const extent groups : {1, 2}) {
        all[(groups == 1 ? "group1 " : "group2 ") + type] = normed<T>(
            [=](auto& t, auto& x, auto, auto, auto& w, auto& b) { return ht::group_norm(t, x, groups, w, b, 0.01); });
    }
}

/// How far the numbers of both may lie apart: `roundings` of numbers up to `magnitude`, and of the result. Inputs are
/// at most 5/4, slopes 3/2, weights 5/2, 1 / sqrt(variance + eps) at most 10; there are 42 elements in a channel at
/// most. The largest is exact. In 16 bits both round once; PyTorch's gradients of pooling besides round each time they
/// add. Sums over a channel have as many terms in float, of 3/2 times 6.5 at most: no element is further than sqrt(42)
/// deviations from the mean.
struct distance {
    double roundoff, roundings, magnitude;

    static distance of(const std::string& operation, double roundoff, std::size_t list) {
        const bool is_pooling = operation[0] == 'm' || operation[0] == 'a';
        if (operation.substr(0, 3) == "max" && list == 0) return {roundoff, 0, 0};
        if (list >= 4) return {support::u, 12, 2.5};
        if (list >= 2) return {support::u, 60, 42 * 1.5 * 6.5};
        if (roundoff <= support::u) return {roundoff, 60, is_pooling ? 4.5 : 25.0};
        return {roundoff, list == 0 ? 2.0 : 6.0, is_pooling ? 3.0 : 4.0};
    }
    void expect(support::comparison& c, double got, double want) const {
        if (std::isnan(want)) return c.expect(std::isnan(got) ? 0 : 1, 0, 0);
        c.expect(got, want, support::gamma(roundings, roundoff) * (std::fabs(want) + magnitude));
    }
};

lists read_lists(std::istringstream& words) {
    lists all(1);
    for (std::string word; words >> word;) {
        if (word == "|") {
            all.emplace_back();
        } else {
            all.back().push_back(std::strtod(word.c_str(), nullptr));
        }
    }
    return all;
}

TEST_CASE("pooling, batch norm and group norm on a tape: values and gradients of PyTorch") {
    std::map<std::string, function> all;
    add_type<float>(all, "fp32"), add_type<bfloat16>(all, "bf16"), add_type<float16>(all, "fp16");
    ht::cpu device{{.threads = 2}};
    std::ifstream file(HALFTONE_TEST_DATA "/images.txt");
    REQUIRE(file);
    std::size_t lines = 0, refused = 0;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        ++lines;
        std::istringstream words(line);
        std::string operation, type, bar;
        ht::shape<4> s{};
        words >> operation >> type >> s[0] >> s[1] >> s[2] >> s[3] >> bar;
        const std::string key = operation + " " + type;
        CAPTURE(key);
        CAPTURE(s);
        REQUIRE(all.count(key) == 1);
        if (bar == "throws") {
            ++refused;
            CHECK_THROWS_AS(all[key](device, s), ht::error);
            continue;
        }
        const double roundoff = type == "bf16"   ? ht::unit_roundoff<bfloat16>
                                : type == "fp16" ? ht::unit_roundoff<float16>
                                                 : support::u;
        const lists want = read_lists(words), got = all[key](device, s);
        REQUIRE(got.size() == want.size());
        for (std::size_t list = 0; list < want.size(); ++list) {
            CAPTURE(list);
            REQUIRE(got[list].size() == want[list].size());
            support::comparison c;
            const distance apart = distance::of(operation, roundoff, list);
            for (std::size_t i = 0; i < want[list].size(); ++i) apart.expect(c, got[list][i], want[list][i]);
            if (!want[list].empty()) CHECK_MESSAGE(c.within(), c);
        }
    }
    CHECK(lines == 3 * (5 * 15 - 1));
    CHECK(refused > 0);
}

}  // namespace autodiff_images_golden_tests
