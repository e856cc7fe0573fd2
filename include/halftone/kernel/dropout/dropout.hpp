// SPDX-License-Identifier: MIT
/// \file
/// Dropout (Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014), inverted:
/// what is kept is divided by its share, so that nothing is to be done where nothing is dropped.
///
///     ht::dropout(device, x, y, draw);                        // y = kept(x) scale
///     ht::dropout(device, x, residual, y, draw);              // y = residual + kept(x) scale
///     ht::dropout(device, dy, dx, draw);                      // and backward: the same once more
///
/// No mask is stored. Whether element i is dropped follows from Philox's numbers for (seed, pass, tensor, i), the first
/// two of which lie in the device's memory, where a captured step changes them. The same bits on every device and
/// instruction set.
///
/// Numeric contract: in float (of doubles in double, fp64.hpp), rounded once. A dropped element is zero, whatever it
/// was.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/number/philox.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Which random numbers are drawn at present, in the device's memory.
struct random_record {
    std::uint64_t seed = 0;
    std::uint32_t pass = 0;  ///< Philox's step: of a tape, the forward and backward pass that it is in
};

/// Which elements are dropped.
struct dropout_draw {
    const random_record* record;  ///< the device's; not read where nothing is dropped
    std::uint32_t tensor;
    std::uint64_t
        kept_from;  ///< element i is dropped where random_bits(seed, pass, tensor, i) is less; 2^32: everything is
    float scale;

    /// Each element with probability p, in [0, 1], to a multiple of 2^-32.
    static dropout_draw of(const random_record* record, std::uint32_t tensor, float p) {
        const auto share = static_cast<double>(p);
        return {record, tensor, static_cast<std::uint64_t>(share * 0x1p32 + 0.5),
                p < 1 ? static_cast<float>(1 / (1 - share)) : 0.0f};
    }
};

/// run(device, x, base, y, draw): y = base + kept(x) draw.scale, all of one size; without a base (a view without data)
/// it counts as zero. y may be the memory of base, or of x where the types agree. Throws shape_error.
template <class Device>
struct dropout;

/// Throws shape_error where the arguments do not fit together.
template <class X, class Y>
void check_dropout(const view<const X, 1>& x, const view<const Y, 1>& base, const view<Y, 1>& y) {
    expect("dropout", "x", x, x.shape());
    expect_optional("dropout", "base", base, x.shape());
    expect("dropout", "y", y, x.shape());
}

}  // namespace kernel

/// y = x with each element dropped as `draw` has it and the others times its scale. x and y are contiguous, of one size and
/// any rank; y may be x where the types agree. Called once more with dy it gives dx: the same elements are dropped for the
/// same numbers of seed, pass and tensor. It takes no policy: the element types say everything. Throws shape_error.
template <class Device, class X, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Y>)
void dropout(Device& device, const X& x, const Y& y, const kernel::dropout_draw& draw) {
    using T = detail::element_in<Y>;
    kernel::dropout<Device>::run(device, const_view<detail::element_in<X>, 1>(flatten(as_view(x))), const_view<T, 1>{},
                                 view<T, 1>(flatten(as_view(y))), draw);
}
/// y = base + that of x, rounded once: a residual, which y may be.
template <class Device, class X, class Base, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<X, Base, Y>)
void dropout(Device& device, const X& x, const Base& base, const Y& y, const kernel::dropout_draw& draw) {
    using T = detail::element_in<Y>;
    kernel::dropout<Device>::run(device, const_view<detail::element_in<X>, 1>(flatten(as_view(x))),
                                 const_view<T, 1>(flatten(as_view(base))), view<T, 1>(flatten(as_view(y))), draw);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
