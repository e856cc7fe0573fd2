// SPDX-License-Identifier: MIT
/// \file
/// Repeated layers: any depth, single blocks with policies of their own, the same paths and values under every recipe.
#include "nn/layers.hpp"

namespace nn_stack_tests {

namespace ht = halftone;
using nn_test::alone;
using nn_test::input;
using strings = std::vector<std::string>;

/// Square, so that it may be repeated.
template <class P>
struct block {
    ht::nn::linear<ht::at<P, "fc">> fc;
    block(ht::store& s, ht::extent width, float deviation) : fc(s, width, width, {.deviation = deviation}) {}
    template <class Context, class X>
    auto operator()(Context&& ctx, const X& x) const {
        return fc(ctx, x, x);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};
template <class P>
using stack = ht::nn::stack<block, P, "h">;

TEST_CASE("nn::stack: the requested number of blocks, each with its own parameters") {
    const alone<stack<ht::full_fp32>> none(0, 4, 0.5f), three(3, 4, 0.5f);
    CHECK(none.paths().empty());
    CHECK(three.paths() ==
          strings{"h.0.fc.weight", "h.0.fc.bias", "h.1.fc.weight", "h.1.fc.bias", "h.2.fc.weight", "h.2.fc.bias"});
    CHECK(three.layer.depth() == 3);
    const input<float, 2> x(ht::shape<2>{2, 4});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto v = ctx.constant(x.view);
    CHECK(none.layer(ctx, v).slot() == v.slot());
    const auto y = three.layer(ctx, v);
    CHECK(y.view()(0, 0) != x.view(0, 0));
    ht::host_memory memory;
    ht::store s(memory);
    CHECK_THROWS_WITH_AS((stack<ht::full_fp32>(s, -1, 4, 0.5f)), "stack: a depth of -1; expected 0 or more",
                         ht::argument_error);
}

TEST_CASE("nn::stack: blocks that rules name have types of their own, and the same parameters") {
    using recipe = ht::recipe<ht::full_fp32, ht::rule<"h.1", ht::with_state<ht::full_fp32, ht::bfloat16>>,
                              ht::rule<"h.last.fc", ht::with_accumulate<ht::full_fp32, ht::bfloat16>>>;
    using list = ht::at<recipe, "h">;
    static_assert(
        std::is_same_v<stack<recipe>::children,
                       ht::types<block<ht::at<list, "*">>, block<ht::at<list, "last">>, block<ht::at<list, "1">>>>);
    const input<float, 2> x(ht::shape<2>{2, 4});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto v = ctx.constant(x.view);
    for (const int depth : {1, 2, 3, 5}) {
        CAPTURE(depth);
        const alone<stack<ht::full_fp32>> plain(depth, 4, 0.5f);
        const alone<stack<recipe>> named(depth, 4, 0.5f);
        CHECK(named.paths() == plain.paths());
        CHECK(support::doubles(named.layer(ctx, v).view()) == support::doubles(plain.layer(ctx, v).view()));
    }
    // The last of one block is also the first; of two, the rule for "last" comes after that for "1" and wins.
    CHECK(alone<stack<recipe>>(1, 4, 0.5f).parameters.groups().size() == 1);
    CHECK(alone<stack<recipe>>(2, 4, 0.5f).parameters.groups().size() == 2);
    CHECK(alone<stack<recipe>>(3, 4, 0.5f).parameters.groups().size() == 3);
}

TEST_CASE("nn::stack: blocks by their index, called one after the other, give what the stack gives") {
    using recipe = ht::recipe<ht::full_fp32, ht::rule<"h.1", ht::with_state<ht::full_fp32, ht::bfloat16>>>;
    const input<float, 2> x(ht::shape<2>{2, 4});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto v = ctx.constant(x.view);
    const auto check = [&](const auto& f) {
        auto y = v;
        for (int i = 0; i < f.layer.depth(); ++i) y = f.layer[i](ctx, y);
        CHECK(support::doubles(y.view()) == support::doubles(f.layer(ctx, v).view()));
        CHECK(support::doubles(f.layer[2](ctx, v).view()) != support::doubles(f.layer[0](ctx, v).view()));
        CHECK_THROWS_WITH_AS(f.layer[3], "stack: block 3 of 3; expected 0 to 2", ht::argument_error);
        CHECK_THROWS_WITH_AS(f.layer[-1], "stack: block -1 of 3; expected 0 to 2", ht::argument_error);
    };
    check(alone<stack<ht::full_fp32>>(3, 4, 0.5f));
    check(alone<stack<recipe>>(3, 4, 0.5f));  // the block in the middle has a type of its own
}

TEST_CASE("nn::stack: an argument that is a function of the index gives each block its own") {
    using recipe = ht::recipe<ht::full_fp32, ht::rule<"h.1", ht::with_state<ht::full_fp32, ht::bfloat16>>>;
    const auto width = [](int i) -> ht::extent { return 4 + i; };
    const auto check = [](const auto& f) {
        for (std::size_t i = 0; i < 3; ++i) CHECK(f.parameters.entries()[2 * i + 1].count == 4 + i);
    };
    check(alone<stack<ht::full_fp32>>(3, width, 0.5f));
    check(alone<stack<recipe>>(3, width, 0.5f));
}

}  // namespace nn_stack_tests
