// SPDX-License-Identifier: MIT
/// \file
/// Operations on shapes and broadcasting pointwise operations, on any device: they have PyTorch's results (golden/shapes.py) to
/// the last bit in every type; gradients are compared with differences in double; errors.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/shapes.hpp>
#include <halftone/observe/check_gradients.hpp>

#include "support/values.hpp"

namespace shapes_checks {

namespace ht = halftone;
using ht::axes, ht::bfloat16, ht::extent, ht::float16;
using doubles = std::vector<double>;

/// The lines of golden/shapes.txt by the words before their numbers.
inline const std::map<std::string, doubles>& golden() {
    static const std::map<std::string, doubles> lines = [] {
        std::map<std::string, doubles> all;
        std::ifstream file(std::string(HALFTONE_TEST_DATA) + "/shapes.txt");
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::string name, type, what;
            words >> name >> type >> what;
            doubles& numbers = all[name + " " + type + " " + what];
            for (double number = 0; words >> number;) numbers.push_back(number);
        }
        return all;
    }();
    return lines;
}
inline const doubles& line_of(const std::string& name) {
    const auto found = golden().find(name);
    REQUIRE_MESSAGE(found != golden().end(), name);
    return found->second;
}

template <class T>
inline constexpr const char* type_name = "fp32";
template <>
inline constexpr const char* type_name<bfloat16> = "bf16";
template <>
inline constexpr const char* type_name<float16> = "fp16";

template <class T>
std::vector<T> inputs_of(extent count, extent k) {
    std::vector<T> values;
    for (extent i = 0; i < count; ++i) values.push_back(T(static_cast<float>((31 * i + 17 * k) % 9 - 4)));
    return values;
}
template <class T, class Device, int Rank>
ht::tensor<T, Rank> input_on(Device& device, const ht::shape<Rank>& s, extent k) {
    ht::tensor<T, Rank> t(device.memory(), s);
    const std::vector<T> values = inputs_of<T>(s.size(), k);
    if (!values.empty()) device.memory().write(t.data(), values.data(), values.size() * sizeof(T));
    return t;
}

/// Compares f of leaves with these shapes, and its gradients, with the golden table.
template <class T, class Device, class F, int... Ranks>
void expect_golden(Device& device, const std::string& name, const F& f, const ht::shape<Ranks>&... shapes) {
    const std::string all = name + " " + type_name<T> + " ";
    CAPTURE(all);
    const auto& s = line_of(all + "shape");
    const auto& want = line_of(all + "y");
    auto next = [k = extent{0}]() mutable { return k++; };
    const std::tuple<ht::tensor<T, Ranks>...> memory{input_on<T>(device, shapes, next())...};
    ht::tape tape{device};
    std::apply(
        [&](const auto&... t) {
            const std::tuple leaves{tape.leaf(t.view())...};
            std::apply(
                [&](const auto&... x) {
                    const auto y = f(tape, x...);
                    constexpr int rank = std::remove_cvref_t<decltype(y)>::rank;
                    static_assert(std::is_same_v<typename std::remove_cvref_t<decltype(y)>::value_type, T>);
                    REQUIRE(s.size() == rank);
                    for (int axis = 0; axis < rank; ++axis)
                        CHECK(static_cast<double>(y.shape()[axis]) == s[static_cast<std::size_t>(axis)]);
                    CHECK(support::values(device, y.view()) == want);
                    std::vector<float> weights;
                    for (extent i = 0; i < y.size(); ++i) weights.push_back(static_cast<float>(13 * i % 7 - 3));
                    const auto dy = tape.to_device(ht::const_view<float, rank>(weights.data(), y.shape()));
                    tape.backward(ht::sum<float>(tape, ht::mul<float>(tape, y, dy)));
                    int i = 0;
                    const auto check = [&](const auto& input) {
                        CHECK(support::values(device, tape.gradient(input)) == line_of(all + std::to_string(i++)));
                    };
                    (check(x), ...);
                },
                leaves);
        },
        memory);
}

