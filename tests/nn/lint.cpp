// SPDX-License-Identifier: MIT
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/nn/norm.hpp>
#include <halftone/nn/sparse_embedding.hpp>
#include <halftone/observe/lint/lint.hpp>
#include <halftone/policy.hpp>

namespace nn_lint_tests {

namespace ht = halftone;

constexpr ht::extent too_many = 3 << 23;  // terms that float can count, and half as many

/// Without memory: shapes and types are enough.
template <class P, ht::extent Hidden = 2100>
struct mlp : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;
    explicit mlp(ht::cpu& device) : model(device), up(parameters(), 24, Hidden), down(parameters(), Hidden, 24) {}
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

template <class P, ht::extent Hidden = 2100>
std::vector<std::string> lines(const ht::lint_options& options = {}) {
    ht::cpu device{{.threads = 1}};
    std::vector<std::string> all;
    for (const ht::lint_finding& f : ht::lint(mlp<P, Hidden>{device}, options)) {
        std::ostringstream text;
        text << f;
        if (f.path.find("bias") == std::string::npos) all.push_back(text.str());
    }
    return all;
}

using strings = std::vector<std::string>;

TEST_CASE("lint: the presets have no findings") {
    const ht::lint_options usual{.rows = 8192,
                                 .micro_batches = 512,
                                 .loss_scale = 65536,
                                 .loss_terms = 8192,
                                 .largest_activation = 8,
                                 .largest_weight = 1};
    CHECK(lines<ht::amp_bf16>(usual).empty());
    CHECK(lines<ht::amp_fp16>(usual).empty());
    CHECK(lines<ht::full_fp32>(usual).empty());
}

TEST_CASE("lint: sums that are too long, by layer, with the numbers") {
    const std::string tail = " add up in float, whose 24 significant bits count 16777216 terms of equal size: ";
    // A narrower role does not matter: kernels sum in float.
    using narrow = ht::with_accum<ht::amp_fp16, ht::float16>;
    CHECK(lines<narrow>({.rows = 8192}).empty());
    CHECK(lines<narrow, too_many>() ==
          strings{"up.weight (linear): 25165824 products of the input's gradient" + tail + "33.33% are lost",
                  "down.weight (linear): 25165824 products of the forward pass" + tail + "33.33% are lost"});
    CHECK(lines<ht::full_fp32, too_many>() == lines<narrow, too_many>());
    CHECK(lines<ht::full_fp64, too_many>({.rows = 1 << 25}).empty());
    const strings by_rows = lines<narrow>({.rows = 1 << 25});
    CHECK(by_rows.size() == 2);
    CHECK(std::count(by_rows.begin(), by_rows.end(),
                     "down.weight (linear): 33554432 rows add up to a gradient in float, whose 24 significant bits "
                     "count 16777216 terms of equal size: 50% are lost") == 1);
    // One layer of a recipe only.
    using recipe = ht::recipe<ht::amp_bf16, ht::rule<"down", ht::with_accumulate<ht::amp_bf16, ht::bfloat16>>>;
    CHECK(lines<recipe>({.micro_batches = 512}) ==
          strings{"down.weight (linear): 512 micro-batches add up in bfloat16, whose 8 significant bits count 256 "
                  "terms of equal size: 50% are lost"});
}

TEST_CASE("lint: a layer that a rule names among many is judged by that rule") {
    using narrow = ht::with_accumulate<ht::amp_bf16, ht::bfloat16>;
    using recipe = ht::recipe<ht::amp_bf16, ht::rule<"h", narrow>, ht::rule<"h.1", ht::amp_bf16>,
                              ht::rule<"h.last", ht::full_fp32>>;
    ht::cpu device{{.threads = 1}};
    const ht::nn::gpt<recipe> model{device, {.vocabulary = 8, .context = 4, .layers = 4, .heads = 1, .width = 4}, 1};
    const auto findings = ht::lint(model, {.micro_batches = 300});
    for (const ht::lint_finding& f : findings) {
        CAPTURE(f.path);
        CHECK((f.path.rfind("h.0.", 0) == 0 || f.path.rfind("h.2.", 0) == 0));
        CHECK(f.rule == ht::lint_rule::micro_batches);
    }
    CHECK(findings.size() == 2 * (4 * 2 + 2 * 2));  // weight and bias of four products, gain and bias of two norms
}

TEST_CASE("lint: values outside a type's range") {
    const strings scale = lines<ht::amp_fp16>({.loss_scale = 0x1p24, .loss_terms = 128});
    REQUIRE(scale.size() == 2);
    CHECK(scale[0] == "up.weight (linear): gradients begin at up to 1.311e+05, and the largest float16 is 6.55e+04");
    CHECK(lines<ht::amp_fp16>({.loss_scale = 0x1p24, .loss_terms = 512}).empty());
    // By the narrower of `grad` and `output`, as check_loss_scale has it.
    using narrow_output = ht::with_output<ht::amp_bf16, ht::float16>;
    CHECK(lines<narrow_output>({.loss_scale = 0x1p20})[0] ==
          "up.weight (linear): gradients begin at up to 1.049e+06, and the largest float16 is 6.55e+04");
    CHECK(lines<narrow_output>({.loss_scale = 65504}).empty());
    CHECK(lines<ht::fp8_hybrid>({.loss_scale = 0x1p20}).empty());
    CHECK(lines<ht::amp_fp16>({.largest_activation = 40, .largest_weight = 1}) ==
          strings{"down.weight (linear): results can reach 8.4e+04, and the largest float16 is 6.55e+04"});
    const strings state = lines<ht::with_state<ht::amp_fp16, ht::float16>>();
    REQUIRE(state.size() == 2);
    CHECK(state[1] == "down.weight (linear): squares of gradients below 0.0001726 are zero in moments of float16");
    // The message's number is right: just below it the square is zero, a little above it is not.
    CHECK(static_cast<float>(ht::float16(0.0001726f * 0.0001726f)) == 0);
    CHECK(static_cast<float>(ht::float16(0.000173f * 0.000173f)) > 0);
    ht::cpu device{{.threads = 1}};
    CHECK_THROWS_AS(ht::lint(mlp<ht::amp_bf16>{device}, {.loss_terms = 0}), ht::argument_error);
}

/// One layer that has no bias, a norm, a table that is looked up, and one whose gradient is sparse.
template <class P>
struct assorted : ht::nn::model {
    using policy = P;
    struct unbiased {
        using policy = ht::at<P, "product">;
        using operation = ht::op::linear;
        static constexpr bool owns_parameters = true;
        ht::parameter<ht::storage_signature<policy, operation>, 2> weight;
        explicit unbiased(ht::store& s) : weight(s.add<policy, operation>("matrix", ht::shape<2>{3, too_many}, {})) {}
        static decltype(auto) visit(auto&&, auto&& f) { return f(); }
    };
    unbiased product;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::embedding<ht::at<P, "table">> table;
    ht::nn::sparse_embedding<ht::at<P, "rows">> rows;
    explicit assorted(ht::cpu& device)
        : model(device),
          product(parameters()),
          norm(parameters(), too_many),
          table(parameters(), 2 * too_many, 8, 8),
          rows(parameters(), 2 * too_many, 8) {}
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.product, self.norm, self.table, self.rows); }
};
strings lines_of(const auto& model, const ht::lint_options& options) {
    strings all;
    for (const ht::lint_finding& f : ht::lint(model, options)) {
        std::ostringstream text;
        text << f;
        all.push_back(text.str());
    }
    return all;
}
int count_of(const strings& all, const std::string& line) {
    return static_cast<int>(std::count(all.begin(), all.end(), line));
}

