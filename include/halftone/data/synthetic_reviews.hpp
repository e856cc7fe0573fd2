// SPDX-License-Identifier: MIT
/// \file
/// A small folder of labelled texts for examples and tests: invented film reviews, each with more words of praise than
/// of blame, or the other way round.
///
///     ht::write_synthetic_reviews("reviews", {.texts_per_class = 200, .seed = 1});     // reviews/neg/0.txt, ...
///     const ht::labelled_text texts{"reviews"};
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <halftone/data/data_error.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How many texts are written, and how long they are.
struct synthetic_reviews_options {
    extent texts_per_class = 200;
    extent shortest = 8, longest = 40;  ///< words in a text
    std::uint64_t seed = 0;
};

namespace detail {

inline constexpr const char* words_of_praise[] = {"excellent", "moving", "funny", "brilliant", "warm", "wonderful", "fresh", "superb"};
inline constexpr const char* words_of_blame[] = {"dull", "awful", "boring", "clumsy", "cold", "terrible", "stale", "poor"};
inline constexpr const char* other_words[] = {"the", "film", "a", "story", "actor", "scene", "with", "and", "its", "music", "of", "end", "first", "camera", "i", "saw", "was", "plot", "this", "cast"};

/// A text of the class: its length, and of which kind each word is, are functions of seed, class and number.
inline std::string synthetic_review(bool is_praise, extent number, const synthetic_reviews_options& o) {
    constexpr std::uint32_t stream = 0x80000003;  // a Philox tensor number of its own
    const auto random = [&](extent word) {
        return random_block(o.seed, is_praise ? 1 : 0, stream,
                            static_cast<std::uint64_t>(number) << 20 | static_cast<std::uint64_t>(word));
    };
    const extent count = o.shortest + static_cast<extent>(random(0)[0]) % (o.longest - o.shortest + 1);
    std::string text;
    int balance = 0;  // words of praise minus words of blame
    for (extent word = 1; word <= count; ++word) {
        const philox::block r = random(word);
        const char* chosen = other_words[r[1] % std::size(other_words)];
        if (r[0] % 10 < 3) {  // of ten words three have a sentiment, two of them the text's
            const bool praises = (r[2] % 3 != 0) == is_praise;
            chosen = (praises ? words_of_praise : words_of_blame)[r[1] % std::size(words_of_praise)];
            balance += praises ? 1 : -1;
        }
        text += (text.empty() ? "" : " ") + std::string(chosen);
    }
    while ((balance > 0) != is_praise || balance == 0) {
        const philox::block r = random(count + 64 + balance);
        text += std::string(" ") + (is_praise ? words_of_praise : words_of_blame)[r[1] % std::size(words_of_praise)];
        balance += is_praise ? 1 : -1;
    }
    return text + ".\n";
}

}  // namespace detail

/// Writes folder/neg/0.txt, ... and folder/pos/0.txt, ...; the bytes are a function of the options. Throws data_error if
/// the folder exists and is not empty, or cannot be written, and argument_error for options outside their range.
inline void write_synthetic_reviews(const std::filesystem::path& folder, const synthetic_reviews_options& options = {}) {
    namespace fs = std::filesystem;
    if (options.texts_per_class < 1 || options.shortest < 1 || options.longest < options.shortest ||
        options.longest > 100000) {
        fail<argument_error>("synthetic_reviews: ", options.texts_per_class, " texts of ", options.shortest, " to ",
                             options.longest, " words; expected 1 or more of 1 to 100000");
    }
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) fail<data_error>("synthetic_reviews: cannot make ", folder.string(), ": ", failed.message());
    if (!fs::is_empty(folder, failed)) fail<data_error>("synthetic_reviews: ", folder.string(), " is not empty");
    for (const bool is_praise : {false, true}) {
        const fs::path part = folder / (is_praise ? "pos" : "neg");
        fs::create_directory(part, failed);
        if (failed) fail<data_error>("synthetic_reviews: cannot make ", part.string(), ": ", failed.message());
        for (extent i = 0; i < options.texts_per_class; ++i) {
            const fs::path file = part / (std::to_string(i) + ".txt");
            std::ofstream out(file, std::ios::binary);
            out << detail::synthetic_review(is_praise, i, options);
            out.close();
            if (!out) fail<data_error>("synthetic_reviews: cannot write ", file.string());
        }
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
