// SPDX-License-Identifier: MIT
/// \file
/// The attention of Llama's blocks: queries and keys are rotated by their positions (rotary embedding), several heads
/// of queries may share one of keys and values, and the products have no biases, or only the first one has (Qwen2).
///
///     ht::nn::rotary_attention<ht::at<P, "attn">> attn{store, width, {.heads = 32, .kv_heads = 8}};
///     const ht::tensor<float, 2> table = ht::rotary_table(device, context, attn.head_size());
///     auto y = attn(ctx, x, residual, table);                // (batch, time, width)
///     auto y = attn(ctx, x, residual, table, documents);     // packed documents (autodiff/op/packed.hpp)
///     auto y = attn(ctx, x, residual, table, {}, ht::sliding_window{4096});             // Mistral
///     ht::nn::rotary_attention<ht::at<P, "attn">, ht::nn::qk_norm::rms> attn{store, width, {.heads = 32}};      // Qwen3
///
/// Paths below it: "qkv" and "proj", and "q_norm" and "k_norm" if heads are normalised. The rows of "qkv" are the
/// weights of q_proj, k_proj and v_proj, in this order; each of them can have an adapter: "qkv.q", "qkv.k" and "qkv.v".
#pragma once

#include <halftone/autodiff/op/modified_attention.hpp>
#include <halftone/autodiff/op/packed.hpp>
#include <halftone/autodiff/op/rotary.hpp>
#include <halftone/autodiff/op/shapes.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/nn/norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The sizes and options of rotary_attention.
struct rotary_attention_options {
    extent heads = 1;
    extent kv_heads = 0;    ///< number of heads of keys and values; 0: as for queries
    extent head_size = 0;   ///< 0: width / heads
    bool qkv_bias = false;  ///< whether the product of queries, keys and values has a bias (Qwen2)
    float norm_eps = 1e-6f;  ///< epsilon of qk_norm::rms
    rotary_layout layout = rotary_layout::half_split;
    attention_options attention{.mask = attention_mask::causal};
};

/// A linear layer with or without a bias, depending on a constructor argument.
template <class P>
struct linear_perhaps_bias {
    using policy = P;
    using operation = op::linear;
    static constexpr bool owns_parameters = true;
    using weight_storage = weight_signature<P, operation>;

    parameter<weight_storage, 2> weight;                   // (out, in)
    parameter<storage_signature<P, operation>, 1> bias;    // (out); not in the store if there is none
    bool has_bias;
    [[no_unique_address]] halftone::detail::low_rank_of<P> adapter;

    /// `blocks` are its rows, where adapters are to be those of parts of them.
    linear_perhaps_bias(store& s, extent in, extent out, const initial& weights, bool biased,
                        std::initializer_list<row_block> blocks = {})
        : weight(s.add_weight<P, operation>("weight", shape<2>{out, in}, weights)),
          bias(biased ? s.add<P, operation>("bias", shape<1>{out}, initial{}) : decltype(bias){}),
          has_bias(biased),
          adapter(s, weight, blocks) {}
    /// x: (…, in); the result is (…, out), in the policy's `output`. Throws shape_error.
    template <class Context, class X, int Rank>
    auto operator()(Context&& ctx, const variable<X, Rank>& x) const {
        if (has_bias) return halftone::detail::linear_with_adapter(*this, ctx, x, bias, absent{});
        return halftone::detail::linear_with_adapter(*this, ctx, x, absent{}, absent{});
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return halftone::detail::visit_adapter(self, f); }
};

/// The normalisation of each head of queries and keys before it is rotated.
enum class qk_norm {
    none,
    rms,  ///< Qwen3: an rms norm, with one gain for all heads of queries and one for all heads of keys
};

namespace detail {

template <class P>
struct no_head_norms {
    no_head_norms(store&, extent, float) {}
};
template <class P>
struct head_norms {
    rms_norm<at<P, "q_norm">> q;
    rms_norm<at<P, "k_norm">> k;
    head_norms(store& s, extent head_size, float epsilon) : q(s, head_size, epsilon), k(s, head_size, epsilon) {}
};

}  // namespace detail

/// Self-attention with rotary embedding and grouped queries: maps x (batch, time, width) to (batch, time, width).
template <class P, qk_norm Norm = qk_norm::none>
struct rotary_attention {
    using policy = P;
    using operation = op::attention;
    static constexpr bool adds_to_stream = true, turns_heads = true, norms_heads = Norm == qk_norm::rms;  // policy/ledger.hpp

