// SPDX-License-Identifier: MIT
/// \file
/// Layer and root mean square normalisation on the CPU; layer_norm.hpp and rms_norm.hpp have their arguments, contracts and
/// examples.
#pragma once

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/norm/care/cpu.hpp>
#include <halftone/kernel/norm/fp64.hpp>
#include <halftone/kernel/norm/layer_norm.hpp>
#include <halftone/kernel/norm/norm.hpp>
#include <halftone/kernel/norm/rms_norm.hpp>

#define HALFTONE_BODY <halftone/kernel/norm/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct norm<cpu> {
    template <class Arguments>
    static void forward(cpu& device, const Arguments& a) {
        using X = typename decltype(a.x)::value_type;
        using W = typename decltype(a.gain)::value_type;
        using Y = typename decltype(a.y)::value_type;
        if constexpr (in_double<X, W, Y>) {
            fp64::norm_rows(device, a);
        } else {
            forward_in_float<X, W, Y>(device, a);
        }
    }
    template <class Arguments>
    static void backward(cpu& device, const Arguments& a) {
        using X = typename decltype(a.x)::value_type;
        using W = typename decltype(a.gain)::value_type;
        using Y = typename decltype(a.dy)::value_type;
        if constexpr (in_double<X, W, Y>) {
            fp64::norm_backward_rows(device, a);
        } else {
            backward_in_float<X, W, Y>(device, a);
        }
    }

  private:
    template <class X, class W, class Y, class Arguments>
    static void forward_in_float(cpu& device, const Arguments& a) {
        constexpr bool centred = is_centred<Arguments>;
        const auto body = device.select(HALFTONE_EACH_SET(norm_rows<centred, X, W, Y>));
        const extent width = a.x.extent_of(1);
        const row_partition partition = partition_rows(a.x.extent_of(0), width, longer_piece(a.x.size()));
        const bool non_temporal = stores_non_temporal(a.y, a.x.data());
        const strided_rows<const X> x(a.x);
        const strided_rows<Y> y(a.y);
        const W* const bias = bias_of(a).data();
        float *const mean = mean_of(a).data(), *const rstd = a.rstd.data();
        device.parallel_for(partition.count, [&](extent piece) {
            const extent i = partition.begin(piece);
            body(partition.rows_of(piece), width, x.from(i), a.gain.data(), bias, a.epsilon, y.from(i),
                 mean == nullptr ? nullptr : mean + i, rstd == nullptr ? nullptr : rstd + i, non_temporal);
        });
    }

    template <class X, class W, class Y, class Arguments>
    static void backward_in_float(cpu& device, const Arguments& a) {
        constexpr bool centred = is_centred<Arguments>;
        const auto body = device.select(HALFTONE_EACH_SET(norm_backward_rows<centred, X, W, Y>));
        const extent width = a.x.extent_of(1), stride = partial_stride(width);
        const row_partition partition = partition_rows_for_sums(a.x.extent_of(0), width);
        auto *const to_gain = a.dgain.data(), *const to_bias = dbias_of(a).data();
        const bool gain_wanted = to_gain != nullptr, bias_wanted = to_bias != nullptr;
        const extent floats = partition.count * stride;
        const workspace::lease partials(device.scratch(),
                                        static_cast<std::size_t>((gain_wanted + bias_wanted) * floats) * sizeof(float));
        float* const dgain = partials.as<float>();
        float* const dbias = dgain + (gain_wanted ? floats : 0);
        const bool non_temporal = a.dx_mode == write_mode::overwrite && stores_non_temporal(a.dx, a.dy.data());
        const strided_rows<const X> x(a.x);
        const strided_rows<const Y> dy(a.dy);
        const strided_rows<X> dx(a.dx);
        const float* const mean = mean_of(a).data();

        device.parallel_for(partition.count, [&](extent piece) {
            const extent i = partition.begin(piece);
            body(partition.rows_of(piece), width, x.from(i), a.gain.data(), dy.from(i), centred ? mean + i : nullptr,
                 a.rstd.data() + i, dx.from(i), a.dx_mode, gain_wanted ? dgain + piece * stride : nullptr,
                 bias_wanted ? dbias + piece * stride : nullptr, non_temporal);
        });
        if (gain_wanted) add_partials(device, partition.count, dgain, stride, width, to_gain, a.parameter_mode);
        if (bias_wanted) add_partials(device, partition.count, dbias, stride, width, to_bias, a.parameter_mode);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
