// SPDX-License-Identifier: MIT
/// \file
/// Folders of labelled texts, their vocabularies and batches, and the error messages for them.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>
#include <halftone/data/labelled_batches.hpp>
#include <halftone/data/labelled_text.hpp>
#include <halftone/data/shuffle.hpp>
#include <halftone/data/subset.hpp>
#include <halftone/data/synthetic_reviews.hpp>
#include <halftone/data/vocabulary.hpp>

#include "support/temporary_folder.hpp"

namespace data_labelled_text_tests {

namespace ht = halftone;
namespace fs = std::filesystem;

template <class Function>
std::string message(const Function& f) {
    try {
        f();
    } catch (const ht::error& e) {
        return e.what();
    }
    return "no error";
}
std::string message_of(const fs::path& folder, const ht::labelled_text_options& options = {}) {
    return message([&] { ht::labelled_text{folder, options}; });
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A folder as aclImdb/train.
void write_reviews(const support::temporary_folder& folder) {
    folder.write("train/pos/1_9.txt", "good");
    folder.write("train/pos/0_10.txt", "very good");
    folder.write("train/neg/0_1.txt", "bad");
    folder.write("train/neg/.hidden.txt", "x");
    folder.write("train/neg/notes.md", "x");
    folder.write("train/neg/below/2.txt", "x");
    folder.write("train/unsup/0_0.txt", "unknown");
    folder.write("train/urls_pos.txt", "x");
}

TEST_CASE("classes come by name, their texts by file name") {
    const support::temporary_folder folder;
    write_reviews(folder);
    const ht::labelled_text texts{folder.path() / "train"};
    CHECK(texts.class_names() == std::vector<std::string>{"neg", "pos"});
    REQUIRE(texts.size() == 3);
    CHECK(texts[0].text == "bad");
    CHECK(texts[0].label == 0);
    CHECK(texts[1].text == "very good");
    CHECK(texts[2].text == "good");
    CHECK(texts[2].label == 1);
    CHECK(texts.file(2) == folder.path() / "train/pos/1_9.txt");

    const ht::labelled_text named{folder.path() / "train", {.classes = {"unsup", "pos", "neg"}}};
    CHECK(named.classes() == 3);
    CHECK(named[0].text == "unknown");
    CHECK(named[3].label == 2);
    CHECK(named.class_name(2) == "neg");
    CHECK(ht::labelled_text{folder.path() / "train", {.extensions = {}}}.size() == 4);
}

TEST_CASE("each wrong folder has its sentence") {
    const support::temporary_folder folder;
    const fs::path missing = folder.path() / "nothing", file = folder.write("file", "x");
    CHECK(message_of(missing) == "labelled_text: there is no " + missing.string());
    CHECK(message_of(file) == "labelled_text: " + file.string() + " is not a folder");
    fs::create_directories(folder.path() / "bare");
    CHECK(message_of(folder.path() / "bare") ==
          "labelled_text: " + (folder.path() / "bare").string() + " holds no folders of classes");
    folder.write("bare/pos/a.txt", "good");
    CHECK(contains(message_of(folder.path() / "bare"), "has one class, pos; expected folders of 2 or more"));
    fs::create_directories(folder.path() / "bare/neg");
    CHECK(message_of(folder.path() / "bare") == "labelled_text: the folder " + (folder.path() / "bare/neg").string() +
                                                    " holds no files that end in .txt");
    const fs::path empty = folder.write("bare/neg/0.txt", "");
    CHECK(message_of(folder.path() / "bare") == "labelled_text: " + empty.string() + " is empty");
    folder.write("bare/neg/0.txt", "bad");
    CHECK(message_of(folder.path() / "bare") == "no error");
    CHECK(contains(message_of(folder.path() / "bare", {.limit = 5}), "more than 5 bytes"));
    CHECK(contains(message_of(folder.path() / "bare", {.classes = {"pos", "sad"}}), "there is no "));
    CHECK(message_of(folder.path() / "bare", {.classes = {"pos", "pos"}}) ==
          "labelled_text: the class pos is named twice");
#if defined(__linux__)
    fs::create_symlink(missing, folder.path() / "bare/neg/link.txt");
    CHECK(contains(message_of(folder.path() / "bare"), "link.txt"));
    fs::remove(folder.path() / "bare/neg/link.txt");
    fs::create_symlink("/proc/self/mem", folder.path() / "bare/neg/link.txt");
    CHECK_MESSAGE(contains(message_of(folder.path() / "bare"), "labelled_text: cannot read "), "not even root can read it");
#endif
}

TEST_CASE("bytes and words as ids") {
    const ht::byte_vocabulary bytes;
    CHECK(bytes.encode("a\xff") == std::vector<std::int32_t>{bytes.start, 97, 255});
    CHECK(bytes.encode("abc", 2) == std::vector<std::int32_t>{bytes.start, 97});
    CHECK(bytes.encode("abc", 0).empty());

    struct text {
        std::string text;
    };
    const std::vector<text> texts{{"The film, the FILM!"}, {"It isn't the film<br />caf\xc3\xa9"}};
    const ht::word_vocabulary words{texts, 6};
    CHECK(words.words() == std::vector<std::string>{"film", "the", "br"});
    CHECK(words.size() == 6);
    CHECK(words.encode("the Film isn't") == std::vector<std::int32_t>{words.start, 4, 3, words.unknown});
    CHECK(words.encode("the film", 2) == std::vector<std::int32_t>{words.start, 4});
    CHECK(words.encode("the film", 1) == std::vector<std::int32_t>{words.start});
    CHECK(words.encode(" ,.") == std::vector<std::int32_t>{words.start});
    const ht::word_vocabulary all{texts, 1000};
    CHECK(all.id("caf\xc3\xa9") != all.unknown);
    CHECK(all.id("isn't") != all.unknown);
    CHECK(ht::word_vocabulary{all.words()}.id("it") == all.id("it"));
    CHECK_THROWS_AS((ht::word_vocabulary{texts, 3}), ht::argument_error);
    CHECK_THROWS_AS(ht::word_vocabulary(std::vector<std::string>{"a", "a"}), ht::argument_error);
}

TEST_CASE("a shuffled order has each row once, and every order of few rows equally often") {
    for (ht::extent rows = 0; rows < 300; ++rows) {
        const ht::shuffled_order order{rows, 7, 3};
        std::set<ht::extent> seen;
        for (ht::extent i = 0; i < rows; ++i) seen.insert(order[i]);
        REQUIRE(static_cast<ht::extent>(seen.size()) == rows);
        if (rows > 0) REQUIRE(*seen.rbegin() == rows - 1);
    }
    std::map<std::vector<ht::extent>, int> count;
    for (std::uint32_t epoch = 0; epoch < 12000; ++epoch) {
        const ht::shuffled_order order{4, 1, epoch};
        ++count[{order[0], order[1], order[2], order[3]}];
    }
    REQUIRE(count.size() == 24);
    double chi_squared = 0;
    for (const auto& [order, n] : count) chi_squared += (n - 500.0) * (n - 500.0) / 500.0;
    CHECK_MESSAGE(chi_squared < 49.7, "23 degrees of freedom: larger once in 1,000 seeds");
    CHECK(ht::shuffled_order{1000, 1, 0}[5] != ht::shuffled_order{1000, 2, 0}[5]);
    CHECK_THROWS_AS((ht::shuffled_order{-1, 0, 0}), ht::argument_error);
}

TEST_CASE("each text comes once per epoch, padded, with its label") {
    const support::temporary_folder folder;
    write_reviews(folder);
    const ht::labelled_text texts{folder.path() / "train", {.classes = {"neg", "pos", "unsup"}}};
    const ht::byte_vocabulary bytes;
    ht::labelled_data data{texts, bytes, {.length = 6, .seed = 5}};
    REQUIRE(data.training() == 4);
    CHECK(data.windows() == 0);
    for (const ht::extent rows : {1, 2, 3, 4, 8}) {
        std::multiset<std::int32_t> labels;
        for (std::uint32_t step = 0; step < 8 / rows + (8 % rows != 0); ++step) {
            const ht::labelled_batch batch = data.sample(step, rows);
            for (ht::extent row = 0; row < rows; ++row) {
                if (step * rows + row >= 8) break;
                labels.insert(batch.labels(row));
                const std::int32_t length = batch.lengths(row);
                CHECK(batch.tokens(row, 0) == bytes.start);
                for (ht::extent i = length; i < 6; ++i) CHECK(batch.tokens(row, i) == bytes.padding);
                CHECK(length == (batch.labels(row) == 0 ? 4 : batch.labels(row) == 2 ? 6 : length));
            }
        }
        CHECK(labels == std::multiset<std::int32_t>{0, 0, 1, 1, 1, 1, 2, 2});
    }
    const auto batch = data.sample(0, 4);
    const auto parts = batch.split(2);
    REQUIRE(parts.size() == 2);
    CHECK(parts[1].tokens(1, 1) == batch.tokens(3, 1));
    CHECK(parts[1].labels(1) == batch.labels(3));
    CHECK(parts[1].lengths(0) == batch.lengths(2));
    CHECK_THROWS_AS(batch.split(3), ht::argument_error);
    CHECK_THROWS_AS(data.sample(0, 0), ht::argument_error);
    CHECK_THROWS_AS(data.window(0, 1), ht::argument_error);
    CHECK_THROWS_AS((ht::labelled_data{texts, bytes, {.length = 1}}), ht::argument_error);
    CHECK_THROWS_AS((ht::labelled_data{texts, bytes, {.held_out = 1}}), ht::argument_error);
    CHECK_THROWS_AS((ht::labelled_data{texts, bytes, {.held_out = 0.1}}), ht::data_error);
}

TEST_CASE("held-out texts are never trained on") {
    const support::temporary_folder folder;
    ht::write_synthetic_reviews(folder.path() / "in", {.texts_per_class = 30, .longest = 30, .seed = 2});
    const ht::labelled_text texts{folder.path() / "in"};
    REQUIRE(texts.size() == 60);
    ht::labelled_data data{texts, ht::word_vocabulary{texts, 100}, {.length = 64, .held_out = 0.2}};
    CHECK(data.windows() == 12);
    CHECK(data.training() == 48);
    const auto row_of = [](const ht::labelled_batch& b, ht::extent row) {
        return std::vector<std::int32_t>(&b.tokens(row, 0), &b.tokens(row, 0) + 64);
    };
    std::set<std::vector<std::int32_t>> held_out;
    for (ht::extent first = 0; first < 12; first += 5) {
        const auto batch = data.window(first, 5);
        for (ht::extent row = 0; row < batch.rows(); ++row) held_out.insert(row_of(batch, row));
    }
    CHECK(held_out.size() == 12);
    for (std::uint32_t step = 0; step < 6; ++step) {
        const auto batch = data.sample(step, 8);
        for (ht::extent row = 0; row < 8; ++row) CHECK(held_out.count(row_of(batch, row)) == 0);
    }
}

TEST_CASE("synthetic reviews are the same for the same seed, and have the words of their class") {
    const support::temporary_folder folder;
    ht::write_synthetic_reviews(folder.path() / "a", {.texts_per_class = 20, .seed = 1});
    ht::write_synthetic_reviews(folder.path() / "b", {.texts_per_class = 20, .seed = 1});
    const ht::labelled_text a{folder.path() / "a"}, b{folder.path() / "b"};
    std::set<std::string> different;
    for (ht::extent i = 0; i < a.size(); ++i) {
        CHECK(a[i].text == b[i].text);
        different.insert(std::string(a[i].text));
        int balance = 0;
        const std::string text(a[i].text);
        const auto count = [&](const char* word) {
            int n = 0;
            for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++n;
            return n;
        };
        for (const char* word : ht::detail::words_of_praise) balance += count(word);
        for (const char* word : ht::detail::words_of_blame) balance -= count(word);
        CHECK((balance > 0) == (a[i].label == 1));
        CHECK(balance != 0);
    }
    CHECK(different.size() == 40);
    CHECK(contains(message([&] { ht::write_synthetic_reviews(folder.path() / "a"); }), "is not empty"));
    const fs::path file = folder.write("file", "x");
    CHECK(contains(message([&] { ht::write_synthetic_reviews(file / "below"); }), "cannot make"));
    CHECK_THROWS_AS(ht::write_synthetic_reviews(folder.path() / "c", {.texts_per_class = 0}), ht::argument_error);
}

TEST_CASE("a loader's batches of texts are as long as their longest") {
    const support::temporary_folder folder;
    ht::write_synthetic_reviews(folder.path() / "in", {.texts_per_class = 30, .seed = 2});
    const ht::labelled_text texts{folder.path() / "in"};
    const ht::word_vocabulary words{texts, 100};
    const ht::encoded_texts rows{texts, words, 32};
    const ht::random_split parts{rows.size(), 0.2, 1};
    CHECK(parts.training.size() == 48);
    CHECK(parts.held_out.size() == 12);
    CHECK(parts.held_out != ht::random_split(rows.size(), 0.2, 2).held_out);
    std::set<ht::extent> both(parts.training.begin(), parts.training.end());
    both.insert(parts.held_out.begin(), parts.held_out.end());
    CHECK(both.size() == 60);
    const ht::subset training{rows, parts.training};
    ht::data_loader loader{training, {.batch_size = 5, .bucket_batches = 4}, ht::collate_padded{words.padding}};
    ht::extent texts_seen = 0;
    for (const ht::labelled_batch& batch : loader) {
        ht::extent longest = 0;
        for (ht::extent row = 0; row < batch.rows(); ++row) {
            const ht::extent length = batch.lengths(row);
            longest = std::max(longest, length);
            CHECK(batch.tokens(row, 0) == words.start);
            for (ht::extent i = 0; i < batch.tokens.extent_of(1); ++i)
                CHECK((batch.tokens(row, i) == words.padding) == (i >= length));
            ++texts_seen;
        }
        CHECK(longest == batch.tokens.extent_of(1));
        CHECK(longest <= 32);
    }
    CHECK(texts_seen == 48);
    CHECK_THROWS_AS((ht::subset{rows, {60}}), ht::argument_error);
    CHECK_THROWS_AS((ht::random_split{10, 1.0, 0}), ht::argument_error);
    CHECK_THROWS_AS((ht::random_split{0, 0.0, 0}), ht::data_error);
}

}  // namespace data_labelled_text_tests
