// SPDX-License-Identifier: MIT
/// \file
/// Convolutions on the CPU without an unfolded matrix in memory; implicit.hpp has the contract.
///
///                    positions of all images, in blocks
///                    +--------+--------+---
///                    | panels |  ...   |       a piece of depth (256): gathered from x by the thread that multiplies it,
///                    +--------+--------+---    128 KiB of floats in its L2
///       weight           |
///     +--------+     +---v----+
///     | block  |---->|  sums  |                a task: 252 outputs by 128 positions, 126 KiB in L2
///     +--------+     +--------+
///     |        |
///
/// - Packed: the weight, once, by all threads together.
/// - Wins wherever a matrix has to be unfolded, because that has taps elements for each one of x: it leaves the caches, and
///   is read again to be packed. Xeon with AVX-512, 2 threads, fp32: see bench/TRIED.md.
#pragma once

#include <algorithm>

#include <halftone/kernel/conv2d/implicit/implicit.hpp>
#include <halftone/kernel/conv2d/implicit/panel_columns.hpp>
#include <halftone/kernel/matmul/cpu.hpp>

#define HALFTONE_BODY <halftone/kernel/conv2d/implicit/gather.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace implicit_cpu {

/// Gathers rows of a panel as floats, which the unit multiplies.
using gather_floats = void(const panel_columns& columns, const void* images, extent first_channel, extent k, extent count,
                           float* to);

/// A call without its types. `finish` stores rows of sums of one image: (outputs, positions).
struct job {
    const detail::conv2d_problem& p;
    const detail::product_unit& unit;
    image_memory x;
    extent x_bytes;  ///< of an element
    gather_floats* gather;                   ///< for the unit of multiply-adds; others pack what is gathered
    detail::pack_panels_of_b* pack_columns;
    const std::byte* weight;                 ///< (groups, outputs, depth), contiguous
    extent weight_bytes;
    detail::pack_rows_of_a* pack_weight;
    const void* result;
    void (*finish)(const void* result, extent group, extent image, extent output, extent position, const float* sums,
                   extent sums_stride, extent outputs, extent positions);
};

/// How a call is cut. No result depends on it: each is summed over pieces of depth, in their order.
struct blocks {
    static constexpr extent depth = detail::panel_depth;
    extent rows, panels;  ///< of a task

    static blocks of(const job& j, int threads, const detail::cache_sizes& caches) {
        constexpr extent most_rows = 264, most_panels = 8, tasks_per_thread = 3;
        const extent high = j.unit.rows, outputs = j.p.group_outputs(), parts = (outputs + most_rows - 1) / most_rows;
        blocks b{round_up((outputs + parts - 1) / parts, high), most_panels};
        const auto sums = static_cast<extent>(caches.l2 / 4 / sizeof(float));  // the weight's block and the panel need the rest
        b.panels = std::clamp<extent>(sums / (b.rows * j.unit.columns), 1, most_panels);
        while (b.count(j) < tasks_per_thread * threads && (b.panels > 1 || b.rows > 4 * high)) {
            if (b.panels > 2 || b.rows <= 4 * high) {
                b.panels /= 2;
            } else {
                b.rows = round_up(b.rows / 2, high);
            }
        }
        return b;
    }
    static extent round_up(extent n, extent to) { return (n + to - 1) / to * to; }
    extent row_blocks(const job& j) const { return (j.p.group_outputs() + rows - 1) / rows; }
    extent columns(const job& j) const { return panels * j.unit.columns; }
    extent column_blocks(const job& j) const {
        return (j.p.images * j.p.positions() + columns(j) - 1) / columns(j);
    }
    extent count(const job& j) const { return j.p.groups * row_blocks(j) * column_blocks(j); }
};

class product {
  public:
    product(cpu& device, const job& j)
        : device_(device),
          j_(j),
          cut_(blocks::of(j, device.threads(), device.caches())),
          pieces_((j.p.depth() + blocks::depth - 1) / blocks::depth),
          rows_(blocks::round_up(j.p.group_outputs(), j.unit.rows)) {}

    void run() const {
        const workspace::lease packed(device_.scratch(), static_cast<std::size_t>(j_.p.groups * pieces_) * piece_bytes());
        pack(packed.data());
        const places at(*this);
        device_.parallel_for(cut_.count(j_), at.bytes, [&](extent task, std::byte* scratch) {
            const extent blocks = cut_.column_blocks(j_), group = task / blocks / cut_.row_blocks(j_);
            j_.unit.begin_worker();
            multiply(packed.data(), at, group, task / blocks % cut_.row_blocks(j_) * cut_.rows,
                     task % blocks * cut_.columns(j_), scratch);
            j_.unit.end_worker();
        });
    }

