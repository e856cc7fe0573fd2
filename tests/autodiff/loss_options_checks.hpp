// SPDX-License-Identifier: MIT
/// \file
/// Losses with options on tapes of any device: PyTorch's values and gradients (golden/losses.py) in double, float and 16 bits,
/// the z-loss and linear_cross_entropy compared with compositions of other operations.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/cross_entropy.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/gather.hpp>
#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/observe/check_gradients.hpp>

#include "support/bounds.hpp"
#include "support/random.hpp"
#include "support/values.hpp"

namespace loss_options_checks {

namespace ht = halftone;
using ht::extent;
using support::values;
using doubles = std::vector<double>;

/// A case of losses.txt: its first line, and what follows by name.
struct golden_case {
    std::vector<std::string> head;
    std::map<std::string, doubles> values;

    extent number(std::size_t i) const { return std::atoll(head[i].c_str()); }
    double fraction(std::size_t i) const { return std::atof(head[i].c_str()); }
};
inline std::vector<golden_case> golden() {
    std::ifstream file(HALFTONE_TEST_DATA "/losses.txt");
    REQUIRE(file);
    std::vector<golden_case> all;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        std::istringstream words(line);
        std::vector<std::string> list;
        for (std::string word; words >> word;) list.push_back(word);
        if (list[0] == "classes" || list[0] == "soft" || list[0] == "elementwise") {
            all.push_back({list, {}});
        } else {
            doubles& v = all.back().values[list[0]];
            for (std::size_t i = 1; i < list.size(); ++i) v.push_back(std::strtod(list[i].c_str(), nullptr));
        }
    }
    return all;
}

template <class T>
std::vector<T> as(const doubles& v) {
    std::vector<T> all;
    for (const double x : v) all.push_back(static_cast<T>(static_cast<float>(x)));
    return all;
}

/// Results of T, computed in S of inputs which both hold: PyTorch's, to some hundred roundings in S of numbers of their
/// size, and that of T. Rows here have 33 classes of logits of magnitude 4 at most, so that losses stay below 8 times a
/// weight.
template <class T, class S>
void expect(const doubles& got, const doubles& want) {
    REQUIRE(got.size() == want.size());
    double largest = 0;
    for (const double w : want) largest = std::fmax(largest, std::fabs(w));
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = 200 * ht::unit_roundoff<S> * (1 + largest);
        CHECK_MESSAGE(std::fabs(got[i] - want[i]) <= error + (std::is_same_v<T, S> ? 0 : support::rounding<T>(want[i])),
                      "element ", i, ": ", got[i], ", PyTorch's is ", want[i]);
    }
}

template <class T, class Device>
void classes_case(Device& device, const golden_case& c) {
    using S = ht::detail::loss_type<T>;
    const extent rows = c.number(1), classes = c.number(2);
    const ht::shape<2> s{rows, classes};
    std::vector<T> x = as<T>(c.values.at("logits"));
    if constexpr (std::is_same_v<T, double>) x = c.values.at("logits");
    std::vector<std::int32_t> targets;
    for (const double t : c.values.at("targets")) targets.push_back(static_cast<std::int32_t>(t));
    std::vector<float> weight;
    for (extent j = 0; j < classes; ++j) weight.push_back(0.25f * static_cast<float>(j % 5 + 1));
    const ht::const_view<std::int32_t, 1> ids(targets.data(), {rows});
    ht::cross_entropy_options o{.label_smoothing = c.fraction(3)};
    if (c.number(4) != 0) o.weight = ht::const_view<float, 1>(weight.data(), {classes});
    std::vector<S> scale;
    for (extent i = 1; i <= rows; ++i) scale.push_back(static_cast<S>(static_cast<float>(i)));
    ht::tape tape{device};
    const auto compare = [&](const char* name, const auto& run) {
        CAPTURE(std::string(name));
        const auto leaf = tape.leaf(ht::view<T, 2>(x.data(), s));
        const auto loss = run(leaf);
        using Y = typename std::remove_cvref_t<decltype(loss)>::value_type;
        static_assert(std::is_same_v<Y, S>);
        expect<Y, S>(values(device, loss.view()), c.values.at(name));
        if constexpr (std::remove_cvref_t<decltype(loss)>::rank == 1) {
            const auto weights = tape.constant(ht::const_view<S, 1>(scale.data(), {rows}));
            tape.backward(ht::dot<S>(tape, loss, weights));
        } else {
            tape.backward(loss);
        }
        expect<T, S>(values(device, tape.gradient(leaf)), c.values.at(std::string("d") + name));
    };
    compare("mean", [&](const auto& leaf) { return ht::cross_entropy(tape, leaf, ids, o); });
    compare("none", [&](const auto& leaf) { return ht::cross_entropy<ht::reduction::none>(tape, leaf, ids, o); });
    o.reduction = ht::reduction::sum;
    compare("sum", [&](const auto& leaf) { return ht::cross_entropy(tape, leaf, ids, o); });
}

