// SPDX-License-Identifier: MIT
/// \file
/// The gradient of a convolution's weight on the CPU, without an unfolded matrix in memory; implicit.hpp has the contract.
///
///                  dy of some positions: (positions, outputs), packed in panels by all threads together
///                         +--------+---
///                         | panels |          4 MiB at once, in pieces of 256 positions
///                         +--------+---
///     rows of the           |
///     matrix              +-v------+
///     +-----------+ ----> |  sums  |          a task: 144 rows (channels and taps) by 512 outputs, transposed when they are stored
///     | positions |       +--------+
///     +-----------+
///     copied out of planes (planes.hpp) by the thread that multiplies them, 144 KiB in its L2
///
/// Positions are the depth of this product, so that a row of the matrix is what a tap sees, a few runs of an image's rows, and needs
/// no transpose; dy, which does, has no taps.
#pragma once

#include <algorithm>

#include <halftone/kernel/conv2d/implicit/implicit.hpp>
#include <halftone/kernel/conv2d/implicit/planes.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace implicit_cpu {

/// A call without its types.
struct weight_job {
    const tap_sum& sum;
    const detail::product_unit& unit;
    int lanes;  ///< elements of a vector of columns
    image_memory source;
    extent source_bytes;  ///< of an element
    fill_planes* fill;
    copy_columns* copy;
    const std::byte* dy;  ///< (images, groups, outputs, positions), contiguous
    extent dy_bytes;      ///< of an element
    detail::pack_panels_of_b* pack;
    void (*transpose)(const float* from, extent from_stride, float* to, extent to_stride, extent rows, extent width);
    const void* result;
    /// Stores sums (outputs, rows): of `rows` rows of the matrix from `row` on.
    void (*finish)(const void* result, extent group, extent output, extent row, const float* sums, extent stride,
                   extent outputs, extent rows);

    extent depth() const { return sum.channels * sum.taps(); }
    extent all_positions() const { return sum.images * sum.positions(); }
    extent panels() const { return detail::ceil_div(sum.outputs, unit.columns); }
};

/// How a call is cut. No result depends on it: each is one sum over the positions of all images, in their order.
struct weight_blocks {
    static constexpr extent most_rows = 144, most_panels = 16, chunk_bytes = extent{4} << 20;
    extent rows, panels;       ///< of a task
    extent piece, most_depth;  ///< positions multiplied at once, and what they are with padding
    extent chunk;              ///< pieces whose dy is packed at once

    static weight_blocks of(const weight_job& j, int threads) {
        weight_blocks b{};
        b.panels = std::min(j.panels(), most_panels);
        const extent columns = j.sum.groups * detail::ceil_div(j.panels(), b.panels), depth = j.depth();
        extent parts = detail::ceil_div(depth, most_rows);
        while (columns * parts % threads != 0 && depth / (parts + 1) >= 2 * j.unit.rows) ++parts;
        b.rows = round_up(detail::ceil_div(depth, parts), 4);
        b.piece = std::min(detail::panel_depth * 4 / j.unit.element, j.all_positions());
        // A unit of pairs takes an even number of positions of each image.
        b.most_depth = b.piece + (j.unit.element == 2 ? std::min(j.sum.images, b.piece / j.sum.positions() + 2) : 0);
        const extent bytes = j.sum.groups * j.panels() * static_cast<extent>(b.panel_bytes(j));
        b.chunk = std::clamp<extent>(chunk_bytes / bytes, 1, b.pieces(j));
        return b;
    }
    extent pieces(const weight_job& j) const { return detail::ceil_div(j.all_positions(), piece); }
    std::size_t panel_bytes(const weight_job& j) const { return j.unit.panel_bytes(most_depth + 32); }
    extent row_blocks(const weight_job& j) const { return detail::ceil_div(j.depth(), rows); }
    extent column_blocks(const weight_job& j) const { return detail::ceil_div(j.panels(), panels); }
    extent tasks(const weight_job& j) const { return j.sum.groups * row_blocks(j) * column_blocks(j); }
    extent columns(const weight_job& j) const { return panels * j.unit.columns; }
    /// Elements from row to row of the matrix, so that rows fall into different cache sets.
    extent row_stride() const { return round_up(most_depth, 64) + 32; }
};

class weight_product {
  public:
    weight_product(cpu& device, const weight_job& j)
        : device_(device), j_(j), cut_(weight_blocks::of(j, device.threads())) {}

