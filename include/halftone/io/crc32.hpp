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
/// eight bytes at a time (Kounavis and Berry 2008). On x86-64 processors with PCLMULQDQ, which multiplies polynomials,
/// long pieces are first reduced to 16 bytes with the same remainder (Gopal et al. 2009), about ten times as fast.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <halftone/config.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

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

/// The product of two polynomials modulo that of the sum; the highest bits are the lowest powers.
constexpr std::uint32_t crc32_times(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (std::uint32_t bit = std::uint32_t{1} << 31; bit != 0; bit >>= 1) {
        if ((a & bit) != 0) product ^= b;
        b = (b >> 1) ^ ((b & 1) != 0 ? 0xedb88320u : 0u);
    }
    return product;
}
/// x^n.
constexpr std::uint32_t crc32_power(std::uint64_t n) {
    std::uint32_t power = std::uint32_t{1} << 31, square = std::uint32_t{1} << 30;
    for (; n != 0; n >>= 1, square = crc32_times(square, square)) {
        if ((n & 1) != 0) power = crc32_times(power, square);
    }
    return power;
}
/// The checksum of two pieces of a file, out of those of each and the length of the second.
constexpr std::uint32_t crc32_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
    return crc32_times(crc32_power(8 * second_bytes), first) ^ second;
}

#if defined(__x86_64__) && defined(__GNUC__)

/// 16 bytes of a message.
using crc32_block = long long __attribute__((vector_size(16)));

inline crc32_block crc32_load(const unsigned char* at) {
    crc32_block block;
    std::memcpy(&block, at, sizeof block);
    return block;
}
/// `block` moved towards higher powers by as many bits as `powers` is for, and added to `to`.
inline crc32_block crc32_fold(crc32_block block, crc32_block powers, crc32_block to) {
    crc32_block high = block;
    __asm__("pclmulqdq $0x00, %1, %0" : "+x"(block) : "x"(powers));
    __asm__("pclmulqdq $0x11, %1, %0" : "+x"(high) : "x"(powers));
    return block ^ high ^ to;
}
/// Reduces a running sum and 64 n bytes, n > 0, to 16 bytes, whose sum, begun at 0, is that of all.
inline void crc32_reduce(std::uint32_t sum, const unsigned char* at, std::size_t count, unsigned char* to) {
    // Times x, since the product of two numbers whose highest bits are the lowest powers lacks one.
    constexpr auto power = [](int n) { return static_cast<long long>(std::uint64_t{crc32_power(static_cast<std::uint64_t>(n))} << 1); };
    constexpr crc32_block by_512{power(512 + 32), power(512 - 32)}, by_128{power(128 + 32), power(128 - 32)};
    crc32_block a = crc32_load(at), b = crc32_load(at + 16), c = crc32_load(at + 32), d = crc32_load(at + 48);
    a ^= crc32_block{static_cast<long long>(sum), 0};
    for (std::size_t i = 64; i < count; i += 64) {
        a = crc32_fold(a, by_512, crc32_load(at + i)), b = crc32_fold(b, by_512, crc32_load(at + i + 16));
        c = crc32_fold(c, by_512, crc32_load(at + i + 32)), d = crc32_fold(d, by_512, crc32_load(at + i + 48));
    }
    d = crc32_fold(crc32_fold(crc32_fold(a, by_128, b), by_128, c), by_128, d);
    std::memcpy(to, &d, sizeof d);
}
inline bool multiplies_polynomials() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_PCLMUL) != 0;
}
#endif

/// A running CRC-32.
class crc32 {
  public:
    void add(const void* bytes, std::size_t count) {
        const auto* at = static_cast<const unsigned char*>(bytes);
#if defined(__x86_64__) && defined(__GNUC__)
        if (count >= 256 && folds_) {
            unsigned char rest[16];
            const std::size_t whole = count / 64 * 64;
            crc32_reduce(sum_, at, whole, rest);
            sum_ = by_tables(0, rest, sizeof rest);
            at += whole, count -= whole;
        }
#endif
        sum_ = by_tables(sum_, at, count);
    }
    std::uint32_t value() const { return ~sum_; }

    static std::uint32_t by_tables(std::uint32_t sum, const unsigned char* at, std::size_t count) {
        const auto& t = crc32_of_byte;
        for (; count >= 8; count -= 8, at += 8) {
            const std::uint32_t low = word(at) ^ sum, high = word(at + 4);
            sum = t[7][low & 255] ^ t[6][(low >> 8) & 255] ^ t[5][(low >> 16) & 255] ^ t[4][low >> 24] ^
                  t[3][high & 255] ^ t[2][(high >> 8) & 255] ^ t[1][(high >> 16) & 255] ^ t[0][high >> 24];
        }
        for (; count > 0; --count, ++at) sum = (sum >> 8) ^ t[0][(sum ^ *at) & 255];
        return sum;
    }

  private:
    static std::uint32_t word(const unsigned char* at) {
        return static_cast<std::uint32_t>(at[0]) | static_cast<std::uint32_t>(at[1]) << 8 |
               static_cast<std::uint32_t>(at[2]) << 16 | static_cast<std::uint32_t>(at[3]) << 24;
    }

    std::uint32_t sum_ = ~std::uint32_t{0};
#if defined(__x86_64__) && defined(__GNUC__)
    bool folds_ = multiplies_polynomials();  // asked once: a virtual machine takes microseconds to answer
#endif
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
