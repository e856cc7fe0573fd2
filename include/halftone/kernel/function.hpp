// SPDX-License-Identifier: MIT
/// \file
/// What the kernels' free functions share, such as ht::layer_norm<P>(device, x, gain, bias, y): which calls they
/// accept, and what they require of a policy.
///
/// Arguments are the device, then what is read, what is written, and numbers and options. Views and tensors of all of
/// halftone's element types are accepted. An element type says how a view is stored; the policy says in which type
/// products are multiplied and results rounded, and how 8-bit operands are scaled. Sums, statistics, exponentials and
/// losses are in float under every policy, as the operations' categories say (policy/operations.hpp), and in double if
/// a view holds doubles. For an optional view that is not wanted, pass one without data: ht::view<float, 1>{}.
///
/// For a call on a tape, pass a context in place of the device, and variables in place of views: the functions of
/// autodiff/op/ have the same names.
#pragma once

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/policy/category.hpp>
#include <halftone/policy/check.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/tensor/tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A device that runs kernels: it has scratch memory. Views and tapes are no devices.
template <class Device>
concept kernel_device = requires(Device& device) {
    device.scratch();
};

/// Views, and everything from which as_view makes one.
template <class... V>
concept viewables = (viewable<V> && ...);

/// The element type of a view or tensor, without const.
template <class V>
using element_in = typename view_of<V>::value_type;

/// True, or a compile-time error with a message, for the policy of a function whose views have elements of types T.
template <class P, class... T>
consteval bool check_function() {
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    static_assert(
        !std::is_same_v<typename roles::compute, double> || kernel::in_double<T...>,
        "halftone: this policy computes in double, and no view here holds doubles: let one of them, or take a policy "
        "that computes in float, ht::full_fp32");
    return true;
}

/// True, or a compile-time error with a message, if a view has another rank.
template <int Rank, class... V>
consteval bool check_ranks() {
    static_assert(
        ((view_of<V>::rank == Rank) && ...),
        "halftone: a view here has another rank than the function takes: matrices are (rows, columns), so flatten "
        "leading axes with ht::as_rows; gains, statistics, targets and sums are of rank 1, see ht::flatten");
    return true;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
