// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation on the CPU; rms_norm.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/rms_norm/fp64.hpp>
#include <halftone/kernel/rms_norm/rms_norm.hpp>

#define HALFTONE_BODY <halftone/kernel/rms_norm/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct rms_norm<cpu> {
    template <class X, class W, class Y>
        requires in_double<X, W, Y>
    static void forward(cpu& device, const rms_norm_forward<X, W, Y>& a) {
        fp64::rms_norm_rows(device, a);
    }
    template <class X, class W, class Y, class G>
        requires in_double<X, W, Y>
    static void backward(cpu& device, const rms_norm_backward<X, W, Y, G>& a) {
        fp64::rms_norm_rows(device, a);
    }
    template <class X, class W, class Y>
    static void forward(cpu& device, const rms_norm_forward<X, W, Y>& a) {
        check(a);
        const auto body = device.select(&portable::rms_norm_rows<X, W, Y>, &avx2::rms_norm_rows<X, W, Y>,
                                        &avx512::rms_norm_rows<X, W, Y>);
        const extent width = a.x.extent_of(1);
        const row_pieces cut = cut_rows(a.x.extent_of(0), width, longer_piece(a.x.size()));
        const bool past = streams(a.y, a.x.data());
        const spaced_rows<const X> x(a.x);
        const spaced_rows<Y> y(a.y);
        device.parallel_for(cut.count, [&](extent piece) {
            const extent i = cut.begin(piece);
            body(cut.rows_of(piece), width, x.from(i), a.gain.data(), a.epsilon, y.from(i),
                 a.rstd.data() == nullptr ? nullptr : a.rstd.data() + i, past);
        });
    }

    template <class X, class W, class Y, class G>
    static void backward(cpu& device, const rms_norm_backward<X, W, Y, G>& a) {
        check(a);
        const auto body =
            device.select(&portable::rms_norm_backward_rows<X, W, Y>, &avx2::rms_norm_backward_rows<X, W, Y>,
                          &avx512::rms_norm_backward_rows<X, W, Y>);
        const extent width = a.x.extent_of(1), stride = partial_stride(width);
        const row_pieces cut = cut_rows_for_sums(a.x.extent_of(0), width);
        const bool wanted = a.dgain.data() != nullptr;
        const bool past = a.dx_mode == write_mode::overwrite && streams(a.dx, a.dy.data());
        const spaced_rows<const X> x(a.x);
        const spaced_rows<const Y> dy(a.dy);
        const spaced_rows<X> dx(a.dx);
        const workspace::lease partials(device.scratch(),
                                        static_cast<std::size_t>(wanted ? cut.count * stride : 0) * sizeof(float));

        device.parallel_for(cut.count, [&](extent piece) {
            const extent i = cut.begin(piece);
            body(cut.rows_of(piece), width, x.from(i), a.gain.data(), dy.from(i), a.rstd.data() + i, dx.from(i),
                 a.dx_mode, wanted ? partials.as<float>() + piece * stride : nullptr, past);
        });
        if (wanted)
            add_partials(device, cut.count, partials.as<float>(), stride, width, a.dgain.data(), a.parameter_mode);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
