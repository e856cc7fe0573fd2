// SPDX-License-Identifier: MIT
/// \file
/// The perceptron of a transformer block: y = gelu(x upᵀ + b) downᵀ + b' + residual, as two products.
///
///     ht::nn::mlp<ht::at<P, "mlp">> mlp{store, width, 4 * width};
///     auto y = mlp(ctx, x, residual);                        // (…, width)
///     auto y = mlp(ctx, x);                                  // the same without a residual
///
///     ht::nn::mlp<ht::at<P, "mlp">, ht::nn::approximate::none> mlp{store, width, 4 * width};      // BERT's gelu, with erf
///
/// Paths below it: "up" and "down". If both have the same policy, it is a single operation, which computes the gelu in
/// the first product's epilogue; otherwise, and for the gelu with erf, it is two products with a gelu between them. In
/// both cases its category is operation_category<ht::op::linear>.
#pragma once

#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/nn/linear.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// True, or a compile-time error if a user specialises the category of op::mlp.
template <class P, class Whole = op::mlp, class Product = op::linear>
consteval bool check_mlp_category() {
    constexpr category wanted = operation_category<Whole>::value;
    static_assert(wanted == stated_category<Whole>() || wanted == operation_category<Product>::value,
                  "halftone: operation_category<ht::op::mlp> is specialised, and would have no effect: a perceptron is "
                  "two linear layers and computes by their category; specialise operation_category<ht::op::linear>");
    return true;
}

/// The types of one of the perceptron's products and of its stored weight, from the policy of its layer.
template <class P, class Context>
using choosing_roles = typename layer_types<chosen_by<policy_within<P, policy_of<Context>>>, op::linear, Context>::type;
template <class P>
using choosing_storage = weight_signature<chosen_by<policy_within<P, as_given>>, op::linear>;

/// Whether the perceptron is one operation: if both products have the same types, weights with the same storage, and no adapters.
template <class Up, class Down, class Context, class Residual>
concept one_mlp =
    !adapted<Up> && !adapted<Down> && std::is_same_v<choosing_roles<Up, Context>, choosing_roles<Down, Context>> &&
    std::is_same_v<choosing_storage<Up>, choosing_storage<Down>> &&
    (!is_absent<Residual> || whole_mlp<choosing_roles<Up, Context>, Context>);

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The formula of a gelu: the argument of PyTorch's nn.GELU.
enum class approximate {
    tanh,  ///< ht::gelu: GPT-2
    none,  ///< ht::gelu_erf: BERT
};

/// Two linear layers with a gelu between them: from width to hidden, and back.
template <class P, approximate Approximate = approximate::tanh>
struct mlp {
    static_assert(halftone::detail::check_mlp_category<P>());
    using policy = P;
    using operation = op::linear;
    using activation = std::conditional_t<Approximate == approximate::tanh, op::gelu, op::gelu_erf>;  // policy/ledger.hpp
    static constexpr bool adds_to_stream = true;  // policy/ledger.hpp

    linear<at<P, "up">> up;
    linear<at<P, "down">> down;
    float residual_dropout = 0;  ///< dropout of the values added to the residual

    /// `inner` and `projection` are the initial values of both products' weights.
    mlp(store& s, extent width, extent hidden, const initial& inner = {.deviation = 0.02f},
        const initial& projection = {.deviation = 0.02f})
        : up(s, width, hidden, inner), down(s, hidden, width, projection) {}

    /// x and residual: (…, width); the result has the same shape and the residual's type. Throws shape_error.
    template <class Context, class X, int Rank, class Y>
    auto operator()(Context&& ctx, const variable<X, Rank>& x, const variable<Y, Rank>& residual) const {
        halftone::detail::check_layer_dropout<Context>("mlp", residual_dropout);
        if constexpr (std::remove_cvref_t<Context>::records) {
            if (residual_dropout != 0)
                return halftone::dropout(ctx, run(ctx, x, absent{}), {residual_dropout}, residual);
        }
        return run(ctx, x, residual);
    }
    /// The perceptron of x (…, width) without a residual; the result has the same shape and the type of down's
    /// `output`.
    template <class Context, class X, int Rank>
    auto operator()(Context&& ctx, const variable<X, Rank>& x) const {
        halftone::detail::check_layer_dropout<Context>("mlp", residual_dropout);
        auto y = run(ctx, x, absent{});
        if constexpr (std::remove_cvref_t<Context>::records) {
            if (residual_dropout != 0) return halftone::dropout(ctx, y, {residual_dropout});
        }
        return y;
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }

  private:
    template <class Context, class X, int Rank, class Residual>
    auto run(Context&& ctx, const variable<X, Rank>& x, const Residual& residual) const {
        if constexpr (Approximate == approximate::none) {
            return down(ctx, gelu_erf(ctx, up(ctx, x)), residual);
        } else if constexpr (halftone::detail::one_mlp<at<P, "up">, at<P, "down">, Context, Residual>) {
            using types = typename halftone::detail::layer_types<at<P, "up">, op::linear, Context, X>::type;
            return halftone::mlp<halftone::detail::marked_roles<types, P, Context>>(ctx, x, up.weight, up.bias,
                                                                                    down.weight, down.bias, residual);
        } else {
            return down(ctx, gelu(ctx, up(ctx, x)), residual);
        }
    }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
