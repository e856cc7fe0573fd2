// SPDX-License-Identifier: MIT
/// \file
/// How definitions (an operation's kernel/*/reference.hpp) read and write one row: numbers are read by x(j), as
/// doubles, and written by y(j, value). So the same text serves as the kernel in double, which loads and stores in
/// another way.
///
///     softmax_row(width, read_row(x, i), scale, write_row(y, i));
#pragma once

#include <halftone/exec/simt/memory.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// A function that gives element j of a vector in double.
template <class T>
auto read_row(const view<T, 1>& v) {
    return [v](extent j) { return static_cast<double>(v(j)); };
}
/// A function that gives element j of a row in double.
template <class T>
auto read_row(const view<T, 2>& v, extent row) {
    return [v, row](extent j) { return static_cast<double>(v(row, j)); };
}
/// A function that stores a double as element j of a row, rounded to its type.
template <class T>
auto write_row(const view<T, 2>& v, extent row) {
    return [v, row](extent j, double value) { v(row, j) = static_cast<T>(value); };
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