template <class T, class Device>
void orders_and_parts(Device& device) {
    using ht::shape;
    expect_golden<T>(
        device, "permute", [](auto& c, auto& x) { return ht::permute(c, x, axes<2, 0, 1>); }, shape<3>{2, 3, 5});
    expect_golden<T>(
        device, "permute_4", [](auto& c, auto& x) { return ht::permute(c, x, axes<3, 1, 0, 2>); },
        shape<4>{3, 2, 5, 7});
    expect_golden<T>(
        device, "transpose_heads", [](auto& c, auto& x) { return ht::transpose(c, x, axes<1, 2>); },
        shape<4>{2, 3, 4, 5});
    expect_golden<T>(
        device, "transpose_large", [](auto& c, auto& x) { return ht::transpose(c, x, axes<0, 1>); }, shape<2>{37, 70});
    expect_golden<T>(
        device, "transpose_last", [](auto& c, auto& x) { return ht::transpose(c, x, axes<-1, -2>); },
        shape<3>{3, 20, 33});
    expect_golden<T>(
        device, "transpose_empty", [](auto& c, auto& x) { return ht::transpose(c, x, axes<0, 1>); }, shape<2>{0, 3});
    expect_golden<T>(
        device, "slice_step", [](auto& c, auto& x) { return ht::slice(c, x, axes<1>, 1, 6, 2); }, shape<2>{4, 7});
    expect_golden<T>(
        device, "slice_negative", [](auto& c, auto& x) { return ht::slice(c, x, axes<0>, -3, -1); }, shape<2>{5, 3});
    expect_golden<T>(
        device, "slice_beyond", [](auto& c, auto& x) { return ht::slice(c, x, axes<0>, 2, 100); }, shape<2>{5, 3});
    expect_golden<T>(
        device, "slice_empty", [](auto& c, auto& x) { return ht::slice(c, x, axes<0>, 2, 2); }, shape<2>{4, 3});
    expect_golden<T>(
        device, "narrow", [](auto& c, auto& x) { return ht::narrow(c, x, axes<1>, -4, 3); }, shape<3>{3, 6, 2});
    expect_golden<T>(
        device, "select", [](auto& c, auto& x) { return ht::select(c, x, axes<1>, -1); }, shape<3>{3, 4, 5});
    expect_golden<T>(
        device, "flip", [](auto& c, auto& x) { return ht::flip(c, x, axes<0, 2>); }, shape<3>{3, 4, 5});
    expect_golden<T>(
        device, "squeeze", [](auto& c, auto& x) { return ht::squeeze(c, x, axes<1>); }, shape<3>{3, 1, 4});
    expect_golden<T>(
        device, "unsqueeze", [](auto& c, auto& x) { return ht::unsqueeze(c, x, axes<-1>); }, shape<2>{3, 4});
    expect_golden<T>(
        device, "flatten", [](auto& c, auto& x) { return ht::flatten(c, x, axes<1, -1>); }, shape<3>{2, 3, 4});
    expect_golden<T>(
        device, "cat", [](auto& c, auto& a, auto& b) { return ht::cat(c, axes<1>, a, b, a); }, shape<2>{2, 3},
        shape<2>{2, 1});
    expect_golden<T>(
        device, "chunk",
        [](auto& c, auto& x) {
            const auto [a, b, d] = ht::chunk<3>(c, x, axes<-1>);
            return ht::cat(c, axes<-1>, d, b, a);
        },
        shape<2>{2, 8});
    expect_golden<T>(
        device, "split",
        [](auto& c, auto& x) {
            const auto parts =
                ht::split_with_sizes(c, x, axes<0>, std::array<extent, 3>{2, 0, 5});  // the gradient of one is absent
            return ht::cat(c, axes<0>, parts[2], parts[0]);
        },
        shape<2>{7, 2});
    expect_golden<T>(
        device, "chain",
        [](auto& c, auto& x) {
            const auto part =
                ht::slice(c, ht::slice(c, ht::transpose(c, x, axes<0, 2>), axes<0>, 1, 4), axes<1>, 0, 6, 2);
            return ht::permute(c, ht::flip(c, part, axes<1>), axes<1, 2, 0>);
        },
        shape<3>{4, 6, 5});
    expect_golden<T>(
        device, "twice",
        [](auto& c, auto& x) {  // gradients of parts of x add up
            return ht::mul(c, ht::slice(c, ht::transpose(c, x, axes<0, 1>), axes<1>, 0, 3),
                           ht::slice(c, x, axes<0>, 1, 4));
        },
        shape<2>{4, 3});
}

