// SPDX-License-Identifier: MIT
/// \file
/// The definition of sums over all elements, in double.
///
///     reference::sum(e, ht::make_pack(x, y), 1.0 / n, out);
#pragma once

#include <halftone/kernel/map/reference.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// out = factor * (the sum of e over all elements of the inputs).
template <expression E, class... Inputs, class Y>
void sum(const E& e, const pack<Inputs...>& inputs, double factor, const view<Y, 0>& out) {
    double total = 0;
    for (extent i = 0; i < inputs.first.size(); ++i) {
        total += evaluate(e, maps::read(inputs, shape<1>{i}, std::index_sequence_for<Inputs...>{}).data());
    }
    *out.data() = static_cast<Y>(factor * total);
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
