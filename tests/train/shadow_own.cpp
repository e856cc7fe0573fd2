// SPDX-License-Identifier: MIT
/// \file
/// Reports of shadow runs about maps and custom operations: forward overflow, and mistakes in large tensors.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/observe/shadow/shadow.hpp>

#include "support/cube.hpp"
#include "support/random.hpp"

namespace train_shadow_own_tests {

namespace ht = halftone;

constexpr ht::extent rows = 6, width = 16;

using support::cube;
/// Stands for a map, which has no name.
struct square {};

template <class Op>
struct raised {
    template <class P>
    struct net : ht::nn::model {
        using policy = P;
        ht::nn::linear<ht::at<P, "up">> up;
        ht::nn::linear<ht::at<P, "down">> down;
        explicit net(auto& device)
            : model(device), up(parameters(), width, width, {.deviation = 1}), down(parameters(), width, 4) {
            commit(*this, 3);
        }
        auto operator()(auto&& t, const auto& x) const {
            if constexpr (std::is_same_v<Op, square>) {
                return down(t, ht::map(
                                   t, [](auto a) { return a * a; }, up(t, x)));
            } else {
                return down(t, ht::apply<Op>(t, up(t, x)));
            }
        }
        static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
    };
};

/// The report for inputs times `scale`, one of them infinite if `is_infinite`.
template <class Op>
ht::shadow_report report_of(float scale, bool is_infinite = false) {
    ht::cpu device{{.threads = 1}};
    typename raised<Op>::template net<ht::amp_fp16> model{device};
    typename raised<Op>::template net<ht::full_fp32> twin{device};
    auto inputs = support::random(3).normals<float>(rows * width);
    for (float& v : inputs) v *= scale;
    if (is_infinite) inputs[width] = std::numeric_limits<float>::infinity();
    const std::vector<float> targets(rows * 4);
    return ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        const auto x = tape.to_device(ht::const_view<float, 2>(inputs.data(), {rows, width}));
        return ht::mean_squared_error(tape, m(tape, x), ht::const_view<float, 2>(targets.data(), {rows, 4}));
    });
}

TEST_CASE_TEMPLATE("shadow: a map and a custom operation that overflow in the forward pass are named", Op, cube,
                   square) {
    const bool is_own = std::is_same_v<Op, cube>;
    CHECK(report_of<Op>(1).first() == nullptr);

    const auto beyond = report_of<Op>(is_own ? 32.0f : 256.0f);
    REQUIRE(beyond.first() != nullptr);
    CHECK(beyond.first()->by.operation == (is_own ? "cube" : "map"));
    CHECK(beyond.first()->pass == ht::pass::forward);
    CHECK(beyond.first()->ratio == HUGE_VAL);
    CHECK(std::fabs(beyond.first()->expected) > 65504);
    CHECK(beyond.first()->bound < 0.01 * std::fabs(beyond.first()->expected));
    // Operations that only pass its infinities on are not reported.
    for (const ht::shadow_row& r : beyond.rows) CHECK(r.diverges() == (&r == beyond.first()));

    CHECK(report_of<Op>(1, true).first() == nullptr);
}

/// Reductions along axes, also with sums that cancel.
template <class P>
struct reduced_net : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    explicit reduced_net(auto& device) : model(device), up(parameters(), width, width, {.deviation = 1}) { commit(*this, 3); }
    auto operator()(auto&& t, const auto& x) const {
        const auto y = up(t, x);
        const auto sums = ht::add(t, ht::sum(t, y, ht::axes<1>), ht::var(t, y, ht::axes<1>));
        const auto largest = ht::amax(t, ht::cumsum(t, y, ht::axes<0>), ht::axes<1>);
        return ht::add(t, ht::add(t, sums, ht::logsumexp(t, y, ht::axes<1>)), largest);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up); }
};
TEST_CASE("shadow: reductions along axes are within the bounds of sums") {
    ht::cpu device{{.threads = 1}};
    reduced_net<ht::amp_bf16> model{device};
    reduced_net<ht::full_fp32> twin{device};
    auto inputs = support::random(3).normals<float>(rows * width);
    const std::vector<float> targets(rows);
    const auto report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        const auto x = tape.to_device(ht::const_view<float, 2>(inputs.data(), {rows, width}));
        return ht::mean_squared_error(tape, m(tape, x), ht::const_view<float, 1>(targets.data(), {rows}));
    });
    CHECK(report.first() == nullptr);
}

/// An operation whose result is half a percent too large in 16 bits. IsSaid: whether it states the length of its sums.
template <bool IsSaid>
struct off {
    static constexpr const char* name = "off";
    static constexpr ht::category cast_rule = ht::category::low_precision;

    static auto forward(auto& ctx, const auto& x) {
        using T = typename std::remove_cvref_t<decltype(x)>::value_type;
        return ht::map(
            ctx, [f = sizeof(T) == 2 ? 1.005f : 1.0f](auto a) { return a * f; }, x);
    }
    static auto backward(auto& ctx, const auto& dy) {
        return ht::map(
            ctx, [](auto g) { return g; }, dy);
    }
};
template <>
struct off<true> : off<false> {
    static constexpr ht::extent sum_length = 1;
};

