// SPDX-License-Identifier: MIT
/// \file
/// Packed documents (tensor/packed.hpp) in the form that layers take.
///
///     const ht::documents at = ht::documents_to_device(ctx, packed, tokens.shape(), context);
///     auto x = embed(ctx, tokens, at);
///     auto y = attn(ctx, x, residual, at.sequences);
#pragma once

#include <algorithm>

#include <halftone/autodiff/op/attention.hpp>
#include <halftone/exec/simt/simt.hpp>
#include <halftone/kernel/packed_positions/packed_positions.hpp>
#include <halftone/tensor/packed.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Packed documents in the device's memory, owned by this object. Empty: each row is one document.
struct documents {
    variable<std::int32_t, 2> positions{};  ///< (1, tokens), the position of each token in its document
    detail::device_sequences sequences{};
};

namespace detail {

/// Throws shape_error. Returns the number of tokens in the longest document.
inline extent check_documents(const const_view<std::int32_t, 1>& offsets, extent tokens, extent most) {
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

/// Copies the offsets of documents in one row of `tokens`, each of at most `most` tokens, to the device, once for all
/// layers. Throws shape_error for several rows, and for invalid offsets if the host can read them.
template <class Context>
documents documents_to_device(Context&& context, const packed& p, const shape<2>& tokens, extent most) {
    using device = typename std::remove_cvref_t<Context>::device_type;
    if (!p.are_there()) return {};
    auto& root = context.root();
    if (tokens[0] != 1) fail<shape_error>("packed: tokens are ", tokens, "; expected one row of documents");
    kernel::expect("packed", "offsets", p.offsets, p.offsets.shape());
    if (p.offsets.extent_of(0) < 1) fail<shape_error>("packed: offsets is empty; expected documents + 1");
    extent longest = std::min(most, tokens[1]);
    if (!simt_device<device> || !root.device().reaches(p.offsets.data()))
        longest = detail::check_documents(p.offsets, tokens[1], most);
    const auto offsets = root.to_device(p.offsets);
    auto positions = root.template make<std::int32_t>(tokens, false);
    kernel::packed_positions<device>::run(root.device(), as_const(offsets.view()), flatten(positions));
    return {positions, {offsets, offsets, packed_sequences::of(offsets.view(), longest)}};
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
