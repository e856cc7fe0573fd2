// SPDX-License-Identifier: MIT
/// \file
/// Packed sequences: documents of various lengths one after the other in one row, without padding. Positions start at 0
/// in each document, and attention does not see other documents.
///
///     const std::int32_t offsets[] = {0, 700, 712, 1024};                  // three documents
///     auto logits = model.logits(eval, tokens, ht::packed{{offsets, {4}}});         // tokens: (1, 1024)
///
/// Offsets are cumulative lengths (cu_seqlens in other libraries): documents + 1 of them, ascending from 0 to the
/// number of tokens in the row; documents may be empty. A document's results have the same bits as if it were alone.
///
/// The offsets may be in host memory or in the device's. If the host can read them (host memory, or a CPU device), they
/// are checked. Offsets that only a GPU can read, such as the inputs of a captured step, are read by its kernels in
/// every replay: they may change as long as the number of documents and of tokens stays. Tokens outside of all
/// documents, and tokens at positions beyond a model's context, then have NaN as their results.
///
/// With a cache (tensor/key_value_cache.hpp) the documents are what its sequences go on with.
#pragma once

#include <cstdint>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

class key_value_cache;

/// The bounds of the documents in a row; without offsets the row is one document.
struct packed {
    const_view<std::int32_t, 1> offsets{};  ///< (documents + 1)
    key_value_cache* cache = nullptr;  ///< keeps keys and values, in inference contexts; the offsets are in host memory then

    /// Whether there are offsets.
    bool are_there() const { return offsets.data() != nullptr; }
    /// The documents with f(offsets) in place of the offsets: a copy in the device's memory, say.
    template <class Function>
    packed with_views(const Function& f) const {
        return {f(offsets), cache};
    }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