    void run() const {
        const extent pieces = cut_.pieces(j_), tasks = cut_.tasks(j_);
        const workspace::lease packed(device_.scratch(),
                                      static_cast<std::size_t>(cut_.chunk * piece_panels()) * cut_.panel_bytes(j_));
        // Sums that wait for further chunks.
        const workspace::lease sums(device_.scratch(),
                                    cut_.chunk < pieces ? static_cast<std::size_t>(tasks) * sum_bytes() : 0);
        const places at(*this);
        for (extent first = 0; first < pieces; first += cut_.chunk) {
            const extent count = std::min(cut_.chunk, pieces - first);
            device_.parallel_for(count * piece_panels(), [&](extent i) {
                pack(first + i / piece_panels(), i % piece_panels(),
                     packed.data() + static_cast<std::size_t>(i) * cut_.panel_bytes(j_));
            });
            device_.parallel_for(tasks, at.bytes, [&](extent index, std::byte* scratch) {
                const task t(*this, index);
                auto* const all = reinterpret_cast<float*>(
                    cut_.chunk < pieces ? sums.data() + static_cast<std::size_t>(index) * sum_bytes()
                                        : scratch + at.sums);
                for (extent i = 0; i < count; ++i)
                    multiply(t, first + i,
                             packed.data() + static_cast<std::size_t>(i * piece_panels()) * cut_.panel_bytes(j_), at,
                             all, scratch);
                if (first + count == pieces) finish(t, all, reinterpret_cast<float*>(scratch + at.transposed));
            });
        }
    }

  private:
    /// Where a task's memory is, in bytes from the beginning.
    struct places {
        std::size_t matrix, planes, columns, offsets, transposed, sums, bytes;

        explicit places(const weight_product& of) {
            std::size_t end = 0;
            const auto take = [&](extent count, std::size_t each) {
                const std::size_t begin = end;
                end += round_up(static_cast<std::size_t>(count) * each, block_alignment);
                return begin;
            };
            const weight_job& j = of.j_;
            const weight_blocks& cut = of.cut_;
            const auto element = static_cast<std::size_t>(j.unit.element);
            matrix = take(cut.rows * cut.row_stride(), element);
            planes = take(of.most_channels() * j.sum.phases() * of.plane_size() + 128, element);
            columns = take(of.vectors(cut.most_depth), sizeof(column_vector));
            offsets = take(most_taps, sizeof(std::int32_t));
            transposed = take(j.unit.columns * (cut.rows + 32), sizeof(float));
            sums = take(1, cut.chunk < cut.pieces(j) ? 0 : of.sum_bytes());
            bytes = end;
        }
    };
    /// A block of the result: rows of the matrix by panels of outputs.
    struct task {
        extent group, row, rows, panel, panels, channel, channels;

        task(const weight_product& of, extent index) {
            const weight_job& j = of.j_;
            const extent wide = of.cut_.column_blocks(j), high = of.cut_.row_blocks(j);
            group = index / wide / high;
            row = index / wide % high * of.cut_.rows;
            rows = std::min(of.cut_.rows, j.depth() - row);
            panel = index % wide * of.cut_.panels;
            panels = std::min(of.cut_.panels, j.panels() - panel);
            channel = row / j.sum.taps();
            channels = (row + rows - 1) / j.sum.taps() - channel + 1;
        }
    };

    extent piece_panels() const { return j_.sum.groups * j_.panels(); }
    extent plane_size() const { return j_.sum.most_plane_size(cut_.piece) + 64; }
    extent most_channels() const {
        return std::min(j_.sum.channels, (cut_.rows + 2 * j_.sum.taps() - 2) / j_.sum.taps());
    }
    extent vectors(extent depth) const { return detail::ceil_div(depth, j_.lanes); }
    std::size_t sum_bytes() const { return static_cast<std::size_t>(cut_.rows * cut_.columns(j_)) * sizeof(float); }
    extent first_of(extent piece) const { return piece * cut_.piece; }
    extent count_of(extent piece) const { return std::min(cut_.piece, j_.all_positions() - first_of(piece)); }
    /// The depth that some positions of one image take.
    extent padded(extent count) const { return j_.unit.element == 2 ? count + count % 2 : count; }

