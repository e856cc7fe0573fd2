// SPDX-License-Identifier: MIT
/// \file
/// unfold and fold on the CPU; unfold.hpp has their contract and an example.
///
/// unfold writes the matrix row by row: the elements that a tap reads for one row of positions have a constant stride in a
/// row of the image. fold computes the images row by row: it sums the floats of a row in scratch memory, tap by tap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/axis_reduction/cpu.hpp>
#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/common/rows/scaled_rows.hpp>
#include <halftone/kernel/unfold/window/element.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace unfold_cpu {

/// An unfold without its element type. Strides are in elements.
struct job {
    const std::byte* x;
    std::byte* y;
    sliding_window window;
    shape<4> strides;
    extent images, channels, first_row, rows;

    /// The number of units of work; a unit is one tap of one channel of one image.
    extent units() const { return channels * window.taps() * images; }
};

template <class Word>
void run_units(const job& j, extent begin, extent end) {
    const window_axis &down = j.window.down, &across = j.window.across;
    const extent width = across.positions, step = across.stride * j.strides[3];
    for (extent unit = begin; unit < end; ++unit) {
        const extent image = unit % j.images, row = unit / j.images;
        const extent tap = row % j.window.taps(), down_tap = tap / across.taps, across_tap = tap % across.taps;
        const Word* const from = reinterpret_cast<const Word*>(j.x) + image * j.strides[0] +
                                 row / j.window.taps() * j.strides[1];
        Word* to = reinterpret_cast<Word*>(j.y) + unit * j.rows * width;
        const extent first = across.first_inside(across_tap),
                     behind = std::max(first, across.end_inside(across_tap)), count = behind - first;
        for (extent r = 0; r < j.rows; ++r, to += width) {
            const extent seen = down.seen(j.first_row + r, down_tap);
            if (seen < 0 || seen >= down.size || count == 0) {
                std::fill_n(to, width, Word{});
                continue;
            }
            const Word* const source = from + seen * j.strides[2] + across.seen(first, across_tap) * j.strides[3];
            std::fill_n(to, first, Word{});
            if (step == 1) {
                std::memcpy(to + first, source, static_cast<std::size_t>(count) * sizeof(Word));
            } else {
                for (extent i = 0; i < count; ++i) to[first + i] = source[i * step];
            }
            std::fill_n(to + behind, width - behind, Word{});
        }
    }
}

/// The fold of images without their element type; run_row computes one row of an image.
struct fold_job {
    float_rows rows;
    const float* y;
    axis_cpu::sink x;
    sliding_window window;
    shape<5> strides;
    extent groups, channels, columns;
    write_mode mode;

    void run_row(extent index, float* sums) const {
        const window_axis &down = window.down, &across = window.across;
        const extent row = index % down.size, of_group = index / down.size % (groups * channels),
                     image = index / down.size / (groups * channels);
        std::fill_n(sums, across.size, 0.0f);
        for (extent k = 0; k < down.taps; ++k) {
            const extent position_row = down.position_of(row, k);
            if (position_row < 0) continue;
            for (extent l = 0; l < across.taps; ++l) {
                const extent first = across.first_inside(l), count = across.end_inside(l) - first;
                if (count <= 0) continue;
                const float* const from = y + (of_group * window.taps() + k * across.taps + l) * columns +
                                          image * window.positions() + position_row * across.positions + first;
                rows.add_scaled(count, 1.0f, from, 1, sums + across.seen(first, l), across.stride);
            }
        }
        x.put(sums, across.size,
              image * strides[0] + of_group / channels * strides[1] + of_group % channels * strides[2] + row * strides[3],
              strides[4], mode);
    }
};

inline void run(cpu& device, const fold_job& j, extent images) {
    const extent width = j.window.across.size;
    const row_partition pieces =
        partition_rows(images * j.groups * j.channels * j.window.down.size, width * j.window.taps());
    device.parallel_for(pieces.count, static_cast<std::size_t>(width) * sizeof(float),
                        [&](extent piece, std::byte* scratch) {
                            const extent begin = pieces.begin(piece), end = begin + pieces.rows_of(piece);
                            for (extent i = begin; i < end; ++i) j.run_row(i, reinterpret_cast<float*>(scratch));
                        });
}

template <class Word>
void run(cpu& device, const job& j) {
    const row_partition pieces = partition_rows(j.units(), j.rows * j.window.across.positions);
    device.parallel_for(pieces.count, [&](extent piece) {
        const extent begin = pieces.begin(piece);
        run_units<Word>(j, begin, begin + pieces.rows_of(piece));
    });
}

}  // namespace unfold_cpu

template <>
struct unfold<cpu> {
    template <class T>
    static void run(cpu& device, const unfold_arguments<T>& a) {
        check_unfold(a);
        if (a.y.size() == 0) return;
        const unfold_cpu::job j{reinterpret_cast<const std::byte*>(a.x.data()),
                                reinterpret_cast<std::byte*>(a.y.data()),
                                a.window,
                                a.x.strides(),
                                a.x.extent_of(0),
                                a.x.extent_of(1),
                                a.first_row,
                                a.rows};
        if constexpr (sizeof(T) == 1) unfold_cpu::run<std::uint8_t>(device, j);
        if constexpr (sizeof(T) == 2) unfold_cpu::run<std::uint16_t>(device, j);
        if constexpr (sizeof(T) == 4) unfold_cpu::run<std::uint32_t>(device, j);
        if constexpr (sizeof(T) == 8) unfold_cpu::run<std::uint64_t>(device, j);
    }
    template <class T, class X>
    static void fold(cpu& device, const fold_arguments<T, X>& a) {
        check_fold(a);
        if (a.x.size() == 0) return;
        if constexpr (std::is_same_v<T, float> && !in_double<X>) {
            unfold_cpu::run(device,
                            {float_rows::of(device), a.y.data(), axis_cpu::sink_of(device, a.x.data()), a.window, a.x.strides(),
                             a.x.extent_of(1), a.x.extent_of(2), a.y.extent_of(2), a.mode},
                            a.x.extent_of(0));
        } else {
            fold_by_elements<extent>(device, a);
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
