// SPDX-License-Identifier: MIT
/// \file
/// Multi-head self-attention: one product computes queries, keys and values, and another combines the heads.
///
///     ht::nn::attention<ht::at<P, "attn">> attn{store, width, heads};
///     auto y = attn(ctx, x, residual);                       // (batch, time, width)
///     auto y = attn(ctx, x, residual, ht::packed_sequences::of(offsets, longest));      // (1, time, width)
///     // Grouped queries: 12 heads, where three heads share each of the 4 heads of keys and values.
///     ht::nn::attention<ht::at<P, "attn">> attn{store, width, 12, begin, begin, {.mask = ht::attention_mask::causal}, 4};
///
/// Paths below it: "qkv" and "proj".
#pragma once

#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/modified_attention.hpp>
#include <halftone/nn/linear.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// Multi-head self-attention, causal by default (Vaswani et al. 2017): maps x (batch, time, width) to (batch, time,
/// width); each head has width / heads elements.
template <class P>
struct attention {
    using policy = P;
    using operation = op::attention;
    static constexpr bool adds_to_stream = true;  // policy/ledger.hpp

    linear<at<P, "qkv">> qkv;    // width to width + 2 kv_heads head_size
    linear<at<P, "proj">> proj;  // width to width
    extent heads, kv_heads;
    attention_options options;
    float residual_dropout = 0;  ///< dropout of the result before the residual is added; probabilities are not dropped

    /// `inner` and `projection` are the initial values of the weights of "qkv" and "proj"; `key_value_heads` is the
    /// number of heads of keys and values, 0: `head_count`. Throws argument_error if the heads do not divide the width,
    /// if those of keys and values do not divide the heads, or if they are larger than the requested strategy supports.
    attention(store& s, extent width, extent head_count, const initial& inner = {.deviation = 0.02f},
              const initial& projection = {.deviation = 0.02f},
              const attention_options& o = {.mask = attention_mask::causal}, extent key_value_heads = 0)
        : qkv(s, width, checked(width, head_count, key_value_heads, o), inner),
          proj(s, width, width, projection),
          heads(head_count),
          kv_heads(key_value_heads == 0 ? head_count : key_value_heads),
          options(o) {}

    /// The width of one head: width / heads.
    extent head_size() const { return qkv.weight.shape()[1] / heads; }

    /// Self-attention of x (batch, time, width). With packed_sequences, or those of packed documents, x is one row of
    /// documents; autodiff/op/attention.hpp specifies where their offsets may be.
    template <class Context, class X, class Residual = absent>
    auto operator()(Context&& ctx, const variable<X, 3>& x, const Residual& residual = {},
                    const halftone::detail::device_sequences& sequences = {}) const {
        halftone::detail::check_layer_dropout<Context>("attention", residual_dropout);
        return mix(ctx, self_attention<layer_roles<P, operation, Context>>(ctx, qkv(ctx, x), {heads, kv_heads}, options, sequences),
                   residual);
    }
    /// Self-attention with functions of the scores (kernel/attention/score_mod/score_mod.hpp). Without a residual, pass
    /// ht::absent{}.
    template <class Context, class X, class Residual, class F, class... More>
        requires(halftone::detail::attention_function<F> && (halftone::detail::attention_function<More> && ...))
    auto operator()(Context&& ctx, const variable<X, 3>& x, const Residual& residual, const F& function,
                    const More&... more) const {
        halftone::detail::check_layer_dropout<Context>("attention", residual_dropout);
        using roles = layer_roles<P, operation, Context>;
        return mix(ctx, self_attention<roles>(ctx, qkv(ctx, x), {heads, kv_heads}, options, function, more...), residual);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.qkv, self.proj); }

  private:
    /// The product after attention, with dropout and the residual.
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
    /// The number of columns of queries, keys and values together. Throws argument_error for invalid heads.
    static extent checked(extent width, extent heads, extent kv_heads, const attention_options& options) {
        check_shape("attention", shape<2>{3, width});
        if (heads < 1 || width % heads != 0)
            fail<argument_error>("attention: ", heads, " heads do not divide a width of ", width);
        if (kv_heads < 0 || kv_heads > heads || (kv_heads > 0 && heads % kv_heads != 0))
            fail<argument_error>("attention: ", heads, " heads of queries cannot share ", kv_heads,
                                 " heads of keys and values evenly");
        if (options.strategy == attention_strategy::flash && width / heads > halftone::detail::most_head_size) {
            fail<argument_error>("attention: ", heads, " heads of a width of ", width, " have ", width / heads,
                                 " elements each; flash kernels take at most ", halftone::detail::most_head_size);
        }
        return width + 2 * (kv_heads == 0 ? heads : kv_heads) * (width / heads);
    }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