  private:
    /// Where a task's memory is, in bytes from the beginning.
    struct places {
        std::size_t sums, panel, columns, runs, bytes;

        explicit places(const product& of) {
            const job& j = of.j_;
            const extent wide = j.unit.columns;
            std::size_t end = 0;
            const auto take = [&](extent count, std::size_t each) {
                const std::size_t begin = end;
                end += halftone::round_up(static_cast<std::size_t>(count) * each, block_alignment);
                return begin;
            };
            sums = take(of.cut_.rows * of.cut_.columns(j), sizeof(float));
            panel = take(1, j.unit.panel_bytes(blocks::depth));
            columns = take(j.gather != nullptr ? 0 : blocks::depth * wide, static_cast<std::size_t>(j.x_bytes));
            runs = take(of.cut_.panels * panel_columns::most_runs(j.p.window, wide), sizeof(column_run));
            bytes = end;
        }
    };

    extent depth_of(extent piece) const { return std::min(blocks::depth, j_.p.depth() - piece * blocks::depth); }
    /// Of the packed weight: all outputs of a group by one piece of depth.
    std::size_t piece_bytes() const { return j_.unit.block_bytes(rows_); }
    std::size_t row_bytes() const { return static_cast<std::size_t>(detail::panel_stride * j_.unit.element); }

    void pack(std::byte* to) const {
        constexpr extent together = 48;
        const extent parts = (j_.p.group_outputs() + together - 1) / together, depth = j_.p.depth();
        device_.parallel_for(j_.p.groups * pieces_ * parts, [&](extent index) {
            const extent first = index % parts * together, piece = index / parts % pieces_, group = index / parts / pieces_;
            const extent row = group * j_.p.group_outputs() + first;
            j_.pack_weight(j_.weight + (row * depth + piece * blocks::depth) * j_.weight_bytes, depth, 1,
                           std::min(together, j_.p.group_outputs() - first), depth_of(piece),
                           to + static_cast<std::size_t>(group * pieces_ + piece) * piece_bytes() +
                               static_cast<std::size_t>(first) * row_bytes(),
                           detail::panel_stride);
        });
    }

    /// Results of some rows (outputs), from `row` on, by some columns (positions), from `column` on.
    void multiply(const std::byte* packed, const places& at, extent group, extent row, extent column,
                  std::byte* scratch) const {
        const extent wide = j_.unit.columns, stride = cut_.columns(j_), all = j_.p.images * j_.p.positions(),
                     rows = std::min(cut_.rows, j_.p.group_outputs() - row),
                     panels = std::min(cut_.panels, (all - column + wide - 1) / wide);
        auto* const sums = reinterpret_cast<float*>(scratch + at.sums);
        const extent most_runs = panel_columns::most_runs(j_.p.window, wide);
        auto* const runs = reinterpret_cast<column_run*>(scratch + at.runs);
        const auto panel = [&](extent i) {
            return panel_columns(j_.x, j_.p.window, wide, runs + i * most_runs);
        };
        for (extent i = 0; i < panels; ++i) panel(i).choose(column + i * wide);
        for (extent piece = 0; piece < pieces_; ++piece) {
            const extent depth = depth_of(piece);
            const std::byte* const block = packed + static_cast<std::size_t>(group * pieces_ + piece) * piece_bytes() +
                                           static_cast<std::size_t>(row) * row_bytes();
            for (extent i = 0; i < panels; ++i) {
                gather(panel(i), group, piece, depth, scratch + at.panel, scratch + at.columns);
                j_.unit.multiply(rows, j_.unit.run(depth), block, scratch + at.panel, sums + i * wide, stride, piece > 0,
                                 nullptr);
            }
        }
        const extent end = std::min(column + panels * wide, all);
        for (extent from = column; from < end;) {
            const extent image = from / j_.p.positions(), position = from % j_.p.positions(),
                         count = std::min(j_.p.positions() - position, end - from);
            j_.finish(j_.result, group, image, row, position, sums + (from - column), stride, rows, count);
            from += count;
        }
    }
    void gather(const panel_columns& columns, extent group, extent piece, extent depth, std::byte* panel,
                std::byte* gathered) const {
        const extent channel = group * j_.p.group_channels(), k = piece * blocks::depth;
        if (j_.gather != nullptr)
            return j_.gather(columns, j_.x.data, channel, k, depth, reinterpret_cast<float*>(panel));
        if (j_.x_bytes == 4) columns.gather(channel, k, depth, reinterpret_cast<std::uint32_t*>(gathered));
        if (j_.x_bytes == 2) columns.gather(channel, k, depth, reinterpret_cast<std::uint16_t*>(gathered));
        if (j_.x_bytes == 1) columns.gather(channel, k, depth, reinterpret_cast<std::uint8_t*>(gathered));
        j_.pack_columns(gathered, j_.unit.columns, 1, depth, j_.unit.columns, panel, 0);
    }

