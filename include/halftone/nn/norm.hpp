// SPDX-License-Identifier: MIT
/// \file
/// Normalisation layers: layer_norm with gain and bias, rms_norm with a gain.
///
///     ht::nn::layer_norm<ht::at<P, "norm">> norm{store, width};
///     auto y = norm(ctx, x);                                 // (…, width)
///
/// Numeric contract: computed in float. Under a mixed policy it reads the fp32 masters of gain and bias, as the
/// category of autocast's lists requires; the result is rounded once to `output`.
#pragma once

#include <halftone/autodiff/op/norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// Layer normalisation of rows, with learnable gain and bias (Ba, Kiros, Hinton 2016); epsilon is 1e-5 unless given.
template <class P>
struct layer_norm {
    using policy = P;
    using operation = op::layer_norm;
    static constexpr bool owns_parameters = true;

    parameter<storage_signature<P, operation>, 1> gain, bias;  // (width)
    float epsilon;                                             ///< added to the variance

    layer_norm(store& s, extent width, float e = 1e-5f)
        : gain(s.add<P, operation>("gain", shape<1>{width}, initial{.mean = 1.0f})),
          bias(s.add<P, operation>("bias", shape<1>{width}, initial{})),
          epsilon(e) {}

    /// x: (…, width); the result has the same shape, in the policy's `output`. Throws shape_error.
    template <class Context, class X, int Rank>
    auto operator()(Context&& ctx, const variable<X, Rank>& x) const {
        return halftone::layer_norm<layer_roles<P, operation, Context, X>>(ctx, x, gain, bias, epsilon);
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

/// A layer norm whose result is the residual stream, as in the blocks of a post-norm encoder: it has the policy's `stream`.
template <class P>
struct stream_layer_norm : layer_norm<P> {
    static constexpr bool gives_stream = true;  // policy/ledger.hpp

    using layer_norm<P>::layer_norm;

    /// x: (…, width); the result has the same shape, in the policy's `stream`. Throws shape_error.
    template <class Context, class X, int Rank>
    auto operator()(Context&& ctx, const variable<X, Rank>& x) const {
        using roles = stream_roles<P, op::layer_norm, Context, X>;
        return halftone::layer_norm<roles>(ctx, x, this->gain, this->bias, this->epsilon);
    }
};

/// Root mean square normalisation of rows, with a learnable gain (Zhang, Sennrich 2019); epsilon is 1e-6 unless given.
template <class P>
struct rms_norm {
    using policy = P;
    using operation = op::rms_norm;
    static constexpr bool owns_parameters = true;

    parameter<storage_signature<P, operation>, 1> gain;  // (width)
    float epsilon;                                       ///< added to the mean of squares

    rms_norm(store& s, extent width, float e = 1e-6f)
        : gain(s.add<P, operation>("gain", shape<1>{width}, initial{.mean = 1.0f})), epsilon(e) {}

    /// x: (…, width); the result has the same shape, in the policy's `output`. Throws shape_error.
    template <class Context, class X, int Rank>
    auto operator()(Context&& ctx, const variable<X, Rank>& x) const {
        return halftone::rms_norm<layer_roles<P, operation, Context, X>>(ctx, x, gain, epsilon);
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
