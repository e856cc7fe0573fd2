// SPDX-License-Identifier: MIT
/// \file
/// Attention with functions of scores, in double and in float, compared with PyTorch's flex_attention and
/// scaled_dot_product_attention: tests/golden/attention.py.
#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/modified_attention.hpp>
#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "autodiff/compare.hpp"
#include "autodiff/weigh.hpp"

namespace autodiff_attention_golden_tests {

namespace ht = halftone;
using doubles = std::vector<double>;

constexpr ht::shape<4> of_queries{2, 7, 4, 5}, of_keys{2, 9, 2, 5};

template <class T>
std::vector<T> tensor(int number, const ht::shape<4>& s) {
    std::vector<T> values;
    for (ht::extent i = 0; i < s.size(); ++i)
        values.push_back(static_cast<T>(static_cast<double>((7919 * i + 131 * number) % 101) / 50 - 1));
    return values;
}

/// The numbers of one line.
doubles golden(const std::string& name, const std::string& part) {
    std::ifstream file(std::string(HALFTONE_TEST_DATA) + "/attention.txt");
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string a, b;
        words >> a >> b;
        if (a != name || b != part) continue;
        doubles values;
        for (double x = 0; words >> x;) values.push_back(x);
        return values;
    }
    return {};
}

void check_near(const doubles& got, const doubles& want, double tolerance) {
    REQUIRE(got.size() == want.size());
    double most = 0;
    for (std::size_t i = 0; i < got.size(); ++i) most = std::max(most, std::fabs(got[i] - want[i]));
    CHECK(most <= tolerance);
}

/// Sums of 9 products of numbers below 2, in 16 digits or 7.
template <class T, class... F>
void check(const std::string& name, const F&... functions) {
    CAPTURE(name);
    const double tolerance = std::is_same_v<T, double> ? 1e-13 : 1e-5;
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device};
    const std::vector<T> of_q = tensor<T>(0, of_queries), of_k = tensor<T>(1, of_keys), of_v = tensor<T>(2, of_keys);
    std::vector<T> d_o = tensor<T>(3, of_queries);
    const auto leaf = [&](const std::vector<T>& x, const ht::shape<4>& s) {
        return tape.leaf(ht::const_view<T, 4>(x.data(), s));
    };
    const auto q = leaf(of_q, of_queries), k = leaf(of_k, of_keys), v = leaf(of_v, of_keys);
    const auto o = ht::attention<T>(tape, q, k, v, {}, functions...);
    check_near(support::doubles(o.view()), golden(name, "o"), tolerance);
    tape.backward(autodiff_test::weigh(tape, o, ht::view<T, 1>(d_o.data(), {of_queries.size()})));
    check_near(support::doubles(tape.gradient(q)), golden(name, "dq"), tolerance);
    check_near(support::doubles(tape.gradient(k)), golden(name, "dk"), tolerance);
    check_near(support::doubles(tape.gradient(v)), golden(name, "dv"), tolerance);
}

template <class T>
void check_all() {
    const std::vector<float> slopes{0.5f, 0.25f, 0.125f, 0.0625f};
    const std::vector<std::int32_t> lengths{0, 4},
        ids{0, 0, 1, 1, 1, 2, 2, 2, 2, 0, 1, 1, 1, 1, 1, 1, 3, 3};
    const std::vector<std::uint8_t> padded{1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1};
    const ht::const_view<std::int32_t, 1> of_lengths(lengths.data(), {2});
    const auto slope = ht::lookup(ht::const_view<float, 1>(slopes.data(), {4}));
    const auto past = [](auto, auto query, auto key) { return key <= query; };
    // flex_attention counts the fewer queries from the first key.
    check<T>("cross");
    check<T>("alibi", [=](auto score, auto head, auto query, auto key) { return score + slope(head) * (key - query); }, past);
    check<T>("soft_cap", ht::soft_cap{0.5f}, ht::sliding_window{.size = 3, .first_query = 0});
    check<T>("key_lengths", ht::key_lengths(of_lengths));
    check<T>("key_padding", ht::key_padding_mask(ht::const_view<std::uint8_t, 2>(padded.data(), {2, 9})));
    check<T>("documents", ht::document_mask(ht::const_view<std::int32_t, 2>(ids.data(), {2, 9}), 0));
    check<T>("prefix_lm", ht::prefix_lm(of_lengths, 0));
}

TEST_CASE("attention with functions gives PyTorch's numbers") {
    SUBCASE("double") { check_all<double>(); }
    SUBCASE("float") { check_all<float>(); }
}

}  // namespace autodiff_attention_golden_tests
