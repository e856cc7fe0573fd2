// SPDX-License-Identifier: MIT
/// \file
/// Runs the fuzz targets without a fuzzer: over the seeds, and over changes of them that are the same in every run.
/// tests/fuzz/run.sh does so under sanitizers, and with a fuzzer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "fuzz/targets.hpp"

namespace io_fuzz_tests {

std::vector<std::string> seeds_in(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> paths;
    for (const auto& e : std::filesystem::directory_iterator(folder)) paths.push_back(e.path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> seeds;
    for (const auto& path : paths) {
        std::ifstream in(path, std::ios::binary);
        seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return seeds;
}

/// One to eight changes: bits, bytes, digits, cuts, repeated and moved pieces, pieces of another seed.
std::string changed(std::string text, const std::vector<std::string>& seeds, std::mt19937& random) {
    const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
    static constexpr const char* pieces[]{"-1", "0", "18446744073709551615", "9223372036854775808", "1e999", "null", "[]", "{}", "\"\"",
                                          "\xff", "\\u0000", "[[[[[[[[[[", "4294967296", "true", ",", "\"dtype\":\"F32\","};
    for (std::size_t n = 1 + below(1 + below(8)); n > 0; --n) {
        const std::size_t at = below(text.size() + 1), count = below(1 + std::min<std::size_t>(64, text.size() - at));
        switch (below(8)) {
            case 0: if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8))); break;
            case 1: if (at < text.size()) text[at] = static_cast<char>(below(256)); break;
            case 2: text.erase(at, count); break;
            case 3: text.insert(at, text.substr(at, count)); break;
            case 4: text.insert(at, pieces[below(std::size(pieces))]); break;
            case 5: text.resize(at); break;
            case 6: {
                const std::string& other = seeds[below(seeds.size())];
                const std::size_t from = below(other.size() + 1);
                text.replace(at, count, other.substr(from, below(64)));
                break;
            }
            default: {
                const auto digit = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), [](char c) { return c >= '0' && c <= '9'; });
                if (digit != text.end()) *digit = static_cast<char>('0' + below(10));
            }
        }
    }
    return text;
}

TEST_CASE("readers of files take any bytes, and throw nothing but ht::error") {
    for (const fuzz::target& t : fuzz::all) {
        CAPTURE(t.name);
        const auto seeds = seeds_in(std::filesystem::path(HALFTONE_TEST_DATA) / ".." / "fuzz" / "seeds" / t.name);
        REQUIRE(seeds.size() > 2);
        std::mt19937 random(1);
        long taken = 0;
        const auto run = [&](const std::string& text) {
            const std::vector<std::uint8_t> exact(text.begin(), text.end());  // so that a sanitizer sees reads beyond the end
            try {
                t.run(exact.data(), exact.size());
                ++taken;
            } catch (const fuzz::ht::error&) {
            }
        };
        for (const std::string& seed : seeds) run(seed);
        CHECK(taken > 0);
        CHECK(taken < static_cast<long>(seeds.size()));
        for (std::size_t i = 0; i < 4000; ++i) run(changed(seeds[i % seeds.size()], seeds, random));
        CHECK(taken > 10);  // changes that leave a file valid: the rest of a reader is reached, too
    }
}

}  // namespace io_fuzz_tests
