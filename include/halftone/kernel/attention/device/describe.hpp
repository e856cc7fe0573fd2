// SPDX-License-Identifier: MIT
/// \file
/// What a plan (plan.hpp) looks at, of the arguments of a call and of the device.
///
///     const attention_case c = case_of<bfloat16>(device, extents, forward_arguments);
#pragma once

#include <type_traits>

#include <halftone/kernel/attention/device/plan.hpp>
#include <halftone/kernel/attention/device/warpgroup.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

template <class Compute, class T>
constexpr attention_arithmetic attention_arithmetic_of() {
    const bool has_16_bits = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;
    if (std::is_same_v<Compute, T> && has_16_bits) return attention_arithmetic::sixteen_bits;
    const bool rounds = std::is_same_v<Compute, tfloat32> && std::is_same_v<T, float>;
    return rounds ? attention_arithmetic::tfloat32 : attention_arithmetic::others;
}

/// Whether the vectors of all heads are aligned to 16 bytes.
template <class... Ts>
bool are_chunks(const view<Ts, 4>&... views) {
    const auto is_chunks = []<class T>(const view<T, 4>& v) {
        constexpr extent elements = sizeof(T) < 16 ? 16 / sizeof(T) : 1;
        for (int axis = 0; axis < 3; ++axis) {
            if (v.extent_of(axis) > 1 && v.stride_of(axis) % elements != 0) return false;
        }
        return simt::is_aligned(v.data(), 16);
    };
    return (is_chunks(views) && ...);
}
template <class... Ts>
bool have_tensor_maps(const view<Ts, 4>&... views) {
    return (has_tensor_map(views) && ...);
}

/// What decides which kernels compute attention, by the arguments alone: kernels that store no scores, whatever the options request.
template <class Compute, class T>
attention_case case_of(const detail::attention_extents& e, const attention_forward<T>& a) {
    return {.e = e,
            .arithmetic = attention_arithmetic_of<Compute, T>(),
            .is_packed = a.sequences.are_there(),
            .are_chunks = are_chunks(a.q, a.k, a.v, a.o),
            .have_maps = have_tensor_maps(a.q, a.k, a.v, a.o),
            .gpu = {}};
}
template <class Compute, class T>
attention_case case_of(const detail::attention_extents& e, const attention_backward<T>& a) {
    return {.e = e,
            .pass = attention_pass::backward,
            .arithmetic = attention_arithmetic_of<Compute, T>(),
            .is_packed = a.sequences.are_there(),
            .are_chunks = are_chunks(a.q, a.k, a.v, a.d_o, a.dq, a.dk, a.dv),
            .have_maps = have_tensor_maps(a.q, a.k, a.v, a.o, a.d_o, a.dq, a.dk, a.dv),
            .gpu = {}};
}
template <class Compute, class Device, class Arguments>
attention_case case_of(Device& device, const detail::attention_extents& e, const Arguments& a) {
    attention_case c = case_of<Compute>(e, a);
    c.gpu = device.architecture();
    c.has_wgmma = has_warpgroups<Compute>(device);
    return c;
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
