// SPDX-License-Identifier: MIT
/// \file
/// A linear layer with cross-entropy on the CPU, by blocks of classes; linear_cross_entropy.hpp has the arguments, the
/// contract and an example.
///
/// The logits of up to about a thousand rows and a block of classes stay in the last-level cache, as do the block's
/// rows of w. The forward pass computes them as w xᵀ, (classes, rows), so that the product reads w in its own layout,
/// and merges each row's maximum and sum of exponentials over the blocks. The backward pass computes them as x wᵀ,
/// writes each block's part of dw once, and accumulates dx in float.
#pragma once

#include <algorithm>
#include <cmath>

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/linear_cross_entropy/linear_cross_entropy.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/number/integer.hpp>

#define HALFTONE_BODY <halftone/kernel/linear_cross_entropy/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Rows and classes in a block: a function of the shape alone, since sums over classes are partitioned by blocks.
struct logit_blocks {
    extent rows, classes;

    logit_blocks(extent all_rows, extent all_classes, std::size_t bytes, std::size_t logit_bytes) {
        constexpr extent most_rows = 2048, least_classes = 256, most_classes = 4096, step = 128;
        rows = evenly(all_rows, most_rows, 32);
        const auto fitting = static_cast<extent>(bytes / logit_bytes) / rows;
        classes = evenly(all_classes, std::clamp(fitting / step * step, least_classes, most_classes), step);
    }
    /// The smallest multiple of `step` that gives as few parts as `most` does; 1 if `all` is 0.
    static extent evenly(extent all, extent most, extent step) {
        const extent parts = std::max<extent>(1, detail::ceil_div(all, most)), each = detail::ceil_div(all, parts);
        return std::max<extent>(1, std::min(all, round_up(each, step)));
    }
};

template <std::size_t LogitBytes>
struct linear_cross_entropy<cpu, LogitBytes> {
    template <class Logit>
    static logit_blocks blocks_of(extent rows, extent classes) {
        return {rows, classes, LogitBytes, sizeof(Logit)};
    }

    static constexpr bool has_frozen_passes = true;
    static constexpr extent kept_logits(extent rows, extent classes) { return classes * padded_stride(rows); }

    template <class Compute, class Logit, class X, class W>
    static void forward(cpu& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                        const linear_cross_entropy_rows& a, Logit* kept = nullptr) {
        forward_by_blocks<Compute, Logit, Compute>(device, x, w, a, kept, {});
    }
    template <class Compute, class Logit, class InputGrad, class X, class W>
    static void forward_frozen(cpu& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                               const linear_cross_entropy_rows& a, const view<float, 2>& weight_sums) {
        forward_by_blocks<Compute, Logit, InputGrad>(device, x, w, a, static_cast<Logit*>(nullptr), weight_sums);
    }
    template <class X, class W>
    static void backward_frozen(cpu& device, const const_view<W, 2>& w, const linear_cross_entropy_rows& a,
                                const const_view<float, 1>& gradient, const const_view<float, 2>& weight_sums,
                                const gradient_result<X>& dx) {
        const extent rows = weight_sums.extent_of(0), width = weight_sums.extent_of(1);
        const row_partition partition = partition_rows(rows, width);
        const auto body = device.select(HALFTONE_EACH_SET(gradient_of_row<W, X>));
        device.parallel_for(partition.count, [&](extent task) {
            const float factor = gradient(0) / a.count(0);
            for (extent i = partition.begin(task), end = i + partition.rows_of(task); i < end; ++i) {
                X* const to = dx.to.data() + i * width;
                const std::int32_t target = a.targets(i);
                if (target == a.ignore_index) {
                    if (dx.mode == write_mode::overwrite) std::fill_n(to, width, X(0.0f));
                    continue;
                }
                // 1 minus the target's probability, from the loss, without cancellation where that is near 1.
                const float of_target = -std::expm1(-a.losses(i)) * factor;
                body(width, weight_sums.data() + i * width, factor / a.sum(i), w.data() + target * w.stride_of(0),
                     of_target, to, dx.mode);
            }
        });
    }

