// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of the norms' backward pass share: the arguments, and how a row's gradient is computed; the two norms
/// differ in the latter alone.
#pragma once

#include <halftone/kernel/common/rows/copied.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/norm/care/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// What a row's gradient needs: reductions over the row, and a function of each element and these.
template <bool Centred>
struct norm_row;

/// Layer norm: dx = rstd (dy gain - mean(dy gain) - xhat mean(dy gain xhat)), xhat = (x - mean) rstd.
template <>
struct norm_row<true> {
    static constexpr int sums = 2;  // over rows, of dy xhat and dy: the gradients of gain and bias
    static constexpr bool has_mean = true;

    standard_row standard;
    float scale;
    float sum = 0, along = 0;  // sums of dy gain and of dy gain xhat; then their means

    HALFTONE_HD HALFTONE_INLINE norm_row(float mean, float rstd) : standard(mean, rstd), scale(rstd) {}

    template <int M>
    HALFTONE_HD HALFTONE_INLINE void add(bool is_there, const vec<float, M>& v, const vec<float, M>& d,
                                         const vec<float, M>& g) {
        standard_row mine = standard;
        if (!is_there) mine.scale = 0;  // (0 - a large mean) times scale may be NaN
        float some = 0, some_along = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
            const float weighted = d[e] * g[e];
            some += weighted;
            some_along += weighted * mine(v[e]);
        }
        sum += some;
        along += some_along;
    }
    HALFTONE_KERNEL template <class Team, class Simt>
    HALFTONE_HD HALFTONE_INLINE void take_means(Simt simt, extent width, word slot = 0) {
        const vec<float, 2> both = Team::sums(simt, vec<float, 2>{sum, along}, slot);
        sum = both[0] / static_cast<float>(width);
        along = both[1] / static_cast<float>(width);
    }
    HALFTONE_HD HALFTONE_INLINE float xhat(float v) const { return standard(v); }
    HALFTONE_HD HALFTONE_INLINE float dx(float v, float d, float g) const {
        return (d * g - sum - standard(v) * along) * scale;
    }
};

/// RMS norm: dx = rstd (dy gain - xhat mean(dy gain xhat)), xhat = x rstd.
template <>
struct norm_row<false> {
    static constexpr int sums = 1;  // over rows, of dy xhat: the gradient of gain
    static constexpr bool has_mean = false;

    float scale;
    float along = 0;

    HALFTONE_HD HALFTONE_INLINE norm_row(float, float rstd) : scale(rstd) {}

    template <int M>
    HALFTONE_HD HALFTONE_INLINE void add(bool, const vec<float, M>& v, const vec<float, M>& d, const vec<float, M>& g) {
        float some = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) some += d[e] * g[e] * (v[e] * scale);
        along += some;
    }
    HALFTONE_KERNEL template <class Team, class Simt>
    HALFTONE_HD HALFTONE_INLINE void take_means(Simt simt, extent width, word slot = 0) {
        along = Team::sums(simt, vec<float, 1>{along}, slot)[0] / static_cast<float>(width);
    }
    HALFTONE_HD HALFTONE_INLINE float xhat(float v) const { return v * scale; }
    HALFTONE_HD HALFTONE_INLINE float dx(float v, float d, float g) const {
        return (d * g - v * scale * along) * scale;
    }
};

/// The kernels' arguments. Without a mean: nothing is subtracted.
template <class X, class W, class Y>
struct norm_gradients {
    global_span<const X> x;
    global_span<const W> gain;
    global_span<const Y> dy;
    global_span<const float> mean, rstd;
    global_span<X> dx;
    extent rows, width, x_stride, dy_stride, dx_stride;
    write_mode mode;

    HALFTONE_KERNEL template <class Row, class Simt>
    HALFTONE_HD HALFTONE_INLINE Row row_of(Simt simt, extent row) const {
        const float scale = simt.load(rstd, row);
        if constexpr (Row::has_mean) return {simt.load(mean, row), scale};
        return {0, scale};
    }
    /// Computes dx of a row. A wide block has it in shared memory, after the team's bytes.
    HALFTONE_KERNEL template <class Row, class Team, int N, int Threads, int Held, class Simt>
    HALFTONE_HD HALFTONE_INLINE void take(Simt simt, extent row) const {
        const auto values = x.part(row * x_stride, width);
        const auto incoming = dy.part(row * dy_stride, width);
        const auto to = dx.part(row * dx_stride, width);
        const int me = Team::member(simt);
        Row r = row_of<Row>(simt, row);
        const auto steps = row_steps<N, Threads, Held>::over(me, width, to.data, values.data, incoming.data, gain.data);
        const row_pair<X, Y, N, Threads, Held> in(simt, steps, values, incoming, Team::shared_bytes);
        steps.each_or_zeros([&](const auto& place) {
            r.add(place.is_there, in.first(simt, place), in.second(simt, place), place.load(simt, gain));
        });
        r.template take_means<Team>(simt, width);
        steps.each([&](const auto& place) {
            write(simt, row, place, r, in.first(simt, place), in.second(simt, place), place.load(simt, gain));
        });
    }
    /// Writes dx of a thread's elements of a row.
    HALFTONE_KERNEL template <class Simt, class Row, int M>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, extent row, const row_place<M>& place, const Row& r,
                                           const vec<float, M>& v, const vec<float, M>& d,
                                           const vec<float, M>& g) const {
        const auto to = dx.part(row * dx_stride, width);
        vec<float, M> out = mode == write_mode::add ? place.load(simt, to) : vec<float, M>{};
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) out[e] += r.dx(v[e], d[e], g[e]);
        place.store(simt, to, out);
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