    /// Packs a panel of a piece of dy: one image's positions after those of another.
    void pack(extent piece, extent panel, std::byte* to) const {
        constexpr extent together = 64;
        const extent group = panel / j_.panels(), first = panel % j_.panels() * j_.unit.columns,
                     columns = std::min<extent>(j_.unit.columns, j_.sum.outputs - first),
                     positions = j_.sum.positions();
        j_.sum.for_each_image(first_of(piece), count_of(piece), [&](const rows_of_image& r) {
            const extent channel = (r.image * j_.sum.groups + group) * j_.sum.outputs + first;
            const std::byte* from = j_.dy + (channel * positions + r.position) * j_.dy_bytes;
            for (extent done = 0; done < r.count; done += together, from += together * j_.dy_bytes) {
                const extent some = std::min(together, r.count - done), bytes = together * j_.dy_bytes;
                // The runs that follow are too short to be fetched by themselves.
                detail::strided_lines next(from + bytes, columns, bytes, positions * j_.dy_bytes);
                if (done + 2 * together <= positions - r.position) next.prefetch(next.count());
                j_.pack(from, 1, positions, some, columns, to, 0);
                to += padded(some) * j_.unit.columns * j_.unit.element;
            }
        });
    }
    /// Adds a piece of depth to a task's sums.
    void multiply(const task& t, extent piece, const std::byte* panels, const places& at, float* sums,
                  std::byte* scratch) const {
        auto* const columns = reinterpret_cast<column_vector*>(scratch + at.columns);
        auto* const offsets = reinterpret_cast<std::int32_t*>(scratch + at.offsets);
        const strip s{j_.sum, j_.source, first_of(piece), count_of(piece), plane_size()};
        column_writer writer(columns, j_.lanes);
        extent depth = 0, of_image = 0;
        for_each_place(s, [&](extent place, bool is_last) {
            writer.add(place);
            ++of_image;
            if (!is_last) return;
            // The product with what is repeated is zero, since dy is padded with zeros.
            if (padded(of_image) > of_image) writer.add(place);
            depth += padded(of_image);
            of_image = 0;
        });
        writer.finish(vectors(depth));
        write_tap_offsets(j_.sum, s.plane_size, offsets);
        j_.fill(s, t.group * j_.sum.channels + t.channel, t.channels, scratch + at.planes);
        const extent stride = cut_.row_stride(), rows = round_up(t.rows, 4);
        j_.copy({scratch + at.planes, s.channel_size(), offsets, j_.sum.taps(), t.row - t.channel * j_.sum.taps(),
                 t.rows, columns, vectors(depth)},
                scratch + at.matrix, stride);
        const auto row_bytes = static_cast<std::size_t>(stride * j_.unit.element);
        std::fill_n(scratch + at.matrix + static_cast<std::size_t>(t.rows) * row_bytes,
                    static_cast<std::size_t>(rows - t.rows) * row_bytes, std::byte{0});
        const extent times = std::max<extent>(1, rows / j_.unit.rows * (depth / detail::lookahead_depth));
        detail::lookahead next;
        const int sources = add_sources(next, t, piece + 1, times * t.panels);
        for (extent i = 0; i < t.panels; ++i) {
            const std::byte* const panel =
                panels + static_cast<std::size_t>(t.group * j_.panels() + t.panel + i) * cut_.panel_bytes(j_);
            next.keep(sources);
            next.add({panel + cut_.panel_bytes(j_), 1, depth * j_.unit.columns * j_.unit.element, 0}, times);
            j_.unit.vectors->multiply(rows, depth, {scratch + at.matrix, stride}, panel, sums + i * j_.unit.columns,
                                      cut_.columns(j_), piece > 0, &next);
        }
    }
    /// Adds the source of a piece's planes to what is prefetched, up to three images; returns their number.
    int add_sources(detail::lookahead& to, const task& t, extent piece, extent times) const {
        const tap_axis& down = j_.sum.down;
        const shape<4>& strides = j_.source.strides;
        int count = 0;
        if (piece >= cut_.pieces(j_) || strides[3] != 1 || strides[2] != j_.sum.across.size) return 0;
        j_.sum.for_each_image(first_of(piece), count_of(piece), [&](const rows_of_image& r) {
            const extent first = std::max<extent>(0, down.first + r.first * down.stride),
                         end = std::min(down.size, down.first + (r.first + r.rows + down.most_shift) * down.stride);
            if (first >= end || count == 3) return;
            const extent channel = t.group * j_.sum.channels + t.channel;
            to.add(
                {j_.source.data + (r.image * strides[0] + channel * strides[1] + first * strides[2]) * j_.source_bytes,
                 t.channels, (end - first) * strides[2] * j_.source_bytes, strides[1] * j_.source_bytes},
                times);
            ++count;
        });
        return count;
    }
    /// Stores a task's sums.
    void finish(const task& t, const float* sums, float* transposed) const {
        const extent stride = cut_.rows + 32;
        for (extent i = 0; i < t.panels; ++i) {
            const extent first = (t.panel + i) * j_.unit.columns;
            j_.transpose(sums + i * j_.unit.columns, cut_.columns(j_), transposed, stride, t.rows, j_.unit.columns);
            j_.finish(j_.result, t.group, first, t.row, transposed, stride,
                      std::min<extent>(j_.unit.columns, j_.sum.outputs - first), t.rows);
        }
    }

    cpu& device_;
    const weight_job& j_;
    weight_blocks cut_;
};

/// Stores rows of the gradient through an epilogue of the product.
template <class Epilogue, class W>
struct weight_finisher {
    const Epilogue& epilogue;
    W* to;
    extent outputs, depth;
    void (*finish_block)(const void* epilogue, const float* sums, extent sums_stride, extent row, extent column,
                         extent rows, extent columns, bool non_temporal);

    view<W, 2> result(extent group) const { return {to + group * outputs * depth, {outputs, depth}}; }
    static void finish(const void* self, extent group, extent output, extent row, const float* sums, extent stride,
                       extent outputs, extent rows) {
        const auto& f = *static_cast<const weight_finisher*>(self);
        const auto e = epilogue_of(f.epilogue, f.result(group));
        f.finish_block(&e, sums, stride, output, row, outputs, rows, false);
    }
};

}  // namespace implicit_cpu
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
