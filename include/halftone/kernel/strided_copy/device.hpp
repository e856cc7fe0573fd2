// SPDX-License-Identifier: MIT
/// \file
/// Copies between strided views on devices that run GPU kernels; strided_copy.hpp has their contract and an example. If
/// both views are contiguous along the same axis, a thread copies up to 16 bytes. If they are contiguous along
/// different axes, a block copies squares through shared memory, so that warps read and write consecutive addresses: lines
/// of 128 bytes in accesses of 16 where both sides allow it, otherwise 32 x 32 elements one at a time.
#pragma once

#include <cstdint>

#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/strided_copy/strided_copy.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace on_device {

/// The memory between the first and the last element that a job touches on one side.
struct strided_bounds {
    extent before = 0, count = 1;  // number of elements before index 0; number of all elements

    strided_bounds(const strided_copy_job& job, const axis_values& strides) {
        for (int axis = 0; axis < job.axes; ++axis) {
            const extent length = (job.extents.of[axis] - 1) * strides.of[axis];
            if (length < 0) before -= length;
            count += stride_magnitude(length);
        }
    }
};

/// A job whose elements are words of one size, with the bounds of its memory.
template <class Word>
struct strided_copy_spans {
    global_span<const Word> from;
    global_span<Word> to;
    extent from_begin, to_begin;
    axis_values extents, from_strides, to_strides;
    int axes;

    explicit strided_copy_spans(const strided_copy_job& job)
        : extents(job.extents), from_strides(job.from_strides), to_strides(job.to_strides), axes(job.axes) {
        const strided_bounds read(job, from_strides), written(job, to_strides);
        from = {reinterpret_cast<const Word*>(job.from) - read.before, read.count}, from_begin = read.before;
        to = {reinterpret_cast<Word*>(job.to) - written.before, written.count}, to_begin = written.before;
    }

    /// The offsets of element `index` of the first `counted` axes.
    HALFTONE_HD HALFTONE_INLINE void find(int counted, extent index, extent& from_at, extent& to_at) const {
        from_at = from_begin, to_at = to_begin;
        for (int axis = counted - 1; axis > 0; --axis) {
            const extent next = index / extents.of[axis], i = index - next * extents.of[axis];
            from_at += i * from_strides.of[axis];
            to_at += i * to_strides.of[axis];
            index = next;
        }
        if (counted > 0) from_at += index * from_strides.of[0], to_at += index * to_strides.of[0];
    }
};

template <class Word>
struct strided_copy_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = 0;

    strided_copy_spans<Word> job;
    extent size;

    grid_shape grid() const { return simt::blocks_for(size, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i >= size) return;
        extent from, to;
        job.find(job.axes, i, from, to);
        simt.store(job.to, to, simt.load(job.from, from));
    }
};

/// The matrices of a job in squares, one per block: `from` is contiguous along the axis before the last, whose index is the
/// row, `to` along the last axis, whose index is the column.
template <class Word, int Side>
struct transposed_squares {
    strided_copy_spans<Word> job;
    extent outer;  // number of matrices

    struct square {
        extent row, column;  // of its first element
        extent from, to;     // of the matrix's first element
    };

    HALFTONE_HD HALFTONE_INLINE extent rows() const { return job.extents.of[job.axes - 2]; }
    HALFTONE_HD HALFTONE_INLINE extent columns() const { return job.extents.of[job.axes - 1]; }
    HALFTONE_HD HALFTONE_INLINE extent down() const { return detail::ceil_div(rows(), Side); }
    HALFTONE_HD HALFTONE_INLINE extent across() const { return detail::ceil_div(columns(), Side); }
    grid_shape grid() const { return simt::blocks_along_x(outer * down() * across()); }

    HALFTONE_HD HALFTONE_INLINE square of_block(extent block) const {
        const extent of_matrix = down() * across(), matrix = block / of_matrix, rest = block - matrix * of_matrix;
        const extent line = rest / across();
        square s{line * Side, (rest - line * across()) * Side, 0, 0};
        job.find(job.axes - 2, matrix, s.from, s.to);
        return s;
    }
};

/// A block copies a square of 32 x 32 words, of any alignment.
template <class Word>
struct strided_transpose_kernel {
    static constexpr int threads = 256, side = 32, rows_at_once = threads / side;
    static constexpr word shared_bytes =
        side * (side + 1) * sizeof(Word) / 16 * 16 + 16;  // one more column avoids bank conflicts

    transposed_squares<Word, side> squares;

    grid_shape grid() const { return squares.grid(); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent rows = squares.rows(), columns = squares.columns();
        const auto& job = squares.job;
        const auto [row, column, from, to] = squares.of_block(simt.block().x);
        const int lane = simt.thread() % side, first = simt.thread() / side;
        const shared_span<Word> square{0, side * (side + 1)};
        for (int i = first; i < side; i += rows_at_once) {  // a warp reads along the rows' index
            if (row + lane >= rows || column + i >= columns) continue;
            simt.store(square, static_cast<word>(i * (side + 1) + lane),
                       simt.load(job.from, from + row + lane + (column + i) * job.from_strides.of[job.axes - 1]));
        }
        simt.barrier();
        for (int i = first; i < side; i += rows_at_once) {  // and writes along the columns'
            if (row + i >= rows || column + lane >= columns) continue;
            simt.store(job.to, to + (row + i) * job.to_strides.of[job.axes - 2] + column + lane,
                       simt.load(square, static_cast<word>(lane * (side + 1) + i)));
        }
    }
};