    template <class Compute, class Logit, class InputGrad, class WeightGrad = InputGrad, class X, class W, class G>
    static void backward(cpu& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                         const linear_cross_entropy_rows& a, const const_view<float, 1>& gradient,
                         const gradient_result<X>& dx, const gradient_result<G>& dw, Logit* kept = nullptr) {
        const extent width = x.extent_of(1);
        const logit_blocks each = blocks_of<Logit>(x.extent_of(0), w.extent_of(0));
        // Sums of dx over blocks are float.
        const bool sums_step = dx.to.data() != nullptr && !std::is_same_v<X, float> && each.classes < w.extent_of(0);
        const workspace::lease block(device.scratch(),
                                     kept == nullptr ? bytes_of<Logit>(each.rows, padded_stride(each.classes)) : 0),
            of_dx(device.scratch(), sums_step ? bytes_of<float>(each.rows, width) : 0);
        for_blocks(x.extent_of(0), each.rows, [&](extent i, extent rows) {
            const auto x_rows = some_rows(x, i, rows);
            const bool is_last = i + rows == x.extent_of(0);
            const view<float, 2> sums(of_dx.as<float>(), {rows, width});
            for_blocks(w.extent_of(0), each.classes, [&](extent j, extent classes) {
                const auto w_rows = some_rows(w, j, classes);
                const auto logits = kept == nullptr
                                        ? view<Logit, 2>(block.as<Logit>(), {rows, classes}, {padded_stride(classes), 1})
                                        : transpose(kept_block(kept, x.extent_of(0), i, rows, j, classes));
                if (kept == nullptr)
                    halftone::detail::product<Compute>(device, x_rows, transpose(w_rows), logits,
                                                       write_mode::overwrite);
                device.parallel_for(turns(logits), [&](extent index) {
                    turn(device, logits, index, i, j, a, gradient(0) / a.count(0));
                });
                if (sums_step) {
                    halftone::detail::product<InputGrad>(device, logits, w_rows, sums,
                                                         j == 0 ? write_mode::overwrite : write_mode::add);
                } else if (dx.to.data() != nullptr) {
                    halftone::detail::product<InputGrad>(device, logits, w_rows, some_rows(dx.to, i, rows),
                                                         j == 0 ? dx.mode : write_mode::add);
                }
                if (dw.to.data() != nullptr) {
                    square_sum squares;
                    halftone::detail::product<WeightGrad>(
                        device, transpose(logits), x_rows, some_rows(dw.to, j, classes),
                        i == 0 ? dw.mode : write_mode::add, is_last ? &squares : nullptr);
                    if (dw.squares != nullptr) *dw.squares += squares;
                }
            });
            if (sums_step) round(device, sums, some_rows(dx.to, i, rows), dx.mode);
        });
    }

