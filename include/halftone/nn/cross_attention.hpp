// SPDX-License-Identifier: MIT
/// \file
/// Cross-attention: attention of one sequence over another, such as an encoder's output (its memory). Also
/// self-attention with fewer heads of keys and values, or with functions of the scores.
///
///     ht::nn::cross_attention<ht::at<P, "cross">> cross{store, {.width = 512, .memory_width = 768, .heads = 8}};
///     auto y = cross(ctx, x, memory, residual);                            // (batch, queries, width)
///     auto y = cross(ctx, x, memory, residual, ht::key_lengths(lengths));  // if memory is padded
///     auto y = cross(ctx, x, x, residual, ht::sliding_window{256});        // self-attention
///
/// Paths below it: "q", "k", "v" and "proj".
#pragma once

#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/modified_attention.hpp>
#include <halftone/nn/linear.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The sizes of a cross_attention, and its initial weights.
struct cross_attention_config {
    extent width = 0;         ///< of queries and of the result
    extent memory_width = 0;  ///< of the memory, from which keys and values are computed; 0: width
    extent heads = 1;         ///< must divide the width
    extent groups = 0;        ///< number of heads of keys and values, which must divide `heads`; 0: `heads`
    attention_options options{};
    initial inner{.deviation = 0.02f}, projection{.deviation = 0.02f};
};

/// softmax(q kᵀ / sqrt(width / heads)) v, with q computed from x, and k and v from a memory, followed by a linear
/// layer, as in nn.MultiheadAttention(width, heads, kdim=memory_width, vdim=memory_width); with groups, grouped-query
/// attention (Ainslie et al. 2023).
template <class P>
struct cross_attention {
    using policy = P;

    linear<at<P, "q">> q;        // width to width
    linear<at<P, "k">> k;        // memory_width to groups width / heads
    linear<at<P, "v">> v;        // memory_width to groups width / heads
    linear<at<P, "proj">> proj;  // width to width
    extent heads, groups;
    attention_options options;

    /// Throws argument_error if the heads do not divide the width, or the groups the heads; and shape_error.
    cross_attention(store& s, const cross_attention_config& given) : cross_attention(s, checked(given), 0) {}

    /// The size of one head: width / heads.
    extent head_size() const { return q.weight.shape()[0] / heads; }

    /// x: (batch, queries, width), memory: (batch, keys, memory_width); the result is (batch, queries, width), plus the
    /// residual if there is one. Functions change scores and hide keys, as for ht::attention. Throws shape_error.
    template <class Context, class X, class M, class Residual = absent, class... F>
        requires(halftone::detail::attention_function<F> && ...)
    auto operator()(Context&& ctx, const variable<X, 3>& x, const variable<M, 3>& memory, const Residual& residual = {},
                    const F&... functions) const {
        using roles = layer_roles<P, op::attention, Context>;
        const auto of_q = in_heads(ctx, q(ctx, x), heads);
        const auto of_k = in_heads(ctx, k(ctx, memory), groups);
        const auto of_v = in_heads(ctx, v(ctx, memory), groups);
        if constexpr (sizeof...(F) == 0) {
            return mix(ctx, halftone::attention<roles>(ctx, of_q, of_k, of_v, options), x.shape(), residual);
        } else {
            return mix(ctx, halftone::attention<roles>(ctx, of_q, of_k, of_v, options, functions...), x.shape(), residual);
        }
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.q, self.k, self.v, self.proj); }

  private:
    cross_attention(store& s, const cross_attention_config& c, int)
        : q(s, c.width, c.width, c.inner),
          k(s, c.memory_width, c.groups * (c.width / c.heads), c.inner),
          v(s, c.memory_width, c.groups * (c.width / c.heads), c.inner),
          proj(s, c.width, c.width, c.projection),
          heads(c.heads),
          groups(c.groups),
          options(c.options) {}

    static cross_attention_config checked(cross_attention_config c) {
        if (c.memory_width == 0) c.memory_width = c.width;
        if (c.groups == 0) c.groups = c.heads;
        check_shape("cross_attention", shape<2>{c.width, c.memory_width});
        if (c.heads < 1 || c.width % c.heads != 0)
            fail<argument_error>("cross_attention: ", c.heads, " heads do not divide a width of ", c.width);
        if (c.groups < 1 || c.heads % c.groups != 0) {
            fail<argument_error>("cross_attention: ", c.heads, " query heads cannot share ", c.groups,
                                 " key heads evenly");
        }
        return c;
    }
    template <class Context, class T>
    auto in_heads(Context&& ctx, const variable<T, 3>& x, extent count) const {
        return reshape(ctx, x, shape<4>{x.shape()[0], x.shape()[1], count, head_size()});
    }
    template <class Context, class T, class Residual>
    auto mix(Context&& ctx, const variable<T, 4>& o, const shape<3>& s, const Residual& residual) const {
        return proj(ctx, reshape(ctx, o, s), residual);
    }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
