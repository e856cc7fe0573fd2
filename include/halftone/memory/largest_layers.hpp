// SPDX-License-Identifier: MIT
/// \file
/// The layers with the most bytes of masters and copies, for messages.
///
///     detail::largest_layers(entries, groups)         // "embed 65536, h.0 49152, h.1 49152"
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/store_entry.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The three largest layers, by name, each with its bytes.
std::string largest_layers(const std::vector<store_entry>& entries, const std::vector<store_group>& groups);

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/largest_layers.body.hpp>
#endif
