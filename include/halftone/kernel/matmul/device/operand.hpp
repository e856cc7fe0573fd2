// SPDX-License-Identifier: MIT
/// \file
/// The operands of a product as GPU kernels take them; a and b have the same form, so that one piece of code loads
/// both.
///
///     const auto a = on_device::make_operand(view);                   // (rows, depth)
///     const auto b = on_device::make_operand(ht::transpose(view));    // (columns, depth)
#pragma once

#include <limits>

#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/matmul/device/layout.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Whether every contiguous row (or column) of a matrix is aligned to 16 bytes.
template <class T>
row_access access_to(const T* data, extent leading) {
    return access_of(leading * static_cast<extent>(sizeof(T)), simt::is_aligned(data, 16));
}

template <class T>
struct product_operand {
    global_span<const T> elements;
    extent leading;  // leading dimension, in elements
    int outer, depth;
    along axis;
    row_access access;

    HALFTONE_HD HALFTONE_INLINE int lines() const { return axis == along::depth ? outer : depth; }
    /// The length of a contiguous line.
    HALFTONE_HD HALFTONE_INLINE int length() const { return axis == along::depth ? depth : outer; }
    /// The rest of a line from the given place on; empty outside of the matrix. It is one pointer with one of two
    /// offsets, because with a choice between two pointers nvcc no longer knows that they are global memory and emits
    /// generic loads.
    HALFTONE_HD HALFTONE_INLINE global_span<const T> rest(int at_outer, int at_depth) const {
        const bool by_depth = axis == along::depth;
        const int line = by_depth ? at_outer : at_depth, first = by_depth ? at_depth : at_outer;
        const bool is_there = line < lines() && first < length();
        return elements.part(is_there ? line * leading + first : 0, is_there ? length() - first : 0);
    }
};

/// The operand for another matrix of a batch, at this distance in elements.
template <class T>
HALFTONE_HD HALFTONE_INLINE product_operand<T> offset_by(product_operand<T> o, extent by) {
    o.elements.data += by;
    return o;
}

/// A view (outer, depth), at least one axis of which is contiguous, as an operand. Throws argument_error for an extent
/// that kernels' indices cannot count.
template <class T>
product_operand<std::remove_const_t<T>> make_operand(const view<T, 2>& v) {
    const extent outer = v.extent_of(0), depth = v.extent_of(1);
    constexpr extent most = std::numeric_limits<int>::max() / 2;  // kernels' indices may exceed the extent by a tile
    if (outer > most || depth > most)
        fail<argument_error>("matmul: an operand of ", v.shape(), " has an extent above ", most);
    const operand_lines lines = lines_of(v.shape(), v.strides());
    return {{v.data(), simt::bounding_span_of(v).count},
            lines.leading,
            static_cast<int>(outer),
            static_cast<int>(depth),
            lines.axis,
            access_to(v.data(), lines.leading)};
}

template <int N, class T>
struct load_some_part {
    global_span<const T> from;
    row_access access;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<float, N> operator()(Simt simt) const {
        if (access == row_access::chunks && from.count >= N) return load_floats<N>(simt, from, 0);
        vec<float, N> values{};
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            if (e < from.count) values[e] = detail::in_float(simt.load(from, e));
        }
        return values;
    }
};
/// The next N elements unconverted, with zeros beyond the span's end.
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<T, N> load_as_they_are(Simt simt, const global_span<const T>& from, row_access access) {
    if (access == row_access::chunks && from.count >= N) return simt.load(simt::as_vectors<N>(from), 0);
    vec<T, N> values{};
    if (from.count >= N) {  // one test for the common case
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) values[e] = simt.load(from, e);
    } else {
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            if (e < from.count) values[e] = simt.load(from, e);
        }
    }
    return values;
}
/// The next N elements as floats, with zeros beyond the span's end.
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<float, N> load_some(Simt simt, const global_span<const T>& from, row_access access) {
    return run_part(simt, load_some_part<N, T>{from, access});
}

template <int N, class T>
struct store_some_part {
    global_span<T> to;
    row_access access;
    const vec<float, N>& values;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void operator()(Simt simt) const {
        if (access == row_access::chunks && to.count >= N) return store_rounded<N>(simt, to, 0, values);
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            if (e < to.count) simt.store(to, e, T(values[e]));
        }
    }
};
/// Rounds to T and stores the elements within the span.
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE void store_some(Simt simt, const global_span<T>& to, row_access access,
                                            const vec<float, N>& values) {
    run_part(simt, store_some_part<N, T>{to, access, values});
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
