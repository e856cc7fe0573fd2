// SPDX-License-Identifier: MIT
/// \file
/// Operations that permute axes, take parts of a tensor, and add or remove axes; torch's names and arguments, with axes as
/// ht::axes<...> where torch has `dim`.
///
///     auto heads = ht::transpose(ctx, x, ht::axes<1, 2>);     // (batch, time, heads, size) -> (batch, heads, time, size)
///     auto [q, k, v] = ht::chunk<3>(ctx, qkv, ht::axes<-1>);
///     auto last = ht::select(ctx, x, ht::axes<1>, -1);                  // x[:, -1]
///     auto row = ht::unsqueeze(ctx, x, ht::axes<0>);                    // the same memory, as squeeze, flatten, reshape
///     auto all = ht::expand(ctx, row, ht::shape<3>{8, -1, -1});
///
/// Variables are contiguous, so that an operation that changes the order of elements or takes a part of them makes a
/// copy. No copy is needed in products, whose operands may be ht::transposed (autodiff/op/matmul.hpp), and in pointwise
/// operations, which broadcast automatically.
///
/// Results have the type of their input in every region. Numeric contract: values are copied; the gradient of expand is
/// the sum over the broadcast axes, as kernel::column_sum computes it.
#pragma once

#include <algorithm>
#include <array>
#include <tuple>

#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/linear_map.hpp>
#include <halftone/kernel/strided_copy/strided_copy.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The positions of one tensor's elements in the memory of another tensor, which is contiguous.
template <int Rank>
struct placement {
    extent offset;
    halftone::shape<Rank> shape, strides;
    bool covers;  ///< whether each element of the other tensor is one of them

    template <class T, int From>
    static placement of(const view<T, Rank>& part, const view<T, From>& all) {
        return {part.data() - all.data(), part.shape(), part.strides(), part.size() == all.size()};
    }
    template <class T>
    view<T, Rank> in(T* data) const {
        return {data + offset, shape, strides};
    }
};

/// to = (or +=, by `mode`) from; both may have any strides.
template <class Device, class From, class T, int Rank>
void write_strided(Device& device, const view<From, Rank>& from, const view<T, Rank>& to, write_mode mode) {
    if (mode == write_mode::overwrite) return kernel::strided_copy<Device>::run(device, from, to);
    kernel::map<Device>::template run<kernel::map_layout::any>(
        device, make_pack(symbolic::argument<0>{} + symbolic::argument<1>{}), make_pack(to),
        make_pack(as_const(to), as_const(from)));
}
/// The part of a tensor of `size` elements at `data` that `at` describes = (or +=, by `mode`) from; elements outside of
/// the part are set to 0 if it is overwritten.
template <class Device, class From, class T, int Rank>
void write_part(Device& device, const view<From, Rank>& from, const placement<Rank>& at, T* data, extent size,
                write_mode mode) {
    if (mode == write_mode::overwrite && !at.covers) device.fill(data, size, T(0.0f));
    write_strided(device, from, at.in(data), mode);
}

template <class Op, int Rank>
struct put_part;
struct summed_over;

/// The elements of x at the positions `at`: x in another order, or a part of x. A linear map (linear_map.hpp), whose transpose
/// writes a part into a tensor of zeros.
template <class Op, int Rank>
struct take_part {
    using operation = Op;
    static constexpr int roundings = 0;
    placement<Rank> at;

    template <class Device, class T, int From>
    void run(Device& device, const view<const T, From>& x, const view<T, Rank>& y) const {
        kernel::strided_copy<Device>::run(device, at.in(x.data()), y);
    }
    template <class Device, class T, int From>
    void run(Device& device, const view<const T, From>& x, const view<T, Rank>& y, write_mode mode) const {
        write_strided(device, at.in(x.data()), y, mode);
    }
    put_part<Op, Rank> transposed() const { return {at}; }
};
template <class Op, int Rank>
struct put_part {
    using operation = Op;
    placement<Rank> at;

    template <class Device, class T, int From>
    void run(Device& device, const view<const T, Rank>& part, const view<T, From>& all,
             write_mode mode = write_mode::overwrite) const {
        write_part(device, part, at, all.data(), all.size(), mode);
    }
    take_part<Op, Rank> transposed() const { return {at}; }
};

