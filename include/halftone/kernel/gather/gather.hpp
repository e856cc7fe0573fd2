// SPDX-License-Identifier: MIT
/// \file
/// Operations that choose elements of a tensor along an axis by an index, or add elements at indexed positions: gather,
/// index_select, scatter_add, index_add.
///
///     ht::gather(device, x, ht::axes<1>, index, y);               // y[i][j] = x[i][index[i][j]]
///     ht::index_select(device, x, ht::axes<0>, rows, y);          // y[i][j] = x[rows[i]][j]
///     ht::scatter_add(device, y, ht::axes<1>, index, x);          // x[i][index[i][j]] += y[i][j]
///     ht::index_add(device, y, ht::axes<0>, rows, x);             // x[rows[i]][j] += y[i][j]
///
/// All of them are computed in the same way. The tensor is seen as rows of a table, and so is the result; row_numbers
/// computes for each row of the result the number of its row in the table. Choosing rows by number is an embedding, and
/// adding rows by number is an embedding's gradient, so that the kernels of kernel/embedding do the rest. On the CPU
/// single elements are chosen without row numbers (rows/elements.hpp).
///
/// Numeric contract: chosen elements are copied, and rounded once if the result's type is narrower. Elements added at
/// the same position are summed in float (in double if one of the types is double), in an order that depends only on
/// the index (on the CPU: the order of the index); the sum is added to the previous value and rounded once. The bits
/// are the same at any number of threads; there are no atomic additions.
#pragma once

#include <cstdint>

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/tensor/axes.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The positions of a result's rows in a table, as far as they follow from shapes. The trailing axes behind the chosen
/// axis along which the index does not change are merged into a row's elements; the other axes enumerate the rows.
struct gather_layout {
    static constexpr int most_rank = 8;

    int rank = 0;                       ///< number of axes that enumerate rows
    extent places[most_rank]{};         ///< extents of the result along them
    extent index_strides[most_rank]{};  ///< of the index along them, in elements; 0 if it does not change
    extent row_strides[most_rank]{};    ///< of the table along them, in rows; 0 along the chosen axis
    extent along = 1;                   ///< rows of the table between consecutive indices
    extent choices = 0;                 ///< extent of the chosen axis: an index is 0 to choices - 1
    extent width = 1;                   ///< elements of a row

    /// The number of rows of the result.
    HALFTONE_HD constexpr extent rows() const {
        extent n = 1;
        for (int a = 0; a < rank; ++a) n *= places[a];
        return n;
    }
};

/// The layout of a result of shape `places`: its element at p is the element of x at p, with the index as position
/// along `axis`. An x or an index of extent 1 along another axis is broadcast.
template <int Rank>
gather_layout gather_layout_of(const shape<Rank>& x, int axis, const shape<Rank>& index, const shape<Rank>& places) {
    static_assert(Rank <= gather_layout::most_rank, "halftone: tensors that are chosen from have eight axes at most");
    gather_layout layout;
    layout.rank = Rank;
    while (layout.rank > axis + 1 && index[layout.rank - 1] == 1 && x[layout.rank - 1] == places[layout.rank - 1])
        layout.width *= x[--layout.rank];
    extent row_step = 1, index_step = 1;
    for (int a = layout.rank - 1; a >= 0; --a) {
        layout.places[a] = places[a];
        layout.index_strides[a] = index[a] == 1 ? 0 : index_step;
        layout.row_strides[a] = a == axis || x[a] == 1 ? 0 : row_step;
        if (a == axis) layout.along = row_step, layout.choices = x[a];
        row_step *= x[a], index_step *= index[a];
    }
    constexpr extent most = 2147483647;
    if (row_step > most || layout.rows() > most)
        fail<shape_error>("gather: ", x, " chosen from at ", places, " places has more than 2^31 - 1 rows");
    return layout;
}

/// row_numbers(device, operation, layout, index, numbers): the table's row for each row of the result. forward(device,
/// numbers, table, out): out[r] = table[numbers[r]]. add(device, numbers, from, table, mode): table[numbers[r]] = (or
/// +=) the sum of from[r]. On the CPU row_numbers throws argument_error for the first index outside the axis; and
/// elements(device, operation, layout, index, table, out) is row_numbers and forward in one pass, for rows of one
/// element. Devices whose memory the host cannot read give a row of NaN for such an index, and add nothing.
template <class Device>
struct gather;

}  // namespace kernel

