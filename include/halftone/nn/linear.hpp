// SPDX-License-Identifier: MIT
/// \file
/// A linear layer: y = x weightᵀ + bias.
///
///     ht::nn::linear<ht::at<P, "fc">> fc{store, in, out};
///     auto y = fc(ctx, x);                                   // x: (…, in), y: (…, out)
///     auto y = fc(ctx, x, residual);                         // + residual, in the same kernel
///     ht::nn::linear<ht::at<P, "out">> out{store, in, out, {.bound = 0.01f}};   // initial weights: memory/initial.hpp
///     ht::nn::linear_no_bias<ht::at<P, "proj">> proj{store, in, out};           // y = x weightᵀ
///
/// Under a policy ht::lora a layer can have a low-rank adapter (memory/adapters.hpp).
///
/// Numeric contract: products in the policy's `compute`, sums in float, the result rounded once, to `output` or, with a
/// residual, to the residual's type.
#pragma once

#include <halftone/nn/low_rank.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// y = x weightᵀ + bias, with learnable weight and bias.
template <class P>
struct linear {
    using policy = P;
    using operation = op::linear;
    static constexpr bool owns_parameters = true;
    using weight_storage = weight_signature<P, operation>;

    parameter<weight_storage, 2> weight;                   // (out, in)
    parameter<storage_signature<P, operation>, 1> bias;    // (out)
    [[no_unique_address]] halftone::detail::low_rank_of<P> adapter;

    /// Weights are initialised with a normal distribution of variance 1 / in, the bias with zeros.
    linear(store& s, extent in, extent out)
        : linear(s, in, out, initial{.deviation = in > 0 ? 1.0f / std::sqrt(static_cast<float>(in)) : 0.0f}) {}
    /// A linear layer with given initial values. Throws argument_error for invalid ones, and shape_error.
    linear(store& s, extent in, extent out, const initial& weights, const initial& biases = {})
        : weight(s.add_weight<P, operation>("weight", shape<2>{out, in}, weights)),
          bias(s.add<P, operation>("bias", shape<1>{out}, biases)),
          adapter(s, weight, {}) {}

    /// x: (…, in); the result is (…, out), in the policy's `output` or in the residual's type. Throws shape_error.
    template <class Context, class X, int Rank, class Residual = absent>
    auto operator()(Context&& ctx, const variable<X, Rank>& x, const Residual& residual = {}) const {
        return halftone::detail::linear_with_adapter(*this, ctx, x, bias, residual);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return halftone::detail::visit_adapter(self, f); }
};

/// y = x weightᵀ, with a learnable weight: a linear layer without a bias.
template <class P>
struct linear_no_bias {
    using policy = P;
    using operation = op::linear;
    static constexpr bool owns_parameters = true;
    using weight_storage = weight_signature<P, operation>;

    parameter<weight_storage, 2> weight;  // (out, in)
    [[no_unique_address]] halftone::detail::low_rank_of<P> adapter;

    /// Weights are initialised with a normal distribution of variance 1 / in.
    linear_no_bias(store& s, extent in, extent out)
        : linear_no_bias(s, in, out, initial{.deviation = in > 0 ? 1.0f / std::sqrt(static_cast<float>(in)) : 0.0f}) {}
    /// A linear layer with given initial weights; `blocks` are its rows, where adapters are to be those of parts of them. Throws
    /// argument_error for invalid ones, and shape_error.
    linear_no_bias(store& s, extent in, extent out, const initial& weights,
                   std::initializer_list<row_block> blocks = {})
        : weight(s.add_weight<P, operation>("weight", shape<2>{out, in}, weights)), adapter(s, weight, blocks) {}

    /// x: (…, in); the result is (…, out), in the policy's `output` or in the residual's type. Throws shape_error.
    template <class Context, class X, int Rank, class Residual = absent>
    auto operator()(Context&& ctx, const variable<X, Rank>& x, const Residual& residual = {}) const {
        return halftone::detail::linear_with_adapter(*this, ctx, x, absent{}, residual);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return halftone::detail::visit_adapter(self, f); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