template <class T, class Device>
void soft_case(Device& device, const golden_case& c) {
    using S = ht::detail::loss_type<T>;
    const ht::shape<2> s{c.number(1), c.number(2)};
    std::vector<T> x = as<T>(c.values.at("logits")), q = as<T>(c.values.at("probabilities"));
    std::vector<float> weight;
    for (extent j = 0; j < s[1]; ++j) weight.push_back(0.25f * static_cast<float>(j % 5 + 1));
    for (const std::string name : {"mean", "sum"}) {
        CAPTURE(name);
        ht::cross_entropy_options o{.label_smoothing = c.fraction(3),
                                    .reduction = name == "sum" ? ht::reduction::sum : ht::reduction::mean};
        if (c.number(4) != 0) o.weight = ht::const_view<float, 1>(weight.data(), {s[1]});
        ht::tape tape{device};
        const auto a = tape.leaf(ht::view<T, 2>(x.data(), s)), b = tape.leaf(ht::view<T, 2>(q.data(), s));
        const auto loss = ht::cross_entropy(tape, a, b, o);
        // The sum has as many terms as there are numbers.
        expect<S, S>(values(device, loss.view()), c.values.at(name));
        tape.backward(loss);
        expect<T, S>(values(device, tape.gradient(a)), c.values.at("d" + name));
        expect<T, S>(values(device, tape.gradient(b)), c.values.at("dq" + name));
    }
    ht::cross_entropy_options o{.label_smoothing = c.fraction(3)};
    if (c.number(4) != 0) o.weight = ht::const_view<float, 1>(weight.data(), {s[1]});
    std::vector<S> scale;
    for (extent i = 1; i <= s[0]; ++i) scale.push_back(static_cast<S>(static_cast<float>(i)));
    ht::tape tape{device};
    const auto a = tape.leaf(ht::view<T, 2>(x.data(), s)), b = tape.leaf(ht::view<T, 2>(q.data(), s));
    const auto losses = ht::cross_entropy<ht::reduction::none>(tape, a, b, o);
    expect<S, S>(values(device, losses.view()), c.values.at("none"));
    tape.backward(ht::dot<S>(tape, losses, tape.constant(ht::const_view<S, 1>(scale.data(), {s[0]}))));
    expect<T, S>(values(device, tape.gradient(a)), c.values.at("dnone"));
    expect<T, S>(values(device, tape.gradient(b)), c.values.at("dqnone"));
}

