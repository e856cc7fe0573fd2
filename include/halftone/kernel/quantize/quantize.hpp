// SPDX-License-Identifier: MIT
/// \file
/// Quantisation of a tensor to eight bits: y = scale x, with one scale for the whole tensor. The scale and its inverse
/// are in the device's memory.
///
///     ht::quantize<ht::fp8_hybrid>(device, x, y, &scale);                   // with the policy's rule, as `current` does
///     kernel::quantize<cpu>::current(device, x, y, &scale, rule);           // the scale from the amax of x; stores it
///     kernel::quantize<cpu>::delayed(device, x, y, &scale, record, kernel::gathering::on);  // the record's scale
///     kernel::quantize<cpu>::again(device, x, y, &scale);                   // with an existing scale: the same bits again
///     kernel::quantize<cpu>::roll(device, records, n, history, words, &skips);   // ends a window
///
/// Numeric contract: scale times x in float, rounded once to nearest even, saturated at the format's largest number.
/// Numbers that are not finite stay so (in float8_e4m3 all become NaN): an overflow has to reach the gradients, where
/// the finite check finds it. With scales that are powers of two the only error is the format's. amax is exact, and
/// infinity if a number is not finite; it is computed on bits, which -ffast-math does not affect. policy/scaling.hpp
/// has the rules.
#pragma once

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/memory/amax_history.hpp>
#include <halftone/number/saturate.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Whether a tensor's amax is stored in its record.
enum class gathering { off, on };

/// All functions take a contiguous x and a y of the same shape, whose type has eight bits. Pointers are to the device's
/// memory. Throws shape_error.
template <class Device>
struct quantize {
    static_assert(sizeof(Device) == 0,
                  "halftone: quantize: the kernels of this device are not included: include <halftone/kernel.hpp> for "
                  "ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

/// The bits of infinity: magnitudes of finite floats are below them.
inline constexpr std::uint32_t infinite_magnitude = 0x7f800000;

/// Quantises one element.
template <class Y>
HALFTONE_HD HALFTONE_INLINE Y quantized(float x, float scale) {
    const bool is_finite = (halftone::bit_cast<std::uint32_t>(x) & 0x7fffffff) < infinite_magnitude;
    return is_finite ? saturate<Y>(x * scale) : Y(x);
}

/// The scale of a tensor, from its amax as bits.
HALFTONE_HD HALFTONE_INLINE tensor_scale scale_of(std::uint32_t amax, float largest, const scaling_rule& rule,
                                                  float before) {
    const float scale = scale_for(halftone::bit_cast<float>(amax), largest, rule, before);
    return {scale, 1 / scale};
}

/// Whether a window is stored in the history when it ends: its step was not skipped, and the tensor occurred and had a
/// finite amax other than 0. The history of a layer that did not run is unchanged, since zeros would displace its
/// information.
HALFTONE_HD HALFTONE_INLINE bool is_remembered(const amax_record& r, std::int32_t skips) {
    return skips == 0 && r.amax != 0;
}

/// Ends a record's window: `amax` is computed by the rule from the history, the window's own amax included.
HALFTONE_HD HALFTONE_INLINE void next_window(amax_record& r, std::uint32_t amax) {
    r.now = scale_of(amax, r.largest, r.rule, r.now.scale);
    r.next = r.next + 1 < r.rule.history ? r.next + 1 : 0;
    r.amax = 0;
}

/// Throws shape_error if x and y differ in shape or are not contiguous.
template <class X, class Y, int Rank>
void check_quantize(const view<X, Rank>& x, const view<Y, Rank>& y) {
    static_assert(eight_bit<Y>, "halftone: quantize: y has eight bits; ht::convert rounds to wider types");
    expect("quantize", "x", x, x.shape());
    expect("quantize", "y", y, x.shape());
}

}  // namespace kernel

/// Quantises x: y = scale x in eight bits, and stores the scale with its inverse to *scale, in the device's memory. The
/// scale is the largest number of y's format divided by the largest magnitude in x, by the rule of the policy's
/// `scaling` (policy/scaling.hpp), without the history of delayed scaling. x and y: contiguous, of one shape. A number
/// that is not finite stays so. Throws shape_error.
template <class P, class Device, class X, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void quantize(Device& device, const X& x, const Y& y, tensor_scale* scale) {
    using roles = resolve<P>;
    static_assert(detail::check_function<roles, detail::element_in<X>>());
    detail::expect_apart(device, "quantize", "x", x, "y", y);
    kernel::quantize<Device>::current(device, as_view(x), as_view(y), scale, scaling_of<roles>::rule);
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void quantize(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: quantize is called without a policy: ht::quantize<ht::amp_bf16>(device, x, y, scale)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
