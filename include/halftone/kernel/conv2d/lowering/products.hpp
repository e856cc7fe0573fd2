// SPDX-License-Identifier: MIT
/// \file
/// A convolution and its two gradients as matrix products with the unfolded input (kernel/unfold), on any device.
///
///     forward          y = W U(x) + bias          W: (outputs, channels taps) of each group, U: unfold
///     input gradient   dx = F(Wᵀ dy)              F: fold, the transpose of U
///     weight gradient  dW = dy U(x)ᵀ
///
/// With a window of one element, stride 1 and no padding, U(x) is x, which is read in place. If the device has kernels
/// for groups of one channel, these are called instead (conv2d/depthwise), and if it has some that do not store U(x), these
/// are called for all passes (conv2d/implicit). Each pass makes a plan (plan.hpp), and calls what it names.
#pragma once

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/conv2d/depthwise/depthwise.hpp>
#include <halftone/kernel/conv2d/implicit/implicit.hpp>
#include <halftone/kernel/conv2d/lowering/plan.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/kernel/matmul/matmul.hpp>
#include <halftone/kernel/strided_copy/strided_copy.hpp>
#include <halftone/kernel/unfold/unfold.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The argument that replaces a bias if there is none.
struct no_bias {};

template <class T>
workspace::lease lease_for(workspace& scratch, extent elements) {
    return {scratch, static_cast<std::size_t>(elements) * sizeof(T)};
}
/// Matrices [first, first + count) along the first axis.
template <class T>
view<T, 3> matrices_from(const view<T, 3>& v, extent first, extent count) {
    return {v.data() + first * v.stride_of(0), {count, v.extent_of(1), v.extent_of(2)}, v.strides()};
}

/// Multiplies by a weight, group by group; the weight is (groups, rows, depth): c[i] = a[i] b[i], plus the bias of each row.
template <class Compute, class Device, class A, class B, class C>
void multiply_groups(Device& device, const view<A, 3>& a, const view<B, 3>& b, const view<C, 3>& c, no_bias) {
    run_product_each<Compute>(device, a, b, c, plain{});
}
template <class Compute, class Device, class A, class B, class C, class Bias>
void multiply_groups(Device& device, const view<A, 3>& a, const view<B, 3>& b, const view<C, 3>& c,
                     const view<Bias, 1>& bias) {
    const extent rows = c.extent_of(1);
    for (extent g = 0; g < c.extent_of(0); ++g) {
        run_product_each<Compute>(device, matrices_from(a, g, 1), matrices_from(b, g, 1), matrices_from(c, g, 1),
                                  row_bias{view<Bias, 1>(bias.data() + g * rows, {rows})});
    }
}
/// Multiplies each image by the whole weight, which all of them share, plus the bias of each row; b is (images, depth,
/// positions), c is (images, rows, positions).
template <class Compute, class Device, class A, class B, class C>
void multiply_images(Device& device, const view<A, 3>& a, const view<B, 3>& b, const view<C, 3>& c, no_bias) {
    run_product_each<Compute>(device, a, b, c, plain{});
}
template <class Compute, class Device, class A, class B, class C, class Bias>
void multiply_images(Device& device, const view<A, 3>& a, const view<B, 3>& b, const view<C, 3>& c,
                     const view<Bias, 1>& bias) {
    run_product_each<Compute>(device, a, b, c, row_bias{bias});
}

/// The views of a problem's tensors that the products take.
struct conv2d_views {
    conv2d_problem p;

    /// The weight: (groups, outputs, depth).
    template <class W>
    view<W, 3> weight(W* data) const {
        return {data, {p.groups, p.group_outputs(), p.depth()}};
    }
    /// The unfolded matrix of a piece: (groups, depth, positions).
    template <class T>
    view<T, 3> columns(T* data, extent positions) const {
        return {data, {p.groups, p.depth(), positions}};
    }
    /// Some rows of one image of the result: (groups, outputs, positions).
    template <class Y>
    view<Y, 3> result(Y* data, extent image, extent row, extent positions) const {
        return {data + image * p.outputs * p.positions() + row * p.window.across.positions,
                {p.groups, p.group_outputs(), positions},
                {p.group_outputs() * p.positions(), p.positions(), 1}};
    }
    /// Images of the result as (images, outputs, positions). side_by_side: in memory in which they are adjacent columns.
    template <class Y>
    view<Y, 3> images(Y* data, extent image, extent count) const {
        return {data + image * p.outputs * p.positions(), {count, p.outputs, p.positions()}};
    }
    template <class Y>
    view<Y, 3> side_by_side(Y* data, extent count) const {
        return {data, {count, p.outputs, p.positions()}, {p.positions(), count * p.positions(), 1}};
    }
    /// The channels of one image: (groups, channels, height * width).
    template <class X>
    view<X, 3> input_image(X* data, extent channel_stride) const {
        return {data,
                {p.groups, p.group_channels(), p.window.down.size * p.window.across.size},
                {p.group_channels() * channel_stride, channel_stride, 1}};
    }
};

