// SPDX-License-Identifier: MIT
/// \file
/// Convolutions on the CPU without an unfolded matrix in memory; implicit.hpp has the contract.
///
///                    results (positions of all images), in blocks
///                    +--------+--------+---
///                    | panels |  ...   |       a piece of depth, whole channels: their rows are copied into planes (planes.hpp),
///                    +--------+--------+---    out of which the thread that multiplies takes a panel at a time, 32 KiB in L1
///       weight           |
///     +--------+     +---v----+
///     | block  |---->|  sums  |                a task: 252 outputs by 256 positions, 252 KiB in L2
///     +--------+     +--------+
///     |        |
///
/// - Packed: the weight, once, by all threads together.
/// - Wins wherever a matrix has to be unfolded, because that has taps elements for each one of x: it leaves the caches, and
///   is read again to be packed. Planes have each element once, with its padding, so that a panel's rows are two loads, two
///   permutations and two stores each, whatever the window. Figures: bench/TRIED.md.
#pragma once

#include <algorithm>

#include <halftone/kernel/conv2d/implicit/implicit.hpp>
#include <halftone/kernel/conv2d/implicit/pairs.hpp>
#include <halftone/kernel/conv2d/implicit/pick.hpp>
#include <halftone/kernel/conv2d/implicit/planes.hpp>
#include <halftone/kernel/matmul/cpu.hpp>

#define HALFTONE_BODY <halftone/kernel/conv2d/implicit/planes.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace implicit_cpu {

/// Rows of sums of one image are complete: (outputs, positions).
struct finished_sums {
    extent group, image, output, position;
    const float* sums;
    extent stride, outputs, positions;
};

/// A call without its types.
struct job {
    const tap_sum& sum;
    const detail::product_unit& unit;
    extent word_channels;  ///< channels in a word: 1, or 2 for pairs of bfloat16
    image_memory source;
    fill_planes* fill;
    copy_columns* copy;
    tap_packing weight;              ///< of group 0
    extent weight_bytes, group_stride;  ///< of an element; elements from group to group
    pack_taps* pack;
    const void* result;
    void (*finish)(const void* result, const finished_sums& f);

    /// Groups of word_channels channels, of which the last may be incomplete.
    extent units() const { return (sum.channels + word_channels - 1) / word_channels; }
    int lanes() const { return unit.columns / 2; }
};

/// How a call is cut. No result depends on it: each is summed over pieces of depth, in their order.
struct blocks {
    extent rows, panels;  ///< of a task

    static blocks of(const job& j, int threads, const detail::cache_sizes& caches) {
        constexpr extent most_rows = 264, most_panels = 8, tasks_per_thread = 3;
        const extent high = j.unit.rows, outputs = j.sum.outputs, parts = (outputs + most_rows - 1) / most_rows;
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
    extent row_blocks(const job& j) const { return (j.sum.outputs + rows - 1) / rows; }
    extent columns(const job& j) const { return panels * j.unit.columns; }
    extent column_blocks(const job& j) const {
        return (j.sum.images * j.sum.positions() + columns(j) - 1) / columns(j);
    }
    extent count(const job& j) const { return j.sum.groups * row_blocks(j) * column_blocks(j); }
};

class product {
  public:
    product(cpu& device, const job& j)
        : device_(device),
          j_(j),
          cut_(blocks::of(j, device.threads(), device.caches())),
          rows_(blocks::round_up(j.sum.outputs, j.unit.rows)) {
        const extent taps = std::max<extent>(1, j.sum.taps()), fitting = std::max<extent>(1, most_taps / taps);
        pieces_ = taps_are_empty() ? 0 : (j.units() + fitting - 1) / fitting;
        piece_units_ = taps_are_empty() ? 0 : (j.units() + pieces_ - 1) / pieces_;
    }

    void run() const {
        const workspace::lease packed(device_.scratch(), static_cast<std::size_t>(j_.sum.groups * pieces_) * piece_bytes());
        pack(packed.data());
        const places at(*this);
        device_.parallel_for(cut_.count(j_), at.bytes, [&](extent task, std::byte* scratch) {
            const extent blocks = cut_.column_blocks(j_), group = task / blocks / cut_.row_blocks(j_);
            multiply(packed.data(), at, group, task / blocks % cut_.row_blocks(j_) * cut_.rows,
                     task % blocks * cut_.columns(j_), scratch);
        });
    }