namespace detail {

/// Throws shape_error unless the index's extents are at most x's, apart from the axis.
template <int Rank>
void check_gather(const char* operation, const shape<Rank>& x, int axis, const shape<Rank>& index) {
    for (int a = 0; a < Rank; ++a) {
        if (a != axis && index[a] > x[a])
            fail<shape_error>(operation, ": the index is ", index, ", the tensor ", x, "; along axis ", a,
                              " the index is the longer one");
    }
}
/// The shape of the result of index_select; and a shape with extent 1 along all axes but one.
template <int Rank>
shape<Rank> selected_shape(shape<Rank> x, int axis, extent count) {
    x[axis] = count;
    return x;
}
template <int Rank>
shape<Rank> along_only(int axis, extent count) {
    shape<Rank> s{};
    for (int a = 0; a < Rank; ++a) s[a] = a == axis ? count : 1;
    return s;
}

/// A contiguous tensor as rows of `width` elements.
template <class T, int Rank>
view<T, 2> as_table(const view<T, Rank>& v, extent width) {
    return {v.data(), {width == 0 ? 0 : v.size() / width, width}};
}

/// Calls run(numbers) with the row numbers of a layout, in scratch memory.
template <class Device, class Run>
void with_row_numbers(Device& device, const char* operation, const kernel::gather_layout& layout,
                      const const_view<std::int32_t, 1>& index, const Run& run) {
    const extent rows = layout.rows();
    const workspace::lease memory(device.scratch(), static_cast<std::size_t>(rows) * sizeof(std::int32_t));
    const view<std::int32_t, 1> numbers(memory.as<std::int32_t>(), {rows});
    kernel::gather<Device>::row_numbers(device, operation, layout, index, numbers);
    run(const_view<std::int32_t, 1>(numbers));
}
/// Whether a device copies single elements without row numbers.
template <class Device, class X>
concept copies_elements = requires(Device& device, const kernel::gather_layout& layout,
                                   const const_view<std::int32_t, 1>& index, const X* x, X* y) {
    kernel::gather<Device>::elements(device, "", layout, index, x, y);
};

template <class Device, class X, class Y, int Rank>
void gather_views(Device& device, const char* operation, const kernel::gather_layout& layout,
                  const const_view<std::int32_t, 1>& index, const view<const X, Rank>& x, const view<Y, Rank>& y) {
    expect_apart(device, operation, "x", x, "y", y);
    if constexpr (std::is_same_v<X, Y> && copies_elements<Device, X>) {
        if (layout.width == 1)
            return kernel::gather<Device>::elements(device, operation, layout, index, x.data(), y.data());
    }
    with_row_numbers(device, operation, layout, index, [&](const const_view<std::int32_t, 1>& numbers) {
        kernel::gather<Device>::forward(device, numbers, as_table(x, layout.width), as_table(y, layout.width));
    });
}
template <class Device, class X, class Y, int Rank>
void scatter_views(Device& device, const char* operation, const kernel::gather_layout& layout,
                   const const_view<std::int32_t, 1>& index, const view<const X, Rank>& from, const view<Y, Rank>& to,
                   write_mode mode) {
    expect_apart(device, operation, "from", from, "to", to);
    with_row_numbers(device, operation, layout, index, [&](const const_view<std::int32_t, 1>& numbers) {
        kernel::gather<Device>::add(device, numbers, as_table(from, layout.width), as_table(to, layout.width), mode);
    });
}

}  // namespace detail