/// Whether the device has kernels for groups of one channel that read types As and return Result.
template <class Device, class Compute, class Result, class... As>
inline constexpr bool has_depthwise =
    std::is_same_v<kernel::statistic<Result, As...>, float> && kernel::depthwise<Device>::template takes<Compute, As...>;

inline const float* data_of_bias(no_bias) { return nullptr; }
template <class T>
const T* data_of_bias(const view<T, 1>& bias) {
    return bias.data();
}

/// Whether the elements of each channel of each image follow one another.
template <class X>
bool are_planes(const view<X, 4>& x) {
    return x.stride_of(3) == 1 && x.stride_of(2) == x.extent_of(3);
}

/// Calls run(piece, columns) with the unfolded input of each piece; columns: (groups, depth, positions).
template <class Device, class X, class Run>
void for_each_unfolded(Device& device, const conv2d_problem& p, const conv2d_pieces& cut, const view<const X, 4>& x,
                       const Run& run) {
    const extent rows = p.channels * p.window.taps();
    const auto memory = lease_for<X>(device.scratch(), rows * cut.positions(p));
    cut.for_each(p, [&](const conv2d_piece& piece) {
        const extent positions = piece.images * piece.rows * p.window.across.positions;
        shape<4> some = x.shape();
        some[0] = piece.images;
        kernel::unfold<Device>::run(
            device, kernel::unfold_arguments<X>{
                        .x = const_view<X, 4>(x.data() + piece.image * x.stride_of(0), some, x.strides()),
                        .y = view<X, 2>(memory.template as<X>(), {rows, positions}),
                        .window = p.window,
                        .first_row = piece.row,
                        .rows = piece.rows});
        run(piece, const_view<X, 3>(conv2d_views{p}.columns(memory.template as<X>(), positions)));
    });
}

/// Whether the device has kernels for such a problem that do not store the unfolded matrix.
template <class Compute, class Result, class... As, class Device>
bool is_implicit(const Device& device, const conv2d_problem& p) {
    if constexpr (kernel::implicit_conv2d<Device>::template takes<Compute, Result, As...>) {
        return kernel::implicit_conv2d<Device>::template takes_problem<Compute>(device, p);
    } else {
        return false;
    }
}
/// What decides how a pass is computed. Result: of the pass; As: its operands; x: the images, or their gradient.
template <class Compute, class Result, class... As, class Device, class X>
conv2d_case case_of(const Device& device, const conv2d_problem& p, conv2d_pass pass, const view<X, 4>& x) {
    using sum = kernel::statistic<Result, As...>;
    return {.p = p,
            .pass = pass,
            .limits = conv2d_limits_of<Device>,
            .bytes = static_cast<int>(pass == conv2d_pass::input_gradient ? sizeof(sum) : sizeof(X)),
            .are_planes = are_planes(x),
            .has_depthwise = has_depthwise<Device, Compute, Result, As...>,
            .has_implicit = is_implicit<Compute, Result, As...>(device, p)};
}

/// The epilogue of a group's product.
inline plain epilogue_of_group(const conv2d_problem&, no_bias, extent) { return {}; }
template <class T>
row_bias<T> epilogue_of_group(const conv2d_problem& p, const view<T, 1>& bias, extent group) {
    return {view<T, 1>(bias.data() + group * p.group_outputs(), {p.group_outputs()})};
}

