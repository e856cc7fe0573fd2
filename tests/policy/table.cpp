// SPDX-License-Identifier: MIT
/// \file
/// The table of policies, as printed and as rows.
#include <sstream>

#include <doctest/doctest.h>

#include <halftone/policy/table.hpp>

#include "small_gpt.hpp"

namespace policy_table_tests {

namespace ht = halftone;
using ht::at, ht::rule;

using mine = ht::recipe<ht::amp_bf16, rule<"*.norm", ht::full_fp32>, rule<"h.last.attn", ht::amp_fp16>,
                        rule<"head", ht::with_output<ht::amp_bf16, float>>>;
using model = outline::gpt<mine>;

TEST_CASE("the table shows what every operation computes in") {
    std::ostringstream out;
    ht::print_policies<model>(out);
    CHECK(out.str() ==
          "path              op          in        accumulate  out\n"
          "wte               embedding   bfloat16  float       bfloat16\n"
          "h.*.norm          layer_norm  float     float       float\n"
          "h.*.attn          attention   bfloat16  float       bfloat16\n"
          "h.*.attn.qkv      linear      bfloat16  float       bfloat16\n"
          "h.*.attn.proj     linear      bfloat16  float       bfloat16\n"
          "h.last.norm       layer_norm  float     float       float\n"
          "h.last.attn       attention   float16   float       float16\n"
          "h.last.attn.qkv   linear      float16   float       float16\n"
          "h.last.attn.proj  linear      float16   float       float16\n"
          "norm              layer_norm  float     float       float\n"
          "head              linear      bfloat16  float       float\n");
}

TEST_CASE("a layer without a path, and one that inherits") {
    const auto bare = ht::policies_of<outline::linear<ht::amp_bf16>>();
    REQUIRE(bare.size() == 1);
    CHECK(bare[0].path == "-");
    CHECK(bare[0].in == "bfloat16");
    CHECK(ht::policies_of<outline::linear<ht::tf32>>()[0].in == "tfloat32");
    CHECK(ht::policies_of<outline::linear<ht::tf32>>()[0].out == "float");
    // Kernels sum in float where `accum` is narrower; the ledger says the same.
    CHECK(ht::policies_of<outline::linear<ht::with_accum<ht::amp_fp16, ht::float16>>>()[0].accumulate == "float");
    CHECK(ht::policies_of<outline::linear<ht::full_fp64>>()[0].accumulate == "double");
    const auto pieces = ht::policies_of<outline::linear<ht::split_fp32>>();
    CHECK(pieces[0].in == "split<bfloat16, 3>");
    CHECK(pieces[0].accumulate == "float");
    CHECK(pieces[0].out == "float");
    CHECK(pieces[0].weight_grad == "split<bfloat16, 3>");
    CHECK(ht::policies_of<outline::linear<ht::with_accum<ht::amp_fp16, ht::float16>>>()[0].accumulate == "float");
    CHECK(ht::policies_of<outline::linear<ht::full_fp64>>()[0].accumulate == "double");
    const auto inherits = ht::policies_of<outline::linear<at<ht::inherit, "fc">>>();
    REQUIRE(inherits.size() == 1);
    CHECK(inherits[0].path == "fc");
    CHECK(inherits[0].in == "inherit");
    CHECK(inherits[0].out == "inherit");
}

template <class P>
struct table_of_rows {
    using policy = P;
    using operation = ht::op::embedding;
    static constexpr bool gives_stream = true;
};

TEST_CASE("a layer that gives the residual stream has its type") {
    using wide = ht::with_stream<ht::amp_bf16, float>;
    CHECK(ht::policies_of<table_of_rows<wide>>()[0].out == "float");
    CHECK(ht::policies_of<table_of_rows<ht::pure_bf16>>()[0].out == "bfloat16");
    CHECK(ht::policies_of<table_of_rows<at<ht::inherit, "embed">>>()[0].out == "inherit");
    CHECK(ht::policies_of<outline::linear<wide>>()[0].out == "bfloat16");
}

TEST_CASE("roles of backward products are listed where a policy states them") {
    using split = ht::recipe<ht::amp_bf16, rule<"*.qkv", ht::with_weight_grad<ht::amp_bf16, float>>,
                             rule<"*.proj", ht::with_input_grad<ht::amp_fp16, ht::bfloat16>>>;
    std::ostringstream out;
    ht::print_policies<outline::block<ht::at<split, "h">>>(out);
    CHECK(out.str() ==
          "path         op          in        accumulate  out       input_grad  weight_grad\n"
          "h.norm       layer_norm  float     float       bfloat16  -           -\n"
          "h.attn       attention   bfloat16  float       bfloat16  -           -\n"
          "h.attn.qkv   linear      bfloat16  float       bfloat16  bfloat16    float\n"
          "h.attn.proj  linear      float16   float       float16   bfloat16    float16\n");
    const auto derived = ht::policies_of<outline::linear<ht::with_grad<ht::amp_bf16, float>>>();
    CHECK(derived[0].input_grad == "float");
    CHECK(derived[0].weight_grad == "float");
    CHECK(!derived[0].states_grads);
    CHECK(ht::policies_of<outline::linear<at<ht::inherit, "fc">>>()[0].weight_grad == "inherit");
}

}  // namespace policy_table_tests