template <class T, class Device>
void broadcasts(Device& device) {
    using ht::shape;
    const auto add = [](auto& c, auto& a, auto& b) { return ht::add(c, a, b); };
    const auto sub = [](auto& c, auto& a, auto& b) { return ht::sub(c, a, b); };
    const auto mul = [](auto& c, auto& a, auto& b) { return ht::mul(c, a, b); };
    const auto addcmul = [](auto& c, auto& x, auto& a, auto& b) { return ht::addcmul(c, x, a, b); };
    expect_golden<T>(
        device, "expand",
        [](auto& c, auto& x) {
            return ht::expand(c, x, shape<3>{2, -1, 4});
        },
        shape<2>{3, 1});
    expect_golden<T>(
        device, "expand_1", [](auto& c, auto& x) { return ht::expand(c, x, shape<1>{5}); }, shape<1>{1});
    expect_golden<T>(
        device, "expand_empty",
        [](auto& c, auto& x) {
            return ht::expand(c, x, shape<2>{3, 0});
        },
        shape<2>{3, 1});
    expect_golden<T>(
        device, "expand_middle",
        [](auto& c, auto& x) {
            return ht::expand(c, x, shape<3>{2, 40, 3});
        },
        shape<3>{2, 1, 3});
    expect_golden<T>(device, "row_and_column", add, shape<2>{3, 1}, shape<2>{1, 4});
    expect_golden<T>(device, "column", mul, shape<2>{3, 4}, shape<2>{3, 1});
    expect_golden<T>(device, "column_long", mul, shape<2>{5, 140}, shape<2>{5, 1});
    expect_golden<T>(device, "column_many", mul, shape<2>{140, 5}, shape<2>{140, 1});
    expect_golden<T>(device, "first_smaller", sub, shape<1>{4}, shape<3>{2, 3, 4});
    expect_golden<T>(device, "middle_rank", mul, shape<3>{2, 3, 4}, shape<2>{3, 1});
    expect_golden<T>(device, "middle", mul, shape<3>{2, 1, 3}, shape<3>{1, 4, 1});
    expect_golden<T>(device, "ones", mul, shape<2>{1, 1}, shape<2>{3, 4});
    expect_golden<T>(device, "one", mul, shape<2>{3, 4}, shape<1>{1});
    expect_golden<T>(device, "one_1", sub, shape<1>{5}, shape<1>{1});
    expect_golden<T>(device, "scalar", mul, shape<2>{2, 3}, shape<0>{});
    expect_golden<T>(device, "scalar_first", sub, shape<0>{}, shape<2>{2, 3});
    expect_golden<T>(device, "bias", add, shape<3>{2, 3, 4}, shape<1>{4});
    expect_golden<T>(device, "empty_rows", mul, shape<2>{0, 3}, shape<2>{1, 3});
    expect_golden<T>(device, "empty_columns", add, shape<2>{3, 1}, shape<2>{3, 0});
    expect_golden<T>(device, "three", addcmul, shape<2>{2, 3}, shape<2>{1, 3}, shape<2>{2, 1});
    expect_golden<T>(device, "three_ranks", addcmul, shape<1>{3}, shape<2>{2, 1}, shape<0>{});
}

template <class T, class Device>
void transposed_products(Device& device) {
    using ht::shape;
    expect_golden<T>(
        device, "times_transposed", [](auto& c, auto& q, auto& k) { return ht::matmul(c, q, ht::transposed(k)); },
        shape<3>{2, 3, 4}, shape<3>{2, 5, 4});
    expect_golden<T>(
        device, "transposed_times", [](auto& c, auto& a, auto& b) { return ht::matmul(c, ht::transposed(a), b); },
        shape<2>{4, 3}, shape<2>{4, 5});
    expect_golden<T>(
        device, "both_transposed",
        [](auto& c, auto& a, auto& b) { return ht::matmul(c, ht::transposed(a), ht::transposed(b)); },
        shape<3>{2, 4, 3}, shape<3>{2, 5, 4});
    expect_golden<T>(
        device, "rows_times_transposed", [](auto& c, auto& a, auto& b) { return ht::matmul(c, a, ht::transposed(b)); },
        shape<3>{2, 3, 4}, shape<2>{5, 4});
}

