// SPDX-License-Identifier: MIT
/// \file
/// Softmax on the CPU; softmax.hpp has its arguments, its contract and an example.
#pragma once

#include <type_traits>

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/softmax/fp64.hpp>
#include <halftone/kernel/softmax/softmax.hpp>

#define HALFTONE_BODY <halftone/kernel/softmax/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <softmax_form Form>
struct softmax_on_cpu {
    template <class X, class Y>
        requires in_double<X, Y>
    static void forward(cpu& device, const softmax_forward<X, Y>& a) { fp64::softmax_rows<Form>(device, a); }
    template <class X, class Y>
        requires in_double<X, Y>
    static void backward(cpu& device, const softmax_backward<X, Y>& a) { fp64::softmax_rows<Form>(device, a); }

    template <class X, class Y>
    static void forward(cpu& device, const softmax_forward<X, Y>& a) {
        check(a);
        const auto body = [&] {
            if constexpr (Form == softmax_form::plain) {
                return device.select(HALFTONE_EACH_SET(softmax_rows<X, Y>));
            } else {
                return device.select(HALFTONE_EACH_SET(log_softmax_rows<X, Y>));
            }
        }();
        const extent width = a.x.extent_of(1);
        const row_partition partition = partition_rows(a.x.extent_of(0), width, longer_piece(a.x.size()));
        const bool non_temporal = stores_non_temporal(a.y, a.x.data());
        const strided_rows<const X> x(a.x);
        const strided_rows<Y> y(a.y);
        const bool together = x.stride == width && y.stride == width;
        const bool are_in_y = Form == softmax_form::logarithm || (std::is_same_v<Y, float> && !non_temporal);
        const extent held = are_in_y ? 0 : held_rows(width);
        const std::size_t bytes = static_cast<std::size_t>(held * width) * sizeof(float);
        device.parallel_for(partition.count, bytes, [&](extent piece, std::byte* scratch) {
            for_runs(partition, piece, together, [&](extent i, extent rows) {
                body(rows, width, x[i], a.scale, y[i], reinterpret_cast<float*>(scratch), non_temporal);
            });
        });
    }

    template <class X, class Y>
    static void backward(cpu& device, const softmax_backward<X, Y>& a) {
        check(a);
        const auto body = [&] {
            if constexpr (Form == softmax_form::plain) {
                return device.select(HALFTONE_EACH_SET(softmax_backward_rows<X, Y>));
            } else {
                return device.select(HALFTONE_EACH_SET(log_softmax_backward_rows<X, Y>));
            }
        }();
        const extent width = a.y.extent_of(1);
        const row_partition partition = partition_rows(a.y.extent_of(0), width, longer_piece(a.y.size()));
        const bool non_temporal = a.mode == write_mode::overwrite && stores_non_temporal(a.dx, a.dy.data());
        const strided_rows<const Y> y(a.y), dy(a.dy);
        const strided_rows<X> dx(a.dx);
        const bool together = y.stride == width && dy.stride == width && dx.stride == width;
        device.parallel_for(partition.count, [&](extent piece) {
            for_runs(partition, piece, together, [&](extent i, extent rows) {
                body(rows, width, y[i], dy[i], a.scale, dx[i], a.mode, non_temporal);
            });
        });
    }
};

template <>
struct softmax<cpu> : softmax_on_cpu<softmax_form::plain> {};
template <>
struct log_softmax<cpu> : softmax_on_cpu<softmax_form::logarithm> {};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
