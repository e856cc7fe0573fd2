// SPDX-License-Identifier: MIT
/// \file
/// Copies between strided views on the CPU; strided_copy.hpp has their contract and an example. The code is the same
/// for every instruction set. If both views are contiguous along the same axis, it copies runs of bytes. If they are
/// contiguous along different axes, it transposes squares whose sides are a cache line, so that whole lines are read
/// and written. Otherwise it copies element by element.
#pragma once

#include <cstdint>
#include <cstring>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/strided_copy/strided_copy.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The offsets of an index over the first axes of a job, and of the indices that follow it.
struct strided_place {
    extent from = 0, to = 0;

    strided_place(const strided_copy_job& job, int axes, extent first);
    /// Moves to the next index, without divisions.
    void advance();

  private:
    const strided_copy_job* job_;
    int axes_;
    extent index_[most_axes];
};

/// Copies elements, as words of the same size.
template <class Word>
struct strided_copy_of {
    /// Copies rows along the last axis.
    static void rows(const strided_copy_job& job, extent begin, extent end) {
        const extent width = job.extents.of[job.last()], from_step = job.from_strides.of[job.last()],
                     to_step = job.to_strides.of[job.last()];
        strided_place p(job, job.last(), begin);
        for (extent row = begin; row < end; ++row, p.advance()) {
            const auto* const from = reinterpret_cast<const Word*>(job.from) + p.from;
            auto* const to = reinterpret_cast<Word*>(job.to) + p.to;
            if (from_step == 1 && to_step == 1) {
                std::memcpy(to, from, static_cast<std::size_t>(width) * sizeof(Word));
            } else {
                for (extent i = 0; i < width; ++i) to[i * to_step] = from[i * from_step];
            }
        }
    }

    /// The number of elements in a cache line.
    static constexpr extent side = 64 / static_cast<extent>(sizeof(Word));

    /// Copies a matrix in squares; `from` is contiguous along the rows' index j, `to` along the columns' index i.
    static void transpose(const Word* from, extent from_step, Word* to, extent to_step, extent rows, extent columns) {
        for (extent i = 0; i < columns; i += side) {
            const extent some = std::min(side, columns - i);
            if (some == side && rows == side) {
                for (extent j = 0; j < side; ++j) {
                    Word line[side];
                    for (extent k = 0; k < side; ++k) line[k] = from[(i + k) * from_step + j];
                    std::memcpy(to + j * to_step + i, line, sizeof line);
                }
            } else {
                for (extent j = 0; j < rows; ++j) {
                    for (extent k = 0; k < some; ++k) to[j * to_step + i + k] = from[(i + k) * from_step + j];
                }
            }
        }
    }
};

template <class Word>
void run_strided_copy(cpu& device, const strided_copy_job& given) {
    using body = strided_copy_of<Word>;
    const int other = given.transposed_axis();
    const extent width = given.extents.of[given.last()];
    if (other < 0 || width < 4 || given.extents.of[other] < 4) {
        const row_partition pieces = partition_rows(given.size() / width, width);
        device.parallel_for(pieces.count, [&](extent piece) {
            const extent begin = pieces.begin(piece);
            body::rows(given, begin, begin + pieces.rows_of(piece));
        });
        return;
    }
    const strided_copy_job job = with_axis_before_last(given, other);
    const int rows_axis = job.last() - 1;
    const extent rows = job.extents.of[rows_axis], blocks = detail::ceil_div(rows, body::side);
    const extent strips = detail::ceil_div(width, 4096);  // strips of columns, so that there is work for all threads
    const row_partition pieces =
        partition_rows(job.size() / (rows * width) * blocks * strips, std::min<extent>(width, 4096) * body::side);
    device.parallel_for(pieces.count, [&](extent piece) {
        for (extent k = pieces.begin(piece), end = k + pieces.rows_of(piece); k < end; ++k) {
            const extent strip = k % strips * 4096, j = k / strips % blocks * body::side;
            const strided_place p(job, rows_axis, k / strips / blocks);
            const extent from_step = job.from_strides.of[job.last()], to_step = job.to_strides.of[rows_axis];
            body::transpose(reinterpret_cast<const Word*>(job.from) + p.from + j + strip * from_step, from_step,
                            reinterpret_cast<Word*>(job.to) + p.to + j * to_step + strip, to_step,
                            std::min(body::side, rows - j), std::min<extent>(4096, width - strip));
        }
    });
}

void run_strided_copy_of_bytes(cpu& device, const strided_copy_job& job);

template <>
struct strided_copy<cpu> {
    template <class From, class T, int Rank>
    static void run(cpu& device, const view<From, Rank>& from, const view<T, Rank>& to) {
        static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
        check_strided_copy(from, to);
        run_strided_copy_of_bytes(device, strided_copy_job_of(view<const T, Rank>(from), to));
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/strided_copy/cpu.body.hpp>
#endif
