// SPDX-License-Identifier: MIT
/// \file
/// The definition of column sums, in double. The gradient of x[i][j] is that of out[j].
///
///     reference::column_sum(x, out);
#pragma once

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// y[j] = sum over i of x[i][j].
template <class X, class Y>
void column_sum(const view<X, 2>& x,      // (rows, width)
                const view<Y, 1>& out) {  // (width)
    for (extent j = 0; j < x.extent_of(1); ++j) {
        double sum = 0;
        for (extent i = 0; i < x.extent_of(0); ++i) sum += static_cast<double>(x(i, j));
        out(j) = static_cast<Y>(sum);
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
