// SPDX-License-Identifier: MIT
/// \file
/// Layer norm's forward pass with several rows for a warp at a time: their loads are in flight together, and one load of
/// gain and bias, which in float are as many bytes as four rows of 16 bits, serves all of them. Each row has the bits that
/// kernel/norm/device.hpp gives it. Rows that need care (kernel/norm/care) are not cared for here.
#pragma once

#include <halftone/kernel/norm/device.hpp>

namespace study {

namespace ht = halftone;
using namespace ht::kernel::on_device;
using ht::extent;

template <class X, class W, class Y, int N, int Held, int Rows>
struct several_rows_kernel {
    using team = row_team<32>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = 0;

    global_span<const X> x;
    global_span<const W> gain, bias;
    global_span<Y> y;
    global_span<float> mean, rstd;
    extent rows, width;
    float epsilon;

    grid_shape grid() const { return team::grid((rows + Rows - 1) / Rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent first = team::row(simt) * Rows;
        if (first >= rows) return;
        const int me = simt.lane();
        const auto steps = row_steps<N, 32, Held>::over(me, width);
        vec<X, N> held[Rows][Held];
        float average[Rows] = {}, squares[Rows] = {};
        HALFTONE_UNROLL for (int r = 0; r < Rows; ++r) {
            const extent row = first + r < rows ? first + r : first;
            hold<32>(simt, x.part(row * width, width), me, steps.walk.vectors, held[r]);
        }
        HALFTONE_UNROLL for (int r = 0; r < Rows; ++r) {
            steps.each_or_zeros(
                [&](const auto& place) { average[r] += sum_of(to_float(held[r][place.held]), 0, false); });
        }
        HALFTONE_UNROLL for (int r = 0; r < Rows; ++r) {
            average[r] = team::sum(simt, average[r], constant<0>{}) / static_cast<float>(width);
        }
        HALFTONE_UNROLL for (int r = 0; r < Rows; ++r) {
            steps.each(
                [&](const auto& place) { squares[r] += sum_of(to_float(held[r][place.held]), average[r], true); });
        }
        HALFTONE_UNROLL for (int r = 0; r < Rows; ++r) {
            squares[r] =
                1 / std::sqrt(team::sum(simt, squares[r], constant<1>{}) / static_cast<float>(width) + epsilon);
        }
        steps.each([&](const auto& place) {
            const vec<float, N> g = place.load(simt, gain), b = place.load(simt, bias);
            HALFTONE_UNROLL for (int r = 0; r < Rows; ++r) {
                if (first + r < rows) {
                    const vec<float, N> v = to_float(held[r][place.held]);
                    vec<float, N> out;
                    HALFTONE_UNROLL for (int e = 0; e < N; ++e) out[e] = (v[e] - average[r]) * squares[r] * g[e] + b[e];
                    place.store(simt, y.part((first + r) * width, width), out);
                }
            }
        });
        HALFTONE_UNROLL for (int r = 0; r < Rows; ++r) {
            if (me == 0 && first + r < rows) {
                simt.store(mean, first + r, average[r]);
                simt.store(rstd, first + r, squares[r]);
            }
        }
    }

  private:
    /// The sum of the elements, or of the squares of their differences from the average.
    HALFTONE_HD HALFTONE_INLINE static float sum_of(const vec<float, N>& v, float average, bool of_squares) {
        float sum = 0;
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            const float d = v[e] - average;
            sum += of_squares ? d * d : v[e];
        }
        return sum;
    }
};

}  // namespace study
