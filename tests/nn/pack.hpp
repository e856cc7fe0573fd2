// SPDX-License-Identifier: MIT
/// \file
/// Random documents, packed one behind the other.
///
///     const nn_test::pack docs({5, 1, 8}, vocabulary);
///     auto loss = model.loss(tape, docs.in_a_row());
#pragma once

#include <vector>

#include <halftone/data/batches.hpp>

#include "support/random.hpp"

namespace nn_test {

namespace ht = halftone;

/// Documents of various lengths in a row.
struct pack {
    std::vector<std::int32_t> lengths, offsets{0}, token_ids, target_ids;

    pack(const std::vector<std::int32_t>& all, int vocabulary) : lengths(all) {
        for (const std::int32_t n : lengths) offsets.push_back(offsets.back() + n);
        support::random data(8);
        token_ids = data.indices(offsets.back(), vocabulary), target_ids = data.indices(offsets.back(), vocabulary);
        for (std::size_t d = 0; d < lengths.size(); ++d)  // the last one of each document has no successor
            if (lengths[d] > 1) target_ids[static_cast<std::size_t>(offsets[d + 1] - 1)] = -100;
    }
    ht::extent size() const { return offsets.back(); }
    ht::const_view<std::int32_t, 2> tokens() const { return {token_ids.data(), {1, size()}}; }
    ht::packed documents() const { return {{offsets.data(), {static_cast<ht::extent>(offsets.size())}}}; }
    ht::packed_batch in_a_row() const { return {tokens(), {target_ids.data(), {1, size()}}, documents()}; }
    ht::const_view<std::int32_t, 2> tokens_of(std::size_t d) const {
        return {token_ids.data() + offsets[d], {1, lengths[d]}};
    }
};

}  // namespace nn_test
