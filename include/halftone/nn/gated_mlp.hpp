// SPDX-License-Identifier: MIT
/// \file
/// The perceptron of Llama's blocks: y = (silu(x gateᵀ) (x upᵀ)) downᵀ + residual (Shazeer 2020, "GLU variants"). One
/// product computes gate and up, one pass multiplies them, and a second product computes down.
///
///     ht::nn::gated_mlp<ht::at<P, "mlp">> mlp{store, width, hidden};
///     auto y = mlp(ctx, x, residual);                        // (…, width)
///     ht::nn::gated_mlp<ht::at<P, "mlp">, ht::nn::gate::gelu> mlp{store, width, hidden};       // GeGLU, as in Gemma
///
/// Paths below it: "gate_up", whose weight has the rows of gate followed by those of up, and "down". Each of gate and
/// up can have an adapter: "gate_up.gate" and "gate_up.up".
#pragma once

#include <halftone/autodiff/op/gated.hpp>
#include <halftone/nn/linear.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The activation of the gate.
enum class gate {
    silu,  ///< SwiGLU: Llama, Qwen, Mistral
    gelu,  ///< GeGLU, with the tanh form of gelu: Gemma
};

/// A gated perceptron without biases: a product from width to 2 * hidden, the gate to hidden, and a product back to
/// width.
template <class P, gate Gate = gate::silu>
struct gated_mlp {
    using policy = P;
    using gates_by = std::conditional_t<Gate == gate::silu, op::swiglu, op::geglu>;  // policy/ledger.hpp
    static constexpr bool adds_to_stream = true;                                     // policy/ledger.hpp

    linear_no_bias<at<P, "gate_up">> gate_up;  // width to 2 hidden
    linear_no_bias<at<P, "down">> down;        // hidden to width

    /// `inner` and `projection` are the initial weights of the two products.
    gated_mlp(store& s, extent width, extent hidden, const initial& inner = {.deviation = 0.02f},
              const initial& projection = {.deviation = 0.02f})
        : gate_up(s, width, 2 * hidden, inner, {{"gate", hidden}, {"up", hidden}}),
          down(s, hidden, width, projection) {}

    /// x: (…, width); the result has the same shape, in the residual's type or, without one, in down's `output`. Throws
    /// shape_error.
    template <class Context, class X, int Rank, class Residual = absent>
    auto operator()(Context&& ctx, const variable<X, Rank>& x, const Residual& residual = {}) const {
        const auto both = gate_up(ctx, x);
        if constexpr (Gate == gate::silu) {
            return down(ctx, swiglu(ctx, both), residual);
        } else {
            return down(ctx, geglu(ctx, both), residual);
        }
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.gate_up, self.down); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