    cpu& device_;
    const job& j_;
    blocks cut_;
    extent pieces_, rows_;
};

/// Stores sums through an epilogue of the product.
template <class Epilogue, class Y>
struct finisher {
    const detail::conv2d_problem& p;
    const Epilogue& epilogue;  ///< epilogue(group): what matmul/epilogue.hpp has
    Y* y;
    void (*finish_block)(const void* epilogue, const float* sums, extent sums_stride, extent row, extent column,
                         extent rows, extent columns, bool non_temporal);

    view<Y, 2> result(extent group, extent image) const {
        return {y + (image * p.outputs + group * p.group_outputs()) * p.positions(), {p.group_outputs(), p.positions()}};
    }
    static void finish(const void* self, extent group, extent image, extent output, extent position, const float* sums,
                       extent sums_stride, extent outputs, extent positions) {
        const auto& f = *static_cast<const finisher*>(self);
        const auto e = epilogue_of(f.epilogue(group), f.result(group, image));
        f.finish_block(&e, sums, sums_stride, output, position, outputs, positions, false);
    }
};
template <class Operands, class Results>
auto finish_block_of(const cpu& device, const detail::matmul_epilogue<Operands, Results>&) {
    return device.select(&portable::finish_block<Operands, Results>, &avx2::finish_block<Operands, Results>,
                         &avx512::finish_block<Operands, Results>);
}

}  // namespace implicit_cpu

template <>
struct implicit_conv2d<cpu> {
    template <class Compute, class... T>
    static constexpr bool takes = !in_double<Compute, T...>;

    /// Whether vector units multiply (products on tiles were not tried), and a matrix would be unfolded.
    template <class Compute>
    static bool takes_problem(const cpu& device, const detail::conv2d_problem& p) {
        return detail::matmul_unit_for<Compute>(device).vectors.has_value() && !p.window.is_one_for_one();
    }

    /// to (groups, group_channels, group_outputs, taps) = the weight (groups, group_outputs, group_channels, taps), the
    /// last tap first.
    template <class W>
    static void reverse(cpu& device, const detail::conv2d_problem& p, const W* weight, W* to) {
        constexpr extent together = 16;  // channels: what is read of an output, 576 bytes of a 3x3 window in float
        const extent taps = p.window.taps(), outputs = p.group_outputs(), channels = p.group_channels(),
                     parts = (channels + together - 1) / together;
        device.parallel_for(p.groups * parts, [&](extent index) {
            const extent group = index / parts, first = index % parts * together,
                         end = std::min(first + together, channels);
            for (extent o = 0; o < outputs; ++o) {
                for (extent c = first; c < end; ++c) {
                    const W* const from = weight + ((group * outputs + o) * channels + c) * taps;
                    W* const row = to + ((group * channels + c) * outputs + o) * taps;
                    for (extent t = 0; t < taps; ++t) row[t] = from[taps - 1 - t];
                }
            }
        });
    }

    /// y = the convolution of x with the weight, through epilogue(group).
    template <class Compute, class X, class W, class Epilogue, class Y>
    static void forward(cpu& device, const detail::conv2d_problem& p, const view<const X, 4>& x,
                        const view<const W, 4>& weight, const Epilogue& epilogue, const view<Y, 4>& y) {
        const detail::product_unit unit = detail::matmul_unit_for<Compute>(device);
        const auto of_weight = detail::matmul_packing_of_a<Compute, W>(device);
        const auto of_x = detail::matmul_packing_of_b<Compute, X>(device);
        implicit_cpu::finisher<Epilogue, Y> end{p, epilogue, y.data(), nullptr};
        end.finish_block = implicit_cpu::finish_block_of(device, epilogue_of(epilogue(0), end.result(0, 0)));
        const bool multiplies_floats = unit.element == sizeof(float);
        implicit_cpu::product(device, {.p = p,
                                       .unit = unit,
                                       .x = {reinterpret_cast<const std::byte*>(x.data()), x.shape(), x.strides()},
                                       .x_bytes = sizeof(X),
                                       .gather = multiplies_floats ? gather_of<Compute, X>(device) : nullptr,
                                       .pack_columns = of_x.pack,
                                       .weight = reinterpret_cast<const std::byte*>(weight.data()),
                                       .weight_bytes = sizeof(W),
                                       .pack_weight = of_weight.pack,
                                       .result = &end,
                                       .finish = &implicit_cpu::finisher<Epilogue, Y>::finish})
            .run();
    }

  private:
    template <class Compute, class X>
    static implicit_cpu::gather_floats* gather_of(const cpu& device) {
        return device.select(&portable::gather_panel<Compute, X>, &avx2::gather_panel<Compute, X>,
                             &avx512::gather_panel<Compute, X>);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
