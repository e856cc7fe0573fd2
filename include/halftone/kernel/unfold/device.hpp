// SPDX-License-Identifier: MIT
/// \file
/// unfold and fold on devices that run GPU kernels; unfold.hpp has their contract and an example. A thread of unfold writes
/// 16 bytes of a row of the matrix: it computes its channel, tap, image and position by five divisions, and steps from one
/// position to the next by additions. A thread of fold computes one element of the images. Both use 32-bit integers if the
/// sizes allow that. On an H200 a convolution of 64 images of 64 x 56 x 56 by 3x3 windows took 1.24 ms with one thread per
/// element of the matrix and 64-bit integers, of which unfold took 1.0 ms.
#pragma once

#include <limits>

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/update/device.hpp>
#include <halftone/kernel/unfold/window/element.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// Rows of the matrix in runs of N elements, which begin at multiples of N columns.
template <class Word, int N, run_access Access>
struct unfold_runs_kernel {
    static constexpr int threads = 256;
    static constexpr simt::word shared_bytes = 0;

    unfold_element<Word> matrix;
    simt::word runs, taps;  // of a row; of the window
    simt::word count;       // of all runs

    grid_shape grid() const { return simt::blocks_for(count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const simt::word i = static_cast<simt::word>(simt.block().x) * threads + static_cast<simt::word>(simt.thread());
        if (i >= count) return;
        const simt::word row = i / runs, first = (i - row * runs) * N;
        const simt::word channel = row / taps, tap = row - channel * taps;
        const auto across_taps = static_cast<simt::word>(matrix.window.across.taps);
        const simt::word down_tap = tap / across_taps, across_tap = tap - down_tap * across_taps;
        const extent left = matrix.columns - first;
        const int n = left < N ? static_cast<int>(left) : N;
        store_run<Access>(simt, matrix.y.from(row * matrix.columns + first), 0, n,
                          read(simt, channel, static_cast<int>(down_tap), static_cast<int>(across_tap), first, n));
    }

  private:
    /// The elements that a tap sees from n consecutive positions of a channel, from `column` on.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<Word, N> read(Simt simt, extent channel, int down_tap, int across_tap,
                                                  simt::word column, int n) const {
        const window_axis &down = matrix.window.down, &across = matrix.window.across;
        const auto positions = static_cast<simt::word>(across.positions), rows = static_cast<simt::word>(matrix.rows);
        const int stride = static_cast<int>(across.stride), size = static_cast<int>(across.size);
        const int first_seen = static_cast<int>(across.seen(0, across_tap));
        const extent step = stride * matrix.strides[3];
        simt::word position_row = column / positions, position = column - position_row * positions;
        simt::word image = position_row / rows;
        position_row -= image * rows;

        int seen = first_seen + static_cast<int>(position) * stride;
        bool is_inside = false;  // whether the row that the tap sees is one of the image
        extent at = 0;           // of the element that the tap sees
        const auto begin_row = [&] {
            const extent i = down.seen(matrix.first_row + position_row, down_tap);
            is_inside = i >= 0 && i < down.size;
            at = matrix.begin + image * matrix.strides[0] + channel * matrix.strides[1] + i * matrix.strides[2] +
                 seen * matrix.strides[3];
        };
        begin_row();
        vec<Word, N> values{};
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            if (e < n && is_inside && seen >= 0 && seen < size) values[e] = simt.load(matrix.x, at);
            seen += stride, at += step;
            if (++position == positions) {
                position = 0, seen = first_seen;
                if (++position_row == rows) position_row = 0, ++image;
                begin_row();
            }
        }
        return values;
    }
};

}  // namespace on_device

template <simt_device Device>
struct unfold<Device> {
    template <class T>
    static void run(Device& device, const unfold_arguments<T>& a) {
        check_unfold(a);
        constexpr int n = on_device::widest<T>;
        const extent rows = a.y.extent_of(0), columns = a.y.extent_of(1), runs = detail::ceil_div(columns, n);
        if (a.y.size() == 0) return;
        constexpr extent most = std::numeric_limits<std::int32_t>::max();
        if (columns > most || rows > most / runs || !a.window.fits_32_bits()) return unfold_by_elements(device, a);
        using word_type = detail::unsigned_of_size<sizeof(T)>;
        const auto launch = [&]<on_device::run_access Access>(std::integral_constant<on_device::run_access, Access>) {
            device.launch(on_device::unfold_runs_kernel<word_type, n, Access>{
                unfold_element<word_type>(a), static_cast<simt::word>(runs), static_cast<simt::word>(a.window.taps()),
                static_cast<simt::word>(rows * runs)});
        };
        on_device::launch_with_row_access<n>(columns, launch, a.y.data());
    }
    template <class T, class X>
    static void fold(Device& device, const fold_arguments<T, X>& a) {
        check_fold(a);
        constexpr extent most = std::numeric_limits<std::int32_t>::max();
        if (a.x.size() <= most && a.y.size() <= most && a.window.fits_32_bits()) {
            fold_by_elements<std::int32_t>(device, a);
        } else {
            fold_by_elements<extent>(device, a);
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
