// SPDX-License-Identifier: MIT
/// \file
/// The sum over all elements of a pointwise function of one or several tensors, times a factor: sums, means, squared
/// errors.
///
///     ht::sum(device, [](auto x, auto y) { return ht::square(x - y); }, x, y, out);       // out: one value
///
///     const auto e = ht::trace<2>([](auto x, auto y) { return ht::square(x - y); });
///     kernel::sum<cpu>::run(device, e, ht::make_pack(x, y), 1.0 / n, out);          // x, y: (n); out: one value
///
/// Numeric contract: the function is evaluated in float, as by a map; pieces of sum_piece elements are summed in float,
/// with at most kernel::sum_depth additions for a term; pieces are added, and the factor applied, in double, by a tree
/// that depends on the number of elements; the result is rounded once. With a double among inputs and result everything
/// is in double (kernel/common/fp64/each.hpp).
#pragma once

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/map/expression/derivative.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The number of elements that are summed in float.
inline constexpr extent sum_piece = 16384;

/// run(device, expression, inputs, factor, out): out = factor times the sum over i of expression(inputs[i]…). Inputs
/// are a pack of contiguous views of rank 1 and one length, out is a view of rank 0. The empty sum is 0. Throws
/// shape_error.
///
/// The gradient of input k is a map: factor dout derivative<k>(expression).
template <class Device>
struct sum;

}  // namespace kernel

namespace detail {

template <class T, int Rank>
const_view<std::remove_const_t<T>, 1> flat_input(const view<T, Rank>& v) {
    return flatten(v);
}
template <class... Inputs, std::size_t... Index>
auto flat_inputs(const pack<Inputs...>& views, std::index_sequence<Index...>) {
    return make_pack(flat_input(views.template at<Index>())...);
}

}  // namespace detail

/// out = the sum over all elements of f(inputs…): ht::sum(device, f, x, y, out), where f is a generic lambda as for
/// ht::map. Inputs are contiguous, of one size and any rank; out is of rank 0. Pieces are summed in float and added in
/// double; everything is in double if a view holds doubles. It takes no policy, since the element types determine
/// everything. Throws shape_error.
template <class Device, class F, class... Views>
    requires(detail::kernel_device<Device> && sizeof...(Views) > 1 && detail::viewables<Views...>)
void sum(Device& device, const F& f, const Views&... views) {
    constexpr std::size_t inputs = sizeof...(Views) - 1;
    const auto all = make_pack(as_view(views)...);
    const auto& out = all.template at<inputs>();
    static_assert(std::remove_cvref_t<decltype(out)>::rank == 0,
                  "halftone: sum: the last view takes the sum and is of rank 0: ht::view(&total, ht::shape<0>{})");
    kernel::sum<Device>::run(device, trace<static_cast<int>(inputs)>(f),
                             detail::flat_inputs(all, std::make_index_sequence<inputs>{}), 1.0, out);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
