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
#include <halftone/kernel/conv2d/implicit/weight_gradient.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/number/integer.hpp>

#define HALFTONE_BODY <halftone/kernel/conv2d/implicit/planes.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace implicit_cpu {

/// Sums of one image are complete: (classes, outputs, positions).
struct finished_sums {
    extent group, image, output, position;
    const float* sums;
    extent stride, class_stride, outputs, positions;

    static constexpr extent together = 16;  ///< outputs whose classes are interleaved at once
};

/// A call without its types.
struct job {
    const tap_sum& sum;
    const detail::product_unit& unit;
    extent word_channels;  ///< channels in a word: 1, or 2 for pairs of bfloat16
    image_memory source;
    extent source_bytes;  ///< of an element
    fill_planes* fill;
    copy_columns* copy;
    tap_packing weight;                 ///< of group 0 and all taps, class by class
    extent weight_bytes, group_stride;  ///< of an element; elements from group to group
    pack_taps* pack;
    detail::pack_rows_of_a* pack_matrix;  ///< for windows of one element
    bool is_in_place;                     ///< the weight needs no packing
    const void* result;
    void (*finish)(const void* result, const finished_sums& f, float* buffer);

    /// Groups of word_channels channels, of which the last may be incomplete.
    extent units() const { return detail::ceil_div(sum.channels, word_channels); }
    int lanes() const { return unit.columns / 2; }
};

/// How a call is cut. No result depends on it: each is summed over pieces of depth, in their order.
struct blocks {
    extent rows, panels;  ///< of a task, whose sums are (classes, rows, panels)

    static blocks of(const job& j, int threads, const detail::cache_sizes& caches) {
        constexpr extent most_rows = 264, most_panels = 8, tasks_per_thread = 3;
        const extent high = j.unit.rows, outputs = j.sum.outputs, parts = detail::ceil_div(outputs, most_rows);
        blocks b{round_up(detail::ceil_div(outputs, parts), high), most_panels};
        const auto sums =
            static_cast<extent>(caches.l2 / 4 / sizeof(float));  // the weight's block and the panel need the rest
        b.panels = std::clamp<extent>(sums / (b.rows * j.unit.columns * j.sum.classes()), 1, most_panels);
        while (b.count(j) < tasks_per_thread * threads && (b.panels > 1 || b.rows > 4 * high)) {
            if (b.panels > 2 || b.rows <= 4 * high) {
                b.panels /= 2;
            } else {
                b.rows = round_up(b.rows / 2, high);
            }
        }
        return b;
    }
    extent row_blocks(const job& j) const { return detail::ceil_div(j.sum.outputs, rows); }
    extent columns(const job& j) const { return panels * j.unit.columns; }
    extent column_blocks(const job& j) const { return detail::ceil_div(j.sum.images * j.sum.positions(), columns(j)); }
    extent count(const job& j) const { return j.sum.groups * row_blocks(j) * column_blocks(j); }
};

class product {
  public:
    product(cpu& device, const job& j)
        : device_(device),
          j_(j),
          cut_(blocks::of(j, device.threads(), device.caches())),
          rows_(round_up(j.sum.outputs, j.unit.rows)) {
        if (j.sum.taps() == 0) return;
        const extent fitting =
            std::max<extent>(1, std::min(most_taps / j.sum.most_taps_of_class(), most_row_words / j.sum.taps()));
        pieces_ = detail::ceil_div(j.units(), fitting);
        piece_units_ = detail::ceil_div(j.units(), pieces_);
        row_words_ = round_up(piece_units_ * j.sum.taps(), 16) + j.sum.classes() * tap_packing::gap;
        if (row_words_ % 1024 == 0) row_words_ += 16;  // rows 4 KiB apart fall into one cache set
        if (j.is_in_place) row_words_ = j.weight.row_stride / j.word_channels;
    }

