// SPDX-License-Identifier: MIT
/// \file
/// A GPU's plan of a convolution (conv2d/lowering/plan.hpp) in words, and its products, for GPUs that are not there.
///
///     const auto call = on_device::dense_conv2d(problem, pass, on_device::named_conv2d_types[0], *simt::target_named("sm_90a"));
///     std::puts(on_device::explain_plan(call).c_str());      // which family, its products and their kernels, and why
#pragma once

#include <string>

#include <halftone/exec/simt/target.hpp>
#include <halftone/kernel/conv2d/lowering/plan.hpp>
#include <halftone/kernel/matmul/device/explain.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Types of a convolution by a name: images, weights and results have the same; the weight's gradient is float.
inline constexpr matmul_types named_conv2d_types[] = {named_types[0], named_types[1], named_types[2], named_types[3]};

/// A convolution on a GPU that need not be there.
struct conv2d_call {
    detail::conv2d_case of;
    matmul_types types;
    simt::target on;
    bool has_bias = false;  ///< of the forward pass
};
/// Images, weight and result lie in memory without gaps, from multiples of 16 bytes on.
constexpr conv2d_call dense_conv2d(const detail::conv2d_problem& p, detail::conv2d_pass pass, const matmul_types& types,
                                   const simt::target& on, bool has_bias = false) {
    constexpr int sum_bytes = sizeof(float);
    const int bytes = pass == detail::conv2d_pass::input_gradient ? sum_bytes : types.bytes;
    return {{.p = p, .pass = pass, .limits = detail::conv2d_limits_of_gpu, .bytes = bytes}, types, on, has_bias};
}

/// The products of a pass: `launches` of them alike, but for smaller ones at an end, each of each.matrices.
struct conv2d_products {
    matmul_problem each;
    extent launches;
};

namespace planning {

/// The operands and the result of a pass's first product in terms of the convolution.
struct conv2d_operands {
    extent positions;     ///< that it has
    extent apart;         ///< elements from one row of y or dy to the next
    extent rows;          ///< of the matrix
    extent weight_apart;  ///< from one matrix of a batch to the next
    matmul_types types;
};
constexpr conv2d_operands operands_of(const conv2d_call& call, const detail::conv2d_plan& plan) {
    const detail::conv2d_problem& p = call.of.p;
    const detail::conv2d_way& way = plan.best();
    const bool is_weight = call.of.pass == detail::conv2d_pass::weight_gradient;
    conv2d_operands o{p.positions(), p.positions(), p.depth(), way.is_one_batch ? 0 : p.group_outputs() * p.depth(),
                      call.types};
    const bool is_unfolded = plan.best().family == detail::conv2d_family::unfolded;
    if (is_unfolded) {
        o.positions = way.cut.positions(p), o.rows = way.channels * p.window.taps();
        if (way.cut.images > 1) o.apart = o.positions;
    }
    if (is_weight || (is_unfolded && call.of.pass == detail::conv2d_pass::input_gradient))
        o.types.result_bytes = sizeof(float);
    return o;
}

/// Extents and layout of a product, and elements from one matrix of a batch to the next.
struct conv2d_product {
    extent m, n, k;
    product_layout layout;
    extent a_apart, b_apart, c_apart;

