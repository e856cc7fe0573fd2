// SPDX-License-Identifier: MIT
/// \file
/// Tokenizers against tokenizers 0.23.3 (tests/golden/tokenizer.py), byte pairs against their plain definition, what is refused, and
/// files of tokens made from texts.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <halftone/data/data_loader.hpp>
#include <halftone/data/tokenize.hpp>
#include <halftone/data/tokenizer.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/io/crc32.hpp>

#include "support/temporary_folder.hpp"

namespace data_tokenizer_tests {

namespace ht = halftone;
namespace fs = std::filesystem;
using json = nlohmann::json;
using ids = std::vector<std::int32_t>;

const std::vector<std::string> names{"gpt2",  "prefix_space", "llama3",      "qwen2",           "qwen3_5",
                                     "cases", "deepseek",     "digits",      "digits_together", "few_bytes",
                                     "bert",  "bert_cased",   "bert_accents"};

std::string contents(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    REQUIRE_MESSAGE(in, path.string());
    return {std::istreambuf_iterator<char>(in), {}};
}
json golden(const std::string& name) {
    return json::parse(contents(fs::path(HALFTONE_TEST_DATA) / "tokenizers" / (name + ".json")));
}
ht::tokenizer made_of(const json& file, const ht::tokenizer_options& options = {}) {
    return ht::tokenizer::from_json("tokenizer.json", file.dump(), options);
}
std::string message_of(const json& file, const ht::tokenizer_options& options = {}) {
    try {
        made_of(file, options);
    } catch (const ht::data_error& e) {
        return e.what();
    }
    return "no error";
}

TEST_CASE("tokenizer: ids and texts of every kind are those of tokenizers") {
    const auto texts = golden("texts").get<std::vector<std::string>>();
    for (const std::string& name : names) {
        CAPTURE(name);
        const json expected = golden(name);
        const ht::tokenizer tokenizer = made_of(expected["tokenizer"]);
        for (std::size_t i = 0; i < texts.size(); ++i) {
            CAPTURE(texts[i]);
            const json& of = expected["cases"][i];
            const auto found = tokenizer.encode(texts[i], {.allow_special = true});
            CHECK(found == of["ids"].get<ids>());
            CHECK(tokenizer.encode(texts[i]) == of.value("plain", of["ids"]).get<ids>());
            CHECK(tokenizer.decode(found) == of.value("back", texts[i]));
            CHECK(tokenizer.decode(found, {.skip_special_tokens = true}) == of.value("back_without", texts[i]));

            std::string streamed;  // token by token
            ht::decode_stream stream{tokenizer};
            for (const std::int32_t id : found) {
                const std::string text = stream(id);
                CHECK(ht::detail::unicode::first_invalid(text.data(), text.data() + text.size()) ==
                      text.data() + text.size());
                streamed += text;
            }
            CHECK(streamed + stream.finish() == of.value("back", texts[i]));
        }
    }
}

TEST_CASE(
    "tokenizer: many texts of many tokenizers, where HALFTONE_TOKENIZERS is a folder of tests/golden/tokenizer.py "
    "--large") {
    const char* const folder = std::getenv("HALFTONE_TOKENIZERS");
    if (folder == nullptr) return;
    const std::string texts = contents(fs::path(folder) / "texts");
    const auto number = [](const std::string& in, std::size_t& at) {
        std::uint32_t value = 0;
        for (int i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<unsigned char>(in[at++])} << 8 * i;
        return value;
    };
    std::size_t bytes = 0;
    for (const std::string& name : names) {
        CAPTURE(name);
        const auto tokenizer = ht::tokenizer::from_file(fs::path(folder) / (name + ".json"));
        const std::string expected = contents(fs::path(folder) / (name + ".ids"));
        std::size_t of_text = 0, of_ids = 0, differ = 0;
        while (of_text < texts.size()) {
            const std::uint32_t size = number(texts, of_text);
            const std::string_view text(texts.data() + of_text, size);
            ids should_be(number(expected, of_ids));
            for (std::int32_t& id : should_be) id = static_cast<std::int32_t>(number(expected, of_ids));
            differ += tokenizer.encode(text, {.allow_special = true}) != should_be;
            of_text += size, bytes += size;
        }
        CHECK(of_ids == expected.size());
        CHECK(differ == 0);
    }
    MESSAGE("the ids of ", bytes, " bytes are equal");
}

TEST_CASE("tokenizer: patterns part texts as Oniguruma does") {
    const json file = golden("patterns");
    const ht::detail::unicode::categories categories;
    for (const json& of : file["patterns"]) {
        const auto pattern = of[0].get<std::string>();
        CAPTURE(pattern);
        ht::detail::text_splitter splitter;
        splitter.add({ht::detail::split_step::kind::pattern, ht::detail::split_step::keep::all,
                      std::make_shared<const ht::detail::pattern>("it", pattern, categories)});
        for (std::size_t i = 0; i < file["texts"].size(); ++i) {
            std::vector<std::string> pieces;
            const auto text = file["texts"][i].get<std::string>();
            std::uint64_t attempts = ht::detail::pattern::most_attempts(text.size());
            splitter(text, categories, attempts, [&](std::string_view piece) { pieces.emplace_back(piece); });
            CHECK(pieces == of[1][i].get<std::vector<std::string>>());
        }
    }
}

TEST_CASE("tokenizer: what halftone does not match in a pattern is refused") {
    const ht::detail::unicode::categories categories;
    for (const std::string pattern : {"",
                                      "a|",
                                      "(",
                                      "a)",
                                      "(?",
                                      "(?<n>a)",
                                      "(?<=a)b",
                                      "(?i)a",
                                      "^a",
                                      "a$",
                                      "\\bw",
                                      "\\w+",
                                      "\\h",
                                      "\\1",
                                      "a*?",
                                      "a+?",
                                      "a??",
                                      "a{2}+",
                                      "(ab)*",
                                      "(?:ab)+",
                                      "(a?){3}",
                                      "[",
                                      "[a",
                                      "[]",
                                      "[[a]]",
                                      "[a&&b]",
                                      "[z-a]",
                                      "[\\p{L}-z]",
                                      "\\p",
                                      "\\p{",
                                      "\\p{Han}",
                                      "\\p{L",
                                      "a{",
                                      "a{2",
                                      "a{3,2}",
                                      "a{0}",
                                      "{1}",
                                      "*",
                                      "\\",
                                      "(?i:ss)",
                                      "(?i:fi)",
                                      "(?i:\xC3\xA4)",
                                      "(?i:[a-z])",
                                      "(?i:\\p{Lu})",
                                      "\\u00",
                                      "\\x{110000}",
                                      "\\uD800",
                                      "\\xff",
                                      "a?",
                                      "(?=a)",
                                      "(?:abcde){1000}",
                                      "\xff"}) {
        CAPTURE(pattern);
        CHECK_THROWS_AS((ht::detail::pattern{"it", pattern, categories}), ht::data_error);
    }
    std::string deep(100, '(');
    CHECK_THROWS_AS((ht::detail::pattern{"it", deep + "a" + std::string(100, ')'), categories}), ht::data_error);

    // A small pattern, but 5 million alternatives are refused at the 65th.
    std::string many = "a";
    for (int i = 0; i < 100; ++i) many += "|a";
    CHECK_THROWS_AS((ht::detail::pattern{"it", many, categories}), ht::data_error);
    CHECK_THROWS_AS((ht::detail::pattern{"it", '[' + std::string(5000, 'a') + ']', categories}), ht::data_error);
    for (int i = 0; i < 5000; ++i) many += "|a";
    CHECK_THROWS_AS((ht::detail::pattern{"it", '(' + many + ')', categories}), ht::data_error);
}

TEST_CASE("tokenizer: what takes too long or too much memory is refused") {
    const json gpt2 = golden("gpt2")["tokenizer"], bert = golden("bert")["tokenizer"];
    // Time that grows with the square of a text's length, or faster, within one match and over many.
    json file = gpt2;
    std::string stars = "a";
    for (int i = 0; i < 3000; ++i) stars += "a*";
    stars += 'b';
    for (const std::string& slow :
         std::vector<std::string>{"a*a*a*a*a*a*b", "a+b", "a++b", "(?=a+b)a", "(?:aa?a?a?a?a?a?a?){20}b", stars}) {
        CAPTURE(slow);
        const json split{{"type", "Split"}, {"pattern", {{"Regex", slow}}}, {"behavior", "Isolated"}};
        file["pre_tokenizer"] = {{"type", "Sequence"},
                                 {"pretokenizers", {split, {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
        const ht::tokenizer tokenizer = made_of(file);
        CHECK(tokenizer.decode(tokenizer.encode("aab a")) == "aab a");
        CHECK_THROWS_WITH_AS(tokenizer.encode(std::string(100'000, 'a')),
                             "tokenizer.json: pre_tokenizer: its pattern takes too many attempts on this text",
                             ht::data_error);
    }
    const auto steps = [](const char* list, const char* type) {
        json many = json::array();
        for (int i = 0; i < 100; ++i) many.push_back({{"type", type}});
        return json{{"type", "Sequence"}, {list, many}};
    };
    file = gpt2;
    file["pre_tokenizer"] = steps("pretokenizers", "Digits");
    CHECK(message_of(file) == "tokenizer.json: normalizer and pre_tokenizer have more than 64 steps");
    file = gpt2;
    file["normalizer"] = steps("normalizers", "Lowercase");
    CHECK(message_of(file) == "tokenizer.json: normalizer and pre_tokenizer have more than 64 steps");

    file = bert;
    json& around = file["post_processor"];
    const json first = around["single"][0];
    for (int i = 0; i < 2000; ++i) around["single"].push_back(first);
    CHECK(message_of(file) == "tokenizer.json: post_processor puts more than 1024 tokens around a text");
    file = bert;
    const std::string longest(1025, 'a');
    file["model"]["vocab"]["##" + longest] = 4000;
    CHECK(message_of(file) ==
          "tokenizer.json: model.vocab: ##" + longest.substr(0, 98) + "... has 1027 bytes; expected 1024 at most");
    file = gpt2;
    file["added_tokens"].push_back({{"content", longest}});
    CHECK(message_of(file) ==
          "tokenizer.json: added_tokens: " + longest.substr(0, 100) + "... has 1025 bytes; expected 1024 at most");
}

TEST_CASE(
    "tokenizer: a merge that comes twice, ids of added tokens and white space are taken as tokenizers 0.23.3 does") {
    json file = json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 4, "bc": 3},
                                          "merges": [["a", "b"], ["b", "c"]]},
                                "added_tokens": [{"id": 77, "content": "<x>", "special": true},
                                                 {"id": 20, "content": "<y>", "special": true}, {"id": 9, "content": "ab"}],
                                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
                                "decoder": {"type": "ByteLevel"}})");
    // A merge's rank is its place, not its id; added tokens get the next ids, or those that the model has for them.
    CHECK(made_of(file).encode("<x><y>ab", {.allow_special = true}) == ids{5, 6, 4});
    file["added_tokens"] = json::array();
    CHECK(made_of(file).encode("abc") == ids{4, 2});
    file["model"]["merges"].push_back({"a", "b"});  // the last place counts
    CHECK(made_of(file).encode("abc") == ids{0, 3});

    const ht::detail::unicode::categories categories;
    ht::detail::text_splitter splitter;
    splitter.add({ht::detail::split_step::kind::pattern, ht::detail::split_step::keep::all,
                  std::make_shared<const ht::detail::pattern>("it", "\\s", categories)});
    const auto pieces = [&](const std::string& space) {
        const std::string text = 'a' + space + 'b';
        std::uint64_t attempts = ht::detail::pattern::most_attempts(text.size());
        int count = 0;
        splitter(text, categories, attempts, [&](std::string_view) { ++count; });
        return count;
    };
    for (const char* const space :
         {"\t", "\x0B", "\u0085", "\u00A0", "\u1680", "\u2000", "\u2028", "\u202F", "\u205F", "\u3000"})
        CHECK(pieces(space) == 3);
    for (const char* const other : {"\x1C", "\x1F", "\u180E", "\u200B", "\uFEFF"}) CHECK(pieces(other) == 1);
}

TEST_CASE("tokenizer: objects in a list are read in one pass") {
    std::string file = R"({"added_tokens": [{})";
    for (int i = 0; i < 300'000; ++i) file += ",{}";
    const auto began = std::chrono::steady_clock::now();
    CHECK_THROWS_WITH_AS(ht::tokenizer::from_json("it", file + "]}"), "it: model is null; expected an object",
                         ht::data_error);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(60));  // the square of them takes minutes
}

TEST_CASE("tokenizer: added tokens that take white space are found in one pass") {
    json file = golden("gpt2")["tokenizer"];
    const std::string text(2'000'000, ' ');
    for (const char* const side : {"lstrip", "rstrip"}) {
        CAPTURE(side);
        file["added_tokens"] = {{{"content", " "}, {"normalized", false}, {side, true}}};
        const ht::tokenizer tokenizer = made_of(file);
        const std::size_t count = tokenizer.encode(text, {.allow_special = true}).size();
        CHECK(count == text.size());
    }
}

TEST_CASE("tokenizer: white space that an added token has taken with it is no token once more") {
    json file = golden("gpt2")["tokenizer"];
    file["added_tokens"] = {
        {{"content", "\t\t"}, {"normalized", false}, {"lstrip", true}, {"rstrip", true}},
        {{"content", "\n\n"}, {"normalized", false}, {"lstrip", true}},
        {{"content", "<r>"}, {"normalized", false}, {"rstrip", true}},
    };
    const ht::tokenizer tokenizer = made_of(file);
    const auto id = [&](const char* token) { return tokenizer.id(token).value(); };
    CHECK(tokenizer.encode("a\t\t\t\t\t\tb") == ids{id("a"), id("\t\t"), id("b")});
    CHECK(tokenizer.encode("<r>\n\nx") == ids{id("<r>"), id("x")});
    CHECK(tokenizer.encode("<r>\n\n\n\nx") == ids{id("<r>"), id("x")});  // where tokenizers 0.23.3 panics
    CHECK(tokenizer.encode("\n\n\n\nx") == ids{id("\n\n"), id("\n\n"), id("x")});
}

TEST_CASE("tokenizer: a special token that is another text when normalized is decoded, also without special ones") {
    json file = golden("gpt2")["tokenizer"];
    file["normalizer"] = {{"type", "Lowercase"}};
    file["added_tokens"] = {{{"content", "<A>"}, {"normalized", true}, {"special", true}},
                            {{"content", "<b>"}, {"normalized", true}, {"special", true}}};
    const ht::tokenizer tokenizer = made_of(file);
    const auto all = tokenizer.encode("<A><b>", {.allow_special = true});
    CHECK(all == ids{tokenizer.id("<A>").value(), tokenizer.id("<b>").value()});
    CHECK(tokenizer.decode(all, {.skip_special_tokens = true}) == "<a>");
    CHECK(tokenizer.decode(all) == "<a><b>");
}

TEST_CASE("tokenizer: normal forms, lower case and BERT's normalizer of code points are those of tokenizers") {
    using step = ht::detail::normalization;
    const std::map<std::string, std::vector<step>> normalizers{
        {"nfc", {step::nfc}},
        {"nfd", {step::nfd}},
        {"lower_case", {step::lower_case}},
        {"bert", {step::bert_clean_text, step::bert_spaces, step::bert_strip_accents, step::lower_case}},
        {"bert_cased", {step::bert_clean_text, step::bert_spaces}},
        {"bert_accents", {step::bert_clean_text, step::bert_spaces, step::bert_strip_accents}},
    };
    const json expected = golden("unicode")["sums"];
    for (const auto& each : normalizers) {
        const std::string& name = each.first;
        CAPTURE(name);
        ht::detail::text_normalizer normalizer;
        for (const step s : each.second) normalizer.add(s);
        ht::detail::crc32 sum;
        std::string text, memory;
        const auto is_in = [](char32_t c, char32_t first, char32_t end) { return c >= first && c < end; };
        for (char32_t c = 0; c < 0xE1000; ++c) {
            if (is_in(c, 0x3500, 0x9F00) || is_in(c, 0xB000, 0xD700) || is_in(c, 0xD800, 0xE000) ||
                is_in(c, 0xE100, 0xF800) || is_in(c, 0x20100, 0x2F800) || is_in(c, 0x2FB00, 0xE0000)) {
                continue;  // surrogates, and characters that are treated as their neighbours are
            }
            for (const auto& [before, behind] : {std::pair{"e", "\u0301"}, std::pair{"\u1100", "\u11a8"}}) {
                text = before;
                ht::detail::unicode::append(text, c);
                text += behind;
                const std::string_view made = normalizer(text, memory);
                if (c != 0 || before[0] != 'e') sum.add("\n", 1);
                sum.add(made.data(), made.size());
            }
        }
        CHECK(sum.value() == expected[name].get<std::uint32_t>());
    }
}

TEST_CASE("tokenizer: bytes that are not UTF-8 are replaced as Python and tokenizers do, or refused") {
    const ht::tokenizer tokenizer = made_of(golden("gpt2")["tokenizer"]);
    const json broken = golden("unicode")["broken"];
    REQUIRE(broken.size() > 300);
    for (const json& of : broken) {
        const auto hex = of[0].get<std::string>();
        CAPTURE(hex);
        std::string bytes, replaced;
        for (std::size_t i = 0; i < hex.size(); i += 2)
            bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
        ht::detail::unicode::append_valid(replaced, bytes);
        CHECK(replaced == of[1].get<std::string>());
        CHECK(tokenizer.encode(bytes) == tokenizer.encode(replaced));
    }
    CHECK_THROWS_WITH_AS(tokenizer.encode("ab\xff", {.refuse_invalid = true}),
                         "tokenizer: the text is not UTF-8 at byte 2 of 3", ht::data_error);
}

/// Byte pairs by their definition: the first merge of the list that a pair has, at the leftmost place, until there is none.
ids plainly_merged(
    ids tokens, const std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::size_t, std::int32_t>>& merges) {
    for (;;) {
        std::optional<std::pair<std::size_t, std::size_t>> first;  // rank and place
        for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
            const auto found = merges.find({tokens[i], tokens[i + 1]});
            if (found != merges.end() && (!first || found->second.first < first->first))
                first = {found->second.first, i};
        }
        if (!first) return tokens;
        const std::size_t at = first->second;
        tokens[at] = merges.at({tokens[at], tokens[at + 1]}).second;
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
}

TEST_CASE("tokenizer: byte pairs of short and long pieces are those of the definition") {
    std::mt19937 random(1);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    for (int round = 0; round < 40; ++round) {
        ht::detail::byte_pair_model model;
        for (std::size_t i = 0; i < 256; ++i) model.byte_ids[i] = static_cast<std::int32_t>(i);
        std::vector<std::string> tokens;
        for (std::size_t i = 0; i < 256; ++i) tokens.push_back(std::string(1, static_cast<char>(i)));
        std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::size_t, std::int32_t>> merges;
        model.merges = ht::detail::merge_table(60);
        for (std::size_t rank = 0; rank < 60; ++rank) {  // of 'a' to 'd', and of what they become
            const auto part = [&] {
                return static_cast<std::int32_t>(rank < 6 || below(2) == 0 ? 'a' + below(4)
                                                                           : 256 + below(tokens.size() - 256));
            };
            const std::int32_t left = tokens.size() == 256 ? 'a' : part(), right = tokens.size() == 256 ? 'b' : part();
            const std::string both = tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
            const auto known = std::find(tokens.begin(), tokens.end(), both);
            const auto id = static_cast<std::int32_t>(known - tokens.begin());
            if (known == tokens.end()) tokens.push_back(both);
            merges[{left, right}] = {rank, id};  // the last rank of a pair counts
            model.merges.add(left, right, {static_cast<std::uint32_t>(rank), id});
        }
        std::vector<std::pair<std::string, std::int32_t>> words;
        for (std::size_t i = 0; i < tokens.size(); ++i) words.emplace_back(tokens[i], static_cast<std::int32_t>(i));
        const ht::detail::byte_pairs pairs{std::move(model), words, false};
        for (int piece = 0; piece < 100; ++piece) {
            std::string text(1 + below(piece < 50 ? 33 : 150), ' ');
            for (char& c : text) c = static_cast<char>('a' + below(4));
            CAPTURE(text);
            ids found;
            pairs.encode(text, found);
            REQUIRE(found == plainly_merged(ids(text.begin(), text.end()), merges));
        }
    }
}

TEST_CASE("tokenizer: what halftone does not compute is refused by its key, and damage by a sentence") {
    const json gpt2 = golden("gpt2")["tokenizer"], bert = golden("bert")["tokenizer"];
    const auto changed = [](json file, const char* pointer, const json& value) {
        file[json::json_pointer(pointer)] = value;
        return message_of(file);
    };
    const auto of_gpt2 = [&](const char* pointer, const json& value) { return changed(gpt2, pointer, value); };
    CHECK(message_of(json::array()) == "tokenizer.json is no object");
    CHECK(of_gpt2("/model/type", "Unigram") ==
          "tokenizer.json: model.type is \"Unigram\"; expected \"BPE\" or \"WordPiece\"");
    CHECK(of_gpt2("/model/dropout", 0.1) == "tokenizer.json: model.dropout is 0.1; expected none");
    CHECK(of_gpt2("/model/end_of_word_suffix", "</w>") ==
          "tokenizer.json: model.end_of_word_suffix is \"</w>\"; expected none");
    CHECK(of_gpt2("/model/merges/3", json::array({"zz", "y"})) ==
          "tokenizer.json: model.merges[3]: zz is not in the vocabulary");
    CHECK(of_gpt2("/model/merges/3", "abc") == "tokenizer.json: model.merges[3] is \"abc\"; expected two tokens");
    CHECK(of_gpt2("/model/merges", nullptr) == "tokenizer.json: model.merges is null; expected a list");
    CHECK(of_gpt2("/model/vocab/a", 5) == "tokenizer.json: model.vocab: the id 5 is that of \" and of a");
    CHECK(of_gpt2("/model/vocab/a", 1 << 22) ==
          "tokenizer.json: model.vocab: the id of a is 4194304; expected 0 to 4194303");
    CHECK(of_gpt2("/model/vocab/a", -1) == "tokenizer.json: model.vocab: the id of a is -1; expected 0 to 4194303");
    CHECK(of_gpt2("/normalizer", {{"type", "NFKC"}}) ==
          "tokenizer.json: normalizer.type is \"NFKC\"; expected NFC, NFD, Lowercase, BertNormalizer or a Sequence of "
          "them");
    CHECK(of_gpt2("/pre_tokenizer", {{"type", "Metaspace"}}) ==
          "tokenizer.json: pre_tokenizer.type is \"Metaspace\"; expected ByteLevel, Split, "
          "BertPreTokenizer, WhitespaceSplit, Digits or a Sequence of them");
    CHECK(of_gpt2("/pre_tokenizer", nullptr) ==
          "tokenizer.json: model is BPE without a ByteLevel pre_tokenizer; expected byte-level BPE");
    CHECK(of_gpt2("/pre_tokenizer",
                  {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}}) ==
          "tokenizer.json: pre_tokenizer has a step behind ByteLevel; expected ByteLevel at the end");
    CHECK(of_gpt2("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "\\w"}}}, {"behavior", "Isolated"}}) ==
          "tokenizer.json: pre_tokenizer: the pattern \\w has a \\w that halftone does not match");
    CHECK(of_gpt2("/pre_tokenizer",
                  {{"type", "Split"}, {"pattern", {{"String", "\\w"}}}, {"behavior", "MergedWithNext"}}) ==
          "tokenizer.json: pre_tokenizer.behavior is \"MergedWithNext\"; expected Isolated, Removed, or Contiguous "
          "without invert");
    CHECK(of_gpt2("/decoder", {{"type", "Metaspace"}}) ==
          "tokenizer.json: decoder.type is \"Metaspace\"; expected ByteLevel or WordPiece");
    CHECK(of_gpt2("/post_processor", {{"type", "Other"}}) ==
          "tokenizer.json: post_processor.type is \"Other\"; expected TemplateProcessing, "
          "BertProcessing, RobertaProcessing, ByteLevel or a Sequence of them");
    CHECK(of_gpt2("/added_tokens/0/content", 7) == "tokenizer.json: added_tokens.content is 7; expected a text");
    CHECK(of_gpt2("/added_tokens/0/lstrip", 7) == "tokenizer.json: added_tokens.lstrip is 7; expected true or false");
    CHECK(changed(bert, "/model/unk_token", "[U]") == "tokenizer.json: model.unk_token: [U] is not in the vocabulary");
    CHECK(changed(bert, "/pre_tokenizer", {{"type", "ByteLevel"}}) ==
          "tokenizer.json: pre_tokenizer has ByteLevel; expected none for WordPiece");
    CHECK(changed(bert, "/post_processor/special_tokens/[CLS]/ids", {9999}) ==
          "tokenizer.json: post_processor.special_tokens is 9999; expected the id of a token");

    CHECK(message_of(gpt2, {.vocabulary = 415}) == "no error");
    CHECK(message_of(gpt2, {.vocabulary = 300}) == "tokenizer.json: the largest id is " +
                                                       std::to_string(made_of(gpt2).size() - 1) +
                                                       "; the model's table has 300 rows");
    const support::temporary_folder folder;
    const fs::path path = folder.write("tokenizer.json", gpt2.dump());
    CHECK(ht::tokenizer::from_file(path.parent_path()).size() == made_of(gpt2).size());
    for (const std::string& none : {std::string("none"), std::string(5000, 'a')})
        CHECK_THROWS_AS(ht::tokenizer::from_file(path.parent_path() / none), ht::data_error);
    for (const std::size_t size : {0, 1, 100, 5000}) {
        const fs::path part = folder.write("part.json", gpt2.dump().substr(0, size));
        CHECK_THROWS_AS(ht::tokenizer::from_file(part), ht::data_error);
    }
}

/// What the converter of llama.cpp makes of a tokenizer.json.
ht::gguf_tokenizer as_gguf(const json& file, const std::string& pre) {
    ht::gguf_tokenizer t;
    t.model = "gpt2";
    t.pre = pre;
    std::map<std::int64_t, std::pair<std::string, std::int64_t>> tokens;
    for (const auto& [token, id] : file["model"]["vocab"].items()) tokens[id.get<std::int64_t>()] = {token, 1};
    for (const json& added : file["added_tokens"])
        tokens[added["id"]] = {added["content"], added["special"].get<bool>() ? 3 : 4};
    for (const auto& [id, token] : tokens) {
        t.tokens.push_back(token.first);
        t.token_type.push_back(token.second);
        if (token.first == "<|begin_of_text|>") t.bos = id;
        if (token.first == "<|endoftext|>") t.eos = id;
    }
    for (const json& merge : file["model"]["merges"]) {
        t.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                             : merge[0].get<std::string>() + ' ' + merge[1].get<std::string>());
    }
    return t;
}

TEST_CASE("tokenizer: the keys of a GGUF file make the tokenizer that they are made of") {
    const auto texts = golden("texts").get<std::vector<std::string>>();
    for (const auto& [name, pre] : {std::pair{"gpt2", "gpt-2"}, std::pair{"llama3", "llama-bpe"},
                                    std::pair{"qwen2", "qwen2"}, std::pair{"digits", "smollm"}}) {
        const std::string shown = name;
        CAPTURE(shown);
        json file = golden(name)["tokenizer"];
        json added = json::array();  // those that need no more than GGUF tells
        for (const json& token : file["added_tokens"]) {
            if (token["normalized"] == false && token["lstrip"] == false && token["rstrip"] == false &&
                token["single_word"] == false)
                added.push_back(token);
        }
        file["added_tokens"] = added;
        // llama.cpp's ids are those of the file, which go on behind the model's
        std::int64_t next = static_cast<std::int64_t>(file["model"]["vocab"].size());
        for (json& token : file["added_tokens"]) {
            if (!file["model"]["vocab"].contains(token["content"].get<std::string>())) token["id"] = next++;
        }
        const ht::tokenizer expected = made_of(file),
                            found = ht::tokenizer::from_gguf("model.gguf", as_gguf(file, pre));
        CHECK(found.size() == expected.size());
        for (const std::string& text : texts) {
            CAPTURE(text);
            CHECK(found.encode(text) == expected.encode(text));
            const auto ids = expected.encode(text, {.allow_special = true});
            CHECK(found.encode(text, {.allow_special = true}) == ids);
            CHECK(found.decode(ids, {.skip_special_tokens = true}) ==
                  expected.decode(ids, {.skip_special_tokens = true}));
        }
    }
    ht::gguf_tokenizer t = as_gguf(golden("gpt2")["tokenizer"], "gpt-2");
    t.add_bos = t.add_eos = true;
    CHECK(ht::tokenizer::from_gguf("it", t).encode("") ==
          ids{static_cast<std::int32_t>(*t.bos), static_cast<std::int32_t>(*t.eos)});
    // Rows of the table behind the tokens have names, which are no text: llama.cpp and transformers decode them to nothing.
    ht::gguf_tokenizer padded = t;
    padded.tokens.push_back("[PAD]");
    padded.token_type.push_back(5);
    const ht::tokenizer with_padding = ht::tokenizer::from_gguf("it", padded);
    CHECK(with_padding.decode(ids{static_cast<std::int32_t>(t.tokens.size())}).empty());
    CHECK(with_padding.size() == static_cast<ht::extent>(t.tokens.size()));
    CHECK(with_padding.encode("a[PAD]") == ht::tokenizer::from_gguf("it", t).encode("a[PAD]"));
    const auto refusal = [&t](auto change) {
        ht::gguf_tokenizer changed = t;
        change(changed);
        try {
            ht::tokenizer::from_gguf("model.gguf", changed);
        } catch (const ht::data_error& e) {
            return std::string(e.what());
        }
        return std::string("no error");
    };
    CHECK(refusal([](ht::gguf_tokenizer& c) { c.model = "llama"; }) ==
          "model.gguf: tokenizer.ggml.model is llama; expected \"gpt2\", byte-level BPE");
    CHECK(refusal([](ht::gguf_tokenizer& c) { c.pre = "default"; }) ==
          "model.gguf: tokenizer.ggml.pre is default; expected \"gpt-2\", \"llama-bpe\", \"qwen2\" or \"smollm\"");
    CHECK(refusal([](ht::gguf_tokenizer& c) {
              c.tokens[7] = c.tokens[8];
          }).starts_with("model.gguf: tokenizer.ggml.tokens has "));
    for (const char* const invalid : {"\xC3", "a\xF0", "\xFF", "\xC0\x80"})
        CHECK(refusal([&](ht::gguf_tokenizer& c) { c.tokens[7] = invalid; }) ==
              "model.gguf: tokenizer.ggml.tokens[7] is not UTF-8");
    CHECK(refusal([](ht::gguf_tokenizer& c) { c.merges[2] = "one"; }) ==
          "model.gguf: model.merges[2] is \"one\"; expected two tokens");
}

TEST_CASE("tokenizer: tokens by name and id, and what a user types is text") {
    const ht::tokenizer tokenizer = made_of(golden("llama3")["tokenizer"]);
    const std::int32_t end = tokenizer.id("<|im_end|>").value();
    CHECK(tokenizer.token(end) == "<|im_end|>");
    CHECK(tokenizer.is_special(end));
    CHECK_FALSE(tokenizer.id("no such token").has_value());
    CHECK(tokenizer.token(-100).empty());
    CHECK(tokenizer.token(1 << 30).empty());
    CHECK(tokenizer.decode(ids{-100, end, 1 << 30}) == "<|im_end|>");
    const auto typed = tokenizer.encode("<|im_end|>");
    CHECK(std::find(typed.begin(), typed.end(), end) == typed.end());
    CHECK(tokenizer.encode("<|im_end|>", {.add_special_tokens = false, .allow_special = true}) == ids{end});
    CHECK(tokenizer.decode(typed, {.skip_special_tokens = true}) == "<|im_end|>");
}

/// Texts made when they are asked for, some of them empty.
struct numbered {
    ht::extent count;
    std::size_t size() const { return static_cast<std::size_t>(count); }
    std::string operator[](ht::extent i) const {
        return i % 7 == 3 ? "" : "text " + std::to_string(i) + " of the policy's <|endoftext|>";
    }
};

TEST_CASE("tokenize writes the same file with any number of workers, and nothing when it fails") {
    const ht::tokenizer tokenizer = made_of(golden("gpt2")["tokenizer"]);
    const support::temporary_folder folder;
    const fs::path path = folder.write("train.bin", "old");
    ids expected;
    const numbered texts{500};
    for (ht::extent i = 0; i < texts.count; ++i) {
        tokenizer.encode(texts[i], {.add_special_tokens = false}, expected);
        expected.push_back(tokenizer.id("<|endoftext|>").value());
    }
    for (const int workers : {0, 1, 5}) {
        for (const auto format : {ht::token_format::llm_c, ht::token_format::nano_gpt}) {
            ht::extent told = 0;
            const auto count = ht::tokenize(tokenizer, texts, path,
                                            {.behind_each = "<|endoftext|>",
                                             .format = format,
                                             .num_workers = workers,
                                             .progress = [&](ht::extent done) { told = done; }});
            CHECK(count == static_cast<ht::extent>(expected.size()));
            CHECK(told == 500);
            const ht::token_file file{path, {.vocabulary = tokenizer.size()}};
            CHECK(file.format() == format);
            CHECK(file.read() == expected);
        }
    }
    const std::string before = contents(path);
    struct failing {
        std::size_t size() const { return 300; }
        std::string operator[](ht::extent i) const { return i == 250 ? throw std::runtime_error("text 250") : "text"; }
    };
    CHECK_THROWS_WITH_AS(ht::tokenize(tokenizer, failing{}, path, {.num_workers = 2}), "text 250", std::runtime_error);
    CHECK_THROWS_AS(ht::tokenize(tokenizer, texts, path, {.behind_each = "<|no|>"}), ht::argument_error);
    for (const int workers : {-1, 1025, std::numeric_limits<int>::max()})
        CHECK_THROWS_AS(ht::tokenize(tokenizer, texts, path, {.num_workers = workers}), ht::argument_error);
    CHECK_THROWS_AS(ht::tokenize(tokenizer, std::vector<std::string>{""}, path), ht::data_error);
    CHECK(contents(path) == before);
    CHECK(std::distance(fs::directory_iterator(path.parent_path()), fs::directory_iterator{}) == 1);

    ht::token_file_writer wide{folder.path() / "wide.bin", 128256};
    wide.write(ids{70000, 1});
    CHECK_THROWS_AS(wide.write(ids{128256}), ht::argument_error);
    CHECK_THROWS_AS((ht::token_file_writer{folder.path() / "w.bin", 128256, ht::token_format::nano_gpt}),
                    ht::argument_error);
    wide.commit();
    const ht::token_file read{folder.path() / "wide.bin", {.vocabulary = 128256}};
    CHECK(read.width() == 4);
    CHECK(read.read() == ids{70000, 1});
}

/// A data set that encodes: what a loader's workers call at once.
struct encoded {
    const ht::tokenizer* tokenizer;
    numbered texts{300};
    ht::extent size() const { return texts.count; }
    ids operator[](ht::extent i) const { return tokenizer->encode(texts[i]); }
};

struct batch {
    ids all;
    batch with_views(const auto&) const { return *this; }
};

TEST_CASE("tokenizer: workers of a loader encode at once, with the same ids") {
    const ht::tokenizer tokenizer = made_of(golden("qwen2")["tokenizer"]);
    ht::cpu device;
    const auto collate = [](std::span<const ids> samples, ht::batch_memory&) {
        batch b;
        for (const ids& sample : samples) b.all.insert(b.all.end(), sample.begin(), sample.end());
        return b;
    };
    std::vector<ids> of_one;
    for (const int workers : {0, 3}) {
        const encoded data{&tokenizer};
        ht::data_loader loader{device, data, {.batch_size = 16, .num_workers = workers, .seed = 1}, collate};
        std::vector<ids> found;
        for (const batch& b : loader) found.push_back(b.all);
        if (workers == 0) of_one = found;
        CHECK(found == of_one);
    }
}

}  // namespace data_tokenizer_tests