  private:
    /// The forward pass. With `weight_sums` the logits of each block become exponentials after these have been summed, and are multiplied
    /// by the block's weights.
    template <class Compute, class Logit, class InputGrad, class X, class W>
    static void forward_by_blocks(cpu& device, const const_view<X, 2>& x, const const_view<W, 2>& w,
                                  const linear_cross_entropy_rows& a, Logit* kept, const view<float, 2>& weight_sums) {
        cross_entropy<cpu>::check_targets(device, w.extent_of(0), a.targets, a.ignore_index);
        const logit_blocks each = blocks_of<Logit>(x.extent_of(0), w.extent_of(0));
        const extent most_parts = detail::ceil_div(each.classes, part_classes);
        const bool sums_weights = weight_sums.data() != nullptr;
        const workspace::lease block(device.scratch(),
                                     kept == nullptr ? bytes_of<Logit>(each.classes, padded_stride(each.rows)) : 0),
            of_rows(device.scratch(), bytes_of<float>(1 + 2 * most_parts + (sums_weights ? 1 : 0), each.rows));
        float *const of_target = of_rows.as<float>(), *const part_largest = of_target + each.rows,
                     *const part_sums = part_largest + most_parts * each.rows,
                     *const before = part_sums + most_parts * each.rows;
        const auto sum = device.select(HALFTONE_EACH_SET(sum_exponentials<Logit>));
        const auto merge = device.select(HALFTONE_EACH_SET(merge_exponentials));
        const auto finish = device.select(HALFTONE_EACH_SET(losses_of_rows));
        for_blocks(x.extent_of(0), each.rows, [&](extent i, extent rows) {
            const std::int32_t* const targets = a.targets.data() + i;
            float *const largest = a.maximum.data() + i, *const sums = a.sum.data() + i;
            for_blocks(w.extent_of(0), each.classes, [&](extent j, extent classes) {
                const auto logits = kept == nullptr
                                        ? view<Logit, 2>(block.as<Logit>(), {classes, rows}, {padded_stride(rows), 1})
                                        : kept_block(kept, x.extent_of(0), i, rows, j, classes);
                halftone::detail::product<Compute>(device, some_rows(w, j, classes), transpose(some_rows(x, i, rows)),
                                                   logits, write_mode::overwrite);
                const extent stride = logits.stride_of(0), parts = detail::ceil_div(classes, part_classes);
                device.parallel_for(parts * detail::ceil_div(rows, part_rows), [&](extent index) {
                    const extent part = index % parts, c = part * part_classes, r = index / parts * part_rows;
                    sum(std::min(part_classes, classes - c), std::min(part_rows, rows - r),
                        logits.data() + c * stride + r, stride, part_largest + part * rows + r,
                        part_sums + part * rows + r);
                });
                device.run([&] {
                    if (sums_weights && j != 0) std::copy_n(largest, rows, before);
                    merge(parts, rows, part_largest, part_sums, rows, j == 0, largest, sums);
                    for (extent r = 0; r < rows; ++r) {
                        const extent c = targets[r] - j;
                        if (c >= 0 && c < classes) of_target[r] = static_cast<float>(logits(c, r));
                    }
                });
                if (sums_weights)
                    add_weights<InputGrad>(device, logits, some_rows(w, j, classes), j, targets,
                                           j == 0 ? nullptr : before, largest, some_rows(weight_sums, i, rows));
            });
            device.run([&] { finish(rows, largest, sums, of_target, targets, a.ignore_index, a.losses.data() + i); });
        });
        cross_entropy<cpu>::mean(device, a.losses, a.targets, a.loss, a.count, a.ignore_index);
    }

    /// Adds a block's weights, each times its exponential, and not the target's. `before` are the rows' maxima of the blocks before,
    /// nullptr for the first one. Logits (classes, rows) are overwritten.
    template <class InputGrad, class Logit, class W>
    static void add_weights(cpu& device, const view<Logit, 2>& logits, const const_view<W, 2>& w, extent first,
                            const std::int32_t* targets, const float* before, const float* largest,
                            const view<float, 2>& weight_sums) {
        const extent classes = logits.extent_of(0), rows = logits.extent_of(1), stride = logits.stride_of(0);
        const extent width = w.extent_of(1), parts = detail::ceil_div(classes, part_classes);
        const auto exponentials = device.select(HALFTONE_EACH_SET(exponentials_across<Logit>));
        const auto scale = device.select(HALFTONE_EACH_SET(scale_row));
        device.parallel_for(parts * detail::ceil_div(rows, part_rows), [&](extent index) {
            const extent c = index % parts * part_classes, r = index / parts * part_rows;
            exponentials(std::min(part_rows, rows - r), std::min(part_classes, classes - c),
                         logits.data() + c * stride + r, stride, first + c, targets + r, largest + r);
        });
        if (before != nullptr) {
            const row_partition partition = partition_rows(rows, width);
            device.parallel_for(partition.count, [&](extent task) {
                for (extent r = partition.begin(task), end = r + partition.rows_of(task); r < end; ++r) {
                    if (before[r] != largest[r])
                        scale(width, weight_sums.data() + r * width, std::exp(before[r] - largest[r]));
                }
            });
        }
        halftone::detail::product<InputGrad>(device, transpose(logits), w, weight_sums,
                                             before == nullptr ? write_mode::overwrite : write_mode::add);
    }

