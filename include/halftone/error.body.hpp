// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in error.hpp that are no templates.
#pragma once

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE std::string sentence_of(std::initializer_list<sentence_part> parts) {
    std::ostringstream out;
    for (const sentence_part& part : parts) part.print(out, part.value);
    return out.str();
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
