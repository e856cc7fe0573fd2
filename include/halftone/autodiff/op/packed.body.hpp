// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in packed.hpp that are no templates.
#pragma once

#include <halftone/autodiff/op/packed.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE extent check_documents(const const_view<std::int32_t, 1>& offsets, extent tokens, extent most) {
    const extent last = offsets.extent_of(0) - 1;
    if (offsets(0) != 0 || offsets(last) != tokens) {
        fail<shape_error>("packed: the offsets go from ", offsets(0), " to ", offsets(last), "; expected 0 to ", tokens,
                          ", the tokens of the row");
    }
    extent longest = 0;
    for (extent d = 0; d < last; ++d) {
        const extent length = extent{offsets(d + 1)} - offsets(d);
        if (length < 0) fail<shape_error>("packed: document ", d, " has ", length, " tokens; offsets ascend");
        if (length > most) {
            fail<shape_error>("packed: document ", d, " has ", length, " tokens; the context holds ", most);
        }
        longest = std::max(longest, length);
    }
    return longest;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
