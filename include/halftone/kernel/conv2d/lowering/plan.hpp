// SPDX-License-Identifier: MIT
/// \file
/// How a convolution or one of its gradients is computed: a pure function from the shape, the pass, the size of an element, the layout
/// and what the device has to a family of kernels, with what speaks against each family before it. Products themselves have plans of
/// their own on a GPU (matmul/device/plan.hpp). This header needs no GPU and no CUDA.
///
///     const conv2d_plan plan = plan_conv2d({.p = problem, .limits = conv2d_limits_of<Device>});
///     plan.best().name;        // "unfolded"
///     plan.best().cut.images;  // at once
///
/// Families, in the order in which they are tried (the first one that applies is taken):
///
///     depthwise   groups of one channel without a matrix       conv2d/depthwise; a CPU has such kernels
///     implicit    products with a matrix that is not stored    conv2d/implicit; a CPU without tiles (AMX) has such kernels
///     in_place    products with the images as they are         a window of one element
///     unfolded    products with the unfolded images            kernel/unfold, piece by piece (pieces.hpp)
///
/// There is no cost: where a family applies it is taken to be faster than those after it.
///
/// `bench_conv2d --plan 64x64x56x64x3 --padding 1 --device sm_90a` prints a GPU's choice for a shape, and why.
#pragma once

#include <algorithm>

#include <halftone/kernel/common/plan/families.hpp>
#include <halftone/kernel/conv2d/lowering/pieces.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

enum class conv2d_family { depthwise, implicit, in_place, unfolded };

enum class conv2d_pass { forward, input_gradient, weight_gradient };

/// What decides how a convolution is computed that has results, and terms in its sums.
struct conv2d_case {
    conv2d_problem p;
    conv2d_pass pass = conv2d_pass::forward;
    conv2d_limits limits;  ///< the device's
    int bytes = 2;         ///< of an element of the matrix: x's, or a sum's that is folded into the input's gradient
    bool are_planes = true;      ///< the elements of a channel of the images follow one another
    bool has_depthwise = false;  ///< the device has kernels for groups of one channel, for these types
    bool has_implicit = false;   ///< the device has kernels that store no matrix, for these types and this window
};

/// How a family computes a case.
struct conv2d_way {
    /// Whether in_place has the products of all images in one batch; otherwise those of an image's groups are one.
    bool is_one_batch = false;
    /// What unfolded has in memory at once: the largest piece, and so many channels of each group.
    conv2d_pieces cut{1, 0};
    extent channels = 0;
};
using conv2d_plan = kernel::family_plan<conv2d_family, conv2d_way, 4>;

namespace conv2d_planning {

// ---- Families: what speaks against each (nullptr: it applies), and how it computes a case ------------------------------

constexpr const char* against_depthwise(const conv2d_case& c) {
    if (c.p.groups == 1) return "there is one group";
    if (!c.p.is_depthwise()) return "a group has several channels";
    return c.has_depthwise ? nullptr : "the device has no such kernels for these types";
}
constexpr conv2d_way plan_depthwise(const conv2d_case&) { return {}; }

constexpr const char* against_implicit(const conv2d_case& c) {
    return c.has_implicit ? nullptr : "the device has no such kernels for these types and this window";
}
constexpr conv2d_way plan_implicit(const conv2d_case&) { return {}; }

/// An image with this many positions is taken to be a product that is large enough by itself.
inline constexpr extent positions_of_a_product = 256;

constexpr const char* against_in_place(const conv2d_case& c) {
    if (!c.p.window.is_one_for_one()) return "the window has several elements, a stride or padding";
    if (!c.are_planes) return "the elements of a channel do not follow one another";
    const bool is_enough = c.p.positions() >= positions_of_a_product || c.p.images == 1;
    return is_enough ? nullptr : "there are several images, of fewer than 256 positions each";
}
/// The weight's gradient is summed over the images in their order: a product adds to what the one before it stored.
constexpr conv2d_way plan_in_place(const conv2d_case& c) {
    return {.is_one_batch = c.p.groups == 1 && c.pass != conv2d_pass::weight_gradient};
}

constexpr const char* against_unfolded(const conv2d_case&) { return nullptr; }
/// The input's gradient is folded image by image: whole ones, or, if one needs too much memory, some channels of each group.
constexpr conv2d_way plan_folded(const conv2d_case& c) {
    const extent place_bytes = c.p.groups * c.p.window.taps() * c.bytes;  // of a channel of each group at a position
    const extent channel_bytes = std::max<extent>(1, place_bytes * c.p.positions());
    const extent channels = std::min(std::max<extent>(1, c.limits.bytes / channel_bytes), c.p.group_channels());
    conv2d_pieces cut{1, c.p.window.down.positions};
    if (channels == c.p.group_channels()) cut.images = conv2d_pieces::of(c.limits, c.p, channels * place_bytes).images;
    return {.cut = cut, .channels = channels};
}
constexpr conv2d_way plan_unfolded(const conv2d_case& c) {
    if (c.pass == conv2d_pass::input_gradient) return plan_folded(c);
    return {.cut = conv2d_pieces::of(c.limits, c.p, c.p.channels * c.p.window.taps() * c.bytes),
            .channels = c.p.group_channels()};
}

inline constexpr kernel::family_rule<conv2d_family, conv2d_way, conv2d_case> rules[] = {
    {conv2d_family::depthwise, "depthwise", &against_depthwise, &plan_depthwise},
    {conv2d_family::implicit, "implicit", &against_implicit, &plan_implicit},
    {conv2d_family::in_place, "in_place", &against_in_place, &plan_in_place},
    {conv2d_family::unfolded, "unfolded", &against_unfolded, &plan_unfolded}};

}  // namespace conv2d_planning

constexpr conv2d_plan plan_conv2d(const conv2d_case& c) { return kernel::plan_by(conv2d_planning::rules, c); }

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
