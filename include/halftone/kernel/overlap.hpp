// SPDX-License-Identifier: MIT
/// \file
/// Views that are read while others are written to: a function of views refuses those in the same memory, except where it works
/// in place. PyTorch refuses them too, where it can tell.
///
///     map: input 1 (4) is in the memory of output 0 (3, 4), which is written to while it is read; copy it first
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <halftone/exec/workspace.hpp>
#include <halftone/tensor/view.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The elements of a view, without their type: `data`, their bytes, and the view's extents and strides, which it has to outlive.
/// `name` and `index` are those of the argument, as "input" and 1; -1 for a name without one.
struct named_elements {
    const char* name;
    int index;
    const void* data;
    std::size_t bytes;
    int rank;
    const extent* extents;
    const extent* strides;
};
template <class T, int Rank>
named_elements elements_of(const char* name, const view<T, Rank>& v, int index = -1) {
    return {name, index, v.data(), sizeof(T), Rank, v.shape().extents, v.strides().extents};
}

/// Throws shape_error if both have memory in common, as far as their first and last addresses tell: not where both have gaps, as
/// columns of a matrix have, in which the elements of the other may be.
void expect_apart(const char* operation, const named_elements& read, const named_elements& written);

/// The same, except if each element is read where it is written: `read` is broadcast to `written` as NumPy does. Extents that do
/// not fit pass: the operation refuses them.
void expect_apart_or_same(const char* operation, const named_elements& read, const named_elements& written);

/// The same for views, or what has one, in a call on a device. Calls that are measured (exec/measure.hpp) pass: their views need
/// no memory.
template <class Device, class Read, class Written>
void expect_apart(Device& device, const char* operation, const char* read, const Read& x, const char* written,
                  const Written& y) {
    if (device.scratch().is_measuring()) return;
    expect_apart(operation, elements_of(read, as_view(x)), elements_of(written, as_view(y)));
}
template <class Device, class Read, class Written>
void expect_apart_or_same(Device& device, const char* operation, const char* read, const Read& x, const char* written,
                          const Written& y) {
    if (device.scratch().is_measuring()) return;
    expect_apart_or_same(operation, elements_of(read, as_view(x)), elements_of(written, as_view(y)));
}

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

/// The addresses of a view's elements, from the first byte to the one behind the last; empty for a view without elements or data.
/// It is dense if every byte in between is one of an element.
struct address_span {
    explicit address_span(const named_elements& v) {
        extent before = 0, between = 0, count = 1;
        for (int axis = 0; axis < v.rank; ++axis) {
            if (v.extents[axis] == 0) return;
            const extent stride = v.strides[axis] < 0 ? -v.strides[axis] : v.strides[axis];
            if (v.strides[axis] < 0) before += (v.extents[axis] - 1) * stride;
            between += (v.extents[axis] - 1) * stride;
            if (stride != 0) count *= v.extents[axis];
        }
        if (v.data == nullptr) return;
        first = reinterpret_cast<std::uintptr_t>(v.data) - static_cast<std::uintptr_t>(before) * v.bytes;
        end = first + static_cast<std::uintptr_t>(between + 1) * v.bytes;
        is_dense = count == between + 1;
    }

    bool contains(std::uintptr_t address) const { return first <= address && address < end; }
    bool has_an_end_of(const address_span& other) const {
        return is_dense && (contains(other.first) || contains(other.end - 1));
    }

    std::uintptr_t first = 0, end = 0;
    bool is_dense = false;
};

inline bool share_memory(const address_span& a, const address_span& b) {
    if (a.end <= b.first || b.end <= a.first) return false;
    return (a.is_dense && b.is_dense) || a.has_an_end_of(b) || b.has_an_end_of(a);
}

inline std::string shape_text(const named_elements& v) {
    std::string text = "(";
    for (int axis = 0; axis < v.rank; ++axis) text += sentence(axis > 0 ? ", " : "", v.extents[axis]);
    return text + ')';
}
inline std::string text_of(const named_elements& v) {
    return v.index < 0 ? sentence(v.name, ' ', shape_text(v)) : sentence(v.name, ' ', v.index, ' ', shape_text(v));
}

inline void expect_apart(const char* operation, const named_elements& read, const named_elements& written) {
    if (share_memory(address_span(read), address_span(written))) {
        fail<shape_error>(operation, ": ", text_of(read), " is in the memory of ", text_of(written),
                          ", which is written to while it is read; copy it first");
    }
}

inline void expect_apart_or_same(const char* operation, const named_elements& read, const named_elements& written) {
    if (read.rank > written.rank) return;
    bool same = read.data == written.data && read.bytes == written.bytes;
    for (int axis = 1; axis <= written.rank; ++axis) {
        const int of_read = read.rank - axis, of_written = written.rank - axis;
        if (of_read >= 0 && read.extents[of_read] != written.extents[of_written]) return;
        const extent stride = of_read >= 0 ? read.strides[of_read] : 0;
        same = same && (written.extents[of_written] == 1 || stride == written.strides[of_written]);
    }
    if (!same) expect_apart(operation, read, written);
}

#endif

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