  private:
    /// Where a task's memory is, in bytes from the beginning.
    struct places {
        std::size_t sums, panel, planes, columns, offsets, bytes;

        explicit places(const product& of) {
            const job& j = of.j_;
            std::size_t end = 0;
            const auto take = [&](extent count, std::size_t each) {
                const std::size_t begin = end;
                end += halftone::round_up(static_cast<std::size_t>(count) * each, block_alignment);
                return begin;
            };
            const extent slack = j.unit.columns;  // what is loaded for a permutation, and not taken
            sums = take(of.cut_.rows * of.cut_.columns(j), sizeof(float));
            panel = take(most_taps * j.unit.columns, word_bytes);
            planes = take(of.piece_units_ * j.sum.phases() * j.sum.most_plane_size(of.cut_.columns(j)) + slack, word_bytes);
            columns = take(2 * of.cut_.panels, sizeof(column_vector));
            offsets = take(most_taps, sizeof(std::int32_t));
            bytes = end;
        }
    };

    static constexpr std::size_t word_bytes = 4;
    /// Words from row to row of the packed weight: so many more than a piece has that rows fall into different cache sets.
    static constexpr extent row_words = most_taps + 16;

    bool taps_are_empty() const { return j_.sum.taps() == 0; }
    extent units_of(extent piece) const { return std::min(piece_units_, j_.units() - piece * piece_units_); }
    extent channels_of(extent piece) const {
        const extent first = piece * piece_units_ * j_.word_channels;
        return std::min(piece_units_ * j_.word_channels, j_.sum.channels - first);
    }
    /// Of the packed weight: all outputs of a group by one piece of depth.
    std::size_t piece_bytes() const { return static_cast<std::size_t>(rows_ * row_words) * word_bytes; }

    void pack(std::byte* to) const {
        constexpr extent together = 48;
        const extent parts = (j_.sum.outputs + together - 1) / together;
        device_.parallel_for(j_.sum.groups * pieces_ * parts, [&](extent index) {
            const extent first = index % parts * together, piece = index / parts % pieces_, group = index / parts / pieces_;
            tap_packing p = j_.weight;
            p.rows = std::min(together, j_.sum.outputs - first);
            p.channels = channels_of(piece);
            const extent begin = group * j_.group_stride + first * p.row_stride +
                                 piece * piece_units_ * j_.word_channels * p.channel_stride;
            p.weight = static_cast<const std::byte*>(p.weight) + begin * j_.weight_bytes;
            j_.pack(p, to + static_cast<std::size_t>(group * pieces_ + piece) * piece_bytes() +
                           static_cast<std::size_t>(first * row_words) * word_bytes, row_words);
        });
    }

    /// Results of some rows (outputs), from `row` on, by some columns (positions), from `column` on.
    void multiply(const std::byte* packed, const places& at, extent group, extent row, extent column,
                  std::byte* scratch) const {
        const extent wide = j_.unit.columns, stride = cut_.columns(j_), all = j_.sum.images * j_.sum.positions(),
                     rows = std::min(cut_.rows, j_.sum.outputs - row), count = std::min(stride, all - column),
                     panels = (count + wide - 1) / wide;
        auto* const sums = reinterpret_cast<float*>(scratch + at.sums);
        auto* const columns = reinterpret_cast<column_vector*>(scratch + at.columns);
        auto* const offsets = reinterpret_cast<std::int32_t*>(scratch + at.offsets);
        const strip s{j_.sum, j_.source, column, count, j_.sum.most_plane_size(stride)};
        column_writer writer(columns, j_.lanes());
        for_each_place(s, [&](extent place, bool) { writer.add(place); });
        writer.finish(2 * panels);
        write_tap_offsets(j_.sum, s.plane_size, offsets);
        if (pieces_ == 0) std::fill_n(sums, rows * stride, 0.0f);
        for (extent piece = 0; piece < pieces_; ++piece) {
            const extent depth = units_of(piece) * j_.sum.taps();
            j_.fill(s, group * j_.sum.channels + piece * piece_units_ * j_.word_channels, channels_of(piece), scratch + at.planes);
            const detail::block_of_a block{packed + static_cast<std::size_t>(group * pieces_ + piece) * piece_bytes() +
                                               static_cast<std::size_t>(row * row_words) * word_bytes,
                                           row_words * j_.word_channels};
            for (extent i = 0; i < panels; ++i) {
                j_.copy({scratch + at.planes, s.channel_size(), offsets, j_.sum.taps(), 0, depth, columns + 2 * i, 2},
                        scratch + at.panel, wide);
                j_.unit.vectors->multiply(rows, depth * j_.word_channels, block, scratch + at.panel, sums + i * wide, stride,
                                          piece > 0, nullptr);
            }
        }
        const float* complete = sums;
        j_.sum.for_each_image(column, count, [&](const rows_of_image& r) {
            j_.finish(j_.result, {group, r.image, row, r.position, complete, stride, rows, r.count});
            complete += r.count;
        });
    }