    void run() const {
        const bool is_packed = !j_.is_in_place;
        const workspace::lease memory(
            device_.scratch(), is_packed ? static_cast<std::size_t>(j_.sum.groups * pieces_) * piece_bytes() : 0);
        if (is_packed) pack(memory.data());
        const auto* const weight = is_packed ? memory.data() : static_cast<const std::byte*>(j_.weight.weight);
        const places at(*this);
        device_.parallel_for(cut_.count(j_), at.bytes, [&](extent task, std::byte* scratch) {
            const extent blocks = cut_.column_blocks(j_), group = task / blocks / cut_.row_blocks(j_);
            multiply(weight, at, group, task / blocks % cut_.row_blocks(j_) * cut_.rows,
                     task % blocks * cut_.columns(j_), scratch);
        });
    }

  private:
    static constexpr extent most_row_words = 1024;

    /// Where a task's memory is, in bytes from the beginning.
    struct places {
        std::size_t sums, panel, planes, columns, offsets, buffer, bytes;

        explicit places(const product& of) {
            const job& j = of.j_;
            std::size_t end = 0;
            const auto take = [&](extent count, std::size_t each) {
                const std::size_t begin = end;
                end += round_up(static_cast<std::size_t>(count) * each, block_alignment);
                return begin;
            };
            // What is loaded for a permutation, and not taken, or stored beyond the end of a row.
            const extent slack = 2 * j.unit.columns, all = of.cut_.columns(j);
            sums = take(j.sum.classes() * of.cut_.rows * all, sizeof(float));
            panel = take(most_taps * j.unit.columns, word_bytes);
            planes = take(of.piece_units_ * j.sum.phases() * of.plane_size() + slack, word_bytes);
            columns = take(2 * of.cut_.panels, sizeof(column_vector));
            offsets = take(most_taps, sizeof(std::int32_t));
            buffer = take(j.sum.classes() > 1 ? finished_sums::together * (j.sum.across.classes * all + 32) : 0,
                          sizeof(float));
            bytes = end;
        }
    };

    static constexpr std::size_t word_bytes = 4;

    extent plane_size() const { return j_.sum.most_plane_size(cut_.columns(j_)) + j_.unit.columns; }
    extent units_of(extent piece) const { return std::min(piece_units_, j_.units() - piece * piece_units_); }
    extent channels_of(extent piece) const {
        const extent first = piece * piece_units_ * j_.word_channels;
        return std::min(piece_units_ * j_.word_channels, j_.sum.channels - first);
    }
    /// The bytes of a piece of the packed weight: all outputs of a group by one piece of depth.
    std::size_t piece_bytes() const { return static_cast<std::size_t>(rows_ * row_words_) * word_bytes; }

    /// A row of the packed weight has the taps of one class after those of another.
    void pack(std::byte* to) const {
        constexpr extent together = 48;
        const extent parts = detail::ceil_div(j_.sum.outputs, together);
        device_.parallel_for(j_.sum.groups * pieces_ * parts, [&](extent index) {
            const extent first = index % parts * together, piece = index / parts % pieces_,
                         group = index / parts / pieces_;
            tap_packing p = j_.weight;
            p.rows = std::min(together, j_.sum.outputs - first);
            p.channels = channels_of(piece);
            const extent begin = group * j_.group_stride + first * p.row_stride +
                                 piece * piece_units_ * j_.word_channels * p.channel_stride;
            p.weight = static_cast<const std::byte*>(p.weight) + begin * j_.weight_bytes;
            std::byte* const row = to + static_cast<std::size_t>(group * pieces_ + piece) * piece_bytes() +
                                   static_cast<std::size_t>(first * row_words_) * word_bytes;
            if (p.window == 1) {
                extent c = 0;
                while (p.taps_of[c] == 0) ++c;
                j_.pack_matrix(p.weight, p.row_stride, p.channel_stride, p.rows, p.channels,
                               row + static_cast<std::size_t>(c * tap_packing::gap) * word_bytes,
                               row_words_ * j_.word_channels);
            } else {
                j_.pack(p, row, row_words_);
            }
        });
    }

