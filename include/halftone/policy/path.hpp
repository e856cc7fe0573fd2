// SPDX-License-Identifier: MIT
/// \file
/// A layer's path in its model, as part of its type: "h.0.attn.qkv".
///
///     template <class P>
///     struct block { ht::nn::layer_norm<ht::at<P, "norm">> norm; };      // one level below the path of P
///     static_assert(ht::path_of<ht::at<ht::at<ht::amp_bf16, "h">, "norm">> == ht::path_name("h.norm"));
///     static_assert(ht::path_matches("*.norm", "h.0.norm"));
///
/// A path holds at most 63 characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A path that can be a template argument. It holds eight 64-bit words and not an array of characters, because nvcc
/// 13.0 prints and mangles scalar members correctly and array members not. (nvcc also misprints a path that is a
/// template argument of a kernel itself: give kernels at<> instead.)
struct path_name {
    // Public, because the members of a template argument's type must be; read them by text().
    std::uint64_t w0 = 0, w1 = 0, w2 = 0, w3 = 0, w4 = 0, w5 = 0, w6 = 0, w7 = 0;

    /// The characters, zero-terminated.
    struct characters {
        char data[65]{};
    };

    constexpr path_name() = default;
    constexpr path_name(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d, std::uint64_t e,
                        std::uint64_t f, std::uint64_t g, std::uint64_t h)
        : w0(a), w1(b), w2(c), w3(d), w4(e), w5(f), w6(g), w7(h) {}

    /// From a string literal; implicit, so that one writes at<P, "norm">.
    template <std::size_t N>
    constexpr path_name(const char (&literal)[N]) {
        static_assert(N <= 64, "halftone: a path holds at most 63 characters; shorten the names of the layers");
        characters text{};
        for (std::size_t i = 0; i < N && i < 64; ++i) text.data[i] = literal[i];
        *this = from(text);
    }

    /// The path with these characters.
    static constexpr path_name from(const characters& text) {
        std::uint64_t w[8]{};
        for (std::size_t i = 0; i < 64; ++i)
            w[i / 8] |= std::uint64_t{static_cast<unsigned char>(text.data[i])} << (8 * (i % 8));
        return {w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]};
    }

    /// The characters of the path.
    constexpr characters text() const {
        const std::uint64_t w[8]{w0, w1, w2, w3, w4, w5, w6, w7};
        characters text{};
        for (std::size_t i = 0; i < 64; ++i) text.data[i] = static_cast<char>(w[i / 8] >> (8 * (i % 8)) & 0xff);
        return text;
    }

    constexpr std::size_t size() const {
        const characters spelled = text();
        std::size_t n = 0;
        while (spelled.data[n] != 0) ++n;
        return n;
    }
    constexpr bool empty() const { return w0 == 0; }

    friend constexpr bool operator==(const path_name&, const path_name&) = default;
};

namespace detail {

// The length of join's result, with the dot between both parts.
constexpr std::size_t joined_size(const path_name& above, const path_name& name) {
    return above.size() + name.size() + (above.empty() || name.empty() ? 0 : 1);
}

}  // namespace detail

/// "h" and "norm" give "h.norm"; an empty part adds nothing. A result longer than 63 characters does not compile.
consteval path_name join(const path_name& above, const path_name& name) {
    if (above.empty()) return name;
    if (name.empty()) return above;
    if (detail::joined_size(above, name) > 63) throw "halftone: a path holds at most 63 characters";
    path_name::characters joined = above.text();
    const path_name::characters below = name.text();
    std::size_t n = above.size();
    joined.data[n++] = '.';
    for (std::size_t i = 0; below.data[i] != 0; ++i) joined.data[n++] = below.data[i];
    return path_name::from(joined);
}

namespace detail {

/// The name of layer `index` of a list; -1 means "last".
constexpr path_name index_name(int index) {
    if (index < 0) return path_name("last");
    path_name::characters text{};
    std::size_t digits = 1;
    for (int rest = index; rest >= 10; rest /= 10) ++digits;
    for (std::size_t i = digits; i > 0; index /= 10) text.data[--i] = static_cast<char>('0' + index % 10);
    return path_name::from(text);
}

enum class glob_extent { whole, subtree };

// Matches '*' greedily from the left and backtracks to the last '*' only. That suffices, because each earlier '*'
// already took the shortest run that fits.
constexpr bool glob(const char* pattern, const char* path, glob_extent what) {
    const char* after_star = nullptr;
    const char* resume = nullptr;
    for (;;) {
        if (*pattern == '*') {
            after_star = ++pattern;
            resume = path;
        } else if (*pattern == 0 && (*path == 0 || (*path == '.' && what == glob_extent::subtree))) {
            return true;
        } else if (*pattern != 0 && *pattern == *path) {
            ++pattern;
            ++path;
        } else if (after_star != nullptr && *resume != 0) {
            pattern = after_star;
            path = ++resume;
        } else {
            return false;
        }
    }
}

constexpr bool matches(const char* pattern, const char* path, glob_extent what) {
    if (glob(pattern, path, what)) return true;
    return pattern[0] == '*' && pattern[1] == '.' && glob(pattern + 2, path, what);
}

}  // namespace detail

/// Whether a rule for `pattern` applies at `path`. '*' stands for any run of characters, dots included. A pattern also
/// applies to everything below the layer that it names, and a leading "*." also matches at the top level: "*.norm"
/// matches "norm".
constexpr bool path_matches(const char* pattern, const char* path) {
    return detail::matches(pattern, path, detail::glob_extent::subtree);
}
constexpr bool path_matches(const path_name& pattern, const path_name& path) {
    return path_matches(pattern.text().data, path.text().data);
}

/// The policy P, one level further down: what a layer passes to its child called Name. It is a class template and not
/// an alias because nvcc 13.0 prints aliases with path arguments wrongly.
template <class P, path_name Name>
struct at {
    using parent = P;
};

namespace detail {

template <class P>
struct place {
    using root = P;
    static constexpr path_name path{};
};
template <class P, path_name Name>
struct place<at<P, Name>> {
    using root = typename place<P>::root;
    static constexpr bool fits = joined_size(place<P>::path, Name) <= 63;
    static_assert(fits, "halftone: a path holds at most 63 characters; shorten the names of the layers on the way");
    static constexpr path_name path = join(fits ? place<P>::path : path_name{}, Name);
};

}  // namespace detail

/// The path of at<at<P, "h">, "norm">, which is "h.norm"; empty for a plain policy.
template <class P>
inline constexpr path_name path_of = detail::place<P>::path;

/// The policy or recipe inside all levels of at<>.
template <class P>
using root_of = typename detail::place<P>::root;

/// A path as a compiler's message shows it, character by character.
template <char... Character>
struct path_text {};

namespace detail {

template <class Place, class Indices>
struct spell;
template <class Place, std::size_t... I>
struct spell<Place, std::index_sequence<I...>> {
    using type = path_text<Place::path.text().data[I]...>;
};

/// The path of P, spelled in characters, as a type that is readable in a compiler's message.
template <class P>
using spelled_path = typename spell<place<P>, std::make_index_sequence<path_of<P>.size()>>::type;

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