/// Copies squares of transposed matrices with accesses of 16 bytes on both sides, for words of at most 4 bytes: a block
/// copies squares whose lines have 128 bytes, in vectors of N words. Vector v of line c is in shared memory at position v
/// xor (c / N % 8) of its line, so that a warp that stores 8 vectors of 4 lines, or reads words of 8 vectors' lines at 4
/// adjacent positions, has no bank conflicts.
template <class Word>
struct strided_square_kernel {
    static constexpr int n = 16 / static_cast<int>(sizeof(Word)), side = 8 * n;
    static constexpr int threads = 128, lines_at_once = threads / 8, steps = side / lines_at_once;
    static constexpr word shared_bytes = side * side * sizeof(Word);

    transposed_squares<Word, side> squares;

    grid_shape grid() const { return squares.grid(); }
    /// Whether all vectors of the job's matrices are whole and aligned.
    static bool suits(const strided_copy_job& job) {
        const int last = job.last(), other = last - 1;
        for (int axis = 0; axis < job.axes; ++axis) {
            if (axis != other && job.from_strides.of[axis] % n != 0) return false;
            if (axis != last && job.to_strides.of[axis] % n != 0) return false;
        }
        return job.extents.of[last] % n == 0 && job.extents.of[other] % n == 0 && simt::is_aligned(job.from, 16) &&
               simt::is_aligned(job.to, 16);
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent rows = squares.rows(), columns = squares.columns();
        const auto& job = squares.job;
        const auto [row, column, from, to] = squares.of_block(simt.block().x);
        const int vector = simt.thread() % 8, first = simt.thread() / 8;
        const extent from_line = job.from_strides.of[job.axes - 1], to_line = job.to_strides.of[job.axes - 2];
        const auto source = job.from.from(from + row + column * from_line);
        const auto target = job.to.from(to + row * to_line + column);
        vec<Word, n> held[steps];
        HALFTONE_UNROLL for (int i = 0; i < steps; ++i) {  // a line's vectors are along the rows' index
            const int line = first + i * lines_at_once;
            held[i] = row + vector * n < rows && column + line < columns
                          ? simt.load(simt::as_vectors<n>(source.from(line * from_line)), vector)
                          : vec<Word, n>{};
        }
        HALFTONE_UNROLL for (int i = 0; i < steps; ++i) {
            const int line = first + i * lines_at_once;
            simt.store(shared_span<vec<Word, n>>{0, side * 8}, static_cast<word>(line * 8 + (vector ^ line / n % 8)),
                       held[i]);
        }
        simt.barrier();
        const shared_span<Word> square{0, side * side};
        HALFTONE_UNROLL for (int i = 0; i < steps; ++i) {  // vectors along the columns' index
            const int r = first + i * lines_at_once;
            if (row + r >= rows || column + vector * n >= columns) continue;
            vec<Word, n> out;
            HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
                out[e] = simt.load(square, static_cast<word>((vector * n + e) * side + (r / n ^ vector) * n + r % n));
            }
            simt.store(simt::as_vectors<n>(target.from(r * to_line)), vector, out);
        }
    }
};

/// Whether the job can be copied in larger elements, each `n` of its elements along the last axis.
inline bool fits_wider(const strided_copy_job& job, extent n) {
    const int last = job.last();
    if (job.from_strides.of[last] != 1 || job.to_strides.of[last] != 1 || job.extents.of[last] % n != 0) return false;
    for (int axis = 0; axis < last; ++axis) {
        if (job.from_strides.of[axis] % n != 0 || job.to_strides.of[axis] % n != 0) return false;
    }
    const auto bytes = static_cast<std::size_t>(n * job.element_bytes);
    return simt::is_aligned(job.from, bytes) && simt::is_aligned(job.to, bytes);
}
inline strided_copy_job widened(strided_copy_job job) {
    while (job.element_bytes < 16 && fits_wider(job, 2)) {
        for (int axis = 0; axis < job.last(); ++axis) job.from_strides.of[axis] /= 2, job.to_strides.of[axis] /= 2;
        job.extents.of[job.last()] /= 2;
        job.element_bytes *= 2;
    }
    return job;
}

}  // namespace on_device

template <simt_device Device>
struct strided_copy<Device> {
    template <class From, class T, int Rank>
    static void run(Device& device, const view<From, Rank>& from, const view<T, Rank>& to) {
        check_strided_copy(from, to);
        const strided_copy_job job = on_device::widened(strided_copy_job_of(view<const T, Rank>(from), to));
        if (job.size() == 0) return;
        switch (job.element_bytes) {
            case 1:
                return run_of<std::uint8_t>(device, job);
            case 2:
                return run_of<std::uint16_t>(device, job);
            case 4:
                return run_of<std::uint32_t>(device, job);
            case 8:
                return run_of<std::uint64_t>(device, job);
            default:
                device.launch(on_device::strided_copy_kernel<simt::chunk<std::uint32_t>>{
                    on_device::strided_copy_spans<simt::chunk<std::uint32_t>>(job), job.size()});
        }
    }

  private:
    template <class Word>
    static void run_of(Device& device, const strided_copy_job& job) {
        const int other = job.transposed_axis();
        if (other < 0 || job.extents.of[job.last()] < 8 || job.extents.of[other] < 8) {
            device.launch(on_device::strided_copy_kernel<Word>{on_device::strided_copy_spans<Word>(job), job.size()});
            return;
        }
        const strided_copy_job matrices = with_axis_before_last(job, other);
        const extent in_each = matrices.extents.of[matrices.axes - 2] * matrices.extents.of[matrices.axes - 1];
        const on_device::strided_copy_spans<Word> spans(matrices);
        if constexpr (sizeof(Word) <= 4) {
            if (on_device::strided_square_kernel<Word>::suits(matrices))
                return device.launch(on_device::strided_square_kernel<Word>{{spans, matrices.size() / in_each}});
        }
        device.launch(on_device::strided_transpose_kernel<Word>{{spans, matrices.size() / in_each}});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
