// SPDX-License-Identifier: MIT
/// \file
/// Functions of attention's scores on tapes: gradients compared with differences in double, strategies compared with each other,
/// regions, cross-attention, queries that see no key.
#include <doctest/doctest.h>

#include <halftone/autodiff/op/modified_attention.hpp>
#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>
#include <halftone/observe/check_gradients.hpp>

#include "autodiff/compare.hpp"
#include "autodiff/weigh.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_attention_mods_tests {

namespace ht = halftone;
using doubles = std::vector<double>;

constexpr ht::shape<4> of_queries{2, 3, 2, 4}, of_keys{2, 5, 1, 4};
const std::vector<float> slopes{0.5f, 0.25f};
const std::vector<std::int32_t> lengths{0, 4};

ht::const_view<float, 1> slopes_view() { return {slopes.data(), {2}}; }
ht::const_view<std::int32_t, 1> lengths_view() { return {lengths.data(), {2}}; }

TEST_CASE("attention with functions: gradients are differences, in double") {
    support::random data(3);
    const doubles q = data.normals<double>(of_queries.size()), k = data.normals<double>(of_keys.size()),
                  v = data.normals<double>(of_keys.size());
    ht::cpu device{{.threads = 1}};
    const auto check = [&](const auto&... functions) {
        const auto report = ht::check_gradients(
            device,
            [&](auto& ctx, const auto& x, const auto& y, const auto& z) {
                return ht::attention(ht::autocast<ht::full_fp64>(ctx), x, y, z, {}, functions...);
            },
            ht::const_view<double, 4>(q.data(), of_queries), ht::const_view<double, 4>(k.data(), of_keys),
            ht::const_view<double, 4>(v.data(), of_keys));
        CHECK_MESSAGE(report.agrees(), report.text());
    };
    check();  // cross-attention, of grouped heads
    check(ht::soft_cap{2}, ht::sliding_window{3});
    check(ht::key_lengths(lengths_view()), [slope = ht::lookup(slopes_view())](auto score, auto head, auto query, auto key) {
        return score * ht::sigmoid(score) + slope(head) * (key - query);
    });
}

template <class T>
struct inputs {
    support::random data{5};
    support::guarded<T> q{data.normals<T>(of_queries.size())}, k{data.normals<T>(of_keys.size())},
        v{data.normals<T>(of_keys.size())}, d_o{data.normals<T>(of_queries.size())};
};

/// o and the gradients of q, k and v, one behind the other.
template <class T, class... F>
doubles results(ht::attention_strategy strategy, const F&... functions) {
    using roles = ht::roles<T, T, T>;
    ht::cpu device{{.threads = 1}};
    const inputs<T> in;
    ht::tape tape{device};
    const auto q = tape.leaf(in.q.view(of_queries)), k = tape.leaf(in.k.view(of_keys)), v = tape.leaf(in.v.view(of_keys));
    const auto o = ht::attention<roles>(tape, q, k, v, {.strategy = strategy}, functions...);
    doubles all = support::doubles(o.view());
    tape.backward(autodiff_test::weigh(tape, o, in.d_o.view()));
    for (const auto& x : {tape.gradient(q), tape.gradient(k), tape.gradient(v)}) {
        const doubles g = support::doubles(x);
        all.insert(all.end(), g.begin(), g.end());
    }
    return all;
}

TEST_CASE("attention with functions: both strategies, and rows that see no key") {
    const auto near = [](const doubles& a, const doubles& b, double tolerance) {
        double most = 0;
        for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
        CHECK(a.size() == b.size());
        CHECK(most <= tolerance);
    };
    const auto masked = ht::key_lengths(lengths_view());
    const auto flash = results<float>(ht::attention_strategy::flash, ht::soft_cap{1.5f}, masked);
    near(flash, results<float>(ht::attention_strategy::math, ht::soft_cap{1.5f}, masked), 1e-5);
    near(results<ht::bfloat16>(ht::attention_strategy::flash, masked),
         results<ht::bfloat16>(ht::attention_strategy::math, masked), 0.05);
    for (int i = 0; i < 24; ++i) CHECK(flash[static_cast<std::size_t>(i)] == 0);       // o of the batch without keys
    for (int i = 48; i < 48 + 24; ++i) CHECK(flash[static_cast<std::size_t>(i)] == 0);  // and its dq
}

TEST_CASE("attention in a region: casts to the policy's types") {
    ht::cpu device{{.threads = 1}};
    const inputs<float> in;
    ht::tape tape{device};
    const auto q = tape.leaf(in.q.view(of_queries)), k = tape.leaf(in.k.view(of_keys)), v = tape.leaf(in.v.view(of_keys));
    const auto region = ht::autocast<ht::amp_bf16>(tape);
    const auto o = ht::attention(region, q, k, v, {}, ht::sliding_window{2});
    static_assert(std::is_same_v<std::remove_const_t<decltype(o)>, ht::variable<ht::bfloat16, 4>>);
    static_assert(std::is_same_v<decltype(ht::attention(region, q, k, v)), ht::variable<ht::bfloat16, 4>>);
    static_assert(std::is_same_v<decltype(ht::attention<float>(region, q, k, v)), ht::variable<float, 4>>);
    static_assert(std::is_same_v<decltype(ht::attention(tape, q, k, v)), ht::variable<float, 4>>);
    tape.backward(autodiff_test::weigh(tape, ht::cast<float>(tape, o), in.d_o.view()));
    CHECK(tape.gradient(q).shape() == of_queries);
}

TEST_CASE("attention with functions: invalid arguments") {
    CHECK_THROWS_WITH_AS(ht::lookup(ht::const_view<float, 1>(nullptr, {0})), "lookup: shape (0) has no element",
                         ht::shape_error);
    CHECK_THROWS_AS(results<float>(ht::attention_strategy::automatic, ht::soft_cap{0}), ht::argument_error);
    CHECK_THROWS_AS(results<float>(ht::attention_strategy::automatic, ht::sliding_window{0}), ht::argument_error);
}

}  // namespace autodiff_attention_mods_tests
