// SPDX-License-Identifier: MIT
/// \file
/// A model's layers, paths and storage, all of them types.
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/policy/model.hpp>

#include "small_gpt.hpp"

namespace policy_model_tests {

namespace ht = halftone;
using ht::at, ht::bfloat16, ht::float16, ht::rule;

template <class A, class B>
inline constexpr bool same = std::is_same_v<A, B>;

using mine = ht::recipe<ht::amp_bf16, rule<"*.norm", ht::full_fp32>, rule<"h.last.attn", ht::amp_fp16>,
                        rule<"head", ht::with_output<ht::amp_bf16, float>>>;
using model = outline::gpt<mine>;

template <class... Ls>
std::vector<std::string> paths_of(ht::types<Ls...>) {
    return {std::string(ht::path_of<typename Ls::policy>.text().data)...};
}

constexpr auto nearest = ht::rounding::nearest_even;
using master_of_bf16 = ht::storage<float, bfloat16, float, float, nearest>;
using master_of_fp16 = ht::storage<float, float16, float, float, nearest>;
using all_fp32 = ht::storage<float, float, float, float, nearest>;

struct no_layer {};
template <class P>
struct headless {  // neither a policy nor children: no layer at all
    no_layer nothing;
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.nothing); }
};

static_assert(ht::layer<outline::linear<ht::amp_bf16>> && !ht::layer<outline::block<ht::amp_bf16>> && !ht::layer<int>);
static_assert(ht::parameter_owner<outline::linear<ht::amp_bf16>>);
static_assert(!ht::parameter_owner<outline::attention<ht::amp_bf16>>);
static_assert(ht::children_of<model>::size == 4 && same<ht::children_of<int>, ht::types<>>);
static_assert(ht::children_of<decltype(model::h)>::size == 2);
static_assert(same<ht::layers_of<headless<ht::amp_bf16>>, ht::types<>>);

static_assert(same<ht::signatures_of<model>, ht::types<master_of_bf16, all_fp32, master_of_fp16>>);
static_assert(same<ht::signatures_of<outline::gpt<ht::full_fp32>>, ht::types<all_fp32>>);
// A norm under amp_bf16 computes in fp32: it reads its master and needs no copy.
static_assert(same<ht::signatures_of<outline::gpt<ht::amp_bf16>>, ht::types<master_of_bf16, all_fp32>>);
static_assert(same<ht::storage_signature<ht::amp_bf16>, master_of_bf16>);
static_assert(same<ht::storage_signature<ht::amp_bf16, ht::op::layer_norm>, all_fp32>);
static_assert(same<ht::storage_signature<at<ht::inherit, "x">, ht::op::linear>, all_fp32>);
// Products under tf32 read the masters.
static_assert(same<ht::signatures_of<outline::gpt<ht::tf32>>, ht::types<all_fp32>>);
static_assert(same<ht::storage_signature<ht::tf32>, all_fp32>);
static_assert(same<ht::storage_signature<ht::with_state<ht::pure_bf16, bfloat16>>,
                   ht::storage<bfloat16, bfloat16, float, bfloat16, ht::rounding::stochastic>>);

static_assert(ht::model_needs_scaling<model> && !ht::model_needs_scaling<outline::gpt<ht::amp_bf16>>);
static_assert(!ht::model_needs_scaling<outline::gpt<ht::inherit>>);

static_assert(ht::names_a_layer<"*.norm", model> && ht::names_a_layer<"h.last", model> &&
              ht::names_a_layer<"*", model>);
static_assert(ht::names_a_layer<"h.*.attn.qkv", model> && ht::names_a_layer<"h", model>);
static_assert(!ht::names_a_layer<"*.nrom", model> && !ht::names_a_layer<"h.3", model> &&
              !ht::names_a_layer<"qkv", model>);
static_assert(ht::check_recipe<mine, model>() && ht::check_recipe<ht::amp_bf16, model>());
static_assert(ht::check_recipe<ht::recipe<ht::amp_bf16>, model>());
// Part of a larger model: rules for other parts of that model match no layer here, and that is allowed.
static_assert(ht::check_recipe<at<mine, "encoder">, outline::gpt<at<mine, "encoder">>>());

TEST_CASE("layers are in order, parents before children, lists with one entry for each class") {
    CHECK(paths_of(ht::layers_of<model>{}) ==
          std::vector<std::string>{"", "wte", "h.*.norm", "h.*.attn", "h.*.attn.qkv", "h.*.attn.proj", "h.last.norm",
                                   "h.last.attn", "h.last.attn.qkv", "h.last.attn.proj", "norm", "head"});
    CHECK(paths_of(ht::detail::owners_of<model>{}) ==
          std::vector<std::string>{"wte", "h.*.norm", "h.*.attn.qkv", "h.*.attn.proj", "h.last.norm", "h.last.attn.qkv",
                                   "h.last.attn.proj", "norm", "head"});
}

TEST_CASE("a model's constructor checks its recipe") { CHECK(sizeof(model{}) > 0); }

}  // namespace policy_model_tests