/// The elements of x at the positions `at`, in a tape, a region or an inference context.
template <class Op, class Context, class T, int From, int Rank>
variable<T, Rank> take(Context&& context, const variable<T, From>& x, const placement<Rank>& at) {
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(Op::name);
    return mapped<T>(root, x, take_part<Op, Rank>{at}, at.shape);
}
/// The elements of `part`, a view of x, as a variable; if they are all of x in order, it shares x's memory, like reshape.
template <class Op, class Context, class T, int From, int Rank>
variable<T, Rank> take_view(Context&& context, const variable<T, From>& x, const view<T, Rank>& part) {
    const auto at = placement<Rank>::of(part, x.view());
    if (at.covers && part.is_contiguous() && leaves_out<Context>) return reshape(context, x, part.shape());
    return take<Op>(context, x, at);
}

/// Divides x into parts along an axis; `dy` is the gradient of the first part.
template <class T, int Rank, std::size_t Parts>
struct split_record {
    using operation = op::split;
    using reads = reads_nothing;
    static constexpr int roundings = 0;
    std::array<placement<Rank>, Parts> at;
    std::tuple<gradient_of<T, Rank>> gradients;
    gradient_of<T, Rank> dy;
    std::array<gradient_of<T, Rank>, Parts - 1> dothers;

    const gradient_of<T, Rank>& part(std::size_t i) const { return i == 0 ? dy : dothers[i - 1]; }

    template <class Tape>
    void backward(Tape& tape) {
        bool any = false, all = true;
        for (std::size_t i = 0; i < Parts; ++i) any = any || part(i).is_there(), all = all && part(i).is_there();
        if (!any) return;
        const auto& dx = std::get<0>(gradients);
        if (const auto to = tape.gradient_target(dx)) {
            if (!all && to.mode == write_mode::overwrite) tape.device().fill(to.data, dx.shape().size(), T(0.0f));
            for (std::size_t i = 0; i < Parts; ++i) {
                if (part(i).is_there())
                    write_strided(tape.device(), as_const(part(i).view()), at[i].in(to.data), to.mode);
            }
        }
        for (std::size_t i = 0; i < Parts; ++i) tape.finish(part(i));
    }
};

/// x broadcast to the result's shape: a linear map, whose transpose sums over the broadcast axes.
struct broadcast_over {
    using operation = op::expand;
    static constexpr int roundings = 1;
    extent addends;  ///< the number of addends in each sum of the gradient

    template <int From, int Rank>
    static broadcast_over of(const shape<From>& x, const shape<Rank>& y) {
        return broadcast_over{y.size() / std::max<extent>(1, x.size()) + 1};  // nvcc 13 loses the braces of return {one value}
    }
    extent sum_length() const { return addends; }
    template <class Device, class T, int From, int Rank>
    void run(Device& device, const view<const T, From>& x, const view<T, Rank>& y) const {
        kernel::strided_copy<Device>::run(device, expand(x, y.shape()), y);
    }
    template <class Device, class T, int From, class Y, int Rank>
    void run(Device& device, const view<const T, From>& x, const view<Y, Rank>& y, write_mode mode) const {
        const auto from = expand(x, y.shape());
        using map = kernel::map<Device>;
        if (mode == write_mode::overwrite) {
            map::template run<kernel::map_layout::any>(device, make_pack(symbolic::argument<0>{}), make_pack(y),
                                                       make_pack(from));
        } else {
            map::template run<kernel::map_layout::any>(
                device, make_pack(symbolic::argument<0>{} + symbolic::argument<1>{}), make_pack(y),
                make_pack(as_const(y), from));
        }
    }
    summed_over transposed() const;
};
struct summed_over {
    using operation = op::expand;
    extent addends;

    template <class Device, class X, int Rank, class T, int To>
    void run(Device& device, const view<const X, Rank>& x, const view<T, To>& y,
             write_mode mode = write_mode::overwrite) const {
        kernel::sum_over_broadcast(device, x, view<T, Rank>(y.data(), lifted<Rank>(y.shape())), mode);
    }
    broadcast_over transposed() const { return {addends}; }
};
inline summed_over broadcast_over::transposed() const { return {addends}; }

template <class Context, class T, int From, int Rank>
variable<T, Rank> expand_to(Context&& context, const variable<T, From>& x, const shape<Rank>& s) {
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::expand::name);
    return mapped<T>(root, x, broadcast_over::of(x.shape(), s), s);
}

}  // namespace detail

