// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation on the CPU; layer_norm.hpp has its arguments, its contract and an example.
#pragma once

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/layer_norm/fp64.hpp>
#include <halftone/kernel/layer_norm/layer_norm.hpp>

#define HALFTONE_BODY <halftone/kernel/layer_norm/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct layer_norm<cpu> {
    template <class X, class W, class Y>
        requires in_double<X, W, Y>
    static void forward(cpu& device, const layer_norm_forward<X, W, Y>& a) {
        fp64::layer_norm_rows(device, a);
    }
    template <class X, class W, class Y, class G>
        requires in_double<X, W, Y>
    static void backward(cpu& device, const layer_norm_backward<X, W, Y, G>& a) {
        fp64::layer_norm_rows(device, a);
    }
    template <class X, class W, class Y>
    static void forward(cpu& device, const layer_norm_forward<X, W, Y>& a) {
        check(a);
        const auto body = device.select(&portable::layer_norm_rows<X, W, Y>, &avx2::layer_norm_rows<X, W, Y>,
                                        &avx512::layer_norm_rows<X, W, Y>);
        const extent width = a.x.extent_of(1);
        const row_pieces cut = cut_rows(a.x.extent_of(0), width, longer_piece(a.x.size()));
        const bool past = streams(a.y, a.x.data());
        const spaced_rows<const X> x(a.x);
        const spaced_rows<Y> y(a.y);
        device.parallel_for(cut.count, [&](extent piece) {
            const extent i = cut.begin(piece);
            body(cut.rows_of(piece), width, x.from(i), a.gain.data(), a.bias.data(), a.epsilon, y.from(i),
                 a.mean.data() == nullptr ? nullptr : a.mean.data() + i,
                 a.rstd.data() == nullptr ? nullptr : a.rstd.data() + i, past);
        });
    }

    template <class X, class W, class Y, class G>
    static void backward(cpu& device, const layer_norm_backward<X, W, Y, G>& a) {
        check(a);
        const auto body =
            device.select(&portable::layer_norm_backward_rows<X, W, Y>, &avx2::layer_norm_backward_rows<X, W, Y>,
                          &avx512::layer_norm_backward_rows<X, W, Y>);
        const extent width = a.x.extent_of(1), stride = partial_stride(width);
        const row_pieces cut = cut_rows_for_sums(a.x.extent_of(0), width);
        const bool gain_wanted = a.dgain.data() != nullptr, bias_wanted = a.dbias.data() != nullptr;
        const extent floats = cut.count * stride;
        const workspace::lease partials(device.scratch(),
                                        static_cast<std::size_t>((gain_wanted + bias_wanted) * floats) * sizeof(float));
        float* const dgain = partials.as<float>();
        float* const dbias = dgain + (gain_wanted ? floats : 0);
        const bool past = a.dx_mode == write_mode::overwrite && streams(a.dx, a.dy.data());
        const spaced_rows<const X> x(a.x);
        const spaced_rows<const Y> dy(a.dy);
        const spaced_rows<X> dx(a.dx);

        device.parallel_for(cut.count, [&](extent piece) {
            const extent i = cut.begin(piece);
            body(cut.rows_of(piece), width, x.from(i), a.gain.data(), dy.from(i), a.mean.data() + i, a.rstd.data() + i,
                 dx.from(i), a.dx_mode, gain_wanted ? dgain + piece * stride : nullptr,
                 bias_wanted ? dbias + piece * stride : nullptr, past);
        });
        if (gain_wanted) add_partials(device, cut.count, dgain, stride, width, a.dgain.data(), a.parameter_mode);
        if (bias_wanted) add_partials(device, cut.count, dbias, stride, width, a.dbias.data(), a.parameter_mode);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
