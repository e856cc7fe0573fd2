// SPDX-License-Identifier: MIT
/// \file
/// Initial values of a parameter: a constant, or random values around it.
///
///     {}  {.mean = 1}  {.deviation = 0.02f}  {.bound = 0.1f}         zeros, ones, normal, uniform in (-0.1, 0.1)
///
/// Numeric contract: element i of tensor t depends only on (seed, t, i) and is rounded once.
#pragma once

#include <cstddef>
#include <cstdint>

#include <halftone/error.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/normal.hpp>
#include <halftone/number/philox.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A constant, or random values around it, normally or uniformly distributed.
struct initial {
    float mean = 0.0f;
    float deviation = 0.0f;  ///< standard deviation of a normal distribution
    float bound = 0.0f;      ///< half the width of a uniform distribution, mean - bound to mean + bound
};

namespace detail {

/// Throws argument_error, naming the parameter, for values that are not finite or contradict each other.
void check_initial(const char* leaf, const initial& values);

/// Writes elements [first, first + count) of a parameter's initial values to host memory; `first` is a multiple of 4.
template <class Param>
void fill_initial(const initial& values, std::byte* target, std::size_t first, std::size_t count, std::uint64_t seed,
                  std::uint32_t tensor) {
    static_assert(sizeof(Param) <= sizeof(double));
    auto* to = reinterpret_cast<Param*>(target);
    if (values.deviation == 0.0f && values.bound == 0.0f) {
        for (std::size_t i = 0; i < count; ++i) to[i] = Param(values.mean);
        return;
    }
    for (std::size_t i = 0; i < count; i += 4) {
        const philox::block words = random_block(seed, 0, tensor, (first + i) / 4);
        const normal_pair a = normal(words[0], words[1]), b = normal(words[2], words[3]);
        const float four[4] = {a.first, a.second, b.first, b.second};
        for (std::size_t j = 0; j < 4 && i + j < count; ++j) {
            const float drawn = values.deviation != 0.0f
                                    ? values.deviation * four[j]
                                    : values.bound * (2 * uniform(words[static_cast<unsigned>(j)]) - 1);
            to[i + j] = Param(values.mean + drawn);
        }
    }
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/initial.body.hpp>
#endif