/// Axis i of the result is axis `order[i]` of x: ht::permute(ctx, x, ht::axes<0, 2, 1>). In x's type. Source:
/// torch.permute.
template <recording_context Context, class T, int Rank, int... Order>
variable<T, Rank> permute(Context&& context, const variable<T, Rank>& x, axis_list<Order...> order) {
    return detail::take_view<op::permute>(context, x, permute(x.view(), order));
}
/// x with two axes exchanged: ht::transpose(ctx, x, ht::axes<1, 2>). In x's type. In a product, ht::transposed(x) needs
/// no copy. Source: torch.transpose.
template <recording_context Context, class T, int Rank, int A, int B>
variable<T, Rank> transpose(Context&& context, const variable<T, Rank>& x, axis_list<A, B> both) {
    return detail::take_view<op::transpose>(context, x, transpose(x.view(), both));
}

/// x[start:stop:step] along an axis, as in Python: negative numbers count from the end, and numbers beyond an end are
/// clamped to it. In x's type; all other elements of x have gradient 0. Throws argument_error for a step below 1.
template <recording_context Context, class T, int Rank, int... Axis>
variable<T, Rank> slice(Context&& context, const variable<T, Rank>& x, axis_list<Axis...> along, extent start,
                        extent stop, extent step = 1) {
    return detail::take_view<op::slice>(context, x, slice(x.view(), along, start, stop, step));
}
/// `length` positions along an axis, from `start` on; a negative start counts from the end. In x's type; all other
/// elements of x have gradient 0. Throws argument_error if the positions exceed the axis. Source: torch.narrow.
template <recording_context Context, class T, int Rank, int... Axis>
variable<T, Rank> narrow(Context&& context, const variable<T, Rank>& x, axis_list<Axis...> along, extent start,
                         extent length) {
    return detail::take_view<op::slice>(context, x, narrow(x.view(), along, start, length));
}
/// One position along an axis, which the result does not have; a negative position counts from the end. In x's type;
/// all other elements of x have gradient 0. Throws argument_error. Source: torch.select.
template <recording_context Context, class T, int Rank, int... Axis>
variable<T, Rank - 1> select(Context&& context, const variable<T, Rank>& x, axis_list<Axis...> along, extent index) {
    return detail::take_view<op::select>(context, x, select(x.view(), along, index));
}
/// x in reverse order along these axes. In x's type. Source: torch.flip.
template <recording_context Context, class T, int Rank, int... Axes>
variable<T, Rank> flip(Context&& context, const variable<T, Rank>& x, axis_list<Axes...> along) {
    return detail::take_view<op::flip>(context, x, flip(x.view(), along));
}

/// x without these axes, each of extent 1; shares x's memory and gradient. Throws shape_error if an axis has another
/// extent. Source: torch.squeeze.
template <recording_context Context, class T, int Rank, int... Axes>
auto squeeze(Context&& context, const variable<T, Rank>& x, axis_list<Axes...> gone) {
    return reshape(context, x, squeeze(x.view(), gone).shape());
}
/// x with additional axes of extent 1, at these positions of the result; shares x's memory and gradient. Source:
/// torch.unsqueeze.
template <recording_context Context, class T, int Rank, int... Axes>
auto unsqueeze(Context&& context, const variable<T, Rank>& x, axis_list<Axes...> added) {
    return reshape(context, x, unsqueeze(x.view(), added).shape());
}
/// x with a single axis; shares x's memory and gradient. Source: torch.flatten.
template <recording_context Context, class T, int Rank>
variable<T, 1> flatten(Context&& context, const variable<T, Rank>& x) {
    return reshape(context, x, shape<1>{x.size()});
}
/// x with the axes from the first to the second, inclusive, merged into one: ht::flatten(ctx, x, ht::axes<1, -1>).
/// Shares x's memory and gradient. Source: torch.flatten.
template <recording_context Context, class T, int Rank, int From, int To>
auto flatten(Context&& context, const variable<T, Rank>& x, axis_list<From, To>) {
    constexpr int first = From < 0 ? From + Rank : From, last = To < 0 ? To + Rank : To;
    static_assert(first >= 0 && first <= last && last < Rank,
                  "halftone: flatten merges the axes from one to a later one: ht::axes<1, -1>");
    shape<Rank - (last - first)> s{};
    for (int axis = 0; axis < Rank; ++axis) {
        const int at = axis <= first ? axis : axis <= last ? first : axis - (last - first);
        s[at] = axis > first && axis <= last ? s[at] * x.shape()[axis] : x.shape()[axis];
    }
    return reshape(context, x, s);
}
/// Returns x: variables are always contiguous. For programs ported from PyTorch. Source: torch.Tensor.contiguous.
template <recording_context Context, class T, int Rank>
variable<T, Rank> contiguous(Context&&, const variable<T, Rank>& x) {
    return x;
}

