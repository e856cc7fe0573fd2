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
#include <type_traits>

#include <halftone/exec/workspace.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A tag of a type, whose address tells types apart.
template <class T>
inline constexpr char type_tag = 0;

/// The elements of a view, without their type: `data`, their bytes, and the view's extents and strides, which have to outlive it.
/// `name` and `index` are those of the argument, as "input" and 1; -1 for a name without one.
struct named_elements {
    const char* name;
    int index;
    const void* data;
    std::size_t bytes;
    const char* type;
    int rank;
    const extent* extents;
    const extent* strides;
};
template <class T, int Rank>
named_elements elements_of(const char* name, const view<T, Rank>& v, int index = -1) {
    return {name,
            index,
            v.data(),
            sizeof(T),
            &type_tag<std::remove_const_t<T>>,
            Rank,
            v.shape().extents,
            v.strides().extents};
}

/// Throws shape_error if both have memory in common; columns of a matrix have none with other ones. Two views with gaps between
/// their elements at unlike distances pass if that takes more than 4,096 comparisons.
void expect_apart(const char* operation, const named_elements& read, const named_elements& written);

/// Throws shape_error if both have memory in common, except if each element is read where it is written: `read` is broadcast to
/// `written` as NumPy does. Extents that do not fit pass: the operation refuses them.
void expect_apart_or_same(const char* operation, const named_elements& read, const named_elements& written);

/// Throws shape_error if views, or what has one, have memory in common, in a call on a device. Calls that are measured
/// (exec/measure.hpp) pass: their views need no memory.
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

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/overlap.body.hpp>
#endif
