// SPDX-License-Identifier: MIT
/// \file
/// Loss and gradients of packed rows (data/packing.hpp) are those of the documents as rows of a padded batch.
#include <halftone/data/data_loader.hpp>
#include <halftone/data/packing.hpp>

#include "nn/packed_checks.hpp"

namespace {

namespace ht = halftone;

struct few_documents {
    std::vector<std::vector<std::int32_t>> tokens;
    std::vector<ht::extent> prompts;

    ht::extent size() const { return static_cast<ht::extent>(tokens.size()); }
    ht::document operator[](ht::extent i) const {
        return {tokens[static_cast<std::size_t>(i)], prompts[static_cast<std::size_t>(i)]};
    }
};

TEST_CASE("packed rows: loss and every gradient are those of separate documents, within rounding") {
    constexpr int time = 6;
    const std::vector<int> lengths{6, 2, 7, 4, 3};
    few_documents documents;
    support::random data(8);
    std::vector<std::int32_t> ids(lengths.size() * time, 1), targets(lengths.size() * time, -100);
    for (std::size_t d = 0; d < lengths.size(); ++d) {
        const auto tokens = data.indices(lengths[d], 11);
        documents.tokens.push_back(tokens);
        documents.prompts.push_back(d == 2 ? 3 : 0);
        for (int i = 0; i + 1 < lengths[d]; ++i) {
            ids[d * time + static_cast<std::size_t>(i)] = tokens[static_cast<std::size_t>(i)];
            if (i + 1 >= documents.prompts[d])
                targets[d * time + static_cast<std::size_t>(i)] = tokens[static_cast<std::size_t>(i) + 1];
        }
    }
    const ht::packed_rows rows{documents, {.length = 10, .longest = time, .most_documents = 5}};
    REQUIRE(rows.size() == 2);  // 17 predictions
    ht::data_loader loader{rows, {.batch_size = 2}, ht::collate_packed};
    const ht::packed_batch packed = *loader.next();
    ht::cpu device{{.threads = 2}};
    const nn_test::batch separate{static_cast<int>(lengths.size()), time, ids, targets};
    nn_test::check_on<ht::amp_bf16>(device, nn_test::expected_of<ht::amp_bf16, ht::bfloat16>(separate, 1), packed, 1);
}

}  // namespace