TEST_CASE("lint: sums of layers without a bias, of norms and of embeddings") {
    ht::cpu device{{.threads = 1}};
    const assorted<ht::amp_fp16> model{device};
    const std::string tail = "float, whose 24 significant bits count 16777216 terms of equal size: ";
    // Tables have equally many rows, but no product sums over them.
    CHECK(
        lines_of(model, {}) ==
        strings{"product.matrix (linear): 25165824 products of the forward pass add up in " + tail + "33.33% are lost",
                "norm.gain (layer_norm): 25165824 numbers of a row add up in " + tail + "33.33% are lost",
                "norm.bias (layer_norm): 25165824 numbers of a row add up in " + tail + "33.33% are lost"});
    const strings by_rows = lines_of(model, {.rows = 1 << 25});
    CHECK(count_of(by_rows, "table.tokens (embedding): 33554432 tokens add up to a row's gradient in " + tail +
                                "50% are lost") == 1);
    CHECK(count_of(by_rows, "rows.table (embedding): 33554432 tokens add up to a row's gradient in " + tail +
                                "50% are lost") == 1);
    CHECK(count_of(by_rows, "norm.gain (layer_norm): 33554432 rows add up to a gradient in " + tail + "50% are lost") ==
          1);
    CHECK(by_rows.size() == 1 + 1 + 2 * 2 + 2 + 1);  // and the norm's bias, and the table of positions
}

