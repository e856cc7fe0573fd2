// SPDX-License-Identifier: MIT
/// \file
/// Inverted dropout (Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014):
/// kept elements are scaled by 1 / (1 - p) during training, so that evaluation needs no scaling.
///
///     ht::dropout(device, x, y, draw);                        // y = kept(x) scale
///     ht::dropout(device, x, residual, y, draw);              // y = residual + kept(x) scale
///     ht::dropout(device, dy, dx, draw);                      // the backward pass: the same call with dy
///
/// No mask is stored. Whether element i is dropped is a function of Philox's random numbers for (seed, pass, tensor,
/// i). Seed and pass are in the device's memory, where a captured step changes them. All devices and instruction sets
/// give the same bits.
///
/// Numeric contract: computed in float (for doubles in double, fp64.hpp), rounded once. A dropped element becomes zero,
/// even if it was an infinity or a NaN.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/number/philox.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The seed and pass of the random numbers, in the device's memory.
struct random_record {
    std::uint64_t seed = 0;
    std::uint32_t pass = 0;  ///< Philox's step; a tape counts its forward and backward passes
};

/// Which elements are dropped.
struct dropout_draw {
    const random_record* record;  ///< in the device's memory; not read if p is 0
    std::uint32_t tensor;
    std::uint64_t
        kept_from;  ///< element i is dropped if random_bits(seed, pass, tensor, i) is less; 2^32: all are
    float scale;

    /// Drops each element with probability p, in [0, 1], rounded to a multiple of 2^-32.
    static dropout_draw of(const random_record* record, std::uint32_t tensor, float p) {
        const auto share = static_cast<double>(p);
        return {record, tensor, static_cast<std::uint64_t>(share * 0x1p32 + 0.5),
                p < 1 ? static_cast<float>(1 / (1 - share)) : 0.0f};
    }
};

/// run(device, x, base, y, draw): y = base + kept(x) draw.scale, all of one size; a base without data counts as zero. y
/// may be the memory of base, or of x if their types agree. Throws shape_error.
template <class Device>
struct dropout;

/// Throws shape_error if the arguments do not fit together.
template <class X, class Y>
void check_dropout(const view<const X, 1>& x, const view<const Y, 1>& base, const view<Y, 1>& y) {
    expect("dropout", "x", x, x.shape());
    expect_optional("dropout", "base", base, x.shape());
    expect("dropout", "y", y, x.shape());
}

}  // namespace kernel

/// y = x with elements dropped by `draw` and the others multiplied by its scale. x and y are contiguous, of one size
/// and any rank; y may be x if their types agree. The same call with dy gives dx, because equal seed, pass and tensor
/// drop the same elements. It takes no policy, since the element types determine everything. Throws shape_error.
template <class Device, class X, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void dropout(Device& device, const X& x, const Y& y, const kernel::dropout_draw& draw) {
    using T = detail::element_in<Y>;
    detail::expect_apart_or_same(device, "dropout", "x", flatten(as_view(x)), "y", flatten(as_view(y)));
    kernel::dropout<Device>::run(device, const_view<detail::element_in<X>, 1>(flatten(as_view(x))), const_view<T, 1>{},
                                 view<T, 1>(flatten(as_view(y))), draw);
}
/// y = base + dropout(x), rounded once; base is a residual, and y may be the same memory.
template <class Device, class X, class Base, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Base, Y>)
void dropout(Device& device, const X& x, const Base& base, const Y& y, const kernel::dropout_draw& draw) {
    using T = detail::element_in<Y>;
    detail::expect_apart_or_same(device, "dropout", "x", flatten(as_view(x)), "y", flatten(as_view(y)));
    detail::expect_apart_or_same(device, "dropout", "base", flatten(as_view(base)), "y", flatten(as_view(y)));
    kernel::dropout<Device>::run(device, const_view<detail::element_in<X>, 1>(flatten(as_view(x))),
                                 const_view<T, 1>(flatten(as_view(base))), view<T, 1>(flatten(as_view(y))), draw);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
