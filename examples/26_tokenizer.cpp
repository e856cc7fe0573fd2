// SPDX-License-Identifier: MIT
/// \file
/// Lesson 26: a tokenizer.
///
/// A language model reads the ids of tokens. Were each word a token, new words would have none; were each byte one, texts
/// would be long. Byte pair encoding begins with the 256 bytes and makes the most frequent pair of neighbours a token of
/// its own, again and again: frequent words become one token, rare ones several, and no text is without. The tokens of
/// GPT-2, Llama 3 and Qwen are made so, 50,000 to 150,000 of them; here 40 are. Written to a tokenizer.json, as those
/// models have one, and read by ht::tokenizer, they give the same ids.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/data/tokenizer.hpp>

namespace ht = halftone;
using ids = std::vector<std::int32_t>;
using pair = std::pair<std::int32_t, std::int32_t>;

/// The pieces that merges do not cross: a text's words, each with the blank in front of it. A byte's id is its value.
std::vector<ids> split(const std::string& text) {
    std::vector<ids> pieces;
    for (const char c : text) {
        if (c == ' ' || pieces.empty()) pieces.emplace_back();
        pieces.back().push_back(static_cast<unsigned char>(c));
    }
    return pieces;
}

/// Makes two neighbours one token wherever they stand in a piece, from left to right.
void merge(ids& piece, pair neighbours, std::size_t token) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < piece.size(); ++i) {
        const bool found = i + 1 < piece.size() && pair(piece[i], piece[i + 1]) == neighbours;
        piece[kept++] = found ? static_cast<std::int32_t>(token) : piece[i];
        if (found) ++i;
    }
    piece.resize(kept);
}

struct byte_pairs {
    std::vector<std::string> tokens;  // the bytes of each id
    std::vector<pair> merges;         // in the order in which they were learned: the one of rank r makes token 256 + r

    /// Repeats the merges of the training in their order. Real tokenizers look up which pairs of a piece have a rank, and
    /// merge the lowest first: the same, because the merges of a token come after the one that makes it.
    ids encode(const std::string& text) const {
        ids all;
        for (ids& piece : split(text)) {
            for (std::size_t rank = 0; rank < merges.size(); ++rank) merge(piece, merges[rank], 256 + rank);
            all.insert(all.end(), piece.begin(), piece.end());
        }
        return all;
    }
    std::string decode(const ids& all) const {
        std::string text;
        for (const std::int32_t id : all) text += tokens[id];
        return text;
    }
};

/// Learns tokens from a text until there are `size`.
byte_pairs train(const std::string& text, std::size_t size) {
    byte_pairs result;
    for (int byte = 0; byte < 256; ++byte) result.tokens.emplace_back(1, static_cast<char>(byte));
    std::vector<ids> pieces = split(text);
    while (result.tokens.size() < size) {
        std::map<pair, int> counts;
        for (const ids& piece : pieces) {
            for (std::size_t i = 1; i < piece.size(); ++i) ++counts[{piece[i - 1], piece[i]}];
        }
        std::pair<pair, int> most_frequent{};  // of several, the one with the lowest ids
        for (const auto& candidate : counts) {
            if (candidate.second > most_frequent.second) most_frequent = candidate;
        }
        const auto& [neighbours, count] = most_frequent;
        if (count < 2) break;  // no pair occurs twice
        const std::string first = result.tokens[neighbours.first], second = result.tokens[neighbours.second];
        if (result.merges.size() < 3) std::printf("%d times '%s' + '%s'\n", count, first.c_str(), second.c_str());
        for (ids& piece : pieces) merge(piece, neighbours, result.tokens.size());
        result.merges.push_back(neighbours);
        result.tokens.push_back(first + second);
    }
    return result;
}

/// The text of a tokenizer.json, where bytes are characters: those of Latin-1 if they are visible there, others if not.
std::string tokenizer_json(const byte_pairs& trained) {
    const auto spelt = [&](std::size_t id) {
        std::string text;  // in UTF-8, one or two bytes for each character
        for (const unsigned char b : trained.tokens[id]) {
            const int c = b <= 0x20 ? 0x100 + b : b >= 0x7f && b <= 0xa0 ? 0x121 + b - 0x7f : b == 0xad ? 0x143 : b;
            if (c >= 0x80) text += static_cast<char>(0xc0 | c >> 6);
            text += static_cast<char>(c < 0x80 ? c : 0x80 | (c & 0x3f));
        }
        return text;
    };
    nlohmann::json file, vocab, merges;
    for (std::size_t id = 0; id < trained.tokens.size(); ++id) vocab[spelt(id)] = id;
    for (const auto& [first, second] : trained.merges) merges.push_back({spelt(first), spelt(second)});
    const nlohmann::json bytes{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
    const nlohmann::json words{
        {"type", "Split"}, {"pattern", {{"Regex", " [^ ]*|[^ ]+"}}}, {"behavior", "Isolated"}, {"invert", false}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {words, bytes}}};
    file["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}};
    file["decoder"] = bytes;
    return file.dump();
}

int main() {
    const std::string text =
        "the old house is older than the new house, and the new wall is lower than the old wall. the low wall is the "
        "widest and the newest of the walls, the house by the old road is the newest of the houses, and the low road "
        "is the widest of the roads";
    const byte_pairs trained = train(text, 256 + 40);
    std::printf("%zu bytes, %zu tokens\n", text.size(), trained.encode(text).size());
    // Prints: 17 times 't' + 'h'
    // Prints: 16 times ' ' + 'th'
    // Prints: 14 times ' th' + 'e'
    // Prints: 242 bytes, 65 tokens

    // The training has not seen the words oldest and lowest. é is two bytes, 195 and 169, and no token.
    const std::string unseen = "At the oldest café is the lowest wall";
    const ids encoded = trained.encode(unseen);
    for (const std::int32_t id : encoded) std::printf("%d ", id);
    // Prints: 65 116 258 271 273 32 99 97 102 195 169 264 258 286 273 276

    const ht::tokenizer read = ht::tokenizer::from_json("tokenizer.json", tokenizer_json(trained));
    const bool same = read.encode(unseen) == encoded && read.encode(text) == trained.encode(text);
    const bool back = read.decode(encoded) == unseen && trained.decode(encoded) == unseen;
    std::printf("\nht::tokenizer: %s ids; decoded: %s\n", same ? "the same" : "[other]", back ? "the text" : "[other]");
    // Prints: ht::tokenizer: the same ids; decoded: the text

    // Token by token, as a model writes: the first half of é is no text, and waits for the second.
    ht::decode_stream stream{read};
    for (const std::int32_t id : encoded) std::printf("%s|", stream(id).c_str());
    std::printf("%s\n", stream.finish().c_str());
    // Prints: A|t| the| old|est| |c|a|f||é| is| the| low|est| wall|
}
