// SPDX-License-Identifier: MIT
/// \file
/// Paths: the words they are made of, joining, patterns, and at<>.
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/policy/path.hpp>

namespace policy_path_tests {

namespace ht = halftone;
using ht::path_name;

std::string str(const path_name& path) { return path.text().data; }

// The definition of `glob`.
bool matches_by_definition(const char* pattern, const char* path) {
    if (*pattern == 0) return *path == 0 || *path == '.';
    if (*pattern == '*') {
        for (;; ++path) {
            if (matches_by_definition(pattern + 1, path)) return true;
            if (*path == 0) return false;
        }
    }
    return *path != 0 && *pattern == *path && matches_by_definition(pattern + 1, path + 1);
}

std::vector<std::string> words(const char* alphabet, std::size_t longest) {
    std::vector<std::string> all{""};
    for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i].size() < longest)
            for (const char* c = alphabet; *c != 0; ++c) all.push_back(all[i] + *c);
    return all;
}

struct some_policy {};

static_assert(path_name("norm").size() == 4 && path_name("").size() == 0 && path_name().empty());
static_assert(path_name("norm") == path_name("norm") && path_name("norm") != path_name("nor"));
static_assert(ht::join("h", "norm") == path_name("h.norm"));
static_assert(ht::join("", "norm") == path_name("norm") && ht::join("norm", "") == path_name("norm"));
static_assert(ht::detail::index_name(0) == path_name("0") && ht::detail::index_name(-1) == path_name("last"));
static_assert(ht::detail::index_name(10) == path_name("10") && ht::detail::index_name(2147483647) == path_name("2147483647"));

using deep = ht::at<ht::at<ht::at<some_policy, "h">, "*">, "norm">;
static_assert(ht::path_of<deep> == path_name("h.*.norm"));
static_assert(std::is_same_v<ht::root_of<deep>, some_policy>);
static_assert(std::is_same_v<deep::parent, ht::at<ht::at<some_policy, "h">, "*">>);
static_assert(ht::path_of<some_policy>.empty() && std::is_same_v<ht::root_of<some_policy>, some_policy>);
static_assert(ht::path_of<ht::at<ht::at<some_policy, "">, "x">> == path_name("x"));
static_assert(std::is_same_v<ht::detail::spelled_path<ht::at<ht::at<some_policy, "h">, "0">>, ht::path_text<'h', '.', '0'>>);

static_assert(ht::path_matches("head", "head") && ht::path_matches("head", "head.bias"));
static_assert(!ht::path_matches("head", "heads") && !ht::path_matches("head", "h.head"));
static_assert(ht::path_matches("*.norm", "norm") && ht::path_matches("*.norm", "h.0.norm"));
static_assert(ht::path_matches("*.norm", "h.*.norm.weight") && !ht::path_matches("*.norm", "prenorm"));
static_assert(!ht::path_matches("*.norm", "h.*.normal"));
static_assert(ht::path_matches("h.1", "h.1.attn") && !ht::path_matches("h.1", "h.10") &&
              !ht::path_matches("h.1", "h.*"));
static_assert(ht::path_matches("h.*.attn", "h.*.attn.qkv") && ht::path_matches("h.*.attn", "h.0.attn"));
static_assert(ht::path_matches("*", "") && ht::path_matches("*", "anything.at.all"));
static_assert(ht::path_matches(path_name("*.norm"), ht::path_of<deep>));

TEST_CASE("a path of 63 characters keeps them all") {
    constexpr path_name longest("123456789.123456789.123456789.123456789.123456789.123456789.123");
    static_assert(longest.size() == 63);
    CHECK(str(longest) == "123456789.123456789.123456789.123456789.123456789.123456789.123");
    constexpr path_name half("1234567890123456789012345678901");
    static_assert(ht::join(half, half).size() == 63);
    CHECK(str(ht::path_of<ht::at<ht::at<some_policy, half>, half>>) == str(half) + "." + str(half));
}

TEST_CASE("bytes above 127 survive the words") {
    constexpr path_name greek("\xce\xb1.\xff");
    CHECK(std::strcmp(greek.text().data, "\xce\xb1.\xff") == 0);
}

TEST_CASE("patterns match as defined, on all short patterns and paths") {
    int matched = 0;
    for (const std::string& pattern : words("ab.*", 5)) {
        for (const std::string& path : words("a.*", 4)) {
            const bool expected =
                matches_by_definition(pattern.c_str(), path.c_str()) ||
                (pattern.starts_with("*.") && matches_by_definition(pattern.c_str() + 2, path.c_str()));
            if (ht::path_matches(pattern.c_str(), path.c_str()) != expected) FAIL(pattern, " on ", path);
            matched += expected;
        }
    }
    CHECK(matched > 1000);
}

TEST_CASE("many stars do not take exponential time") {
    std::string pattern, path(2000, 'a');
    for (int i = 0; i < 200; ++i) pattern += "*a";
    CHECK(ht::path_matches(pattern.c_str(), path.c_str()));
    CHECK_FALSE(ht::path_matches((pattern + "b").c_str(), path.c_str()));
}

}  // namespace policy_path_tests
