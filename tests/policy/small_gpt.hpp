// SPDX-License-Identifier: MIT
/// \file
/// A GPT as types only, to test the checks of models and the tables.
#pragma once

#include <cstddef>
#include <tuple>

#include <halftone/policy.hpp>

namespace outline {

namespace ht = halftone;

template <class P, class Op>
struct leaf {
    using policy = P;
    using operation = Op;
    static constexpr bool owns_parameters = true;
};
template <class P>
using linear = leaf<P, ht::op::linear>;
template <class P>
using layer_norm = leaf<P, ht::op::layer_norm>;
template <class P>
using embedding = leaf<P, ht::op::embedding>;

template <class P>
struct attention {
    using policy = P;
    using operation = ht::op::attention;
    linear<ht::at<P, "qkv">> qkv{};
    linear<ht::at<P, "proj">> proj{};
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.qkv, self.proj); }
};

// As a user writes a model: without a policy, and with a member that is not a layer.
template <class P>
struct block {
    layer_norm<ht::at<P, "norm">> norm{};
    attention<ht::at<P, "attn">> attn{};
    int width = 0;
    static decltype(auto) visit(auto& self, auto&& f) { return f(self.norm, self.attn, self.width); }
};

template <template <class> class Block, class P, ht::path_name Name,
          class Classes = typename ht::detail::classes_of<P, Name>::type>
struct stack;
template <template <class> class Block, class P, ht::path_name Name, int... Index>
struct stack<Block, P, Name, ht::indices<Index...>> {
    using children =
        ht::types<Block<ht::at<ht::at<P, Name>, "*">>, Block<ht::at<ht::at<P, Name>, ht::detail::index_name(Index)>>...>;
};

template <class P>
struct gpt {
    using policy = P;
    gpt() { static_assert(ht::check_recipe<P, gpt>()); }
    embedding<ht::at<P, "wte">> wte{};
    stack<block, P, "h"> h{};
    layer_norm<ht::at<P, "norm">> norm{};
    linear<ht::at<P, "head">> head{};
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.wte, self.h, self.norm, self.head); }
};

}  // namespace outline