/// y = W x + bias for windows of one element.
template <class Compute, class Device, class X, class W, class Bias, class Y>
void forward_in_place(Device& device, const conv2d_problem& p, const conv2d_way& way, const view<const X, 4>& x,
                      const view<const W, 4>& weight, const Bias& bias, const view<Y, 4>& y) {
    const conv2d_views of{p};
    const auto w = of.weight(weight.data());
    if (way.is_one_batch) {
        return multiply_images<Compute>(
            device, view<const W, 3>(w.data(), {p.images, p.outputs, p.channels}, {0, p.channels, 1}),
            view<const X, 3>(x.data(), {p.images, p.channels, p.positions()}, {x.stride_of(0), x.stride_of(1), 1}),
            of.images(y.data(), 0, p.images), bias);
    }
    for (extent image = 0; image < p.images; ++image) {
        multiply_groups<Compute>(device, w, of.input_image(x.data() + image * x.stride_of(0), x.stride_of(1)),
                                 of.result(y.data(), image, 0, p.positions()), bias);
    }
}
/// y = W U(x) + bias, piece by piece.
template <class Compute, class Device, class X, class W, class Bias, class Y>
void forward_unfolded(Device& device, const conv2d_problem& p, const conv2d_pieces& cut, const view<const X, 4>& x,
                      const view<const W, 4>& weight, const Bias& bias, const view<Y, 4>& y) {
    const conv2d_views of{p};
    const auto w = of.weight(weight.data());
    const auto side_by_side = lease_for<Y>(device.scratch(), cut.images > 1 ? p.outputs * cut.positions(p) : 0);
    for_each_unfolded(device, p, cut, x, [&](const conv2d_piece& piece, const view<const X, 3>& columns) {
        const extent positions = columns.extent_of(2);
        if (piece.images == 1)
            return multiply_groups<Compute>(device, w, columns, of.result(y.data(), piece.image, piece.row, positions),
                                            bias);
        Y* const memory = side_by_side.template as<Y>();
        multiply_groups<Compute>(device, w, columns, view<Y, 3>(memory, {p.groups, p.group_outputs(), positions}),
                                 bias);
        kernel::strided_copy<Device>::run(device, const_view<Y, 3>(of.side_by_side(memory, piece.images)),
                                          of.images(y.data(), piece.image, piece.images));
    });
}

/// y = W U(x) + bias. x: with any strides; weight and y: contiguous. bias: a view of one value per output, or no_bias.
template <class Compute, class Device, class X, class W, class Bias, class Y>
void conv2d_forward(Device& device, const conv2d_problem& p, const view<const X, 4>& x, const view<const W, 4>& weight,
                    const Bias& bias, const view<Y, 4>& y) {
    if (y.size() == 0) return;
    if (p.depth() == 0) {  // no channels: the bias, by products without terms
        const conv2d_views of{p};
        const view<const X, 3> none(x.data(), {p.groups, 0, p.positions()});
        for (extent image = 0; image < p.images; ++image)
            multiply_groups<Compute>(device, of.weight(weight.data()), none,
                                     of.result(y.data(), image, 0, p.positions()), bias);
        return;
    }
    const conv2d_plan plan = plan_conv2d(case_of<Compute, Y, X, W>(device, p, conv2d_pass::forward, x));
    switch (plan.best().family) {
        case conv2d_family::depthwise:
            if constexpr (has_depthwise<Device, Compute, Y, X, W>)
                kernel::depthwise<Device>::forward(device, p, x, weight, data_of_bias(bias), y);
            break;
        case conv2d_family::implicit:
            if constexpr (kernel::implicit_conv2d<Device>::template takes<Compute, Y, X, W>) {
                const auto end = [&](extent group) { return epilogue_of_group(p, bias, group); };
                kernel::implicit_conv2d<Device>::template forward<Compute>(device, p, x, weight, end, y);
            }
            break;
        case conv2d_family::in_place:
            return forward_in_place<Compute>(device, p, plan.best(), x, weight, bias, y);
        case conv2d_family::unfolded:
            return forward_unfolded<Compute>(device, p, plan.best().cut, x, weight, bias, y);
    }
}

/// The result's gradient of a piece as (groups, outputs, positions): in place for one image; for several images, copied
/// into `side_by_side`, where they are adjacent columns.
template <class Device, class G>
view<const G, 3> gradient_of_piece(Device& device, const conv2d_problem& p, const conv2d_piece& piece, const G* dy,
                                   G* side_by_side) {
    const conv2d_views of{p};
    const extent positions = piece.images * piece.rows * p.window.across.positions;
    if (piece.images == 1) return of.result(dy, piece.image, piece.row, positions);
    kernel::strided_copy<Device>::run(device, of.images(dy, piece.image, piece.images),
                                      of.side_by_side(side_by_side, piece.images));
    return {side_by_side, {p.groups, p.group_outputs(), positions}};
}