    /// Whether a batch of them is one launch.
    constexpr bool are_alike(const matmul_types& t) const {
        return on_device::are_alike(layout.lines_of_a(m, k).leading * t.bytes, a_apart * t.bytes) &&
               on_device::are_alike(layout.lines_of_b(n, k).leading * t.bytes, b_apart * t.bytes) &&
               on_device::are_alike(layout.leading_of_c(n) * t.result_bytes, c_apart * t.result_bytes);
    }
};
constexpr conv2d_product product_of(const conv2d_call& call, const conv2d_operands& o) {
    const detail::conv2d_problem& p = call.of.p;
    const extent outputs = p.group_outputs(), depth = p.depth(), of_weight = o.weight_apart,
                 of_matrix = o.rows * o.positions, of_result = outputs * o.apart;
    switch (call.of.pass) {
        case detail::conv2d_pass::forward:
            return {outputs, o.positions, depth, {.c_leading = o.apart}, of_weight, of_matrix, of_result};
        case detail::conv2d_pass::input_gradient: {
            const product_layout layout{.a_transposed = true, .a_leading = depth, .b_leading = o.apart};
            return {o.rows, o.positions, outputs, layout, of_weight, of_result, of_matrix};
        }
        case detail::conv2d_pass::weight_gradient:
            break;
    }
    return {outputs, depth, o.positions, {.b_transposed = true, .a_leading = o.apart}, of_result, of_matrix, of_weight};
}

/// Batches of products: one for all images, one for each image, or one for each piece.
constexpr extent batches_of(const detail::conv2d_problem& p, const detail::conv2d_plan& plan) {
    const detail::conv2d_way& way = plan.best();
    if (plan.best().family == detail::conv2d_family::in_place) return way.is_one_batch ? 1 : p.images;
    return detail::ceil_div(p.images, way.cut.images) * detail::ceil_div(p.window.down.positions, way.cut.rows) *
           detail::ceil_div(p.group_channels(), way.channels);
}

}  // namespace planning

/// The products of a call on a device without an engine. The matrices of a batch that are not aligned alike are launched one by one,
/// the first of them as `each`, the others each by a plan of its own.
constexpr conv2d_products products_of(const conv2d_call& call) {
    const detail::conv2d_problem& p = call.of.p;
    const detail::conv2d_plan plan = detail::plan_conv2d(call.of);
    const bool is_one_batch = plan.best().is_one_batch;
    const planning::conv2d_operands o = planning::operands_of(call, plan);
    const planning::conv2d_product product = planning::product_of(call, o);
    matmul_problem each = dense_problem(product.m, product.n, product.k, o.types, call.on, product.layout);
    const extent batches = planning::batches_of(p, plan), matrices = is_one_batch ? p.images : p.groups;
    // Each group has a bias of its own.
    const bool has_biases = call.of.pass == detail::conv2d_pass::forward && call.has_bias && !is_one_batch;
    each.matrices = matrices;
    if (!has_biases && product.are_alike(o.types) && !planning::copies_rows(each)) return {each, batches};
    each.matrices = 1;
    return {each, batches * matrices};
}

/// What is unfolded, or folded, at once, in words.
inline std::string piece_of(const conv2d_call& call, const detail::conv2d_way& way) {
    const detail::conv2d_problem& p = call.of.p;
    const auto counted = [](extent n, const char* one) { return std::to_string(n) + " " + one + (n == 1 ? "" : "s"); };
    std::string text = counted(way.cut.images, "image");
    if (way.cut.rows < p.window.down.positions) text += ", " + counted(way.cut.rows, "row") + " of positions";
    if (way.channels < p.group_channels()) text += ", " + counted(way.channels, "channel") + " of each group";
    const extent rows = p.groups * way.channels * p.window.taps(), columns = way.cut.positions(p);
    return text + ": a matrix of " + std::to_string(rows) + " x " + std::to_string(columns) + ", " +
           std::to_string(rows * columns * call.of.bytes) + " bytes";
}
/// Several lines, each indented by two blanks.
inline std::string explain_plan(const conv2d_call& call) {
    const detail::conv2d_plan plan = detail::plan_conv2d(call.of);
    const conv2d_products products = products_of(call);
    const matmul_problem& p = products.each;
    const matmul_plan by = plan_matmul(p);
    std::string text = line_of("family", plan.best().name);
    if (plan.best().family == detail::conv2d_family::unfolded) text += line_of("at once", piece_of(call, plan.best()));
    text += line_of("products", std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + ", " +
                                    std::to_string(p.matrices) + " in a launch, " + std::to_string(products.launches) +
                                    (products.launches == 1 ? " time" : " times"));
    std::string kernels = by.best().name + (", tiles of " + tiles_of(p, by.best()));
    if (by.best().cut.parts > 1) kernels += ", in up to " + std::to_string(by.best().cut.parts) + " parts";
    text += line_of("by", kernels) + line_of("copies", copies_of(p, by.best().family));
    return text + why(plan);
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