template <class T, class Device, class Reduced, class Each>
void elementwise(Device& device, const golden_case& c, const Reduced& reduced, const Each& each) {
    using S = ht::detail::loss_type<T>;
    const ht::shape<1> s{c.number(2)};
    std::vector<T> x = as<T>(c.values.at("x")), t = as<T>(c.values.at("t"));
    std::vector<S> scale;
    for (extent i = 1; i <= s[0]; ++i) scale.push_back(static_cast<S>(static_cast<float>(i)));
    ht::tape tape{device};
    const ht::const_view<T, 1> target(t.data(), s);
    for (const std::string name : {"mean", "sum", "none"}) {
        CAPTURE(name);
        const auto leaf = tape.leaf(ht::view<T, 1>(x.data(), s));
        if (name == "none") {
            const auto losses = each(tape, leaf, target);
            expect<S, S>(values(device, losses.view()), c.values.at(name));
            tape.backward(ht::dot<S>(tape, losses, tape.constant(ht::const_view<S, 1>(scale.data(), s))));
        } else {
            const auto loss = reduced(tape, leaf, target, name == "sum" ? ht::reduction::sum : ht::reduction::mean);
            expect<S, S>(values(device, loss.view()), c.values.at(name));
            tape.backward(loss);
        }
        expect<T, S>(values(device, tape.gradient(leaf)), c.values.at("d" + name));
    }
}

template <class T, class Device>
void elementwise_case(Device& device, const golden_case& c) {
    [[maybe_unused]] constexpr auto none = ht::reduction::none;
    const std::string& name = c.head[1];
    if (name == "mse_loss")
        elementwise<T>(device, c, [](auto& k, auto& x, auto& t, auto r) { return ht::mse_loss(k, x, t, r); },
                       [](auto& k, auto& x, auto& t) { return ht::mse_loss<none>(k, x, t); });
    if (name == "l1_loss")
        elementwise<T>(device, c, [](auto& k, auto& x, auto& t, auto r) { return ht::l1_loss(k, x, t, r); },
                       [](auto& k, auto& x, auto& t) { return ht::l1_loss<none>(k, x, t); });
    if (name == "smooth_l1_loss")
        elementwise<T>(device, c, [](auto& k, auto& x, auto& t, auto r) { return ht::smooth_l1_loss(k, x, t, 0.5, r); },
                       [](auto& k, auto& x, auto& t) { return ht::smooth_l1_loss<none>(k, x, t, 0.5); });
    if (name == "huber_loss")
        elementwise<T>(device, c, [](auto& k, auto& x, auto& t, auto r) { return ht::huber_loss(k, x, t, 0.5, r); },
                       [](auto& k, auto& x, auto& t) { return ht::huber_loss<none>(k, x, t, 0.5); });
    if (name == "binary_cross_entropy_with_logits")
        elementwise<T>(
            device, c, [](auto& k, auto& x, auto& t, auto r) { return ht::binary_cross_entropy_with_logits(k, x, t, r); },
            [](auto& k, auto& x, auto& t) { return ht::binary_cross_entropy_with_logits<none>(k, x, t); });
}

/// PyTorch's numbers in T.
template <class T, class Device>
void as_pytorch(Device& device) {
    int cases = 0;
    for (const golden_case& c : golden()) {
        std::string head;
        for (const std::string& word : c.head) head += word + " ";
        CAPTURE(head);
        if (c.head[0] == "classes") classes_case<T>(device, c);
        if (c.head[0] == "soft") soft_case<T>(device, c);
        if (c.head[0] == "elementwise") elementwise_case<T>(device, c);
        ++cases;
    }
    CHECK(cases == 4 * 6 + 3 * 4 + 5 * 2);
}

