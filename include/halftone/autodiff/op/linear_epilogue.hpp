// SPDX-License-Identifier: MIT
/// \file
/// The epilogue of a linear layer's product: adds a bias, a residual, both or neither.
///
///     detail::product_with_epilogue<compute>(device, x, w, y, detail::linear_epilogue<compute>(bias, residual));
#pragma once

#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/kernel/matmul/epilogue.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// False for a number type without a residual: that is a call of the free linear of matmul.hpp, which gives that type.
template <class Roles, class Residual>
concept called_with_roles = !number<Roles> || !is_absent<Residual>;

/// Either may be `absent`. The bias is read as a parameter of an operation that computes in Compute (values_for).
template <class Compute, class Bias, class Residual>
auto linear_epilogue(const Bias& bias, const Residual& residual) {
    if constexpr (is_absent<Bias> && is_absent<Residual>) {
        return plain{};
    } else if constexpr (is_absent<Residual>) {
        const auto values = values_for<Compute>(bias);
        // With its template argument written out: nvcc otherwise takes `bias` for the parameter of that name.
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
