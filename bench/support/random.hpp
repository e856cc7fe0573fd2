// SPDX-License-Identifier: MIT
/// \file
/// Operands for benchmarks: random, because zeros and repeated numbers take a processor less power; and aligned to
/// cache lines, as tensors of halftone, PyTorch and oneDNN are.
#pragma once

#include <cstdint>
#include <new>
#include <random>
#include <vector>

#include <halftone/tensor/shape.hpp>

namespace bench {

template <class T>
struct line_allocator {
    using value_type = T;
    static constexpr std::align_val_t line{64};

    line_allocator() = default;
    template <class U>
    line_allocator(const line_allocator<U>&) {}
    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), line)); }
    void deallocate(T* p, std::size_t) { ::operator delete(p, line); }
    friend bool operator==(const line_allocator&, const line_allocator&) { return true; }
};
template <class T>
using values = std::vector<T, line_allocator<T>>;

/// n numbers, normally distributed around zero.
template <class T>
values<T> random_values(halftone::extent n, unsigned seed, float deviation = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> some(4096);
    for (float& x : some) x = normal(engine);
    values<T> all(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = T(some[(i * 40503u + (i >> 12)) % some.size()]);
    return all;
}

/// n numbers from 0 to count - 1.
inline std::vector<std::int32_t> random_classes(halftone::extent n, halftone::extent count, unsigned seed) {
    std::mt19937 engine(seed);
    std::vector<std::int32_t> values(static_cast<std::size_t>(n));
    for (std::int32_t& x : values) x = static_cast<std::int32_t>(engine() % static_cast<std::uint32_t>(count));
    return values;
}

}  // namespace bench