/// Against differences, the z-loss and the head among the rest.
template <class Device>
void differences(Device& device) {
    support::random data(5);
    doubles x = data.normals<double>(12), q = data.normals<double>(12);
    [[maybe_unused]] static const std::int32_t targets[] = {2, -7, 0};
    [[maybe_unused]] static const float weight[] = {0.5f, 2, 1, 0.25f};
    const auto agrees = [&](const auto& f) {
        const auto report = ht::check_gradients(device, f, ht::view<double, 2>(x.data(), {3, 4}),
                                                ht::view<double, 2>(q.data(), {3, 4}));
        CHECK_MESSAGE(report.agrees(), report.text());
    };
    agrees([](auto& ctx, auto a, auto b) {
        return ht::cross_entropy(ctx, ht::mul(ctx, a, b), ht::const_view<std::int32_t, 1>(targets, {3}),
                                 {.label_smoothing = 0.2,
                                  .weight = ht::const_view<float, 1>(weight, {4}),
                                  .z_loss = 0.3,
                                  .ignore_index = -7});
    });
    agrees([](auto& ctx, auto a, auto b) {
        const auto each = ht::cross_entropy<ht::reduction::none>(ctx, a, ht::const_view<std::int32_t, 1>(targets, {3}),
                                                                 {.z_loss = 0.3, .ignore_index = -7});
        return ht::add(ctx, ht::sum(ctx, ht::mul(ctx, each, each)),
                       ht::cross_entropy(ctx, b, ht::softmax(ctx, a), {.label_smoothing = 0.1}));
    });
}

/// The z-loss of a row is its factor times the square of log(sum of exp).
template <class Device>
void z_loss(Device& device) {
    std::vector<float> x{1, 2, 3, -1, 0, 5};
    const std::vector<std::int32_t> targets{0, 2};
    const ht::const_view<std::int32_t, 1> ids(targets.data(), {2});
    ht::inference eval{device};
    const auto logits = eval.constant(ht::const_view<float, 2>(x.data(), {2, 3}));
    const double plain = static_cast<double>(ht::cross_entropy(eval, logits, ids).item()),
                 with_z = static_cast<double>(ht::cross_entropy(eval, logits, ids, {.z_loss = 0.5}).item());
    double squares = 0;
    for (std::size_t i = 0; i < 6; i += 3) {
        const double lse = std::log(std::exp(static_cast<double>(x[i])) + std::exp(static_cast<double>(x[i + 1])) +
                                    std::exp(static_cast<double>(x[i + 2])));
        squares += lse * lse;
    }
    CHECK(std::fabs(with_z - plain - 0.5 * squares / 2) <= 40 * ht::unit_roundoff<float> * with_z);
    // Without options the options' loss is the plain one, to the bit.
    CHECK(static_cast<double>(ht::cross_entropy(eval, logits, ids, {}).item()) == plain);
}

template <class Device>
void refuses(Device& device) {
    ht::inference eval{device};
    std::vector<float> x(6), weight(2);
    const std::vector<std::int32_t> targets{0, 2};
    const ht::const_view<std::int32_t, 1> ids(targets.data(), {2});
    const auto logits = eval.constant(ht::const_view<float, 2>(x.data(), {2, 3}));
    CHECK_THROWS_WITH_AS(ht::cross_entropy(eval, logits, ids, {.label_smoothing = 1.5}),
                         "cross_entropy: label_smoothing is 1.5; expected 0 to 1", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::cross_entropy(eval, logits, ids, {.z_loss = -1}),
                         "cross_entropy: z_loss is -1; expected 0 or more", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::cross_entropy(eval, logits, ids, {.weight = ht::const_view<float, 1>(weight.data(), {2})}),
                         "cross_entropy: weight is (2); expected (3)", ht::shape_error);
    CHECK_THROWS_AS(ht::cross_entropy(eval, logits, ids, {.reduction = ht::reduction::none}), ht::argument_error);
    CHECK_THROWS_AS(ht::cross_entropy(eval, logits, logits, {.z_loss = 1}), ht::argument_error);
    CHECK_THROWS_AS(ht::l1_loss(eval, logits, logits, ht::reduction::none), ht::argument_error);
    CHECK_THROWS_AS(ht::cross_entropy(eval, logits, ht::const_view<std::int32_t, 1>(targets.data(), {1}), {}), ht::shape_error);
}

}  // namespace loss_options_checks