template <class Device>
void gradients_in_double(Device& device) {
    const auto numbers = []<int Rank>(const ht::shape<Rank>& s, double first) {
        ht::host_tensor<double, Rank> all(s);
        for (extent i = 0; i < s.size(); ++i)
            all.data()[i] = first + 0.37 * static_cast<double>(i % 5) - 0.21 * static_cast<double>(i % 3);
        return all;
    };
    const auto expect = [&](const auto& f, const auto&... inputs) {
        const auto report = ht::check_gradients(device, f, as_const(inputs.view())...);
        CHECK_MESSAGE(report.agrees(), report.text());
        CHECK(report.backward != 0);
    };
    const auto x = numbers(ht::shape<3>{2, 3, 4}, 0.4), y = numbers(ht::shape<3>{2, 1, 4}, 1.1);
    const auto column = numbers(ht::shape<2>{3, 1}, 0.9);
    expect(
        [](auto& c, auto a, auto b, auto d) {
            const auto z = ht::div(c, ht::mul(c, a, d), ht::add(c, b, 2.0));
            const auto [p, q] = ht::chunk<2>(c, ht::permute(c, z, axes<2, 0, 1>), axes<0>);
            return ht::mul(c, ht::flip(c, p, axes<-1>), ht::mul(c, q, q));
        },
        x, y, column);
    expect(
        [](auto& c, auto a, auto b) {
            return ht::mul(c, ht::expand(c, ht::select(c, b, axes<1>, 0), ht::shape<3>{3, 2, 4}),
                           ht::transpose(c, a, axes<0, 1>));
        },
        x, y);
    expect([](auto& c,
              auto a) { return ht::matmul(c, ht::transposed(a), ht::transposed(ht::transpose(c, a, axes<1, 2>))); },
           x);
}

template <class Device>
void refusals(Device& device) {
    ht::tape tape{device};
    const auto make = [&](auto s) { return tape.template make<float>(s, false); };
    const auto x = make(ht::shape<2>{3, 4});
    CHECK_THROWS_WITH_AS(
        ht::add(tape, x, make(ht::shape<2>{2, 4})),
        "add: the shapes (3, 4) and (2, 4) do not go together: from the last axis on, extents have to be equal, or "
        "one of them 1",
        ht::shape_error);
    CHECK_THROWS_AS(ht::mul(tape, x, make(ht::shape<1>{3})), ht::shape_error);
    CHECK_THROWS_AS(ht::addcmul(tape, make(ht::shape<2>{1, 4}), x, make(ht::shape<3>{2, 4, 4})), ht::shape_error);
    CHECK_THROWS_WITH_AS(
        ht::expand(tape, x, ht::shape<3>{2, 3, 5}),
        "expand: (3, 4) as (2, 3, 5): from the last axis on, extents have to be equal, or the former's 1",
        ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::select(tape, x, axes<1>, 4), "select: index 4 along an axis of 4; expected -4 to 3",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::narrow(tape, x, axes<0>, 1, 3), "narrow: 3 from 1 along an axis of 3 go beyond it",
                         ht::argument_error);
    CHECK_THROWS_AS(ht::slice(tape, x, axes<0>, 0, 3, 0), ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::squeeze(tape, x, axes<0>), "squeeze: axis 0 of (3, 4) has 3 elements; expected 1",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(
        ht::chunk<3>(tape, x, axes<1>),
        "chunk: 4 elements along an axis make 2 parts of 2, not 3; ht::split_with_sizes takes their sizes",
        ht::shape_error);
    CHECK_THROWS_AS(ht::split_with_sizes(tape, x, axes<0>, std::array<extent, 2>{1, 1}), ht::shape_error);
    CHECK_THROWS_AS(ht::matmul(tape, x, ht::transposed(make(ht::shape<2>{5, 3}))), ht::shape_error);
    CHECK_THROWS_AS(ht::cat(tape, axes<0>, x, make(ht::shape<2>{3, 5})), ht::shape_error);
    // Shared, not copied: what keeps its order.
    CHECK(ht::squeeze(tape, ht::unsqueeze(tape, x, axes<0, 2>), axes<0, 2>).view().data() == x.view().data());
    CHECK(ht::slice(tape, x, axes<0>, 0, 3).view().data() == x.view().data());
    CHECK(ht::flatten(tape, x).view().data() == x.view().data());
    CHECK(ht::contiguous(tape, x).view().data() == x.view().data());
    ht::inference eval{device};
    const auto e = eval.template make<bfloat16>(ht::shape<2>{3, 4}, false);
    CHECK(ht::transpose(ht::autocast<ht::amp_fp16>(eval), e, axes<0, 1>).shape() == ht::shape<2>{4, 3});
}

}  // namespace shapes_checks
