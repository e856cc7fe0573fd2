// SPDX-License-Identifier: MIT
/// \file
/// The exception for bad data; see text.hpp and tokens.hpp.
///
///     try { corpus = ht::read_text(paths); } catch (const ht::data_error& e) { std::cerr << e.what() << '\n'; }
#pragma once

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A source of data that is missing, unreadable, empty, too short, or has invalid contents.
struct data_error : error {
    using error::error;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
