// SPDX-License-Identifier: MIT
/// \file
/// Dropout as a member of a model: a probability that is checked when the model is constructed.
///
///     ht::nn::dropout drop{0.1f};
///     auto y = drop(ctx, x);                                 // on a tape; in an inference context: x itself
///     auto y = drop(ctx, x, residual);                       // residual + drop(x), in one pass
///
/// It has no parameters and no policy, and therefore no path: `visit` need not pass it. Results have the input's type,
/// or the residual's.
#pragma once

#include <halftone/autodiff/op/dropout.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// On a tape sets each element of x to 0 with probability p and divides the others by 1 - p; returns x in an inference
/// context.
class dropout {
  public:
    /// Throws argument_error for a p outside [0, 1].
    explicit dropout(float p = 0.5f) : p_(halftone::detail::dropout_probability("dropout", p)) {}

    float p() const { return p_; }

    /// Dropout of x, in x's type.
    template <class Context, class X, int Rank>
    auto operator()(Context&& ctx, const variable<X, Rank>& x) const {
        return halftone::dropout(ctx, x, {p_});
    }
    /// The sum of residual and dropout of x, in the residual's type. Throws shape_error if the shapes differ.
    template <class Context, class X, int Rank, class Y>
    variable<Y, Rank> operator()(Context&& ctx, const variable<X, Rank>& x, const variable<Y, Rank>& residual) const {
        return halftone::dropout(ctx, x, {p_}, residual);
    }

  private:
    float p_;
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
