// SPDX-License-Identifier: MIT
/// \file
/// Reproducible test data of any element type.
///
///     support::random data{1};                                    // one seed for each test case
///     auto x = data.normals<ht::bfloat16>(rows * width);
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <halftone/number/normal.hpp>
#include <halftone/number/philox.hpp>

namespace support {

class random {
  public:
    explicit random(std::uint64_t seed) : seed_(seed) {}

    std::uint32_t bits() { return halftone::random_bits(seed_, 0, 0, next_++); }
    double uniform(double low, double high) { return low + (high - low) * (bits() * 0x1p-32); }
    double normal() {
        const std::uint32_t a = bits(), b = bits();
        return static_cast<double>(halftone::normal(a, b).first);
    }
    /// A random integer from 0 to count - 1.
    int below(int count) {
        return static_cast<int>(static_cast<std::uint64_t>(bits()) * static_cast<std::uint64_t>(count) >> 32);
    }

    template <class T>
    std::vector<T> normals(std::int64_t count, double deviation = 1, double mean = 0) {
        std::vector<T> values(static_cast<std::size_t>(count));
        for (T& value : values) value = static_cast<T>(static_cast<float>(mean + deviation * normal()));
        return values;
    }

    /// Integers of magnitude at most `most`: sums and products of a few thousand of them are exact in any order.
    template <class T>
    std::vector<T> integers(std::int64_t count, int most) {
        std::vector<T> values(static_cast<std::size_t>(count));
        for (T& value : values) value = static_cast<T>(static_cast<float>(below(2 * most + 1) - most));
        return values;
    }

    std::vector<std::int32_t> indices(std::int64_t count, int bound) {
        std::vector<std::int32_t> values(static_cast<std::size_t>(count));
        for (std::int32_t& value : values) value = below(bound);
        return values;
    }

  private:
    std::uint64_t seed_, next_ = 0;
};

}  // namespace support
