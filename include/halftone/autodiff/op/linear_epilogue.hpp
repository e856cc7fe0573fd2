// SPDX-License-Identifier: MIT
/// \file
/// What a linear layer does with the sums of its product: a bias, a residual, both or neither.
///
///     detail::product<compute>(device, x, w, y, detail::linear_epilogue<compute>(bias, residual));
#pragma once

#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/kernel/matmul/epilogue.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Either may be `absent`. The bias is read as the weight of a product in Compute is: values_for says where.
template <class Compute, class Bias, class Residual>
auto linear_epilogue(const Bias& bias, const Residual& residual) {
    if constexpr (is_absent<Bias> && is_absent<Residual>) {
        return plain{};
    } else if constexpr (is_absent<Residual>) {
        const auto values = values_for<Compute>(bias);
        // With its argument spelt out: nvcc hands this on as `bias`, which is the parameter's name.
        return halftone::bias<const typename decltype(values)::value_type>{values};
    } else if constexpr (is_absent<Bias>) {
        return then{[](auto sum, auto r) { return sum + r; }, as_rows(residual)};
    } else {
        return bias_residual{values_for<Compute>(bias), as_rows(residual)};
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