/// dx = (or +=) Wᵀ dy for windows of one element.
template <class Compute, class Device, class W, class G, class X>
void input_gradient_in_place(Device& device, const conv2d_problem& p, const conv2d_way& way,
                             const view<const W, 4>& weight, const view<const G, 4>& dy, const view<X, 4>& dx,
                             write_mode mode) {
    const conv2d_views of{p};
    const auto w = of.weight(weight.data());
    const extent image_size = p.window.down.size * p.window.across.size;
    if (way.is_one_batch) {
        return product_each<Compute>(
            device, view<const W, 3>(w.data(), {p.images, p.channels, p.outputs}, {0, 1, p.channels}),
            of.images(dy.data(), 0, p.images), view<X, 3>(dx.data(), {p.images, p.channels, image_size}), mode);
    }
    for (extent image = 0; image < p.images; ++image) {
        product_each<Compute>(device, transpose(w), of.result(dy.data(), image, 0, p.positions()),
                              of.input_image(dx.data() + image * p.channels * image_size, image_size), mode);
    }
}
/// dx = (or +=) F(Wᵀ dy), piece by piece.
template <class Compute, class Device, class W, class G, class X>
void input_gradient_folded(Device& device, const conv2d_problem& p, const conv2d_way& way,
                           const view<const W, 4>& weight, const view<const G, 4>& dy, const view<X, 4>& dx,
                           write_mode mode) {
    using S = kernel::statistic<W, G, X>;
    const auto w = conv2d_views{p}.weight(weight.data());
    const extent image_size = p.window.down.size * p.window.across.size, most = way.cut.positions(p);
    const auto memory = lease_for<S>(device.scratch(), p.groups * way.channels * p.window.taps() * most);
    const auto side_by_side = lease_for<G>(device.scratch(), way.cut.images > 1 ? p.outputs * most : 0);
    way.cut.for_each(p, [&](const conv2d_piece& piece) {
        const auto g = gradient_of_piece(device, p, piece, dy.data(), side_by_side.template as<G>());
        for (extent c = 0; c < p.group_channels(); c += way.channels) {
            const extent some = std::min(way.channels, p.group_channels() - c), rows = some * p.window.taps();
            const view<S, 3> columns(memory.template as<S>(), {p.groups, rows, g.extent_of(2)});
            run_product_each<Compute>(device,
                                      view<const W, 3>(w.data() + c * p.window.taps(), {p.groups, rows, p.group_outputs()},
                                                       {w.stride_of(0), 1, w.stride_of(1)}),
                                      g, columns, plain{});
            kernel::unfold<Device>::fold(
                device, kernel::fold_arguments<S, X>{
                            .y = columns,
                            .x = view<X, 5>(dx.data() + (piece.image * p.channels + c) * image_size,
                                            {piece.images, p.groups, some, p.window.down.size, p.window.across.size},
                                            {p.channels * image_size, p.group_channels() * image_size, image_size,
                                             p.window.across.size, 1}),
                            .window = p.window,
                            .mode = mode});
        }
    });
}

/// dx = (or +=) F(Wᵀ dy). All views are contiguous. The folded matrix is float, or double if a view has doubles.
template <class Compute, class Device, class W, class G, class X>
void conv2d_input_gradient(Device& device, const conv2d_problem& p, const view<const W, 4>& weight,
                           const view<const G, 4>& dy, const view<X, 4>& dx, write_mode mode) {
    if (dx.size() == 0) return;
    if (dy.size() == 0) {
        if (mode == write_mode::overwrite) device.fill(dx.data(), dx.size(), X(0.0f));
        return;
    }
    const conv2d_plan plan = plan_conv2d(case_of<Compute, X, W, G>(device, p, conv2d_pass::input_gradient, dx));
    switch (plan.best().family) {
        case conv2d_family::depthwise:
            if constexpr (has_depthwise<Device, Compute, X, W, G>)
                kernel::depthwise<Device>::input_gradient(device, p, weight, dy, dx, mode);
            break;
        case conv2d_family::implicit:
            if constexpr (kernel::implicit_conv2d<Device>::template takes<Compute, X, W, G>) {
                using kernels = kernel::implicit_conv2d<Device>;
                if (mode == write_mode::overwrite)
                    return kernels::template input_gradient<Compute>(
                        device, p, dy, weight, [](extent) { return plain{}; }, dx);
                kernels::template input_gradient<Compute>(
                    device, p, dy, weight, [](extent) { return add_product{}; }, dx);
            }
            break;
        case conv2d_family::in_place:
            return input_gradient_in_place<Compute>(device, p, plan.best(), weight, dy, dx, mode);
        case conv2d_family::unfolded:
            return input_gradient_folded<Compute>(device, p, plan.best(), weight, dy, dx, mode);
    }
}