    linear_perhaps_bias<at<P, "qkv">> qkv;  // width to (heads + 2 kv_heads) head_size
    std::conditional_t<norms_heads, detail::head_norms<P>, detail::no_head_norms<P>> norms;
    linear_no_bias<at<P, "proj">> proj;     // heads head_size to width
    rotary_attention_options options;       ///< with all defaults resolved

    /// A rotary attention with given initial weights of both products. Throws argument_error for invalid numbers of
    /// heads.
    rotary_attention(store& s, extent width, const rotary_attention_options& o, const initial& inner = {.deviation = 0.02f},
                     const initial& projection = {.deviation = 0.02f})
        : rotary_attention(s, width, inner, projection, checked(width, o)) {}

    /// The number of elements of a head.
    extent head_size() const { return options.head_size; }

    /// table: from ht::rotary_table, with at most head_size columns. In packed documents positions begin at 0 in each
    /// document. Functions change scores or hide keys, as ht::sliding_window{256} does
    /// (kernel/attention/score_mod/score_mod.hpp); they cannot be combined with packing, but the function
    /// ht::document_mask(ids) keeps documents apart. Throws shape_error, and argument_error for a position outside the
    /// table (on a CPU), and for packed documents together with functions.
    template <class Context, class X, class Residual = absent, class... F>
        requires(halftone::detail::attention_function<F> && ...)
    auto operator()(Context&& ctx, const variable<X, 3>& x, const Residual& residual, const const_view<float, 2>& table,
                    const documents& packed = {}, const F&... functions) const {
        const rotary_attention_options& o = options;
        const auto all = qkv(ctx, x);
        const shape<3> s = all.shape();
        const auto heads = normed(ctx, reshape(ctx, all, shape<4>{s[0], s[1], o.heads + 2 * o.kv_heads, o.head_size}));
        // Queries and keys are adjacent: one pass rotates their heads, and copies those of values.
        const auto turned =
            rotary(ctx, heads, table, {.layout = o.layout, .heads = o.heads + o.kv_heads}, packed.positions);
        return proj(ctx, mix(ctx, reshape(ctx, turned, s), packed, functions...), residual);
    }
    static decltype(auto) visit(auto&& self, auto&& f) {
        if constexpr (norms_heads) {
            return f(self.qkv, self.norms.q, self.norms.k, self.proj);
        } else {
            return f(self.qkv, self.proj);
        }
    }

  private:
    rotary_attention(store& s, extent width, const initial& inner, const initial& projection,
                     const rotary_attention_options& o)
        : qkv(s, width, (o.heads + 2 * o.kv_heads) * o.head_size, inner, o.qkv_bias,
              {{"q", o.heads * o.head_size}, {"k", o.kv_heads * o.head_size}, {"v", o.kv_heads * o.head_size}}),
          norms(s, o.head_size, o.norm_eps),
          proj(s, o.heads * o.head_size, width, projection),
          options(o) {}

    /// Normalises the heads of queries and keys; those of values are unchanged.
    template <class Context, class T>
    auto normed(Context&& ctx, const variable<T, 4>& heads) const {
        if constexpr (norms_heads) {
            const rotary_attention_options& o = options;
            const auto [q, k, v] =
                split_with_sizes(ctx, heads, axes<2>, std::array<extent, 3>{o.heads, o.kv_heads, o.kv_heads});
            return cat(ctx, axes<2>, norms.q(ctx, q), norms.k(ctx, k), v);
        } else {
            return heads;
        }
    }
    template <class Context, class T, class... F>
    auto mix(Context&& ctx, const variable<T, 3>& turned, const documents& packed, const F&... functions) const {
        using roles = layer_roles<P, operation, Context>;
        const attention_heads count{options.heads, options.kv_heads};
        if constexpr (sizeof...(F) == 0) {
            return self_attention<roles>(ctx, turned, count, options.attention, packed.sequences);
        } else {
            if (packed.sequences.sequences.are_there()) {
                fail<argument_error>("rotary_attention: packed documents together with functions of scores; "
                                     "use the function ht::document_mask(ids), which keeps documents apart");
            }
            return self_attention<roles>(ctx, turned, count, options.attention, functions...);
        }
    }

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
            fail<argument_error>("rotary_attention: head_size is ", o.head_size, "; expected an even number");
        return o;
    }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
