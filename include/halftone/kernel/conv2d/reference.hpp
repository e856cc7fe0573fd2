// SPDX-License-Identifier: MIT
/// \file
/// The definition of a convolution and of its gradients: seven loops, in double.
///
///     reference::conv2d(x, weight, options, y);                 // y[n][o][i][j] += weight[o][c][k][l] x[n][…][…][…]
///     reference::conv2d_input(weight, dy, options, dx);         // the same products, added to dx
///     reference::conv2d_weight(x, dy, options, dweight);        // and to dweight
#pragma once

#include <halftone/kernel/conv2d/lowering/problem.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Calls f(image, output, row, column, c, k, l, channel, down, across) for every product of a convolution: that of
/// weight(output, c, k, l) and x(image, channel, down, across), a term of y(image, output, row, column). Products with
/// padding, which is 0, are skipped.
template <class F>
void for_each_conv2d_product(const shape<4>& x, const shape<4>& weight, const conv2d_options& options,
                             const shape<4>& y, const F& f) {
    for (extent n = 0; n < y[0]; ++n) {
        for (extent o = 0; o < y[1]; ++o) {
            const extent first_channel = o / (y[1] / options.groups) * weight[1];
            for (extent i = 0; i < y[2]; ++i) {
                for (extent j = 0; j < y[3]; ++j) {
                    for (extent c = 0; c < weight[1]; ++c) {
                        for (extent k = 0; k < weight[2]; ++k) {
                            for (extent l = 0; l < weight[3]; ++l) {
                                const extent down = i * options.stride[0] + k * options.dilation[0] - options.padding[0];
                                const extent across = j * options.stride[1] + l * options.dilation[1] - options.padding[1];
                                if (down < 0 || down >= x[2] || across < 0 || across >= x[3]) continue;
                                f(n, o, i, j, c, k, l, first_channel + c, down, across);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Adds the convolution of x with the weight to y.
template <class X, class W, class Y>
void conv2d(const view<X, 4>& x, const view<W, 4>& weight, const conv2d_options& options, const view<Y, 4>& y) {
    for_each_conv2d_product(x.shape(), weight.shape(), options, y.shape(),
                            [&](extent n, extent o, extent i, extent j, extent c, extent k, extent l, extent channel,
                                extent down, extent across) {
                                y(n, o, i, j) += static_cast<double>(weight(o, c, k, l)) *
                                                 static_cast<double>(x(n, channel, down, across));
                            });
}
/// Adds x's gradient to dx.
template <class W, class G, class X>
void conv2d_input(const view<W, 4>& weight, const view<G, 4>& dy, const conv2d_options& options, const view<X, 4>& dx) {
    for_each_conv2d_product(dx.shape(), weight.shape(), options, dy.shape(),
                            [&](extent n, extent o, extent i, extent j, extent c, extent k, extent l, extent channel,
                                extent down, extent across) {
                                dx(n, channel, down, across) += static_cast<double>(weight(o, c, k, l)) *
                                                                static_cast<double>(dy(n, o, i, j));
                            });
}
/// Adds the weight's gradient to dweight.
template <class X, class G, class W>
void conv2d_weight(const view<X, 4>& x, const view<G, 4>& dy, const conv2d_options& options,
                   const view<W, 4>& dweight) {
    for_each_conv2d_product(x.shape(), dweight.shape(), options, dy.shape(),
                            [&](extent n, extent o, extent i, extent j, extent c, extent k, extent l, extent channel,
                                extent down, extent across) {
                                dweight(o, c, k, l) += static_cast<double>(x(n, channel, down, across)) *
                                                       static_cast<double>(dy(n, o, i, j));
                            });
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
