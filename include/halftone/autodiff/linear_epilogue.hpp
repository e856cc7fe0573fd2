// SPDX-License-Identifier: MIT
/// \file
/// What a linear layer does with the sums of its product: a bias, a residual, both or neither.
///
///     detail::product<compute>(device, x, w, y, detail::linear_epilogue(bias, residual));
#pragma once

#include <halftone/autodiff/operation.hpp>
#include <halftone/kernel/matmul/epilogue.hpp>

namespace halftone::inline HALFTONE_ABI::detail {

/// Either may be `absent`.
template <class Bias, class Residual>
auto linear_epilogue(const Bias& bias, const Residual& residual) {
    if constexpr (is_absent<Bias> && is_absent<Residual>) {
        return plain{};
    } else if constexpr (is_absent<Residual>) {
        // With its argument spelt out: nvcc hands this on as `bias`, which is the parameter's name.
        return halftone::bias<const typename Bias::compute>{bias.values()};
    } else if constexpr (is_absent<Bias>) {
        return then{[](auto sum, auto r) { return sum + r; }, as_rows(residual)};
    } else {
        return bias_residual{bias.values(), as_rows(residual)};
    }
}

}  // namespace halftone::inline HALFTONE_ABI::detail