/// Attention with one head, and logits by another layer's table; also without memory.
template <class P>
struct attending : ht::nn::model {
    using policy = P;
    using storage = ht::storage_signature<P, ht::op::embedding>;
    ht::nn::attention<ht::at<P, "attn">> attn;
    ht::nn::tied_head<ht::at<P, "head">, storage> head;
    explicit attending(ht::cpu& device)
        : model(device), attn(parameters(), too_many, 1), head{2 * too_many, too_many} {}
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.attn, self.head); }
};

TEST_CASE("lint: sums of attention and of a tied head, whose lengths are not in their parameters' shapes") {
    using recipe = ht::recipe<ht::amp_bf16, ht::rule<"attn", ht::with_accum<ht::amp_bf16, ht::bfloat16>>>;
    ht::cpu device{{.threads = 1}};
    const attending<recipe> model{device};
    const std::string tail = "float, whose 24 significant bits count 16777216 terms of equal size: ";
    const strings all = lines_of(model, {.sequence = 1 << 25});
    CHECK(count_of(all, "attn (attention): 25165824 products of a head add up in " + tail + "33.33% are lost") == 1);
    CHECK(count_of(all, "attn (attention): 33554432 times of a sequence add up in " + tail + "50% are lost") == 1);
    CHECK(count_of(all, "head (linear_cross_entropy): 25165824 products of the forward pass add up in " + tail +
                            "33.33% are lost") == 1);
    CHECK(count_of(all, "head (linear_cross_entropy): 50331648 products of the input's gradient add up in " + tail +
                            "66.67% are lost") == 1);
    CHECK(count_of(all, "head (linear_cross_entropy): 50331648 exponentials add up in " + tail + "66.67% are lost") ==
          1);
    CHECK(all.size() == 2 + 3 + (2 + 2));  // qkv and proj have sums of such lengths
    const ht::lint_options long_ones{.rows = 8192, .sequence = 8192, .smallest_activation = 1e-6};
    CHECK(
        lines_of(
            ht::nn::gpt<ht::amp_bf16>{device, {.vocabulary = 8, .context = 4, .layers = 1, .heads = 1, .width = 4}, 1},
            long_ones)
            .empty());
}

TEST_CASE("lint: numbers that underflow in eight bits at the scale of their tensor's largest") {
    CHECK(lines<ht::fp8_hybrid>({.largest_activation = 8, .smallest_activation = 1e-4}).empty());
    const strings small = lines<ht::fp8_hybrid>({.largest_activation = 8, .smallest_activation = 1e-5});
    REQUIRE(small.size() == 2);
    CHECK(small[0] ==
          "up.weight (linear): activations of 1e-05 are zero in float8_e4m3 where the largest is 8: so is "
          "all up to 1.744e-05");
    // The message's number is right, by the scale that kernels use.
    const float scale = ht::scale_for(8, 448, ht::current_scaling<>::rule, 1);
    CHECK(static_cast<float>(ht::float8_e4m3(1.743e-5f * scale)) == 0);
    CHECK(static_cast<float>(ht::float8_e4m3(1.745e-5f * scale)) > 0);
    CHECK(lines<ht::fp8_hybrid>({.largest_gradient = 1, .smallest_gradient = 1e-10})[0] ==
          "up.weight (linear): gradients of 1e-10 are zero in float8_e5m2 where the largest is 1: so is all up "
          "to 1.33e-10");

    using delayed = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<16, ht::amax_rule::max, 1>>;
    CHECK(lines<delayed>({.amax_growth = 2}).empty());
    CHECK(lines<delayed>({.amax_growth = 4})[0] ==
          "up.weight (linear): what grows by 4 from one window to the next is cut off at the largest float8_e4m3: a "
          "margin of 1 binades has room for 2");
    CHECK(lines<delayed>({.largest_activation = 1000})[1] ==
          "down.weight (linear): activations of 1000 are cut off in the first window, which has no history and a scale "
          "of 1: the largest float8_e4m3 is 448");
    CHECK(lines<delayed>({.largest_gradient = 1e-6})[0] ==
          "up.weight (linear): gradients of up to 1e-06 are zero in the first window, which has no history and a scale "
          "of 1: so is all up to 7.629e-06 in float8_e5m2");
    CHECK(lines<ht::fp8_hybrid>({.largest_activation = 1000, .amax_growth = 4}).empty());
}

}  // namespace nn_lint_tests
