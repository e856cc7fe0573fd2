// SPDX-License-Identifier: MIT
/// \file
/// The floats of all codes of a number type of a user's own of at most 16 bits: on CPUs its numbers are widened by a look-up,
/// whatever the type's own conversion costs.
///
///     const float* const values = ht::detail::widened_codes<my_float16>();       // values[code], 65,536 of them
#pragma once

#include <cstddef>
#include <cstring>

#include <halftone/number/bits.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <own_number T>
    requires(sizeof(T) <= 2)
struct code_table {
    using code = unsigned_of_size<sizeof(T)>;
    alignas(64) float values[std::size_t{1} << (8 * sizeof(T))];

    code_table() {
        for (std::size_t c = 0; c < sizeof values / sizeof values[0]; ++c) {
            const auto natural = static_cast<code>(c);
            T x;
            std::memcpy(static_cast<void*>(&x), &natural, sizeof x);
            values[c] = static_cast<float>(x);
        }
    }
};

/// Made when it is first asked for, once in a program.
template <own_number T>
const float* widened_codes() {
    static const code_table<T> table;
    return table.values;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
