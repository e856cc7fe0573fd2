// SPDX-License-Identifier: MIT
/// \file
/// What the free functions of the kernels share, such as ht::layer_norm<P>(device, x, gain, bias, y): which calls they take,
/// and what they ask of a policy.
///
/// A device comes first, then what is read, then what is written, then numbers and options. Views and tensors of any element
/// types that halftone knows are taken; their types say what lies in memory, the policy says in which type products are
/// multiplied, numbers rounded and eight bits scaled. Sums, statistics, exponentials and losses are in float whatever the
/// policy, as the categories of these operations have it (policy/operations.hpp), and in double where a view holds doubles.
/// A view that is not wanted is one without data: ht::view<float, 1>{}.
///
/// A call on a tape has a context in the device's place and variables in that of views: the functions of autodiff/op/ have
/// the same names.
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

/// What runs kernels: it has scratch memory. Neither a view nor a tape is one.
template <class Device>
concept kernel_device = requires(Device& device) {
    device.scratch();
};

/// Views, and what as_view makes one of.
template <class... V>
concept viewables = (viewable<V> && ...);

/// The element type that a view or tensor shows, without const.
template <class V>
using element_in = typename view_of<V>::value_type;

/// True, or a compile-time error, for the policy of a function over views with elements of types T.
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

/// True, or a compile-time error, for views of these ranks.
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
