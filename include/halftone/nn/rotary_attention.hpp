// SPDX-License-Identifier: MIT
/// \file
/// The attention of Llama's blocks: queries and keys are turned by their positions (rotary embedding), several heads of
/// queries may share one of keys and values, and the products have no biases, or only the first one (Qwen2).
///
///     ht::nn::rotary_attention<ht::at<P, "attn">> attn{store, width, {.heads = 32, .kv_heads = 8}};
///     const ht::tensor<float, 2> table = ht::rotary_table(device, context, attn.head_size());
///     auto y = attn(ctx, x, residual, table);                // (batch, time, width)
///     auto y = attn(ctx, x, residual, table, documents);     // packed ones (autodiff/op/packed.hpp)
///
/// Paths below it: "qkv" and "proj". The weight of "qkv" has the rows of q_proj, then those of k_proj, then those of v_proj.
#pragma once

#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/packed.hpp>
#include <halftone/autodiff/op/rotary.hpp>
#include <halftone/nn/linear.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The sizes of rotary_attention, and how it is computed.
struct rotary_attention_options {
    extent heads = 1;
    extent kv_heads = 0;    ///< of keys and values; 0: as many as queries have
    extent head_size = 0;   ///< 0: width / heads
    bool qkv_bias = false;  ///< Qwen2: the product of queries, keys and values has a bias
    rotary_layout layout = rotary_layout::half_split;
    attention_options attention{.mask = attention_mask::causal};
};

/// A linear layer whose bias is there or not, as it is constructed.
template <class P>
struct linear_perhaps_bias {
    using policy = P;
    using operation = op::linear;
    static constexpr bool owns_parameters = true;

    parameter<storage_signature<P, operation>, 2> weight;  // (out, in)
    parameter<storage_signature<P, operation>, 1> bias;    // (out); of no store where there is none
    bool has_bias;

    linear_perhaps_bias(store& s, extent in, extent out, const initial& weights, bool biased)
        : weight(s.add<P, operation>("weight", shape<2>{out, in}, weights)), has_bias(biased) {
        if (biased) bias = s.add<P, operation>("bias", shape<1>{out}, initial{});
    }
    /// x: (…, in); the result is (…, out), in the policy's `output`. Throws shape_error.
    template <class Context, class X, int Rank>
    auto operator()(Context&& ctx, const variable<X, Rank>& x) const {
        using roles = layer_roles<P, operation, Context, X>;
        if (has_bias) return halftone::linear<roles>(ctx, x, weight, bias);
        return halftone::linear<roles>(ctx, x, weight, absent{});
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

/// Self-attention with rotary embedding and grouped queries: x (batch, time, width) to (batch, time, width).
template <class P>
struct rotary_attention {
    using policy = P;
    using operation = op::attention;
    static constexpr bool adds_to_stream = true, turns_heads = true;  // policy/ledger.hpp

    linear_perhaps_bias<at<P, "qkv">> qkv;  // width to (heads + 2 kv_heads) head_size
    linear_no_bias<at<P, "proj">> proj;     // heads head_size to width
    rotary_attention_options options;       ///< with every number stated

    /// The weights of both products begin as said. Throws argument_error for heads that do not fit.
    rotary_attention(store& s, extent width, const rotary_attention_options& o, const initial& inner = {.deviation = 0.02f},
                     const initial& projection = {.deviation = 0.02f})
        : rotary_attention(s, width, inner, projection, checked(width, o)) {}

    /// The numbers of one head.
    extent head_size() const { return options.head_size; }

    /// table: as ht::rotary_table makes it, of the head_size or fewer numbers. In packed documents positions begin anew in
    /// each. Throws shape_error, and argument_error for a position that the table has not (on a CPU).
    template <class Context, class X, class Residual = absent>
    auto operator()(Context&& ctx, const variable<X, 3>& x, const Residual& residual, const const_view<float, 2>& table,
                    const documents& packed = {}) const {
        const rotary_attention_options& o = options;
        const auto both = qkv(ctx, x);
        const shape<3> s = both.shape();
        // Queries and keys lie side by side: one pass turns their heads, and copies those of values.
        const auto turned =
            rotary(ctx, reshape(ctx, both, shape<4>{s[0], s[1], o.heads + 2 * o.kv_heads, o.head_size}), table,
                   {.layout = o.layout, .heads = o.heads + o.kv_heads}, packed.positions);
        const auto mixed = self_attention<layer_roles<P, operation, Context>>(
            ctx, reshape(ctx, turned, s), attention_heads{o.heads, o.kv_heads}, o.attention, packed.sequences);
        return proj(ctx, mixed, residual);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.qkv, self.proj); }

  private:
    rotary_attention(store& s, extent width, const initial& inner, const initial& projection,
                     const rotary_attention_options& o)
        : qkv(s, width, (o.heads + 2 * o.kv_heads) * o.head_size, inner, o.qkv_bias),
          proj(s, o.heads * o.head_size, width, projection),
          options(o) {}

    static rotary_attention_options checked(extent width, rotary_attention_options o) {
        check_shape("rotary_attention", shape<2>{3, width});
        if (o.kv_heads == 0) o.kv_heads = o.heads;
        if (o.heads < 1 || o.kv_heads < 1 || o.heads % o.kv_heads != 0) {
            fail<argument_error>("rotary_attention: ", o.heads, " heads of queries cannot share ", o.kv_heads,
                                 " heads of keys and values evenly");
        }
        if (o.head_size == 0 && width % o.heads != 0)
            fail<argument_error>("rotary_attention: ", o.heads, " heads do not divide a width of ", width);
        if (o.head_size == 0) o.head_size = width / o.heads;
        if (o.head_size < 2 || o.head_size % 2 != 0)
            fail<argument_error>("rotary_attention: a head has ", o.head_size, " numbers; expected an even number");
        return o;
    }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