template <class Op, ht::extent Rows, ht::extent Columns>
struct of_a_table {
    template <class P>
    struct net : ht::nn::model {
        using policy = P;
        ht::nn::linear<ht::at<P, "table">> table;
        explicit net(auto& device) : model(device), table(parameters(), Rows, Columns) { commit(*this, 3); }
        auto operator()(auto&& t) const { return ht::mean(t, ht::apply<Op>(ht::autocast<P>(t), table.weight)); }
        static decltype(auto) visit(auto&& self, auto&& f) { return f(self.table); }
    };
};
template <class Op, ht::extent Rows, ht::extent Columns>
ht::shadow_report report_of_table() {
    ht::cpu device{{.threads = 1}};
    typename of_a_table<Op, Rows, Columns>::template net<ht::amp_fp16> model{device};
    typename of_a_table<Op, Rows, Columns>::template net<ht::full_fp32> twin{device};
    return ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) { return m(tape) * 1024; });
}

TEST_CASE("shadow: an error of half a percent is found in small tensors and in large ones") {
    const auto check = [](const ht::shadow_report& r) {
        REQUIRE(r.first() != nullptr);
        CHECK(r.first()->by.operation == "off");
        CHECK(r.first()->beyond > r.first()->elements / 2);
    };
    check(report_of_table<off<false>, 16, 16>());
    check(report_of_table<off<false>, 256, 256>());  // sums of 65,536 would explain 0.8% of the largest
    check(report_of_table<off<true>, 32768, 1>());   // those of 32,768 would explain 0.4%
}

/// The same operation on inputs without a gradient.
template <class P>
struct of_inputs : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "down">> down;
    explicit of_inputs(auto& device) : model(device), down(parameters(), width, 1) { commit(*this, 3); }
    auto operator()(auto&& t, const auto& x) const {
        return ht::mean(t, down(t, ht::apply<off<false>>(ht::autocast<P>(t), x)));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.down); }
};

TEST_CASE("shadow: the same bound for a custom operation whose inputs need no gradient") {
    ht::cpu device{{.threads = 1}};
    of_inputs<ht::amp_fp16> model{device};
    of_inputs<ht::full_fp32> twin{device};
    constexpr ht::extent many = 4096;
    const auto inputs = support::random(3).normals<float>(many * width);
    const auto report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        return m(tape, tape.to_device(ht::const_view<float, 2>(inputs.data(), {many, width}))) * 1024;
    });
    REQUIRE(report.first() != nullptr);
    CHECK(report.first()->by.operation == "off");
    CHECK(report.first()->pass == ht::pass::forward);
}

struct counting {
    static ht::extent sum_length(const auto& y, const auto& x) { return x[0] / y[0]; }
};
struct of_an_instance {
    ht::extent sum_length(const auto& y, const auto& x) const { return x[0] / y[0]; }
};
class kept_private {
    static constexpr ht::extent sum_length = 1;
};
struct text {
    static constexpr const char* sum_length = "1";
};
struct of_no_member final {};
static_assert(ht::detail::names_sum_length<counting> && ht::detail::names_sum_length<off<true>> &&
              ht::detail::names_sum_length<of_an_instance> && ht::detail::names_sum_length<kept_private> &&
              ht::detail::names_sum_length<text>);
static_assert(!ht::detail::names_sum_length<cube> && !ht::detail::names_sum_length<off<false>> &&
              !ht::detail::names_sum_length<of_no_member>);

TEST_CASE("shadow: the assumed length of sums in a custom operation") {
    using ht::shape;
    using ht::detail::own_sum_length;
    const auto usual = [](const auto&... shapes) { return own_sum_length<cube>(shapes...); };
    CHECK(usual(shape<2>{64, 32}, shape<2>{64, 32}) == 64);
    CHECK(usual(shape<3>{4, 8, 16}, shape<3>{4, 8, 16}, shape<1>{16}, shape<2>{8, 1}) == 16);
    // The weight's gradient sums 4 x 8 rows.
    CHECK(usual(shape<3>{4, 8, 16}, shape<3>{4, 8, 5}, shape<2>{5, 16}) == 32);
    CHECK(usual(shape<2>{4, 8}, shape<2>{4, 100}, shape<2>{100, 8}) == 100);
    CHECK(usual(shape<0>{}, shape<3>{4, 8, 16}) == 512);
    CHECK(usual(shape<1>{4}, shape<2>{4, 16}) == 16);
    CHECK(own_sum_length<off<true>>(shape<2>{64, 32}, shape<2>{64, 32}) == 1);
    CHECK(own_sum_length<counting>(shape<1>{4}, shape<1>{12}) == 3);
}

}  // namespace train_shadow_own_tests
