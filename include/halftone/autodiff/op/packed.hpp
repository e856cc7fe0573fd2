// SPDX-License-Identifier: MIT
/// \file
/// Packed documents (tensor/packed.hpp) in the form that layers take.
///
///     const ht::documents at = ht::documents_to_device(ctx, packed, tokens.shape(), context);
///     auto x = embed(ctx, tokens, at);
///     auto y = attn(ctx, x, residual, at.sequences);
///     auto rows = ht::last_tokens(ctx, y, packed);           // (documents, width), from which the next tokens are predicted
#pragma once

#include <algorithm>
#include <vector>

#include <halftone/autodiff/op/attention.hpp>
#include <halftone/exec/simt/simt.hpp>
#include <halftone/kernel/gather/gather.hpp>
#include <halftone/kernel/packed_positions/packed_positions.hpp>
#include <halftone/tensor/key_value_cache.hpp>
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
extent check_documents(const const_view<std::int32_t, 1>& offsets, extent tokens, extent most);

/// Throws argument_error for offsets that the host cannot read.
template <class Device>
void expect_host_offsets(const Device& device, const packed& p) {
    if (simt_device<Device> && p.are_there() && device.reaches(p.offsets.data()))
        fail<argument_error>("packed: the offsets are in the device's memory; a step of a key-value cache, and last_tokens, "
                             "read them from host memory");
}

/// The data on the device that a step of a key-value cache needs. On a CPU it is the cache's memory until its next
/// step.
template <class Root>
documents cached_documents(Root& root, const packed& p, extent tokens, extent most) {
    if constexpr (Root::records) {
        fail<argument_error>("packed: a key-value cache is for inference contexts; a tape computes all keys");
    } else {
        expect_host_offsets(root.device(), p);
        const cache_step& step = p.cache->begin_step(p.offsets, tokens, most);
        const auto on_device = [&](const std::vector<std::int32_t>& values) {
            return root.to_device(const_view<std::int32_t, 1>(values.data(), {static_cast<extent>(values.size())}));
        };
        const auto of_queries = on_device(step.query_offsets), of_keys = on_device(step.key_offsets);
        return {root.to_device(const_view<std::int32_t, 2>(step.positions.data(), {1, tokens})),
                {of_queries,
                 of_keys,
                 {of_queries.view(), of_keys.view(), step.longest, p.cache->capacity()},
                 p.cache,
                 on_device(step.slots)}};
    }
}

}  // namespace detail

/// Copies the offsets of documents in one row of `tokens`, each of at most `most` tokens, to the device, once for all
/// layers. With a key-value cache it begins a step of the cache. Throws shape_error for several rows, and for invalid
/// offsets if the host can read them, and argument_error for a cache on a tape.
template <class Context>
documents documents_to_device(Context&& context, const packed& p, const shape<2>& tokens, extent most) {
    using device = typename std::remove_cvref_t<Context>::device_type;
    if (!p.are_there()) return {};
    auto& root = context.root();
    if (tokens[0] != 1) fail<shape_error>("packed: tokens are ", tokens, "; expected one row of documents");
    kernel::expect("packed", "offsets", p.offsets, p.offsets.shape());
    if (p.offsets.extent_of(0) < 1) fail<shape_error>("packed: offsets is empty; expected documents + 1");
    if (p.cache != nullptr) return detail::cached_documents(root, p, tokens[1], most);
    extent longest = std::min(most, tokens[1]);
    if (!simt_device<device> || !root.device().reaches(p.offsets.data()))
        longest = detail::check_documents(p.offsets, tokens[1], most);
    const auto offsets = root.to_device(p.offsets);
    auto positions = root.template make<std::int32_t>(tokens, false);
    kernel::packed_positions<device>::run(root.device(), as_const(offsets.view()), flatten(positions));
    return {positions, {offsets, offsets, packed_sequences::of(offsets.view(), longest)}};
}

/// The row of the last token of each document that has tokens, (documents, width), in their order; without offsets,
/// that of each row of the batch. x: (batch, time, width). The offsets are in host memory, and the operation is not
/// recorded: it is for inference contexts. Throws argument_error, and shape_error for invalid offsets.
template <class Context, class T>
variable<T, 2> last_tokens(Context&& context, const variable<T, 3>& x, const packed& p = {}) {
    static_assert(!std::remove_cvref_t<Context>::records, "halftone: last_tokens is for inference contexts; on a tape, "
                                                          "ht::index_select has a gradient");
    using device = typename std::remove_cvref_t<Context>::device_type;
    auto& root = context.root();
    const shape<3> s = x.shape();
    detail::expect_host_offsets(root.device(), p);
    std::vector<std::int32_t> rows;
    if (p.are_there()) {
        if (p.offsets.size() < 1) fail<shape_error>("packed: offsets is empty; expected documents + 1");
        detail::check_documents(p.offsets, s[0] * s[1], s[0] * s[1]);
        for (extent d = 0; d + 1 < p.offsets.size(); ++d) {
            if (p.offsets(d + 1) > p.offsets(d)) rows.push_back(p.offsets(d + 1) - 1);
        }
    } else {
        for (extent b = 0; b < s[0] && s[1] > 0; ++b) rows.push_back(static_cast<std::int32_t>((b + 1) * s[1] - 1));
    }
    const auto numbers = root.to_device(const_view<std::int32_t, 1>(rows.data(), {static_cast<extent>(rows.size())}));
    auto y = root.template make<T>(shape<2>{numbers.size(), s[2]}, false);
    kernel::gather<device>::forward(root.device(), const_view<std::int32_t, 1>(numbers.view()),
                                    const_view<T, 2>(as_rows(x)), y.view());
    return y;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/autodiff/op/packed.body.hpp>
#endif
