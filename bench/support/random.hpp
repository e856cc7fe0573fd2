// SPDX-License-Identifier: MIT
/// \file
/// Operands of benchmarks: random, since zeros and repeated numbers take a processor less power.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include <halftone/tensor/shape.hpp>

namespace bench {

/// n numbers, normally distributed around zero.
template <class T>
std::vector<T> random_values(halftone::extent n, unsigned seed, float deviation = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> some(4096);
    for (float& x : some) x = normal(engine);
    std::vector<T> values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(some[(i * 40503u + (i >> 12)) % some.size()]);
    return values;
}

/// n numbers from 0 to count - 1.
inline std::vector<std::int32_t> random_classes(halftone::extent n, halftone::extent count, unsigned seed) {
    std::mt19937 engine(seed);
    std::vector<std::int32_t> values(static_cast<std::size_t>(n));
    for (std::int32_t& x : values) x = static_cast<std::int32_t>(engine() % static_cast<std::uint32_t>(count));
    return values;
}

}  // namespace bench
