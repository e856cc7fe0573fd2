// SPDX-License-Identifier: MIT
/// \file
/// A copy of an 8-bit operand with 16 bits an element: Hopper multiplies 16-bit operands at half the rate of 8-bit
/// ones, but with sums in float, while its 8-bit sums have fewer bits.
///
///     const on_device::widened_copy<bfloat16> w(device, make_operand(view));  // w.operand is the same matrix
///
/// Numeric contract: exact, since every 8-bit number is a 16-bit one.
#pragma once

#include <halftone/kernel/convert/device.hpp>
#include <halftone/kernel/matmul/device/operand.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

template <class T>
class widened_copy {
  public:
    product_operand<T> operand;

    template <class Device, class From>
    widened_copy(Device& device, const product_operand<From>& from)
        : operand{{}, round_up(from.length(), 8), from.outer, from.depth, from.axis, row_access::chunks},
          lease_(device.scratch(), static_cast<std::size_t>(from.lines() * operand.leading) * sizeof(T)) {
        T* const to = lease_.template as<T>();
        const extent lines = from.lines(), length = from.length();
        operand.elements = {to, lines * operand.leading};
        const extent line_stride = std::max<extent>(from.leading, length);
        convert<Device>::run(device, view<const From, 2>(from.elements.data, {lines, length}, {line_stride, 1}),
                             view<T, 2>(to, {lines, length}, {operand.leading, 1}));
    }

  private:
    workspace::lease lease_;
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