    /// Results of some rows (outputs), from `row` on, by some columns (positions), from `column` on.
    void multiply(const std::byte* weight, const places& at, extent group, extent row, extent column,
                  std::byte* scratch) const {
        const extent stride = cut_.columns(j_), all = j_.sum.images * j_.sum.positions(),
                     rows = std::min(cut_.rows, j_.sum.outputs - row), count = std::min(stride, all - column),
                     panels = detail::ceil_div(count, j_.unit.columns);
        auto* const sums = reinterpret_cast<float*>(scratch + at.sums);
        auto* const columns = reinterpret_cast<column_vector*>(scratch + at.columns);
        const strip s{j_.sum, j_.source, column, count, plane_size()};
        column_writer writer(columns, j_.lanes());
        for_each_place(s, [&](extent place, bool) { writer.add(place); });
        writer.finish(2 * panels);
        write_tap_offsets(j_.sum, s.plane_size, reinterpret_cast<std::int32_t*>(scratch + at.offsets));
        for (extent c = 0; c < j_.sum.classes(); ++c) {
            if (j_.sum.taps_of(c) == 0) std::fill_n(sums + c * cut_.rows * stride, rows * stride, 0.0f);
        }
        for (extent piece = 0; piece < pieces_; ++piece) {
            j_.fill(s, group * j_.sum.channels + piece * piece_units_ * j_.word_channels, channels_of(piece),
                    scratch + at.planes);
            detail::lookahead next;
            add_lookahead(next, weight, group, row, column, piece + 1, rows, panels);
            add_piece(piece, weight_of(weight, group, piece, row), at, s, rows, panels, next, scratch);
        }
        const float* complete = sums;
        j_.sum.for_each_image(column, count, [&](const rows_of_image& r) {
            j_.finish(j_.result, {group, r.image, row, r.position, complete, stride, cut_.rows * stride, rows, r.count},
                      reinterpret_cast<float*>(scratch + at.buffer));
            complete += r.count;
        });
    }
    /// Where the rows of a piece begin.
    const std::byte* weight_of(const std::byte* weight, extent group, extent piece, extent row) const {
        if (j_.is_in_place) {
            const extent channel = piece * piece_units_ * j_.word_channels;
            return weight + (group * j_.group_stride + row * j_.weight.row_stride + channel * j_.weight.channel_stride) *
                                j_.weight_bytes;
        }
        return weight + static_cast<std::size_t>(group * pieces_ + piece) * piece_bytes() +
               static_cast<std::size_t>(row * row_words_) * word_bytes;
    }
    /// What is prefetched while a piece is multiplied: the weight of the next one and the source of its planes; after the last
    /// piece, the source of the next columns.
    void add_lookahead(detail::lookahead& to, const std::byte* weight, extent group, extent row, extent column,
                       extent piece, extent rows, extent panels) const {
        const extent all = j_.sum.images * j_.sum.positions(), size = j_.source_bytes;
        extent times = 0;
        for (extent c = 0; c < j_.sum.classes(); ++c)
            times += panels * (rows / j_.unit.rows) *
                     (units_of(0) * j_.sum.taps_of(c) * j_.word_channels / detail::lookahead_depth);
        if (times == 0) return;
        if (piece < pieces_) {
            to.add({weight_of(weight, group, piece, row), rows,
                    units_of(piece) * j_.sum.taps() * static_cast<extent>(word_bytes),
                    row_words_ * static_cast<extent>(word_bytes)},
                   times);
        } else {
            piece = 0;
            column += cut_.columns(j_);
        }
        const tap_axis& down = j_.sum.down;
        const shape<4>& strides = j_.source.strides;
        if (column >= all || strides[3] != 1 || strides[2] != j_.sum.across.size) return;
        const extent channel = group * j_.sum.channels + piece * piece_units_ * j_.word_channels;
        j_.sum.for_each_image(column, std::min(cut_.columns(j_), all - column), [&](const rows_of_image& r) {
            const extent first = std::max<extent>(0, down.first + r.first * down.stride),
                         end = std::min(down.size, down.first + (r.first + r.rows + down.most_shift) * down.stride);
            if (first >= end) return;
            to.add({j_.source.data + (r.image * strides[0] + channel * strides[1] + first * strides[2]) * size,
                    channels_of(piece), (end - first) * strides[2] * size, strides[1] * size},
                   times);
        });
    }
    /// Adds a piece of depth to the sums of all classes.
    void add_piece(extent piece, const std::byte* weight, const places& at, const strip& s, extent rows, extent panels,
                   detail::lookahead& next, std::byte* scratch) const {
        const extent wide = j_.unit.columns, stride = cut_.columns(j_);
        auto* sums = reinterpret_cast<float*>(scratch + at.sums);
        const auto* const columns = reinterpret_cast<const column_vector*>(scratch + at.columns);
        const auto* offsets = reinterpret_cast<const std::int32_t*>(scratch + at.offsets);
        for (extent c = 0; c < j_.sum.classes(); ++c, sums += cut_.rows * stride) {
            const extent taps = j_.sum.taps_of(c), depth = units_of(piece) * taps;
            for (extent i = 0; i < panels && taps > 0; ++i) {
                j_.copy({scratch + at.planes, s.channel_size(), offsets, taps, 0, depth, columns + 2 * i, 2},
                        scratch + at.panel, wide);
                const bool is_half = 2 * (s.count - i * wide) <= wide;
                const auto multiply = is_half ? j_.unit.vectors->multiply_half_panel : j_.unit.vectors->multiply;
                multiply(rows, depth * j_.word_channels, {weight, row_words_ * j_.word_channels}, scratch + at.panel,
                         sums + i * wide, stride, piece > 0, &next);
            }
            offsets += taps;
            weight += static_cast<std::size_t>(depth + tap_packing::gap) * word_bytes;
        }
    }

