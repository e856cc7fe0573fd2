// SPDX-License-Identifier: MIT
/// \file
/// Extents of tensors: `shape<Rank>`, outermost axis first (row-major).
///
///     ht::shape<2> s{128, 256};      // 128 rows of 256
///     s.size() == 32768
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// An extent or a stride, in elements.
using extent = std::int64_t;

/// `Rank` extents. It is an aggregate, so that it can be passed to kernels and written as `{rows, columns}`.
template <int Rank>
struct shape {
    static_assert(Rank >= 0, "halftone: a shape's rank is not negative");
    extent extents[Rank == 0 ? 1 : Rank]{};

    HALFTONE_HD constexpr extent operator[](int axis) const { return extents[axis]; }
    HALFTONE_HD constexpr extent& operator[](int axis) { return extents[axis]; }

    /// The number of elements.
    HALFTONE_HD constexpr extent size() const {
        extent n = 1;
        for (int axis = 0; axis < Rank; ++axis) n *= extents[axis];
        return n;
    }

    friend constexpr bool operator==(const shape& a, const shape& b) {
        for (int axis = 0; axis < Rank; ++axis) {
            if (a.extents[axis] != b.extents[axis]) return false;
        }
        return true;
    }

    friend std::ostream& operator<<(std::ostream& out, const shape& s) {
        out << '(';
        for (int axis = 0; axis < Rank; ++axis) out << (axis == 0 ? "" : ", ") << s.extents[axis];
        return out << ')';
    }
};

template <class... Extents>
shape(Extents...) -> shape<sizeof...(Extents)>;

namespace detail {

/// Whether all extents are at least 0 and the product of those that are not 0 is less than 2^59. Then the product of
/// any of them, in bytes of elements of up to 16 bytes, fits into an `extent`. The check computes in double: its
/// rounding error cannot make a too large product pass.
template <int Rank>
constexpr bool is_possible(const shape<Rank>& s) {
    double product = 1;
    extent signs = 0;
    for (int axis = 0; axis < Rank; ++axis) {
        signs |= s[axis];
        product *= static_cast<double>(s[axis] == 0 ? 1 : s[axis]);
    }
    return signs >= 0 && product < 0x1p59;
}

template <int Rank>
[[noreturn]] void refuse_shape(const char* what, const shape<Rank>& s) {
    for (int axis = 0; axis < Rank; ++axis) {
        if (s[axis] < 0) fail<shape_error>(what, ": shape ", s, " has a negative extent");
    }
    fail<shape_error>(what, ": shape ", s, " has more elements than fit in memory");
}

}  // namespace detail

/// Throws shape_error if an extent is negative or the elements do not fit into memory. An extent of 0 does not excuse
/// the others, since strides are products of some of them.
template <int Rank>
constexpr void check_shape(const char* what, const shape<Rank>& s) {
    if (!detail::is_possible(s)) detail::refuse_shape(what, s);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
