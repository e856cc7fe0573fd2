// SPDX-License-Identifier: MIT
/// \file
/// A random order of the rows of an epoch, computed one position at a time.
///
///     const ht::shuffled_order order{rows, seed, epoch};
///     order[0], order[1], ..., order[rows - 1]                            // each row once; a function of these three numbers
///
/// It stores nothing, so any thread of any rank can compute its own positions, and a run that continues computes the
/// remaining ones. A Feistel network (Luby and Rackoff 1988) of eight rounds of Philox permutes the numbers below the
/// next power of two; a result that is not below `rows` is permuted again until it is (Black and Rogaway, "Ciphers with
/// arbitrary finite domains", 2002), less than twice on average.
#pragma once

#include <bit>
#include <cstdint>

#include <halftone/error.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A permutation of the numbers 0 to rows - 1 that is a function of rows, seed and epoch.
class shuffled_order {
  public:
    /// Throws argument_error for a negative number of rows.
    shuffled_order(extent rows, std::uint64_t seed, std::uint32_t epoch)
        : rows_(static_cast<std::uint64_t>(rows)), seed_(seed), epoch_(epoch) {
        if (rows < 0) fail<argument_error>("shuffled_order: ", rows, " rows; expected 0 or more");
        const int bits = rows < 2 ? 0 : static_cast<int>(std::bit_width(rows_ - 1));
        low_bits_ = bits / 2, high_bits_ = bits - low_bits_;
    }

    extent size() const { return static_cast<extent>(rows_); }

    /// The row at a position, which is 0 to size() - 1.
    extent operator[](extent position) const {
        std::uint64_t x = static_cast<std::uint64_t>(position);
        do {
            x = permuted(x);
        } while (x >= rows_);
        return static_cast<extent>(x);
    }

  private:
    /// Philox's tensor number for orders; data's is 0x80000000.
    static constexpr std::uint32_t stream = 0x80000002;
    static constexpr std::uint32_t rounds = 8;

    /// The halves of x have low_bits_ and high_bits_ bits; each round changes one half by a function of the other.
    std::uint64_t permuted(std::uint64_t x) const {
        const std::uint64_t low_mask = (std::uint64_t{1} << low_bits_) - 1, high_mask = (std::uint64_t{1} << high_bits_) - 1;
        std::uint64_t low = x & low_mask, high = x >> low_bits_;
        for (std::uint32_t round = 0; round < rounds; round += 2) {
            high ^= mixed(low, round) & high_mask;
            low ^= mixed(high, round + 1) & low_mask;
        }
        return high << low_bits_ | low;
    }
    std::uint64_t mixed(std::uint64_t half, std::uint32_t round) const {
        // A half has at most 32 bits; the round stands above them.
        return random_block(seed_, epoch_, stream, half | std::uint64_t{round} << 40)[0];
    }

    std::uint64_t rows_, seed_;
    std::uint32_t epoch_;
    int low_bits_ = 0, high_bits_ = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