    cpu& device_;
    const job& j_;
    blocks cut_;
    extent rows_, pieces_ = 0, piece_units_ = 0;
};

/// Stores sums through an epilogue of the product.
template <class Epilogue, class Y>
struct finisher {
    const tap_sum& sum;
    const Epilogue& epilogue;  ///< epilogue(group): what matmul/epilogue.hpp has
    Y* y;
    extent outputs, height, width;  ///< of the result
    void (*finish_block)(const void* epilogue, const float* sums, extent sums_stride, extent row, extent column,
                         extent rows, extent columns, bool non_temporal);

    bool is_dense() const { return sum.down.result_step == 1 && sum.across.result_step == 1; }
    view<Y, 2> result(extent group, extent image) const {
        return {y + (image * outputs + group * sum.outputs) * height * width, {sum.outputs, height * width}};
    }
    static void finish(const void* self, const finished_sums& f) {
        const auto& to = *static_cast<const finisher*>(self);
        const auto e = epilogue_of(to.epilogue(f.group), to.result(f.group, f.image));
        if (to.is_dense())
            return to.finish_block(&e, f.sums, f.stride, f.output, f.position, f.outputs, f.positions, false);
        to.finish_some(f);
    }

  private:
    /// Results that are not adjacent: rounded one after the other, and spread.
    void finish_some(const finished_sums& f) const {
        const bool adds = !std::is_same_v<std::remove_cvref_t<decltype(epilogue(0))>, plain>;
        const tap_axis &down = sum.down, &across = sum.across;
        const view<Y, 2> all = result(f.group, f.image);
        for (extent o = 0; o < f.outputs; ++o) {
            Y* const of_output = all.data() + (f.output + o) * height * width;
            const float* from = f.sums + o * f.stride;
            extent i = f.position / across.positions, j = f.position % across.positions;
            for (extent left = f.positions; left > 0; j = 0, ++i) {
                const extent n = std::min(left, across.positions - j);
                Y* const to = of_output + (down.result_first + i * down.result_step) * width + across.result_first +
                              j * across.result_step;
                if (adds) {
                    for (extent k = 0; k < n; ++k)
                        to[k * across.result_step] =
                            static_cast<Y>(static_cast<float>(to[k * across.result_step]) + from[k]);
                } else {
                    for (extent k = 0; k < n; ++k) to[k * across.result_step] = static_cast<Y>(from[k]);
                }
                from += n;
                left -= n;
            }
        }
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
        return detail::matmul_unit_for<Compute>(device).vectors.has_value() && !p.window.is_one_for_one() &&
               implicit_cpu::has_few_taps(p.window);
    }