/// Calls run(dy, columns) with the operands of each product of the weight's gradient, (groups, outputs, positions) and
/// (groups, positions, depth), in the order of the images.
template <class Device, class X, class G, class Run>
void for_each_weight_product(Device& device, const conv2d_problem& p, const conv2d_plan& plan,
                             const view<const X, 4>& x, const view<const G, 4>& dy, const Run& run) {
    const conv2d_views of{p};
    if (plan.best().family == conv2d_family::in_place) {
        for (extent image = 0; image < p.images; ++image) {
            run(of.result(dy.data(), image, 0, p.positions()),
                transpose(of.input_image(x.data() + image * x.stride_of(0), x.stride_of(1))));
        }
        return;
    }
    const conv2d_pieces& cut = plan.best().cut;
    const auto side_by_side = lease_for<G>(device.scratch(), cut.images > 1 ? p.outputs * cut.positions(p) : 0);
    for_each_unfolded(device, p, cut, x, [&](const conv2d_piece& piece, const view<const X, 3>& columns) {
        run(gradient_of_piece(device, p, piece, dy.data(), side_by_side.template as<G>()), transpose(columns));
    });
}
/// dW = (or +=) dy U(x)ᵀ by products, in place or with unfolded images.
template <class Compute, class Device, class X, class G, class W>
void weight_gradient_by_products(Device& device, const conv2d_problem& p, const conv2d_plan& plan,
                                 const view<const X, 4>& x, const view<const G, 4>& dy, const view<W, 4>& dweight,
                                 write_mode mode) {
    using S = kernel::statistic<X, G, W>;
    const auto sum_into = [&](S* sums, write_mode now) {
        const auto all = conv2d_views{p}.weight(sums);
        for_each_weight_product(device, p, plan, x, dy,
                                [&](const view<const G, 3>& g, const view<const X, 3>& columns) {
                                    product_each<Compute>(device, g, columns, all, now);
                                    now = write_mode::add;
                                });
    };
    if constexpr (std::is_same_v<W, S>) {
        sum_into(dweight.data(), mode);
    } else {
        const auto sums = lease_for<S>(device.scratch(), dweight.size());
        sum_into(sums.template as<S>(), write_mode::overwrite);
        const const_view<S, 1> from(sums.template as<S>(), {dweight.size()});
        const view<W, 1> to = flatten(dweight);
        if (mode == write_mode::overwrite) {
            halftone::map(device, [](auto sum) { return sum; }, from, to);
        } else {
            halftone::map(device, [](auto sum, auto before) { return before + sum; }, from, const_view<W, 1>(to), to);
        }
    }
}

/// dW = (or +=) dy U(x)ᵀ, summed over the images in their order, in float, or in double if a view has doubles. x: with
/// any strides; dy and dweight: contiguous.
template <class Compute, class Device, class X, class G, class W>
void conv2d_weight_gradient(Device& device, const conv2d_problem& p, const view<const X, 4>& x,
                            const view<const G, 4>& dy, const view<W, 4>& dweight, write_mode mode) {
    if (dweight.size() == 0) return;
    if (dy.size() == 0) {
        if (mode == write_mode::overwrite) device.fill(dweight.data(), dweight.size(), W(0.0f));
        return;
    }
    const conv2d_plan plan = plan_conv2d(case_of<Compute, W, X, G>(device, p, conv2d_pass::weight_gradient, x));
    switch (plan.best().family) {
        case conv2d_family::depthwise:
            if constexpr (has_depthwise<Device, Compute, W, X, G>)
                kernel::depthwise<Device>::weight_gradient(device, p, x, dy, dweight, mode);
            break;
        case conv2d_family::implicit:
            if constexpr (kernel::implicit_conv2d<Device>::template takes<Compute, W, X, G>) {
                using kernels = kernel::implicit_conv2d<Device>;
                if (mode == write_mode::overwrite)
                    return kernels::template weight_gradient<Compute>(device, p, x, dy, plain{}, dweight);
                kernels::template weight_gradient<Compute>(device, p, x, dy, add_product{}, dweight);
            }
            break;
        case conv2d_family::in_place:
        case conv2d_family::unfolded:
            return weight_gradient_by_products<Compute>(device, p, plan, x, dy, dweight, mode);
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
