// SPDX-License-Identifier: MIT
/// \file
/// Documents of various lengths in one row, one behind the other, without padding: positions begin anew in each, and
/// attention does not look from one into another.
///
///     const std::int32_t offsets[] = {0, 700, 712, 1024};                  // three documents
///     auto logits = model.logits(eval, tokens, ht::packed{{offsets, {4}}});         // tokens: (1, 1024)
///
/// Offsets are cumulative lengths (cu_seqlens elsewhere): documents + 1 of them, ascending from 0 to the row's tokens;
/// documents may be empty. Each document has the bits in its results that it has alone.
///
/// The offsets may lie in host memory. Where the host can read them (there, and on a CPU) they are checked. Those that a
/// GPU alone can read, as are all inputs of a captured step, its kernels read in every replay: they may change as long
/// as their number and that of the tokens stay. Tokens that no document has, and those beyond the positions that a model
/// has learned, have results of NaN there.
#pragma once

#include <cstdint>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Where the documents of a row begin and end; without offsets the row is one document.
struct packed {
    const_view<std::int32_t, 1> offsets{};  ///< (documents + 1)

    /// Whether offsets were given.
    bool are_there() const { return offsets.data() != nullptr; }
    /// The same with f(offsets) in place of its view: a copy elsewhere, say.
    template <class Function>
    packed with_views(const Function& f) const {
        return {f(offsets)};
    }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