/// torch.gather(x, axis, index): y[p] = x[p'], where p' is p with index[p] as its position along the axis. x, index and
/// y have the same rank; index and y have the same shape, whose extents apart from the axis are at most x's. All are
/// contiguous. Throws shape_error, and argument_error for the first index outside the axis if the host can read it (what
/// is in y is then unspecified); otherwise its result is NaN.
template <class Device, class X, int Axis, class Y, int Rank>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void gather(Device& device, const X& x, axis_list<Axis> along, const view<const std::int32_t, Rank>& index, const Y& y) {
    const const_view<detail::element_in<X>, Rank> from = as_view(x);
    const view<detail::element_in<Y>, Rank> to = as_view(y);
    const int axis = detail::only_axis<Rank>(along);
    kernel::expect("gather", "x", from, from.shape());
    kernel::expect("gather", "y", to, index.shape());
    detail::check_gather("gather", from.shape(), axis, index.shape());
    detail::gather_views(device, "gather", kernel::gather_layout_of(from.shape(), axis, index.shape(), index.shape()),
                         flatten(index), from, to);
}
/// torch.index_select(x, axis, index): y is the slices of x along the axis whose numbers the index has, in its order. y
/// has x's shape, except along the axis, where it is as long as the index. All are contiguous. Throws as gather does.
template <class Device, class X, int Axis, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void index_select(Device& device, const X& x, axis_list<Axis> along, const const_view<std::int32_t, 1>& index,
                  const Y& y) {
    constexpr int rank = detail::view_of<X>::rank;
    const const_view<detail::element_in<X>, rank> from = as_view(x);
    const view<detail::element_in<Y>, rank> to = as_view(y);
    const int axis = detail::only_axis<rank>(along);
    const shape<rank> selected = detail::selected_shape(from.shape(), axis, index.size());
    kernel::expect("index_select", "x", from, from.shape());
    kernel::expect("index_select", "y", to, selected);
    detail::gather_views(
        device, "index_select",
        kernel::gather_layout_of(from.shape(), axis, detail::along_only<rank>(axis, index.size()), selected), flatten(index),
        from, to);
}
/// to.scatter_add_(axis, index, from) in PyTorch: to[p'] += from[p], where p' is p with index[p] as its position along
/// the axis. from and index have the same shape, whose extents apart from the axis are at most those of `to`. With
/// write_mode::overwrite `to` is set to 0 first. All are contiguous. Throws as gather does; an index outside the axis
/// that the host cannot read adds nothing. For ht::cuda the program includes <halftone/exec/cuda/sort.cuh>.
template <class Device, class X, int Axis, class Y, int Rank>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void scatter_add(Device& device, const X& from, axis_list<Axis> along, const view<const std::int32_t, Rank>& index,
                 const Y& to, write_mode mode = write_mode::add) {
    const const_view<detail::element_in<X>, Rank> source = as_view(from);
    const view<detail::element_in<Y>, Rank> sums = as_view(to);
    const int axis = detail::only_axis<Rank>(along);
    kernel::expect("scatter_add", "from", source, index.shape());
    kernel::expect("scatter_add", "to", sums, sums.shape());
    detail::check_gather("scatter_add", sums.shape(), axis, index.shape());
    detail::scatter_views(device, "scatter_add",
                          kernel::gather_layout_of(sums.shape(), axis, index.shape(), index.shape()), flatten(index),
                          source, sums, mode);
}
/// to.index_add_(axis, index, from) in PyTorch: adds the slices of `from` to the slices of `to` whose numbers the index
/// has. from has the shape of `to`, except along the axis, where it is as long as the index. All are contiguous. Mode
/// and errors as for scatter_add.
template <class Device, class X, int Axis, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void index_add(Device& device, const X& from, axis_list<Axis> along, const const_view<std::int32_t, 1>& index,
               const Y& to, write_mode mode = write_mode::add) {
    constexpr int rank = detail::view_of<X>::rank;
    const const_view<detail::element_in<X>, rank> source = as_view(from);
    const view<detail::element_in<Y>, rank> sums = as_view(to);
    const int axis = detail::only_axis<rank>(along);
    const shape<rank> selected = detail::selected_shape(sums.shape(), axis, index.size());
    kernel::expect("index_add", "from", source, selected);
    kernel::expect("index_add", "to", sums, sums.shape());
    detail::scatter_views(
        device, "index_add",
        kernel::gather_layout_of(sums.shape(), axis, detail::along_only<rank>(axis, index.size()), selected), flatten(index),
        source, sums, mode);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
