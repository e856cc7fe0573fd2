// SPDX-License-Identifier: MIT
/// \file
/// Free operations in regions, on any device: values and gradients that show which type a product read its operands in,
/// products of variables and of parameters, joined tensors, and custom operations.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/op/apply.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>

#include "support/cubed.hpp"
#include "support/gradient_sink.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"
#include "support/values.hpp"

namespace region_checks {

namespace ht = halftone;
using ht::bfloat16, ht::float16;
using support::guarded;
using support::values;
using doubles = std::vector<double>;

/// A float that bfloat16 rounds to 1.
constexpr float fine = 1.00390625f;  // 1 + 2^-8

/// A user's layer without parameters, whose policy may be `inherit`.
template <class P>
struct product_layer {
    auto operator()(auto&& ctx, const auto& a, const auto& b) const { return ht::matmul(ht::autocast<P>(ctx), a, b); }
};

/// Products of ones that are not quite: 1 where a product reads bfloat16, more where it reads floats.
template <class Device>
void types_and_values(Device& device) {
    ht::tape tape{device};
    const guarded<float> one(std::vector<float>{fine}), other(std::vector<float>{fine});
    const ht::shape<2> s{1, 1};
    const auto check = [&](const auto& product, double y_wanted, double da_wanted, double db_wanted) {
        const auto a = tape.leaf(one.view(s)), b = tape.leaf(other.view(s));
        const auto y = product(a, b);
        CHECK(values(device, y.view())[0] == y_wanted);
        // The region in which backward is called has no effect. The sum's gradient is 1.
        tape.backward(ht::sum<float>(tape, y));
        CHECK(values(device, tape.gradient(a))[0] == da_wanted);
        CHECK(values(device, tape.gradient(b))[0] == db_wanted);
        return y;
    };
    const auto run = [&](const auto& product, double y_wanted, double gradient_wanted) {
        return check(product, y_wanted, gradient_wanted, gradient_wanted);
    };
    const double exact = static_cast<double>(fine), product = static_cast<double>(fine * fine);
    const auto bare = run([&](const auto& a, const auto& b) { return ht::matmul(tape, a, b); }, product, exact);
    static_assert(std::is_same_v<decltype(bare), const ht::variable<float, 2>>);
    const auto low =
        run([&](const auto& a, const auto& b) { return ht::matmul(ht::autocast<ht::amp_bf16>(tape), a, b); }, 1, 1);
    static_assert(std::is_same_v<decltype(low), const ht::variable<bfloat16, 2>>);

    // Regions nest: the inner policy holds inside, the outer one again after it.
    const auto outer = ht::autocast<ht::amp_bf16>(tape);
    const auto inner =
        run([&](const auto& a, const auto& b) { return ht::matmul(ht::autocast<ht::full_fp32>(outer), a, b); }, product,
            exact);
    static_assert(std::is_same_v<decltype(inner), const ht::variable<float, 2>>);
    run([&](const auto& a, const auto& b) { return ht::matmul(ht::autocast<ht::as_given>(outer), a, b); }, product,
        exact);
    run([&](const auto& a, const auto& b) { return ht::matmul(outer, a, b); }, 1, 1);

    // PyTorch's list for CPUs leaves exp in its input's type, the one for CUDA computes it in fp32.
    const auto by_cpu_list = ht::autocast<ht::with_cpu_lists<ht::amp_bf16>>(tape);
    const auto narrow = run([&](const auto& a, const auto& b) { return ht::exp(by_cpu_list, ht::matmul(by_cpu_list, a, b)); },
                            2.71875, 2.71875);
    static_assert(std::is_same_v<decltype(narrow), const ht::variable<bfloat16, 2>>);

    // `inherit` computes as the enclosing region, at any depth; outside all regions as on a bare tape.
    const auto inherited =
        run([&](const auto& a, const auto& b) { return product_layer<ht::inherit>{}(outer, a, b); }, 1, 1);
    static_assert(std::is_same_v<decltype(inherited), const ht::variable<bfloat16, 2>>);
    const auto none =
        run([&](const auto& a, const auto& b) { return product_layer<ht::inherit>{}(tape, a, b); }, product, exact);
    static_assert(std::is_same_v<decltype(none), const ht::variable<float, 2>>);
    using undecided = ht::recipe<ht::inherit, ht::rule<"q", ht::full_fp32>>;
    const auto placed = run(
        [&](const auto& a, const auto& b) {
            return product_layer<ht::at<undecided, "k">>{}(ht::autocast<ht::inherit>(outer), a, b);
        },
        1, 1);
    static_assert(std::is_same_v<decltype(placed), const ht::variable<bfloat16, 2>>);
    run([&](const auto& a, const auto& b) { return product_layer<ht::at<undecided, "q">>{}(outer, a, b); }, product,
        exact);
    run([&](const auto& a,
            const auto& b) { return product_layer<ht::inherit>{}(ht::autocast<ht::full_fp32>(outer), a, b); },
        product, exact);

    // A type given explicitly overrides the region.
    const auto given =
        run([&](const auto& a, const auto& b) { return ht::matmul<float>(outer, a, b); }, product, exact);
    static_assert(std::is_same_v<decltype(given), const ht::variable<float, 2>>);
    const auto rounded = run([&](const auto& a, const auto& b) { return ht::matmul<bfloat16>(tape, a, b); }, 1, 1);
    static_assert(std::is_same_v<decltype(rounded), const ht::variable<bfloat16, 2>>);

    // Backward products with their own precisions: the forward product is 1, a factor's gradient is the other factor as
    // read. The second factor has the weight's place.
    using by_input = ht::with_input_grad<ht::amp_bf16, float>;
    using by_weight = ht::with_weight_grad<ht::amp_bf16, float>;
    check([&](const auto& a, const auto& b) { return ht::matmul(ht::autocast<by_input>(tape), a, b); }, 1, exact, 1);
    check([&](const auto& a, const auto& b) { return ht::matmul(ht::autocast<by_weight>(tape), a, b); }, 1, 1, exact);
    check([&](const auto& a, const auto& b) { return ht::linear(ht::autocast<by_weight>(tape), a, b); }, 1, 1, exact);
}

/// a[i] b[i] for every i, as it is defined.
inline doubles multiply(const doubles& a, const doubles& b, int count, int m, int k, int n) {
    doubles c(static_cast<std::size_t>(count * m * n));
    for (int i = 0; i < count * m * n; ++i) {
        const int matrix = i / (m * n), row = i / n % m, column = i % n;
        for (int l = 0; l < k; ++l)
            c[static_cast<std::size_t>(i)] += a[static_cast<std::size_t>((matrix * m + row) * k + l)] *
                                              b[static_cast<std::size_t>((matrix * k + l) * n + column)];
    }
    return c;
}
/// Each of `count` matrices transposed.
inline doubles transposed(const doubles& a, int count, int rows, int columns) {
    doubles t(a.size());
    for (int i = 0; i < count * rows * columns; ++i) {
        const int matrix = i / (rows * columns), row = i / columns % rows, column = i % columns;
        t[static_cast<std::size_t>((matrix * columns + column) * rows + row)] = a[static_cast<std::size_t>(i)];
    }
    return t;
}
template <class T>
doubles as_doubles(const guarded<T>& v) {
    doubles all;
    for (std::int64_t i = 0; i < v.size(); ++i) all.push_back(static_cast<double>(v[i]));
    return all;
}

/// Small integers, of which every sum is exact.
template <class Device>
void products(Device& device) {
    constexpr int count = 3, m = 5, k = 7, n = 4;
    support::random data(3);
    const guarded<float> a(data.integers<float>(count * m * k, 5)), b(data.integers<float>(count * k * n, 5)),
        dy(data.integers<float>(count * m * n, 5));
    ht::tape tape{device};
    const auto weigh = [&](const auto& y) {
        return ht::sum(tape, ht::mul(tape, y, tape.constant(ht::view<float, 3>(dy.data(), y.shape()))));
    };
    {
        const auto x = tape.leaf(a.view(ht::shape<3>{count, m, k})), z = tape.leaf(b.view(ht::shape<3>{count, k, n}));
        const auto y = ht::matmul(tape, x, z);
        CHECK(values(device, y.view()) == multiply(as_doubles(a), as_doubles(b), count, m, k, n));
        tape.backward(weigh(y));
        CHECK(values(device, tape.gradient(x)) ==
              multiply(as_doubles(dy), transposed(as_doubles(b), count, k, n), count, m, n, k));
        CHECK(values(device, tape.gradient(z)) ==
              multiply(transposed(as_doubles(a), count, m, k), as_doubles(dy), count, k, m, n));
    }
    {
        // One matrix for all rows; its gradient comes from all of them. The same as a linear layer with its transpose.
        const doubles right = as_doubles(b), first(right.begin(), right.begin() + k * n);
        const auto x = tape.leaf(a.view(ht::shape<3>{count, m, k}));
        const auto z = tape.leaf(ht::view<float, 2>(b.data(), ht::shape<2>{k, n}));
        const auto y = ht::matmul(tape, x, z);
        CHECK(y.shape() == ht::shape<3>{count, m, n});
        CHECK(values(device, y.view()) == multiply(as_doubles(a), first, 1, count * m, k, n));
        tape.backward(weigh(y));
        CHECK(values(device, tape.gradient(x)) ==
              multiply(as_doubles(dy), transposed(first, 1, k, n), 1, count * m, n, k));
        CHECK(values(device, tape.gradient(z)) ==
              multiply(transposed(as_doubles(a), 1, count * m, k), as_doubles(dy), 1, k, count * m, n));
    }
    {
        const auto x = tape.leaf(a.view(ht::shape<3>{count, m, k}));
        const auto w = tape.leaf(ht::view<float, 2>(b.data(), ht::shape<2>{n, k})),
                   bias = tape.leaf(ht::view<float, 2>(b.data(), ht::shape<2>{1, n}));
        const doubles all = as_doubles(b), weight(all.begin(), all.begin() + n * k);
        const auto y = ht::linear(tape, x, w, ht::reshape(tape, bias, ht::shape<1>{n}));
        doubles want = multiply(as_doubles(a), transposed(weight, 1, n, k), 1, count * m, k, n);
        for (std::size_t i = 0; i < want.size(); ++i)
            want[i] += static_cast<double>(b[static_cast<std::int64_t>(i % n)]);
        CHECK(values(device, y.view()) == want);
        tape.backward(weigh(y));
        CHECK(values(device, tape.gradient(x)) == multiply(as_doubles(dy), weight, 1, count * m, n, k));
        CHECK(values(device, tape.gradient(w)) ==
              multiply(transposed(as_doubles(dy), 1, count * m, n), as_doubles(a), 1, n, count * m, k));
        CHECK(values(device, tape.gradient(bias)) ==
              multiply(doubles(count * m, 1), as_doubles(dy), 1, 1, count * m, n));
    }
    const auto x = tape.constant(a.view(ht::shape<3>{count, m, k}));
    CHECK_THROWS_AS(ht::matmul(tape, x, x), ht::shape_error);
    CHECK_THROWS_AS(ht::matmul(tape, x, tape.constant(ht::view<float, 3>(b.data(), {2, k, n}))), ht::shape_error);
    CHECK_THROWS_AS(ht::reshape(tape, x, ht::shape<1>{7}), ht::shape_error);
}

template <class Device>
void joined(Device& device) {
    ht::tape tape{device};
    const guarded<float> a(std::vector<float>{1, 2, 3, 4, 5, 6}), b(std::vector<float>{10, 20, 30, 40}),
        dy(support::random(1).integers<float>(12, 9));
    const guarded<bfloat16> h(std::vector<bfloat16>{bfloat16(7.0f), bfloat16(8.0f), bfloat16(9.0f), bfloat16(11.0f)});
    const auto x = tape.leaf(a.view(ht::shape<2>{2, 3})), z = tape.leaf(b.view(ht::shape<2>{2, 2}));
    const auto y = ht::cat(tape, -1, x, z, tape.leaf(a.view(ht::shape<2>{2, 3})));
    CHECK(y.shape() == ht::shape<2>{2, 8});
    CHECK(values(device, y.view()) == doubles{1, 2, 3, 10, 20, 1, 2, 3, 4, 5, 6, 30, 40, 4, 5, 6});
    const auto rows = ht::cat(tape, 0, z, tape.leaf(h.view(ht::shape<2>{2, 2})), z);
    static_assert(std::is_same_v<decltype(rows), const ht::variable<float, 2>>);
    CHECK(values(device, rows.view()) == doubles{10, 20, 30, 40, 7, 8, 9, 11, 10, 20, 30, 40});
    // z occurs twice: its gradient has both parts.
    tape.backward(ht::sum(tape, ht::mul(tape, rows, tape.constant(dy.view(ht::shape<2>{6, 2})))));
    for (int i = 0; i < 4; ++i)
        CHECK(values(device, tape.gradient(z))[static_cast<std::size_t>(i)] ==
              static_cast<double>(dy[i]) + static_cast<double>(dy[8 + i]));

    const auto u = tape.leaf(b.view(ht::shape<2>{2, 2}));
    const auto v = tape.leaf(h.view(ht::shape<2>{2, 2}));
    const auto stacked = ht::stack<float16>(tape, 1, u, v);
    static_assert(std::is_same_v<decltype(stacked), const ht::variable<float16, 3>>);
    CHECK(stacked.shape() == ht::shape<3>{2, 2, 2});
    CHECK(values(device, stacked.view()) == doubles{10, 20, 7, 8, 30, 40, 9, 11});
    tape.backward(ht::sum<float>(tape, ht::mul(tape, stacked, tape.constant(dy.view(ht::shape<1>{2})))));
    for (int i = 0; i < 4; ++i)
        CHECK(values(device, tape.gradient(v))[static_cast<std::size_t>(i)] == static_cast<double>(dy[i % 2]));

    CHECK_THROWS_AS(ht::cat(tape, 2, x, z), ht::argument_error);
    CHECK_THROWS_AS(ht::cat(tape, 0, x, z), ht::shape_error);
    CHECK_THROWS_AS(ht::stack(tape, 0, x, z), ht::shape_error);
}

/// Lists of variables, whose length is known at run time: values, gradients and types are those of as many arguments.
template <class Device>
void joined_lists(Device& device) {
    using matrices = std::vector<ht::variable<float, 2>>;
    const guarded<float> a(std::vector<float>{1, 2, 3, 4, 5, 6}), dy(support::random(1).integers<float>(24, 9));
    ht::tape tape{device};
    // The result of join(list), and the gradients of the list's elements, of which the last is the second once more.
    const auto run = [&](const auto& join) {
        matrices list;
        for (int i = 0; i < 3; ++i) list.push_back(tape.leaf(a.view(ht::shape<2>{2, 3})));
        list.emplace_back(list[1]);
        const auto y = join(list);
        CHECK(y.size() == 24);
        doubles all = values(device, y.view());
        tape.backward(ht::sum(tape, ht::mul(tape, y, tape.constant(dy.view(y.shape())))));
        for (const auto& x : list) {
            for (const double slope : values(device, tape.gradient(x))) all.push_back(slope);
        }
        return all;
    };
    const doubles columns = run([&](const matrices& x) { return ht::cat(tape, ht::axes<-1>, x); });
    CHECK(columns == run([&](const matrices& x) { return ht::cat(tape, 1, x[0], x[1], x[2], x[3]); }));
    CHECK(columns[12] == 4);
    CHECK(columns[24] == static_cast<double>(dy[0]));
    CHECK(columns[30] == static_cast<double>(dy[3]) + static_cast<double>(dy[9]));  // of the one that occurs twice
    CHECK(run([&](const matrices& x) { return ht::stack(tape, 1, std::span<const ht::variable<float, 2>>(x)); }) ==
          run([&](const matrices& x) { return ht::stack(tape, ht::axes<1>, x[0], x[1], x[2], x[3]); }));

    const auto x = tape.leaf(a.view(ht::shape<2>{2, 3}));
    const auto rounded = ht::stack<bfloat16>(tape, ht::axes<-1>, std::array{x, x});
    static_assert(std::is_same_v<decltype(rounded), const ht::variable<bfloat16, 3>>);
    CHECK(values(device, rounded.view()) == doubles{1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6});
    const matrices none, unlike{x, ht::transpose(tape, x, ht::axes<0, 1>)};
    CHECK_THROWS_WITH_AS(ht::cat(tape, 0, none), "cat: the list of variables is empty; expected at least one",
                         ht::argument_error);
    CHECK_THROWS_AS(ht::stack(tape, 0, none), ht::argument_error);
    CHECK_THROWS_AS(ht::cat(tape, 0, unlike), ht::shape_error);
    CHECK_THROWS_AS(ht::stack(tape, 0, unlike), ht::shape_error);
    CHECK_THROWS_AS(ht::cat(tape, 2, unlike), ht::argument_error);
}

// custom operations.

/// x^3, computed in float wherever autocast is on.
struct cubed : support::cubed {
    using cast_inputs = float;
};

/// k x w, by the category of products, with a kernel launched on views; w may be a parameter. The second gradient is
/// requested.
struct scaled_product {
    static constexpr const char* name = "scaled_product";
    static constexpr ht::category cast_rule = ht::category::low_precision;
    static auto forward(auto& ctx, const auto& x, const auto& w, float k) {
        using T = typename std::remove_cvref_t<decltype(x)>::value_type;
        static_assert(std::is_same_v<T, typename std::remove_cvref_t<decltype(w)>::value_type>);
        auto y = ctx.template make<T>(x.shape());
        ht::map(ctx.device(), [k](auto a, auto b) { return k * a * b; }, x.view(), w.view(), y.view());
        return ht::keep(y, x, w, k);
    }
    static auto backward(auto& ctx, const auto& dy, const auto& x, const auto& w, float k) {
        const auto f = [k](auto a, auto b) { return k * a * b; };
        auto dx = ht::map(ctx, f, dy, w);
        return std::tuple{dx, ctx.wants(1) ? ht::map(ctx, f, dy, x) : decltype(dx){}};
    }
};

/// Hands x on, and has no gradient for the second input.
struct pass_on {
    static constexpr const char* name = "pass_on";
    static auto forward(auto&, const auto& x, const auto&) { return x; }
    static auto backward(auto&, const auto& dy) { return std::tuple{dy, ht::absent{}}; }
};

/// A gradient of another shape than its input.
struct misshapen {
    static constexpr const char* name = "misshapen";
    static auto forward(auto& ctx, const auto& x) { return ht::neg(ctx, x); }
    static auto backward(auto& ctx, const auto& dy) { return ht::cat(ctx, 0, dy, dy); }
};

/// x w, which says nothing of autocast: both passes follow the region.
struct own_product {
    static constexpr const char* name = "own_product";
    static auto forward(auto& ctx, const auto& x, const auto& w) { return ht::keep(ht::matmul(ctx, x, w), x, w); }
    static auto backward(auto& ctx, const auto& dy, const auto& x, const auto& w) {
        return std::tuple{ht::matmul(ctx, dy, w), ht::matmul(ctx, dy, x)};
    }
};
/// The same outside autocast, since it has a rule.
struct ruled_product : own_product {
    static constexpr ht::category cast_rule = ht::category::as_input;
};

template <class Device>
void operations_without_rule(Device& device) {
    const guarded<float> one(std::vector<float>{fine});
    const ht::shape<2> s{1, 1};
    const double exact = static_cast<double>(fine), product = static_cast<double>(fine * fine);
    const auto run = [&]<class Op, class P, class Y>(const auto& kind, double y_wanted, double gradient_wanted) {
        auto tape = kind();
        const auto x = tape->leaf(one.view(s)), w = tape->leaf(one.view(s));
        const auto y = ht::apply<Op>(ht::autocast<P>(*tape), x, w);
        static_assert(std::is_same_v<decltype(y), const ht::variable<Y, 2>>);
        CHECK(values(device, y.view())[0] == y_wanted);
        tape->backward(ht::sum<float>(*tape, y));
        CHECK(values(device, tape->gradient(x))[0] == gradient_wanted);
        CHECK(values(device, tape->gradient(w))[0] == gradient_wanted);
    };
    const auto plain = [&] { return std::make_unique<ht::tape<Device>>(device); };
    run.template operator()<own_product, ht::amp_bf16, bfloat16>(plain, 1, 1);
    run.template operator()<own_product, ht::full_fp32, float>(plain, product, exact);
    run.template operator()<own_product, ht::inherit, float>(plain, product, exact);
    run.template operator()<ruled_product, ht::amp_bf16, float>(plain, product, exact);
    // dy is the product's, so a bfloat16, and backward's products read both factors as the region says.
    run.template operator()<own_product, ht::with_output<ht::amp_bf16, float>, bfloat16>(plain, 1, 1);

    ht::inference eval{device};
    const auto c = eval.constant(one.view(s));
    const auto y = ht::apply<own_product>(ht::autocast<ht::amp_bf16>(eval), c, c);
    static_assert(std::is_same_v<decltype(y), const ht::variable<bfloat16, 2>>);
    CHECK(values(device, y.view())[0] == 1);
}

/// Casts to float, and shows which types arrive.
struct wide_sum {
    static constexpr const char* name = "wide_sum";
    using cast_inputs = float;
    static auto forward(auto& ctx, const auto& x, const auto& z) {
        static_assert(std::is_same_v<std::remove_cvref_t<decltype(x)>, ht::variable<float, 1>> &&
                      std::is_same_v<std::remove_cvref_t<decltype(z)>, ht::variable<double, 1>>);
        return ht::add(ctx, x, z);
    }
    static auto backward(auto&, const auto& dy) { return std::tuple{dy, dy}; }
};

/// Each input by itself: what is no double becomes a float, the double stays.
template <class Device>
void casts_beside_doubles(Device& device) {
    ht::tape tape{device};
    const guarded<bfloat16> h(std::vector<bfloat16>{bfloat16(3.0f)});
    const guarded<double> d(std::vector<double>{1 + 1e-12});
    const auto x = tape.leaf(h.view());
    const auto z = tape.leaf(d.view());
    const auto y = ht::apply<wide_sum>(ht::autocast<ht::amp_bf16>(tape), x, z);
    CHECK(values(device, y.view())[0] == 4 + 1e-12);
    tape.backward(ht::sum(tape, y));
    CHECK(values(device, tape.gradient(x)) == doubles{1});
    CHECK(values(device, tape.gradient(z)) == doubles{1});
}

template <class Device>
void own_operations(Device& device) {
    ht::tape tape{device};
    const guarded<bfloat16> halves(std::vector<bfloat16>{bfloat16(1.5f), bfloat16(-2.5f), bfloat16(1.0078125f)});
    const auto x = tape.leaf(halves.view());
    // In a region the input is cast, the custom operation computes in float, and the gradient comes back as bfloat16.
    const auto y = ht::apply<cubed>(ht::autocast<ht::amp_fp16>(tape), x);
    static_assert(std::is_same_v<decltype(y), const ht::variable<float, 1>>);
    CHECK(values(device, y.view())[2] == static_cast<double>(1.0078125f * 1.0078125f * 1.0078125f));
    tape.backward(ht::sum(tape, y));
    const doubles slope = values(device, tape.gradient(x));
    CHECK(slope ==
          doubles{6.75, 18.75, static_cast<double>(static_cast<float>(bfloat16(3 * 1.0078125f * 1.0078125f)))});
    // Outside, nothing is cast.
    const auto z = ht::apply<cubed>(tape, x);
    static_assert(std::is_same_v<decltype(z), const ht::variable<bfloat16, 1>>);
    tape.backward(ht::sum(tape, ht::add(tape, z, z)));
    CHECK(values(device, tape.gradient(x))[0] == 6.75 + 13.5);  // added to what was there

    // Two inputs, one of them with its own type, and an option.
    const guarded<float> f(std::vector<float>{fine, 2, 3});
    const auto w = tape.leaf(f.view());
    const auto p = ht::apply<scaled_product>(ht::autocast<ht::amp_bf16>(tape), x, w, 2);
    static_assert(std::is_same_v<decltype(p), const ht::variable<bfloat16, 1>>);
    CHECK(values(device, p.view())[0] == 3);  // fine is read as 1
    tape.backward(ht::sum<float>(tape, p));
    CHECK(values(device, tape.gradient(w)) == doubles{3, -5, 2.015625});
    CHECK(values(device, tape.gradient(x))[1] == 18.75 + 37.5 + 4);

    // Constants have no gradient, and an operation can query this.
    const auto c = tape.constant(f.view());
    const auto q = ht::apply<scaled_product>(tape, w, c, 1);
    tape.backward(ht::sum(tape, q));
    CHECK(!ht::apply<scaled_product>(tape, c, c, 1).wants_gradient());
    const auto handed_on = ht::apply<pass_on>(tape, w, w);
    tape.backward(ht::sum(tape, ht::mul(tape, handed_on, c)));
    CHECK(values(device, tape.gradient(w))[1] == -5 + 2 + 2);
    tape.backward(ht::sum(tape, ht::add(tape, ht::apply<pass_on>(tape, w, w), w)));
    CHECK(values(device, tape.gradient(w))[1] == -1 + 2);

    CHECK_THROWS_AS(tape.backward(ht::sum(tape, ht::apply<misshapen>(tape, w))), ht::shape_error);

    // Nothing is recorded, and only the result stays allocated.
    ht::inference eval{device};
    const auto same = ht::apply<cubed>(ht::autocast<ht::amp_fp16>(eval), eval.constant(halves.view()));
    CHECK(values(device, same.view()) == values(device, y.view()));
}

/// A model out of free operations and one of the user's: its parameters go in as they are. Squares of weights and more,
/// so that each reader has its part in their gradient.
template <class P>
struct gated : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;

    explicit gated(auto& device) : model{device}, fc{parameters(), 3, 3} { commit(*this, 7); }
    auto output(auto&& ctx, const auto& x) const {  // (3, 3), as the weights
        const auto region = ht::autocast<P>(ctx);
        const auto h = ht::linear(region, x, fc.weight, fc.bias);  // by the store's copies
        const auto y = ht::apply<scaled_product>(region, h, fc.weight, 0.5f);
        return ht::mul(region, y, ht::as_variable(ctx, fc.weight));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

/// The sum of the model's output, in double.
inline double sum_of_output(const doubles& x, const doubles& w, const doubles& bias) {
    doubles y = multiply(x, transposed(w, 1, 3, 3), 1, 3, 3, 3);
    double sum = 0;
    for (std::size_t i = 0; i < 9; ++i) sum += 0.5 * (y[i] + bias[i % 3]) * w[i] * w[i];
    return sum;
}

}  // namespace region_checks
