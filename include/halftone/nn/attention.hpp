// SPDX-License-Identifier: MIT
/// \file
/// Multi-head self-attention: one product makes queries, keys and values, another mixes the heads.
///
///     ht::nn::attention<ht::at<P, "attn">> attn{store, width, heads};
///     auto y = attn(ctx, x, residual);                       // (batch, time, width)
///     auto y = attn(ctx, x, residual, ht::packed_sequences::of(offsets, longest));      // (1, time, width)
///     auto y = attn(ctx, x, residual, ht::sliding_window{256}, ht::attention_dropout{0.1f});    // functions of scores
///
/// Paths below it: "qkv" and "proj".
#pragma once

#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/modified_attention.hpp>
#include <halftone/nn/linear.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// Multi-head self-attention, causal unless its options say otherwise (Vaswani et al. 2017): x (batch, time, width)
/// to (batch, time, width), with heads of width / heads numbers each.
template <class P>
struct attention {
    using policy = P;
    using operation = op::attention;
    static constexpr bool adds_to_stream = true;  // policy/ledger.hpp

    linear<at<P, "qkv">> qkv;    // width to 3 width
    linear<at<P, "proj">> proj;  // width to width
    extent heads;
    attention_options options;
    float residual_dropout = 0;  ///< of the result, before the residual is added; of probabilities: attention_dropout

    /// The weights of both products begin as said. Throws argument_error where the heads do not divide the width, or
    /// are larger than the strategy asked for takes.
    attention(store& s, extent width, extent head_count, const initial& inner = {.deviation = 0.02f},
              const initial& projection = {.deviation = 0.02f},
              const attention_options& o = {.mask = attention_mask::causal})
        : qkv(s, width, 3 * checked(width, head_count, o), inner),
          proj(s, width, width, projection),
          heads(head_count),
          options(o) {}

    /// The numbers of one head: width / heads.
    extent head_size() const { return qkv.weight.shape()[1] / heads; }

    /// With packed_sequences, or those of packed documents, x is one row of them; autodiff/op/attention.hpp says where
    /// their offsets may lie.
    template <class Context, class X, class Residual = absent>
    auto operator()(Context&& ctx, const variable<X, 3>& x, const Residual& residual = {},
                    const halftone::detail::device_sequences& sequences = {}) const {
        halftone::detail::check_layer_dropout<Context>("attention", residual_dropout);
        return mix(ctx, self_attention<layer_roles<P, operation, Context>>(ctx, qkv(ctx, x), heads, options, sequences),
                   residual);
    }
    /// With functions of scores: kernel/attention/score_mod/score_mod.hpp. Without a residual, ht::absent{} stands for it.
    template <class Context, class X, class Residual, class F, class... More>
        requires(halftone::detail::attention_function<F> && (halftone::detail::attention_function<More> && ...))
    auto operator()(Context&& ctx, const variable<X, 3>& x, const Residual& residual, const F& function,
                    const More&... more) const {
        halftone::detail::check_layer_dropout<Context>("attention", residual_dropout);
        using roles = layer_roles<P, operation, Context>;
        return mix(ctx, self_attention<roles>(ctx, qkv(ctx, x), heads, options, function, more...), residual);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.qkv, self.proj); }

  private:
    /// The product behind attention, with what is dropped of it and added to it.
    template <class Context, class T, class Residual>
    auto mix(Context&& ctx, const variable<T, 3>& mixed, const Residual& residual) const {
        if constexpr (std::remove_cvref_t<Context>::records) {
            if (residual_dropout != 0) {
                if constexpr (is_absent<Residual>) {
                    return halftone::dropout(ctx, proj(ctx, mixed), {residual_dropout});
                } else {
                    return halftone::dropout(ctx, proj(ctx, mixed), {residual_dropout}, residual);
                }
            }
        }
        return proj(ctx, mixed, residual);
    }
    static extent checked(extent width, extent heads, const attention_options& options) {
        check_shape("attention", shape<2>{3, width});
        if (heads < 1 || width % heads != 0)
            fail<argument_error>("attention: ", heads, " heads do not divide a width of ", width);
        if (options.strategy == attention_strategy::flash && width / heads > halftone::detail::most_head_size) {
            fail<argument_error>("attention: ", heads, " heads of a width of ", width, " have ", width / heads,
                                 " numbers each; flash kernels take at most ", halftone::detail::most_head_size);
        }
        return width;
    }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
