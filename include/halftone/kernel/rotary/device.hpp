// SPDX-License-Identifier: MIT
/// \file
/// Rotary position embedding on devices that run GPU kernels; rotary.hpp has its contract and an example. A thread
/// rotates a run of pairs, held in two vectors, or copies as many elements.
#pragma once

#include <algorithm>

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/update/device.hpp>
#include <halftone/kernel/rotary/fp64.hpp>
#include <halftone/kernel/rotary/rotary.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// A thread processes a run of N pairs. A head consists of runs of N pairs, followed by runs of 2 N unpaired elements;
/// a head that is only copied consists of runs of 2 N elements.
template <int N, run_access Access, class T>
struct rotary_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = 0;

    global_span<const T> x;
    global_span<T> y;
    global_span<const float> table;
    global_span<const std::int32_t> positions;
    shape<4> x_strides, y_strides;
    extent tokens, time, heads, turned, head_size, pairs, table_rows, runs;
    bool halves;
    float sign;
    write_mode mode;

    grid_shape grid() const { return simt::blocks_for(tokens * heads * runs, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i >= tokens * heads * runs) return;
        const extent of_head = i / runs, run = i - of_head * runs, token = of_head / heads, h = of_head - token * heads;
        const extent b = token / time, t = token - b * time;
        const auto from = x.from(b * x_strides[0] + t * x_strides[1] + h * x_strides[2]);
        const auto to = y.from(b * y_strides[0] + t * y_strides[1] + h * y_strides[2]);
        const extent of_pairs = h < turned ? detail::ceil_div(pairs, N) : 0;
        if (run >= of_pairs) {
            const extent begin = (h < turned ? 2 * pairs : 0) + (run - of_pairs) * 2 * N;
            copy(simt, from, to, begin);
            copy(simt, from, to, begin + N);
            return;
        }
        const extent position = positions.is_there() ? extent{simt.load(positions, token)} : t;
        turn(simt, from, to, run * N, position);
    }

  private:
    HALFTONE_HD static int count(extent begin, extent end) {
        return begin >= end ? 0 : end - begin < N ? static_cast<int>(end - begin) : N;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void put(Simt simt, const global_span<T>& to, extent begin, int n, vec<float, N> v) const {
        const auto part = to.from(begin);
        if (mode == write_mode::add) {
            const vec<float, N> before = load_run<N, Access>(simt, part, 0, n);
            HALFTONE_UNROLL for (int e = 0; e < N; ++e) v[e] = before[e] + v[e];
        }
        store_run<Access>(simt, part, 0, n, round_to<T>(v));
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void copy(Simt simt, const global_span<const T>& from, const global_span<T>& to,
                                          extent begin) const {
        const int n = count(begin, head_size);
        if (n > 0) put(simt, to, begin, n, load_run<N, Access>(simt, from.from(begin), 0, n));
    }
    /// Rotates N pairs from pair `begin` on.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void turn(Simt simt, const global_span<const T>& from, const global_span<T>& to,
                                          extent begin, extent position) const {
        const int n = count(begin, pairs);
        const bool is_there = position >= 0 && position < table_rows;
        const auto cosines = table.from((is_there ? position : 0) * 2 * pairs + begin), sines = cosines.from(pairs);
        const vec<float, N> c = load_run<N, Access>(simt, cosines, 0, n), s = load_run<N, Access>(simt, sines, 0, n);
        // For interleaved pairs the first vector has the first half of the 2 N elements. `low` and `high` are the
        // elements in each.
        const extent first = halves ? begin : 2 * begin, second = halves ? begin + pairs : 2 * begin + N;
        const int low = halves ? n : 2 * n < N ? 2 * n : N, high = halves ? n : 2 * n - low;
        const vec<float, N> p = load_run<N, Access>(simt, from.from(first), 0, low);
        vec<float, N> q{};
        if (high > 0) q = load_run<N, Access>(simt, from.from(second), 0, high);
        vec<float, N> to_p{}, to_q{};
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            const float sine = s[e] * sign;
            const float a = halves ? p[e] : 2 * e < N ? p[2 * e % N] : q[2 * e % N];
            const float d = halves ? q[e] : 2 * e < N ? p[(2 * e + 1) % N] : q[(2 * e + 1) % N];
            float turned_a = a * c[e] - d * sine, turned_d = d * c[e] + a * sine;
            if (!is_there) turned_a = turned_d = bit_cast<float>(word{0x7fc00000});
            if (halves) {
                to_p[e] = turned_a, to_q[e] = turned_d;
            } else if (2 * e < N) {
                to_p[2 * e % N] = turned_a, to_p[(2 * e + 1) % N] = turned_d;
            } else {
                to_q[2 * e % N] = turned_a, to_q[(2 * e + 1) % N] = turned_d;
            }
        }
        put(simt, to, first, low, to_p);
        if (high > 0) put(simt, to, second, high, to_q);
    }
};

}  // namespace on_device

template <simt_device Device>
struct rotary<Device> {
    static void run(Device& device, const rotary_arguments<double>& a) {
        check_rotary(a);
        fp64::turn(device, a);
    }
    template <class T>
    static void run(Device& device, const rotary_arguments<T>& a) {
        check_rotary(a);
        if (a.x.size() == 0) return;
        constexpr int n = std::max(4, std::min(8, on_device::widest<T>));
        const extent tokens = a.x.extent_of(0) * a.x.extent_of(1), heads = a.x.extent_of(2), head_size = a.x.extent_of(3);
        const extent pairs = a.pairs(), rest = head_size - 2 * pairs, turned = a.turned_heads();
        const extent of_turned = detail::ceil_div(pairs, n) + detail::ceil_div(rest, 2 * n),
                     of_copied = detail::ceil_div(head_size, 2 * n);
        const extent runs = turned == heads ? of_turned : turned == 0 ? of_copied : std::max(of_turned, of_copied);
        const auto launch = [&]<on_device::run_access Access>(std::integral_constant<on_device::run_access, Access>) {
            device.launch(on_device::rotary_kernel<n, Access, T>{
                simt::bounding_span_of(a.x), simt::bounding_span_of(a.y), simt::span_of(a.table),
                simt::span_of(a.positions), a.x.strides(), a.y.strides(), tokens, a.x.extent_of(1), heads, turned,
                head_size, pairs, a.table.extent_of(0), runs, a.options.layout == rotary_layout::half_split,
                a.options.inverse ? -1.0f : 1.0f, a.mode});
        };
        // Every run begins at an address aligned for vectors: the strides of heads, halves and tokens are multiples of n.
        bool together = pairs % n == 0 && head_size % n == 0;
        for (int axis = 0; axis < 3; ++axis) {
            together = together && a.x.stride_of(axis) % n == 0 && a.y.stride_of(axis) % n == 0;
        }
        on_device::launch_with_row_access<n>(together ? n : 1, launch, a.x.data(), a.y.data(), a.table.data());
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