/// x broadcast to a shape by NumPy's rules, which may add axes in front; -1 keeps x's extent. In x's type; the gradient
/// is the sum over the broadcast axes. Pointwise operations broadcast without it. Throws shape_error. Source:
/// torch.Tensor.expand.
template <recording_context Context, class T, int Rank, int To>
variable<T, To> expand(Context&& context, const variable<T, Rank>& x, const shape<To>& s) {
    const auto result = expand(x.view(), s);
    if (result.size() == x.size() && detail::leaves_out<Context>) return reshape(context, x, result.shape());
    return detail::expand_to(context, x, result.shape());
}

/// Parts of x along an axis, of these sizes: auto [a, b] = ht::split_with_sizes(ctx, x, ht::axes<1>,
/// std::array<ht::extent, 2>{3, 5}). In x's type. Throws shape_error if the sizes do not add up to the axis's extent.
/// Source: torch.split_with_sizes.
template <recording_context Context, class T, int Rank, int... Axis, std::size_t Parts>
std::array<variable<T, Rank>, Parts> split_with_sizes(Context&& context, const variable<T, Rank>& x,
                                                      axis_list<Axis...> along,
                                                      const std::array<extent, Parts>& sizes) {
    static_assert(Parts > 0, "halftone: split_with_sizes makes one part or more");
    const int axis = detail::only_axis<Rank>(along);
    extent total = 0;
    for (const extent size : sizes) total += size;
    for (const extent size : sizes) {
        if (size < 0 || total != x.shape()[axis])
            fail<shape_error>("split_with_sizes: the sizes along axis ", axis, " add up to ", total, ", and ",
                              x.shape(), " has ", x.shape()[axis], "; sizes must not be negative");
    }
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::split::name);
    const bool wanted = x.wants_gradient();
    std::array<variable<T, Rank>, Parts> parts;
    detail::split_record<T, Rank, Parts> r{{}, {gradient_of(x)}, {}, {}};
    extent begin = 0;
    for (std::size_t i = 0; i < Parts; ++i) {
        r.at[i] = detail::placement<Rank>::of(detail::part_of_axis(x.view(), axis, begin, sizes[i], 1), x.view());
        begin += sizes[i];
        parts[i] = root.template make<T>(r.at[i].shape, wanted);
        kernel::strided_copy<typename std::remove_cvref_t<Context>::device_type>::run(
            root.device(), r.at[i].in(as_const(x.view()).data()), parts[i].view());
        (i == 0 ? r.dy : r.dothers[i - 1]) = gradient_of(parts[i]);
    }
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) root.record(std::move(r));
    }
    return parts;
}
/// x divided into `Parts` parts along an axis, of equal size except the last, which may be smaller: auto [q, k, v] =
/// ht::chunk<3>(ctx, qkv, ht::axes<-1>). In x's type. Throws shape_error if there would be fewer parts. Source:
/// torch.chunk.
template <std::size_t Parts, recording_context Context, class T, int Rank, int... Axis>
std::array<variable<T, Rank>, Parts> chunk(Context&& context, const variable<T, Rank>& x, axis_list<Axis...> along) {
    constexpr auto count = static_cast<extent>(Parts);
    static_assert(Parts > 0, "halftone: chunk makes one part or more");
    const extent size = x.shape()[detail::only_axis<Rank>(along)], each = detail::ceil_div(size, count);
    if (each * (count - 1) >= size && size != 0 && Parts > 1)
        fail<shape_error>("chunk: ", size, " elements along an axis make ", detail::ceil_div(size, each), " parts of ",
                          each, ", not ", count, "; ht::split_with_sizes takes their sizes");
    std::array<extent, Parts> sizes;
    for (std::size_t i = 0; i < Parts; ++i) sizes[i] = std::min(each, size - static_cast<extent>(i) * each);
    return split_with_sizes(context, x, along, sizes);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
