// SPDX-License-Identifier: MIT
/// \file
/// Documents in packed rows: each prediction in exactly one place, in documents that fit the context.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>
#include <halftone/data/packing.hpp>

namespace data_packing_tests {

namespace ht = halftone;

/// Document d has the tokens 100 d, 100 d + 1, ...
struct counting_documents {
    std::vector<std::vector<std::int32_t>> tokens;
    std::vector<ht::extent> prompts;

    explicit counting_documents(const std::vector<int>& lengths, ht::extent prompt = 0) {
        for (std::size_t d = 0; d < lengths.size(); ++d) {
            tokens.emplace_back();
            for (int i = 0; i < lengths[d]; ++i) tokens.back().push_back(static_cast<std::int32_t>(100 * d) + i);
            prompts.push_back(prompt);
        }
    }
    ht::extent size() const { return static_cast<ht::extent>(tokens.size()); }
    ht::document operator[](ht::extent i) const {
        return {tokens[static_cast<std::size_t>(i)], prompts[static_cast<std::size_t>(i)]};
    }
};

std::string packing_message(const counting_documents& documents, const ht::packing_options& options) {
    try {
        ht::packed_rows{documents, options};
    } catch (const ht::error& e) {
        return e.what();
    }
    return "no error";
}

/// How often each token is predicted, and with which successor; checks the rows' form.
std::map<std::int32_t, int> predictions(const ht::packed_rows<counting_documents>& rows) {
    const ht::packing_options& o = rows.options();
    std::map<std::int32_t, int> count;
    for (ht::extent r = 0; r < rows.size(); ++r) {
        const ht::packed_row row = rows[r];
        REQUIRE(static_cast<ht::extent>(row.tokens.size()) == o.length);
        REQUIRE(static_cast<ht::extent>(row.targets.size()) == o.length);
        REQUIRE(static_cast<ht::extent>(row.offsets.size()) == o.most_documents + 1);
        CHECK(row.offsets.front() == 0);
        CHECK(row.offsets.back() == o.length);
        for (std::size_t d = 0; d + 1 < row.offsets.size(); ++d) {
            const auto first = row.offsets[d], end = row.offsets[d + 1];
            REQUIRE(first <= end);
            CHECK(end - first <= o.longest);
            for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(end); ++i) {
                if (i > static_cast<std::size_t>(first) && row.tokens[i] != o.padding)
                    CHECK(row.tokens[i] == row.tokens[i - 1] + 1);
                if (row.targets[i] == -100) continue;
                CHECK(row.targets[i] == row.tokens[i] + 1);
                ++count[row.targets[i]];
            }
        }
    }
    return count;
}

TEST_CASE("each prediction of each document is in exactly one place") {
    const std::vector<int> lengths{9, 2, 5, 3, 30, 4, 4, 2, 8, 17, 2, 2};
    const counting_documents documents(lengths);
    for (const ht::packing_options& o :
         {ht::packing_options{.length = 8, .most_documents = 4, .padding = 9999},
          ht::packing_options{.length = 8, .longest = 3, .most_documents = 6, .padding = 9999},
          ht::packing_options{.length = 64, .most_documents = 40, .padding = 9999},
          ht::packing_options{.length = 20, .longest = 7, .most_documents = 4, .padding = 9999}}) {
        CAPTURE(o.length);
        const ht::packed_rows rows{documents, o};
        const auto count = predictions(rows);
        int all = 0;
        for (std::size_t d = 0; d < lengths.size(); ++d) {
            for (int i = 1; i < lengths[d]; ++i, ++all) CHECK(count.at(static_cast<std::int32_t>(100 * d) + i) == 1);
        }
        CHECK(static_cast<int>(count.size()) == all);
        CHECK(rows.filled() == doctest::Approx(all / static_cast<double>(rows.size() * o.length)));
    }
    // 76 predictions take 10 rows of 8 at least.
    CHECK(ht::packed_rows{documents, {.length = 8, .most_documents = 9}}.size() == 10);
}

TEST_CASE("what is within a prompt is not predicted, wherever the document is divided") {
    const counting_documents documents({9, 12}, 5);
    const ht::packed_rows rows{documents, {.length = 4, .most_documents = 4, .padding = 9999}};
    const auto count = predictions(rows);
    CHECK(count.size() == 4 + 7);
    CHECK(count.count(4) == 0);
    CHECK(count.count(5) == 1);
    CHECK(count.count(104) == 0);
    CHECK(count.count(105) == 1);
}

TEST_CASE("a loader gives packed rows one after the other as one row") {
    const counting_documents documents({9, 2, 5, 3, 30, 4, 4, 2, 8, 17, 2, 2});
    const ht::packed_rows rows{documents, {.length = 16, .most_documents = 6, .padding = 9999}};
    ht::data_loader loader{rows, {.batch_size = 2, .last = ht::last_batch::drop}, ht::collate_packed};
    const ht::packed_batch batch = *loader.next();
    CHECK(batch.tokens.shape() == ht::shape<2>{1, 32});
    CHECK(batch.size() == 32);
    const auto& offsets = batch.documents.offsets;
    REQUIRE(offsets.extent_of(0) == 13);
    CHECK(offsets(0) == 0);
    CHECK(offsets(6) == 16);
    CHECK(offsets(12) == 32);
    for (ht::extent i = 0; i < 12; ++i) CHECK(offsets(i) <= offsets(i + 1));
    CHECK(batch.split(1).size() == 1);
    CHECK_THROWS_AS(batch.split(2), ht::argument_error);
}

TEST_CASE("documents and sizes that cannot be packed") {
    const counting_documents good({4, 5});
    CHECK(packing_message(good, {.length = 0}) == "packed_rows: rows of 0 tokens; expected 1 to 2147483647");
    CHECK(packing_message(good, {.length = 8, .longest = 9}) ==
          "packed_rows: documents of at most 9 tokens in a row of 8; expected 1 to as many");
    CHECK(packing_message(good, {.length = 8, .longest = 3, .most_documents = 3}) ==
          "packed_rows: at most 3 documents in a row of 8 tokens; expected 4 or more");
    CHECK(packing_message(counting_documents({}), {}) == "packed_rows: no documents");
    CHECK(packing_message(counting_documents({4, 1}), {}) ==
          "packed_rows: document 1 has 1 tokens; expected 2 or more, of which the first predicts the second");
    CHECK(packing_message(counting_documents({4}, 4), {}) ==
          "packed_rows: document 0 has a prompt of 4 tokens, of 4; expected fewer");
}

}  // namespace data_packing_tests
