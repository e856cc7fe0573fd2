// SPDX-License-Identifier: MIT
/// \file
/// Maps on the CPU whose operands have any strides: they compute a piece of the outputs at a time, in the outputs' order.
/// Operands stored in that order are read and written in place. A piece of any other input is first gathered into a buffer
/// in the first-level cache; a piece of any other output is computed in such a buffer and then scattered. Expressions are
/// evaluated by the code for whole vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <halftone/kernel/map/cpu/job.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// A type-erased map: `block` evaluates rows of `columns` elements, which are whole vector blocks.
struct map_body {
    const void* expressions;
    void (*block)(const void* expressions, const map_stream* outputs, const map_stream* inputs, extent rows,
                  extent columns);
    int outputs;
};

/// The number of output elements in a piece; a multiple of the vector block of every instruction set.
inline constexpr extent strided_map_elements = 512;

/// A buffer for the elements of one operand in a piece.
struct strided_map_buffer {
    alignas(block_alignment) std::byte bytes[strided_map_elements * sizeof(float)];
};

/// The extents of the outputs and the strides of an operand, with axes merged as far as all operands allow.
struct strided_map_operand {
    std::byte* data;
    extent bytes;
    write_mode mode;
    axis_values steps;
    bool is_flat, is_scalar;  ///< stored in the outputs' order; one element for all outputs
};
struct strided_map_axes {
    int count;
    axis_values extents;

    extent size() const;
    /// Calls run(offset, elements, done) for each run along the last axis among the elements [first, first + n); `done` is
    /// the number of elements before the run.
    template <class Run>
    void each_run(const axis_values& steps, extent first, extent n, const Run& run) const {
        extent index[most_axes], rest = first, offset = 0;
        for (int axis = count - 1; axis >= 0; --axis) {
            index[axis] = rest % extents.of[axis];
            rest /= extents.of[axis];
            offset += index[axis] * steps.of[axis];
        }
        const int last = count - 1;
        for (extent done = 0; done < n;) {
            const extent some = std::min(extents.of[last] - index[last], n - done);
            run(offset, some, done);
            done += some;
            index[last] += some;
            offset += some * steps.of[last];
            for (int axis = last; axis > 0 && index[axis] == extents.of[axis]; --axis) {
                offset += steps.of[axis - 1] - index[axis] * steps.of[axis];
                index[axis] = 0;
                ++index[axis - 1];
            }
        }
    }
};

/// Copies elements of one size between an operand and a buffer.
template <class Word>
struct strided_map_copy {
    static void gather(const strided_map_axes& axes, const strided_map_operand& o, extent first, extent n,
                       std::byte* buffer) {
        const extent step = o.steps.of[axes.count - 1];
        axes.each_run(o.steps, first, n, [&](extent offset, extent some, extent done) {
            const Word* const from = reinterpret_cast<const Word*>(o.data) + offset;
            Word* const to = reinterpret_cast<Word*>(buffer) + done;
            if (step == 1) {
                std::memcpy(to, from, static_cast<std::size_t>(some) * sizeof(Word));
            } else if (step == 0) {
                std::fill(to, to + some, *from);
            } else {
                for (extent i = 0; i < some; ++i) to[i] = from[i * step];
            }
        });
    }
    static void scatter(const strided_map_axes& axes, const strided_map_operand& o, extent first, extent n,
                        const std::byte* buffer) {
        const extent step = o.steps.of[axes.count - 1];
        axes.each_run(o.steps, first, n, [&](extent offset, extent some, extent done) {
            Word* const to = reinterpret_cast<Word*>(o.data) + offset;
            const Word* const from = reinterpret_cast<const Word*>(buffer) + done;
            for (extent i = 0; i < some; ++i) to[i * step] = from[i];
        });
    }
};
void gather_elements(const strided_map_axes& axes, const strided_map_operand& o, extent first, extent n,
                   std::byte* buffer);
void scatter_elements(const strided_map_axes& axes, const strided_map_operand& o, extent first, extent n,
                    const std::byte* buffer);

/// A piece of all operands: outputs, then inputs.
class strided_map_piece {
  public:
    strided_map_piece(const map_body& body, const strided_map_axes& axes, const strided_map_operand* operands,
                      int count, map_stream* streams, strided_map_buffer* buffers);

    void run(extent first, extent n) const;

  private:
    bool is_moved(int i) const {
        return operands_[i].data != nullptr && !(operands_[i].is_scalar && i >= body_.outputs);
    }
    /// Outputs at the same address share a buffer: the gradients of an input that is passed as two arguments.
    std::byte* buffer_of(int i) const;
    void begin(int i, extent first, extent n, bool whole) const;

    const map_body& body_;
    const strided_map_axes& axes_;
    const strided_map_operand* operands_;
    int count_;
    map_stream* streams_;
    strided_map_buffer* buffers_;
};

/// Runs a map of at most `Operands` operands, outputs first; `strides` are their strides along the outputs' axes.
template <int Operands>
void run_strided_map(cpu& device, const map_plan* plans, int count, map_strides* strides, const map_body& body) {
    strided_map_axes axes{strides[0].axes, strides[0].extents};
    axis_values steps[Operands];
    for (int i = 0; i < count; ++i) steps[i] = strides[i].steps;
    axes.count = merge_axes(axes.count, axes.extents, steps, count);
    strided_map_operand operands[Operands];
    for (int i = 0; i < count; ++i) {
        strided_map_operand& o = operands[i];
        o = {plans[i].operand.data, plans[i].operand.element_bytes, plans[i].mode, steps[i], true, true};
        extent step = 1;
        for (int axis = axes.count - 1; axis >= 0; --axis) {
            o.is_flat = o.is_flat && o.steps.of[axis] == step;
            o.is_scalar = o.is_scalar && o.steps.of[axis] == 0;
            step *= axes.extents.of[axis];
        }
    }
    const row_partition chunks = partition_rows(axes.size(), 1, strided_map_elements);
    const row_partition pieces = partition_rows(chunks.count, strided_map_elements);
    device.parallel_for(pieces.count, [&](extent index) {
        map_stream streams[Operands];
        strided_map_buffer buffers[Operands];
        // Elements beyond the last one are computed and dropped; zeros keep them defined.
        for (int i = 0; i < count; ++i) std::memset(buffers[i].bytes, 0, sizeof buffers[i].bytes);
        const strided_map_piece piece(body, axes, operands, count, streams, buffers);
        for (extent k = pieces.begin(index), end = k + pieces.rows_of(index); k < end; ++k)
            piece.run(chunks.begin(k), chunks.rows_of(k));
    });
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/map/cpu/strided.body.hpp>
#endif