    /// y = the convolution of x with the weight, through epilogue(group).
    template <class Compute, class X, class W, class Epilogue, class Y>
    static void forward(cpu& device, const detail::conv2d_problem& p, const view<const X, 4>& x,
                        const view<const W, 4>& weight, const Epilogue& epilogue, const view<Y, 4>& y) {
        using namespace implicit_cpu;
        const tap_sum sum{p.images, p.groups, p.group_channels(), p.group_outputs(), tap_axis::of_forward(p.window.down),
                          tap_axis::of_forward(p.window.across)};
        run<Compute>(device, sum, p, x, weight, {p.depth(), p.window.taps()}, epilogue, y);
    }
    /// dx = the gradient of the input, through epilogue(group): for each remainder of rows and columns by the stride, one sum over
    /// the taps that see such rows and columns.
    template <class Compute, class G, class W, class Epilogue, class X>
    static void input_gradient(cpu& device, const detail::conv2d_problem& p, const view<const G, 4>& dy,
                               const view<const W, 4>& weight, const Epilogue& epilogue, const view<X, 4>& dx) {
        using namespace implicit_cpu;
        const window_axis &down = p.window.down, &across = p.window.across;
        for (extent i = 0; i < std::min(down.stride, down.size); ++i) {
            for (extent j = 0; j < std::min(across.stride, across.size); ++j) {
                const tap_sum sum{p.images, p.groups, p.group_outputs(), p.group_channels(), tap_axis::of_input(down, i),
                                  tap_axis::of_input(across, j)};
                run<Compute>(device, sum, p, dy, weight, {p.window.taps(), p.depth()}, epilogue, dx);
            }
        }
    }

  private:
    /// Strides of the weight, from output to output of a sum and from channel to channel.
    struct weight_strides {
        extent row, channel;
    };

    template <class Compute, class X, class W, class Epilogue, class Y>
    static void run(cpu& device, const implicit_cpu::tap_sum& sum, const detail::conv2d_problem& p, const view<const X, 4>& x,
                    const view<const W, 4>& weight, const weight_strides& strides, const Epilogue& epilogue,
                    const view<Y, 4>& y) {
        using namespace implicit_cpu;
        const detail::product_unit unit = detail::matmul_unit_for<Compute>(device);
        finisher<Epilogue, Y> end{sum, epilogue, y.data(), y.extent_of(1), y.extent_of(2), y.extent_of(3), nullptr};
        end.finish_block = finish_block_of(device, epilogue_of(epilogue(0), end.result(0, 0)));
        std::int32_t number[most_taps];
        for (extent k = 0, t = 0; k < sum.down.taps; ++k)
            for (extent l = 0; l < sum.across.taps; ++l)
                number[t++] = static_cast<std::int32_t>(sum.down.number[k] * p.window.across.taps + sum.across.number[l]);
        const bool multiplies_pairs = unit.element == 2;
        const tap_packing taps{weight.data(), strides.row, strides.channel, p.window.taps(), number, sum.taps(), 0, 0};
        product(device, {.sum = sum,
                         .unit = unit,
                         .word_channels = multiplies_pairs ? 2 : 1,
                         .source = {reinterpret_cast<const std::byte*>(x.data()), x.strides()},
                         .fill = fill_of<Compute, X>(device, multiplies_pairs),
                         .copy = device.select(&portable::copy_column_words, &avx2::copy_column_words,
                                               &avx512::copy_column_words),
                         .weight = taps,
                         .weight_bytes = sizeof(W),
                         .group_stride = p.group_outputs() * p.depth(),
                         .pack = pack_of<Compute, W>(device, multiplies_pairs),
                         .result = &end,
                         .finish = &finisher<Epilogue, Y>::finish})
            .run();
    }
    template <class Compute, class X>
    static implicit_cpu::fill_planes* fill_of(const cpu& device, [[maybe_unused]] bool pairs) {
#if defined(__x86_64__)
        if constexpr (std::is_same_v<Compute, bfloat16>) {
            if (pairs) return &avx512_bf16::fill_pair_planes<X>;
        }
#endif
        return device.select(&portable::fill_float_planes<Compute, X>, &avx2::fill_float_planes<Compute, X>,
                             &avx512::fill_float_planes<Compute, X>);
    }
    template <class Compute, class W>
    static implicit_cpu::pack_taps* pack_of(const cpu& device, [[maybe_unused]] bool pairs) {
#if defined(__x86_64__)
        if constexpr (std::is_same_v<Compute, bfloat16>) {
            if (pairs) return &avx512_bf16::pack_pair_taps<W>;
        }
#endif
        return device.select(&portable::pack_float_taps<Compute, W>, &avx2::pack_float_taps<Compute, W>,
                             &avx512::pack_float_taps<Compute, W>);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
