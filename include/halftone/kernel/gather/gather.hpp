// SPDX-License-Identifier: MIT
/// \file
/// Elements of a tensor chosen along an axis by an index, and their sums back to where they came from: gather,
/// index_select, scatter_add, index_add.
///
///     ht::gather(device, x, ht::axes<1>, index, y);               // y[i][j] = x[i][index[i][j]]
///     ht::index_select(device, x, ht::axes<0>, rows, y);          // y[i][j] = x[rows[i]][j]
///     ht::scatter_add(device, y, ht::axes<1>, index, x);          // x[i][index[i][j]] += y[i][j]
///     ht::index_add(device, y, ht::axes<0>, rows, x);             // x[rows[i]][j] += y[i][j]
///
/// All of them are one thing: a tensor is rows of a table, a result is rows too, and each row of the result has the number
/// of its row in the table (row_numbers). Choosing rows by number is an embedding, adding them up is its gradient, and both
/// have that operation's kernels (kernel/embedding).
///
/// Numeric contract: what is chosen is copied, and rounded once where the result's type is narrower. What is added to one
/// place is summed in float (in double where one of the types is double), in an order that follows from the index alone (on
/// the CPU: that of the index), added to what was there and rounded once: the same bits at any number of threads, without
/// atomic additions.
#pragma once

#include <cstdint>

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/tensor/axes.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Where the rows of a result lie in a table, as far as it follows from shapes. Axes behind the chosen one along which the
/// index does not change are a row's elements; the others are places.
struct gather_layout {
    static constexpr int most_rank = 8;

    int rank = 0;                       ///< axes of the places
    extent places[most_rank]{};         ///< extents of the result along them
    extent index_strides[most_rank]{};  ///< of the index along them, in elements; 0 where it is the same for all
    extent row_strides[most_rank]{};    ///< of the table along them, in rows; 0 along the chosen axis
    extent along = 1;                   ///< rows of the table from one index to the next
    extent choices = 0;                 ///< extent of the chosen axis: an index is 0 to choices - 1
    extent width = 1;                   ///< elements of a row

    /// Rows of the result.
    HALFTONE_HD constexpr extent rows() const {
        extent n = 1;
        for (int a = 0; a < rank; ++a) n *= places[a];
        return n;
    }
};

/// The layout of a result of shape `places` whose element at p is that of x at p, but for `axis`, where the index says what
/// p is. Along an axis where x or the index has extent 1 and the result more, they are the same for all.
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

/// row_numbers(device, operation, layout, index, numbers): the table's row of each row of the result; forward(device,
/// numbers, table, out): out[r] = table[numbers[r]]; add(device, numbers, from, table, mode): table[numbers[r]] = (or +=) the
/// sum of from[r]. An index outside the axis throws argument_error on the CPU, in row_numbers. Devices whose memory the host
/// does not read make a row of NaN of it, and add nothing.
template <class Device>
struct gather;

}  // namespace kernel

namespace detail {

/// Throws shape_error unless the index has x's extents, or less, but along the axis.
template <int Rank>
void check_gather(const char* operation, const shape<Rank>& x, int axis, const shape<Rank>& index) {
    for (int a = 0; a < Rank; ++a) {
        if (a != axis && index[a] > x[a])
            fail<shape_error>(operation, ": the index is ", index, ", the tensor ", x, "; along axis ", a,
                              " the index is the longer one");
    }
}
/// The shape of what is selected; that of an index for each place along the axis has one element along the others.
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
template <class Device, class X, class Y, int Rank>
void gather_views(Device& device, const char* operation, const kernel::gather_layout& layout,
                  const const_view<std::int32_t, 1>& index, const view<const X, Rank>& x, const view<Y, Rank>& y) {
    with_row_numbers(device, operation, layout, index, [&](const const_view<std::int32_t, 1>& numbers) {
        kernel::gather<Device>::forward(device, numbers, as_table(x, layout.width), as_table(y, layout.width));
    });
}
template <class Device, class X, class Y, int Rank>
void scatter_views(Device& device, const char* operation, const kernel::gather_layout& layout,
                   const const_view<std::int32_t, 1>& index, const view<const X, Rank>& from, const view<Y, Rank>& to,
                   write_mode mode) {
    with_row_numbers(device, operation, layout, index, [&](const const_view<std::int32_t, 1>& numbers) {
        kernel::gather<Device>::add(device, numbers, as_table(from, layout.width), as_table(to, layout.width), mode);
    });
}

}  // namespace detail

/// y[p] = x[p], but for the axis, along which index[p] says where: torch.gather(x, axis, index). x, index and y have one rank,
/// index and y one shape, whose extents are x's at most, but for the axis. All contiguous. Throws shape_error, and where the
/// host can read the index argument_error for one outside the axis; elsewhere its result is NaN.
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
/// y = x's slices along the axis, in the index's order: torch.index_select(x, axis, index). y has x's shape, but for the axis,
/// along which it is as long as the index. Contiguous; throws as gather does.
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
/// to[p] += from[p], but for the axis, along which index[p] says where: x.scatter_add_(axis, index, from) in PyTorch. from
/// and index have one shape, whose extents are those of `to` at most, but for the axis. With write_mode::overwrite `to` is 0
/// before. Contiguous. Throws as gather does; elsewhere an index outside the axis adds nothing. For ht::cuda the program
/// includes <halftone/exec/cuda/sort.cuh>.
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
/// `from` is added to the slices of `to` that the index names: to.index_add_(axis, index, from) in PyTorch. from has the shape
/// of `to`, but for the axis, along which it is as long as the index. Contiguous; mode and errors as of scatter_add.
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
