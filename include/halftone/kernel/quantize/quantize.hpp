// SPDX-License-Identifier: MIT
/// \file
/// A tensor in eight bits: y = scale x, with one scale for all of it, which lies in the device's memory and so does its
/// inverse.
///
///     ht::quantize<ht::fp8_hybrid>(device, x, y, &scale);                   // by the policy's rule, as `current` does
///     kernel::quantize<cpu>::current(device, x, y, &scale, rule);           // scale from the amax of x; written beside y
///     kernel::quantize<cpu>::delayed(device, x, y, &scale, record, kernel::gathering::on);  // by the record; amax goes into it
///     kernel::quantize<cpu>::again(device, x, y, &scale);                   // by a scale that is there: the same bits once more
///     kernel::quantize<cpu>::roll(device, records, n, history, words, &skips);   // a window ends
///
/// Numeric contract: scale times x in float, rounded once to nearest even; what is larger than the format's largest
/// number becomes that. A number that is not finite stays so (float8_e4m3 has NaN for all of them): an overflow has to
/// reach the gradients, where the finite check sees it. With scales that are powers of two the error is the format's
/// alone. amax is exact, and infinity where a number is not finite; it is found on the bits, which -ffast-math does not
/// touch. policy/scaling.hpp has the rules.
#pragma once

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/memory/amax_history.hpp>
#include <halftone/number/saturate.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Whether a tensor's amax goes into its record.
enum class gathering { off, on };

/// Each over a contiguous x and a y of the same shape, whose type has eight bits. Pointers are the device's. Throws
/// shape_error.
template <class Device>
struct quantize {
    static_assert(sizeof(Device) == 0,
                  "halftone: quantize: the kernels of this device are not included: include <halftone/kernel.hpp> for "
                  "ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

/// The bits of infinity: magnitudes of finite floats are below them.
inline constexpr std::uint32_t infinite_magnitude = 0x7f800000;

/// One element.
template <class Y>
HALFTONE_HD HALFTONE_INLINE Y quantized(float x, float scale) {
    const bool is_finite = (halftone::detail::bit_cast<std::uint32_t>(x) & 0x7fffffff) < infinite_magnitude;
    return is_finite ? saturate<Y>(x * scale) : Y(x);
}

/// The scale of a tensor out of its amax, in bits.
HALFTONE_HD HALFTONE_INLINE tensor_scale scale_of(std::uint32_t amax, float largest, const scaling_rule& rule,
                                                  float before) {
    const float scale = scale_for(halftone::detail::bit_cast<float>(amax), largest, rule, before);
    return {scale, 1 / scale};
}

/// Whether a window that ends goes into the history: no step was skipped, and the tensor was met, with something in it
/// that is finite and not 0. The history of a layer that did not run stays as it is; zeros in it would drive out what it
/// knows.
HALFTONE_HD HALFTONE_INLINE bool is_remembered(const amax_record& r, std::int32_t skips) {
    return skips == 0 && r.amax != 0;
}

/// A window's end, in a record: `amax` is what the rule makes of the history, the window's own amax included.
HALFTONE_HD HALFTONE_INLINE void next_window(amax_record& r, std::uint32_t amax) {
    r.now = scale_of(amax, r.largest, r.rule, r.now.scale);
    r.next = r.next + 1 < r.rule.history ? r.next + 1 : 0;
    r.amax = 0;
}

/// Throws shape_error where x and y differ in shape or lie in pieces.
template <class X, class Y, int Rank>
void check_quantize(const view<X, Rank>& x, const view<Y, Rank>& y) {
    static_assert(eight_bit<Y>, "halftone: quantize: y has eight bits; ht::convert rounds to wider types");
    expect("quantize", "x", x, x.shape());
    expect("quantize", "y", y, x.shape());
}

}  // namespace kernel

/// y = scale x in eight bits, and that scale with its inverse to *scale, in the device's memory: the largest number of y's
/// format over the largest magnitude in x, by the rule of the policy's `scaling` (policy/scaling.hpp), with the history of
/// delayed scaling left out. x and y: contiguous, of one shape. A number that is not finite stays so. Throws shape_error.
template <class P, class Device, class X, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void quantize(Device& device, const X& x, const Y& y, tensor_scale* scale) {
    using roles = resolve<P>;
    static_assert(detail::check_function<roles, detail::element_in<X>>());
    kernel::quantize<Device>::current(device, as_view(x), as_view(y), scale, scaling_of<roles>::rule);
}
/// Says what is missing, where a compiler would say that no function matches.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void quantize(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: quantize is called without a policy: ht::quantize<ht::amp_bf16>(device, x, y, scale)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
