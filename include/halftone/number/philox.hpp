// SPDX-License-Identifier: MIT
/// \file
/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random numbers
/// without a state. Each number is a function of a counter and a key, so any thread on any device can compute exactly
/// the
/// numbers it needs, in any order, and compute them again later (a dropout mask in the backward pass, say).
///
///     std::uint32_t r = ht::random_bits(seed, step, tensor, index);     // the same on the host and on a GPU
///     bool keep = ht::uniform(r) >= dropout;
#pragma once

#include <cstdint>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The generator: maps a counter of 128 bits and a key of 64 bits to 128 random bits.
struct philox {
    /// 128 bits: a counter, or the random bits computed from it.
    struct block {
        std::uint32_t word[4];

        HALFTONE_HD constexpr std::uint32_t operator[](unsigned i) const { return word[i]; }
        friend HALFTONE_HD constexpr bool operator==(const block& a, const block& b) {
            return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
        }
    };

    /// 64 bits that select one stream of random numbers.
    struct key {
        std::uint32_t word[2];
    };

    /// The random bits of one counter under one key, in ten rounds.
    HALFTONE_HD static constexpr block generate(block counter, key k) {
        block x = counter;
        for (int round = 0; round < 10; ++round) {
            const std::uint64_t a = std::uint64_t{0xd2511f53} * x.word[0];
            const std::uint64_t b = std::uint64_t{0xcd9e8d57} * x.word[2];
            x = {{high(b) ^ x.word[1] ^ k.word[0], low(b), high(a) ^ x.word[3] ^ k.word[1], low(a)}};
            k.word[0] += 0x9e3779b9;  // the golden ratio
            k.word[1] += 0xbb67ae85;  // sqrt(3) - 1
        }
        return x;
    }

  private:
    HALFTONE_HD static constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
    HALFTONE_HD static constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
};

/// Four words at once: random_bits of the indices 4 * block to 4 * block + 3. `block` is below 2^62.
HALFTONE_HD constexpr philox::block random_block(std::uint64_t seed, std::uint32_t step, std::uint32_t tensor,
                                                 std::uint64_t block) {
    const philox::block counter{
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), tensor, step}};
    return philox::generate(counter, {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}});
}

/// 32 random bits for element `index` of tensor number `tensor` in step `step` of the run with that seed.
HALFTONE_HD constexpr std::uint32_t random_bits(std::uint64_t seed, std::uint32_t step, std::uint32_t tensor,
                                                std::uint64_t index) {
    return random_block(seed, step, tensor, index / 4)[static_cast<unsigned>(index % 4)];
}

/// 32 random bits as a float in [0, 1): one of the 2^24 multiples of 2^-24.
HALFTONE_HD constexpr float uniform(std::uint32_t random) { return static_cast<float>(random >> 8) * 0x1p-24f; }

}  // namespace HALFTONE_ABI
}  // namespace halftone