    cpu& device_;
    const job& j_;
    blocks cut_;
    extent rows_, pieces_ = 0, piece_units_ = 0, row_words_ = 0;
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

    view<Y, 2> result(extent group, extent image) const {
        return {y + (image * outputs + group * sum.outputs) * height * width, {sum.outputs, height * width}};
    }
    static void finish(const void* self, const finished_sums& f, float* buffer) {
        const auto& to = *static_cast<const finisher*>(self);
        const auto e = epilogue_of(to.epilogue(f.group), to.result(f.group, f.image));
        if (to.sum.classes() == 1)
            return to.finish_block(&e, f.sums, f.stride, f.output, f.position, f.outputs, f.positions, false);
        const extent wide = to.sum.across.positions;
        for (extent done = 0; done < f.outputs; done += finished_sums::together) {
            const extent rows = std::min(finished_sums::together, f.outputs - done);
            const float* sums = f.sums + done * f.stride;
            for (extent at = f.position, left = f.positions; left > 0;) {
                const extent n = std::min(left, wide - at % wide);
                to.finish_row(&e, f, sums, f.output + done, rows, at / wide, at % wide, n, buffer);
                sums += n;
                at += n;
                left -= n;
            }
        }
    }

  private:
    /// Results of `count` positions of one row, from position j on, in all classes: interleaved, then stored.
    void finish_row(const void* e, const finished_sums& f, const float* sums, extent output, extent rows, extent i,
                    extent j, extent count, float* buffer) const {
        const extent step = sum.across.classes, first = j * step, end = std::min((j + count) * step, width),
                     stride = count * step + 16;
        for (extent a = 0; a < sum.down.classes && i * sum.down.classes + a < height; ++a) {
            for (extent o = 0; o < rows; ++o) {
                const float* const from = sums + a * step * f.class_stride + o * f.stride;
                float* const to = buffer + o * stride;
                if (step == 2) {
                    const float* const second = from + f.class_stride;
                    for (extent k = 0; k < count; ++k) {
                        to[2 * k] = from[k];
                        to[2 * k + 1] = second[k];
                    }
                    continue;
                }
                for (extent b = 0; b < step; ++b)
                    for (extent k = 0; k < count; ++k) to[k * step + b] = from[b * f.class_stride + k];
            }
            finish_block(e, buffer, stride, output, (i * sum.down.classes + a) * width + first, rows, end - first,
                         false);
        }
    }
};
template <class Operands, class Results>
auto finish_block_of(const cpu& device, const detail::matmul_epilogue<Operands, Results>&) {
    return device.select(HALFTONE_EACH_SET(finish_block<Operands, Results>));
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
               implicit_cpu::is_supported(p.window);
    }

    /// y = the convolution of x with the weight, through epilogue(group).
    template <class Compute, class X, class W, class Epilogue, class Y>
    static void forward(cpu& device, const detail::conv2d_problem& p, const view<const X, 4>& x,
                        const view<const W, 4>& weight, const Epilogue& epilogue, const view<Y, 4>& y) {
        run<Compute>(device, implicit_cpu::tap_sum::of_forward(p), p, x, weight, {p.depth(), p.window.taps()}, epilogue, y);
    }
    /// dx = the gradient of the input, through epilogue(group).
    template <class Compute, class G, class W, class Epilogue, class X>
    static void input_gradient(cpu& device, const detail::conv2d_problem& p, const view<const G, 4>& dy,
                               const view<const W, 4>& weight, const Epilogue& epilogue, const view<X, 4>& dx) {
        run<Compute>(device, implicit_cpu::tap_sum::of_input(p), p, dy, weight, {p.window.taps(), p.depth()}, epilogue, dx);
    }

    /// dw = (or +=) the gradient of the weight, through an epilogue.
    template <class Compute, class X, class G, class Epilogue, class W>
    static void weight_gradient(cpu& device, const detail::conv2d_problem& p, const view<const X, 4>& x,
                                const view<const G, 4>& dy, const Epilogue& epilogue, const view<W, 4>& dw) {
        using namespace implicit_cpu;
        const tap_sum sum = tap_sum::of_forward(p);
        const detail::product_unit unit = detail::matmul_unit_for<Compute>(device);
        const bool multiplies_pairs = unit.element == 2;
        weight_finisher<Epilogue, W> end{epilogue, dw.data(), p.group_outputs(), p.depth(), nullptr};
        end.finish_block = finish_block_of(device, epilogue_of(epilogue, end.result(0)));
        const auto of_dy = detail::matmul_packing_of_b<Compute, G>(device);
        weight_product(device, {.sum = sum,
                                .unit = unit,
                                .lanes = multiplies_pairs ? 32 : unit.columns / 2,
                                .source = {reinterpret_cast<const std::byte*>(x.data()), x.strides()},
                                .source_bytes = sizeof(X),
                                .fill = fill_elements_of<Compute, X>(device, multiplies_pairs),
                                .copy = copy_elements_of(device, multiplies_pairs),
                                .dy = reinterpret_cast<const std::byte*>(dy.data()),
                                .dy_bytes = sizeof(G),
                                .pack = of_dy.pack,
                                .transpose = device.select(HALFTONE_EACH_SET(copy_transposed<float, float>)),
                                .result = &end,
                                .finish = &weight_finisher<Epilogue, W>::finish})
            .run();
    }

  private:
    /// The function that fills planes of the unit's elements.
    template <class Compute, class X>
    static implicit_cpu::fill_planes* fill_elements_of(const cpu& device, [[maybe_unused]] bool pairs) {
#if HALFTONE_AVX512_BF16
        if constexpr (std::is_same_v<Compute, bfloat16>) {
            if (pairs) return &avx512_bf16::fill_half_planes<X>;
        }
#endif
        return fill_of<Compute, X>(device, false);
    }
    static implicit_cpu::copy_columns* copy_elements_of(const cpu& device, [[maybe_unused]] bool pairs) {
#if HALFTONE_AVX512_BF16
        if (pairs) return &avx512_bf16::copy_column_halves;
#endif
        return device.select(HALFTONE_EACH_SET(copy_column_words));
    }

    /// Strides of the weight, from output to output of a sum and from channel to channel.
    struct weight_strides {
        extent row, channel;
    };

    template <class Compute, class X, class W, class Epilogue, class Y>
    static void run(cpu& device, const implicit_cpu::tap_sum& sum, const detail::conv2d_problem& p,
                    const view<const X, 4>& x, const view<const W, 4>& weight, const weight_strides& strides,
                    const Epilogue& epilogue, const view<Y, 4>& y) {
        using namespace implicit_cpu;
        const detail::product_unit unit = detail::matmul_unit_for<Compute>(device);
        finisher<Epilogue, Y> end{sum, epilogue, y.data(), y.extent_of(1), y.extent_of(2), y.extent_of(3), nullptr};
        end.finish_block = finish_block_of(device, epilogue_of(epilogue(0), end.result(0, 0)));
        std::int32_t number[most_taps];
        std::int32_t* next = number;
        sum.for_each_tap([&](extent k, extent l) {
            *next++ = static_cast<std::int32_t>(sum.down.number[k] * p.window.across.taps + sum.across.number[l]);
        });
        const bool multiplies_pairs = unit.element == 2;
        const auto of_weight = detail::matmul_packing_of_a<Compute, W>(device);
        // Rows whose taps are all multiplied, in their order: those of the forward pass. Pairs are of channels, not of taps.
        const bool is_in_place = of_weight.has_unit_type && sum.classes() == 1 && std::is_sorted(number, next) &&
                                 strides.channel == sum.taps() && strides.row == sum.channels * sum.taps() &&
                                 (!multiplies_pairs || (sum.taps() == 1 && sum.channels % 2 == 0));
        std::int32_t taps_of[most_classes * most_classes];
        for (extent c = 0; c < sum.classes(); ++c) taps_of[c] = static_cast<std::int32_t>(sum.taps_of(c));
        const tap_packing taps{
            weight.data(), strides.row, strides.channel, p.window.taps(), number, taps_of, sum.classes(), 0, 0};
        product(device, {.sum = sum,
                         .unit = unit,
                         .word_channels = multiplies_pairs ? 2 : 1,
                         .source = {reinterpret_cast<const std::byte*>(x.data()), x.strides()},
                         .source_bytes = sizeof(X),
                         .fill = fill_of<Compute, X>(device, multiplies_pairs),
                         .copy = device.select(HALFTONE_EACH_SET(copy_column_words)),
                         .weight = taps,
                         .weight_bytes = sizeof(W),
                         .group_stride = p.group_outputs() * p.depth(),
                         .pack = pack_of<Compute, W>(device, multiplies_pairs),
                         .pack_matrix = of_weight.pack,
                         .is_in_place = is_in_place,
                         .result = &end,
                         .finish = &finisher<Epilogue, Y>::finish})
            .run();
    }
    template <class Compute, class X>
    static implicit_cpu::fill_planes* fill_of(const cpu& device, [[maybe_unused]] bool pairs) {
#if HALFTONE_AVX512_BF16
        if constexpr (std::is_same_v<Compute, bfloat16>) {
            if (pairs) return &avx512_bf16::fill_pair_planes<X>;
        }
#endif
        return device.select(HALFTONE_EACH_SET(fill_float_planes<Compute, X>));
    }
    template <class Compute, class W>
    static implicit_cpu::pack_taps* pack_of(const cpu& device, [[maybe_unused]] bool pairs) {
#if HALFTONE_AVX512_BF16
        if constexpr (std::is_same_v<Compute, bfloat16>) {
            if (pairs) return &avx512_bf16::pack_pair_taps<W>;
        }
#endif
        return device.select(HALFTONE_EACH_SET(pack_float_taps<Compute, W>));
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
