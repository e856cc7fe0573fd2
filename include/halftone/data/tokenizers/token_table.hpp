// SPDX-License-Identifier: MIT
/// \file
/// From bytes to a token's id: a hash table that many threads may ask.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Well mixed bits of two numbers.
inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
    __extension__ using wide = unsigned __int128;
    const wide product = static_cast<wide>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD1B54A32D192ED03u);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}
inline std::uint64_t hash_of(std::string_view bytes) {
    std::uint64_t hash = bytes.size(), word = 0;
    const char* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        std::memcpy(&word, at, 8);
        hash = mixed(hash, word);
    }
    word = 0;
    if (left >= 4) {
        std::uint32_t first, last;
        std::memcpy(&first, at, 4);
        std::memcpy(&last, at + left - 4, 4);
        word = std::uint64_t{first} << 32 | last;
    } else if (left != 0) {
        word = static_cast<std::uint64_t>(static_cast<unsigned char>(at[0])) << 16 |
               static_cast<std::uint64_t>(static_cast<unsigned char>(at[left / 2])) << 8 |
               static_cast<unsigned char>(at[left - 1]);
    }
    return mixed(hash, word);
}

class token_table {
  public:
    static constexpr std::int32_t none = -1;

    /// An empty table for this many texts.
    explicit token_table(std::size_t count) : slots_(std::bit_ceil(2 * count + 2)) {}

    /// Adds a text that is not there yet, of less than 4 GB with all others.
    void add(std::string_view text, std::int32_t id) {
        const std::uint64_t hash = hash_of(text);
        std::size_t at = hash & (slots_.size() - 1);
        while (slots_[at].id != none) at = (at + 1) & (slots_.size() - 1);
        slots_[at] = {static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(text.size()), id,
                      static_cast<std::uint32_t>(hash >> 32)};
        bytes_ += text;
        if (text.size() > longest_) longest_ = text.size();
    }
    std::int32_t find(std::string_view text) const {
        if (text.size() > longest_) return none;
        const std::uint64_t hash = hash_of(text);
        for (std::size_t at = hash & (slots_.size() - 1); slots_[at].id != none; at = (at + 1) & (slots_.size() - 1)) {
            const slot& s = slots_[at];
            if (s.hash == static_cast<std::uint32_t>(hash >> 32) && s.size == text.size() &&
                std::memcmp(bytes_.data() + s.first, text.data(), text.size()) == 0) {
                return s.id;
            }
        }
        return none;
    }
    /// Bytes of the longest text.
    std::size_t longest() const { return longest_; }

  private:
    struct slot {
        std::uint32_t first = 0, size = 0;
        std::int32_t id = none;
        std::uint32_t hash = 0;
    };
    std::vector<slot> slots_;
    std::string bytes_;
    std::size_t longest_ = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
