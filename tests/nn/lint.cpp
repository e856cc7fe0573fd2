// SPDX-License-Identifier: MIT
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/nn/lint.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/policy.hpp>

namespace {

namespace ht = halftone;

template <class P>
struct mlp : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;
    explicit mlp(ht::cpu& device) : model(device), up(parameters(), 24, 2100), down(parameters(), 2100, 24) {
        commit(*this);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

template <class P>
std::vector<std::string> lines(const ht::lint_options& options = {}) {
    ht::cpu device{{.threads = 1}};
    std::vector<std::string> all;
    for (const ht::lint_finding& f : ht::lint(mlp<P>{device}, options)) {
        std::ostringstream text;
        text << f;
        if (f.path.find("bias") == std::string::npos) all.push_back(text.str());
    }
    return all;
}

using strings = std::vector<std::string>;

TEST_CASE("lint: what the presets do has no findings") {
    const ht::lint_options usual{.rows = 8192, .micro_batches = 512, .loss_scale = 65536, .loss_terms = 8192, .largest_activation = 8, .largest_weight = 1};
    CHECK(lines<ht::amp_bf16>(usual).empty());
    CHECK(lines<ht::amp_fp16>(usual).empty());
    CHECK(lines<ht::full_fp32>(usual).empty());
}

TEST_CASE("lint: sums that are too long, by layer, with the numbers") {
    using narrow = ht::with_accum<ht::amp_fp16, ht::float16>;
    CHECK(lines<narrow>() == strings{"up.weight (linear): 2100 products of the input's gradient add up in float16, "
                                     "whose 11 significant bits count 2048 terms of equal size: 2.476% are lost",
                                     "down.weight (linear): 2100 products of the forward pass add up in float16, whose "
                                     "11 significant bits count 2048 terms of equal size: 2.476% are lost"});
    const strings by_rows = lines<narrow>({.rows = 4096});
    CHECK(std::count(by_rows.begin(), by_rows.end(),
                     "down.weight (linear): 4096 rows add up to a gradient in float16, whose 11 significant bits count "
                     "2048 terms of equal size: 50% are lost") == 1);
    // One layer of a recipe, and no other.
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

TEST_CASE("lint: what does not fit") {
    const strings scale = lines<ht::amp_fp16>({.loss_scale = 0x1p24, .loss_terms = 128});
    REQUIRE(scale.size() == 2);
    CHECK(scale[0] == "up.weight (linear): gradients begin at up to 1.311e+05, and the largest float16 is 6.55e+04");
    CHECK(lines<ht::amp_fp16>({.loss_scale = 0x1p24, .loss_terms = 512}).empty());
    CHECK(lines<ht::amp_fp16>({.largest_activation = 40, .largest_weight = 1}) ==
          strings{"down.weight (linear): results can reach 8.4e+04, and the largest float16 is 6.55e+04"});
    const strings state = lines<ht::with_state<ht::amp_fp16, ht::float16>>();
    REQUIRE(state.size() == 2);
    CHECK(state[1] == "down.weight (linear): squares of gradients below 0.0001726 are zero in moments of float16");
    // And so they are, while a little above they are not.
    CHECK(static_cast<float>(ht::float16(0.0001726f * 0.0001726f)) == 0);
    CHECK(static_cast<float>(ht::float16(0.000173f * 0.000173f)) > 0);
    ht::cpu device{{.threads = 1}};
    CHECK_THROWS_AS(ht::lint(mlp<ht::amp_bf16>{device}, {.loss_terms = 0}), ht::argument_error);
}

}  // namespace