    /// Exponentials are summed over this many classes at a time, in tasks of this many rows.
    static constexpr extent part_classes = 256, part_rows = 64;

    /// The leading dimension of a matrix with rows of this number of elements: whole cache lines, and not a multiple of
    /// 4 KiB.
    static extent padded_stride(extent elements) { return round_up(elements, 64) + 32; }

    /// Kept logits are stored as (classes, rows), as the forward pass computes them.
    template <class Logit>
    static view<Logit, 2> kept_block(Logit* kept, extent all_rows, extent row, extent rows, extent first,
                                     extent classes) {
        return {kept + first * padded_stride(all_rows) + row, {classes, rows}, {padded_stride(all_rows), 1}};
    }

    /// Turns logits (rows, classes) into their gradients, in place, by so many tasks; gets the block's first row and
    /// class.
    template <class Logit>
    static extent turns(const view<Logit, 2>& logits) {
        const extent rows = logits.extent_of(0), classes = logits.extent_of(1);
        return logits.stride_of(1) == 1 ? partition_rows(rows, classes).count
                                        : detail::ceil_div(classes, part_classes) * detail::ceil_div(rows, part_rows);
    }
    template <class Logit>
    static void turn(const cpu& device, const view<Logit, 2>& logits, extent task, extent row, extent first,
                     const linear_cross_entropy_rows& a, float factor) {
        const extent rows = logits.extent_of(0), classes = logits.extent_of(1);
        const std::int32_t* const targets = a.targets.data() + row;
        const float *const largest = a.maximum.data() + row, *const sums = a.sum.data() + row;
        if (const extent stride = logits.stride_of(0); logits.stride_of(1) == 1) {
            const auto body = device.select(HALFTONE_EACH_SET(logits_to_gradients<Logit>));
            const row_partition partition = partition_rows(rows, classes);
            const extent i = partition.begin(task);
            body(partition.rows_of(task), classes, logits.data() + i * stride, stride, first, targets + i, a.ignore_index,
                 largest + i, sums + i, factor);
        } else {
            const auto body = device.select(HALFTONE_EACH_SET(logits_to_gradients_across<Logit>));
            const extent parts = detail::ceil_div(classes, part_classes), padded_stride = logits.stride_of(1);
            const extent c = task % parts * part_classes, i = task / parts * part_rows;
            body(std::min(part_rows, rows - i), std::min(part_classes, classes - c), logits.data() + c * padded_stride + i,
                 padded_stride, first + c, targets + i, a.ignore_index, largest + i, sums + i, factor);
        }
    }

    template <class T>
    static std::size_t bytes_of(extent rows, extent columns) {
        return static_cast<std::size_t>(rows * columns) * sizeof(T);
    }
    /// Calls body(first, size) for the blocks of `all` rows or classes; without any there is one empty block.
    template <class Body>
    static void for_blocks(extent all, extent each, const Body& body) {
        extent first = 0;
        do body(first, std::min(each, all - first));
        while ((first += each) < all);
    }
    template <class X>
    static void round(cpu& device, const view<float, 2>& sums, const view<X, 2>& to, write_mode mode) {
        const auto body = device.select(HALFTONE_EACH_SET(round_sums<X>));
        const extent width = sums.extent_of(1);
        const row_partition partition = partition_rows(sums.extent_of(0), width);
        device.parallel_for(partition.count, [&](extent piece) {
            const extent i = partition.begin(piece);
            body(partition.rows_of(piece), width, sums.data() + i * width, to.data() + i * to.stride_of(0),
                 to.stride_of(0), mode);
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
