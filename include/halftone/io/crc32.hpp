// SPDX-License-Identifier: MIT
/// \file
/// The checksum of checkpoints: CRC-32, as zlib's crc32() and Python's zlib.crc32 compute it, so that other programs can
/// check a checkpoint, while halftone stays a library of headers that links to nothing.
///
///     detail::crc32 sum;
///     sum.add(bytes, count);
///     sum.value();                              // 0xcbf43926 for "123456789"
///
/// It detects every change of up to 4 bytes in a row, and any other with a probability of 1 - 2^-32. Eight tables handle
/// eight bytes at a time (Kounavis and Berry 2008).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

using crc32_tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr crc32_tables make_crc32_tables() {
    crc32_tables t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320u : 0u);
        t[0][i] = value;
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t i = 0; i < 256; ++i) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 255];
    }
    return t;
}
inline constexpr crc32_tables crc32_of_byte = make_crc32_tables();

/// A running CRC-32.
class crc32 {
  public:
    void add(const void* bytes, std::size_t count) {
        const auto* at = static_cast<const unsigned char*>(bytes);
        std::uint32_t sum = sum_;
        const auto& t = crc32_of_byte;
        for (; count >= 8; count -= 8, at += 8) {
            const std::uint32_t low = word(at) ^ sum, high = word(at + 4);
            sum = t[7][low & 255] ^ t[6][(low >> 8) & 255] ^ t[5][(low >> 16) & 255] ^ t[4][low >> 24] ^
                  t[3][high & 255] ^ t[2][(high >> 8) & 255] ^ t[1][(high >> 16) & 255] ^ t[0][high >> 24];
        }
        for (; count > 0; --count, ++at) sum = (sum >> 8) ^ t[0][(sum ^ *at) & 255];
        sum_ = sum;
    }
    std::uint32_t value() const { return ~sum_; }

  private:
    static std::uint32_t word(const unsigned char* at) {
        return static_cast<std::uint32_t>(at[0]) | static_cast<std::uint32_t>(at[1]) << 8 |
               static_cast<std::uint32_t>(at[2]) << 16 | static_cast<std::uint32_t>(at[3]) << 24;
    }

    std::uint32_t sum_ = ~std::uint32_t{0};
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
