// SPDX-License-Identifier: MIT
/// \file
/// The layout of a tensor of any rank for a reduction along some of its axes: the axes that are kept and those that are
/// reduced. Adjacent axes of the same kind are merged if their strides allow it.
///
///     const auto l = kernel::axis_layout_of(x, ht::axes<0, 2>);    // x: (4, 5, 6): kept (5), reduced (4, 6)
///     x.data()[l.output_offset(o) + l.reduced_offset(r)]           // element r of those that are reduced to output o
#pragma once

#include <halftone/kernel/common/strided/axes.hpp>
#include <halftone/tensor/axes.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Elements with a constant stride.
struct axis_run {
    extent count = 1, stride = 1;
};

/// The axes of a reduction. Both lists have at least one run and are in row-major order. Outputs are enumerated along
/// `kept`, the elements that are reduced to one output along `reduced`.
struct axis_layout {
    axis_run kept[most_axes], reduced[most_axes];
    int kept_count = 0, reduced_count = 0;
    extent outputs = 1, reduced_size = 1;

    HALFTONE_HD constexpr axis_run last_kept() const { return kept[kept_count - 1]; }
    HALFTONE_HD constexpr axis_run last_reduced() const { return reduced[reduced_count - 1]; }
    /// The offset of an output's first element.
    HALFTONE_HD constexpr extent output_offset(extent output) const { return offset(kept, kept_count, output); }
    /// The offset of one of an output's elements from its first.
    HALFTONE_HD constexpr extent reduced_offset(extent index) const { return offset(reduced, reduced_count, index); }
    /// Whether adjacent outputs have adjacent elements, so that a vector holds elements of several outputs.
    HALFTONE_HD constexpr bool is_columns() const { return last_kept().count > 1 && last_kept().stride == 1; }
    /// The number of outputs with adjacent elements.
    HALFTONE_HD constexpr extent inner() const { return is_columns() ? last_kept().count : 1; }

  private:
    HALFTONE_HD static constexpr extent offset(const axis_run* runs, int count, extent index) {
        extent at = 0;
        for (int i = count - 1; i > 0; --i) {
            at += index % runs[i].count * runs[i].stride;
            index /= runs[i].count;
        }
        return at + index * runs[0].stride;
    }
};

namespace axis_layouts {

// Two axes are merged if the stride of the first is the second's stride times extent, even if the shape has other axes
// between them.
constexpr void add(axis_run* runs, int& count, const axis_run& next) {
    if (count > 0 && runs[count - 1].stride == next.stride * next.count) {
        runs[count - 1] = {runs[count - 1].count * next.count, next.stride};
    } else {
        runs[count++] = next;
    }
}

}  // namespace axis_layouts

/// The layout of a view whose axes marked in `is_reduced` are reduced.
template <int Rank>
constexpr axis_layout make_axis_layout(const shape<Rank>& s, const shape<Rank>& strides, const bool* is_reduced) {
    static_assert(Rank <= most_axes, "halftone: a reduction along axes takes tensors of rank 8 at most");
    axis_layout l;
    for (int axis = 0; axis < Rank; ++axis) {
        (is_reduced[axis] ? l.reduced_size : l.outputs) *= s[axis];
        if (s[axis] == 1) continue;
        const axis_run next{s[axis], strides[axis]};
        if (is_reduced[axis]) {
            axis_layouts::add(l.reduced, l.reduced_count, next);
        } else {
            axis_layouts::add(l.kept, l.kept_count, next);
        }
    }
    if (l.kept_count == 0) l.kept_count = 1;
    if (l.reduced_count == 0) l.reduced_count = 1;
    return l;
}

/// The layout of a view that is reduced along the axes of a list.
template <class T, int Rank, int... Axes>
constexpr axis_layout axis_layout_of(const view<T, Rank>& v, axis_list<Axes...>) {
    using resolved = detail::resolved_axes<Rank, Axes...>;
    bool is_reduced[Rank + 1] = {};
    for (int axis = 0; axis < Rank; ++axis) is_reduced[axis] = resolved::contains(axis);
    return make_axis_layout(v.shape(), v.strides(), is_reduced);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
