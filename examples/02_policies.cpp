// SPDX-License-Identifier: MIT
/// \file
/// Lesson 2: policies, and the messages that wrong ones give.
///
/// A policy is a type that names a number type for each role in a training step. A recipe gives each layer of a model
/// its policy, by the layer's path. Both are resolved by the compiler: a table shows the result, and a mistake does not
/// compile.
#include <cstdio>
#include <iostream>

#include <halftone/amp.hpp>
#include <halftone/policy/table.hpp>

namespace ht = halftone;

const char* yes_or_no(bool answer) { return answer ? "yes" : "no"; }

template <class T>
constexpr const char* name_of = ht::number_traits<T>::name;

template <class P>
void print_roles(const char* preset) {
    // `param` is what the optimizer keeps, `compute` what products read, `output` the type of layers' results, `accum`
    // that of sums, `state` the optimizer's moments. (policy/roles.hpp has the other three.)
    std::printf("%-10s %-9s %-9s %-9s %-6s %-6s %s\n", preset, name_of<typename P::param>, name_of<typename P::compute>,
                name_of<typename P::output>, name_of<typename P::accum>, name_of<typename P::state>,
                yes_or_no(ht::needs_scaling<P>));
}

void presets() {
    std::printf("preset     param     compute   output    accum  state  loss scale\n");
    print_roles<ht::full_fp32>("full_fp32");
    print_roles<ht::amp_bf16>("amp_bf16");
    print_roles<ht::amp_fp16>("amp_fp16");
    print_roles<ht::pure_bf16>("pure_bf16");
    // Prints: preset     param     compute   output    accum  state  loss scale
    // Prints: full_fp32  float     float     float     float  float  no
    // Prints: amp_bf16   float     bfloat16  bfloat16  float  float  no
    // Prints: amp_fp16   float     float16   float16   float  float  yes
    // Prints: pure_bf16  bfloat16  bfloat16  bfloat16  float  float  no
}

// A preset with one role changed, by inheriting from it or by a transform: the same policy.
struct wide_output : ht::amp_bf16 {
    using output = float;
};
static_assert(std::is_same_v<wide_output::output, ht::with_output<ht::amp_bf16, float>::output>);

// A default, then rules by path. '*' stands for any run of characters, a rule also holds for everything below what it
// names, and if several rules name a layer the last one wins.
using recipe = ht::recipe<ht::amp_bf16,                           // everything, unless a rule says
                          ht::rule<"h.last.mlp", ht::full_fp32>,  // the last block's perceptron
                          ht::rule<"*.norm", ht::full_fp32>,      // every norm, the one at the top too
                          ht::rule<"head", ht::with_output<ht::amp_bf16, float>>>;  // bf16 products, fp32 logits
using model = ht::nn::gpt<recipe>;

void resolved() {
    // What each operation reads, sums in and gives. "h.*" are the blocks that no rule names by number. The sum of the
    // residual stream and what attention or perceptron adds to it is rounded to the stream's type, that of the result
    // of "embed", here float, as under PyTorch's autocast.
    ht::print_policies<model>(std::cout);
    // Prints: path              op                    in        accumulate  out
    // Prints: h.*.attn.norm     layer_norm            float     float       float
    // Prints: h.*.attn.qkv      linear                bfloat16  float       bfloat16
    // Prints: h.*.mlp.up        linear                bfloat16  float       bfloat16
    // Prints: h.last.mlp.up     linear                float     float       float
    // Prints: head              linear_cross_entropy  bfloat16  float       float
}

void wrong_ones() {
    // Each mistake has a concept that can be tested. If a layer, a model or an optimizer gets a policy that does not
    // satisfy it, compilation fails with a sentence that says where, what and how to fix it.

    // An accumulator must hold what it sums. In a model:
    //     halftone: the accumulator of this policy (role `accum`) is narrower than the operands it sums (role
    //     `compute`), in significand or in range; widen it: ht::with_accum<P, float>
    using narrow_sums = ht::with_accum<ht::full_fp32, ht::bfloat16>;
    static_assert(!ht::wide_enough_accum<narrow_sums>);
    std::printf("is the accumulator wide enough? full_fp32: %s; with sums in bfloat16: %s\n",
                yes_or_no(ht::wide_enough_accum<ht::full_fp32>), yes_or_no(ht::wide_enough_accum<narrow_sums>));
    // Prints: is the accumulator wide enough? full_fp32: yes; with sums in bfloat16: no

    // Parameters must keep small updates (lesson 1), by a master or by stochastic rounding. In an optimizer:
    //     halftone: these parameters (role `param`) have so few bits that an optimizer's updates round away: keep a
    //     master, ht::with_param<P, float>, or round stochastically, …
    using no_master = ht::with_param<ht::amp_bf16, ht::bfloat16>;
    static_assert(!ht::keeps_small_updates<no_master>);
    std::printf("are small updates kept? amp_bf16: %s; without master: %s; pure_bf16, rounded stochastically: %s\n",
                yes_or_no(ht::keeps_small_updates<ht::amp_bf16>), yes_or_no(ht::keeps_small_updates<no_master>),
                yes_or_no(ht::keeps_small_updates<ht::pure_bf16>));
    // Prints: are small updates kept? amp_bf16: yes; without master: no; pure_bf16, rounded stochastically: yes

    // A misspelt path would silently leave a layer at the default. In a model:
    //     halftone: this rule's path names no layer of the model; the path stands in no_layer_at<...>; …
    static_assert(!ht::names_a_layer<"*.nrom", model>);
    std::printf("does a rule for this path name a layer? *.norm: %s; *.nrom: %s\n",
                yes_or_no(ht::names_a_layer<"*.norm", model>), yes_or_no(ht::names_a_layer<"*.nrom", model>));
    // Prints: does a rule for this path name a layer? *.norm: yes; *.nrom: no

    // tests/compile_fail has these programs; tests check that compilers reject them with these sentences.
    // tests/compile_fail/lesson_policies.cpp has the three of this lesson.
}

int main() {
    presets();
    resolved();
    wrong_ones();
    return 0;
}
