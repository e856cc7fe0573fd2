// SPDX-License-Identifier: MIT
/// \file
/// A weight in host memory, as kernels read it.
///
///     const std::vector<ht::bfloat16> values = detail::weight_values<Storage>(model.parameters(), entry);
#pragma once

#include <vector>

#include <halftone/memory/store.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The values of a parameter's copy or, if it has none, of its master. Codes of a block format are decoded, and rounded as products
/// round them.
template <class Storage>
std::vector<typename Storage::compute> weight_values(const store& parameters, const store::entry& e) {
    using compute = typename Storage::compute;
    const store::group& g = parameters.groups()[e.group];
    std::vector<compute> values(e.count);
    if constexpr (coded<Storage>) {
        std::vector<float> wide(e.count);
        parameters.read_coded(e, 0, e.count, wide.data());
        for (std::size_t i = 0; i < e.count; ++i) values[i] = static_cast<compute>(wide[i]);
    } else {
        const bool is_copy = g.copy_bytes != 0;
        parameters.memory().read(
            values.data(),
            (is_copy ? g.copy.data() : g.master.data()) + (is_copy ? e.copy : e.master) * sizeof(compute),
            e.count * sizeof(compute));
    }
    return values;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
