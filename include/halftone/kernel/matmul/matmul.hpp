// SPDX-License-Identifier: MIT
/// \file
/// The matrix product c = f(ab), with a fused epilogue f.
///
///     ht::matmul<ht::amp_bf16>(device, a, b, c);                            // (m, k) times (k, n) into (m, n)
///     ht::matmul<ht::amp_bf16>(device, a, ht::transpose(w), c, ht::bias_gelu{beta});
///
/// Numeric contract: operands are rounded to the policy's `compute` (exactly kept where they have that type), products
/// are summed in `accum` (float), the epilogue is evaluated on the sums in float, and what it gives is rounded once, to
/// nearest even, to the element type of c. The order of a sum is fixed on a CPU by k alone; on a GPU by the shape, the
/// types and the device's model, since there a long k may be cut into parts whose sums are added in order (tiles.hpp).
///
/// The error of a sum is at most n u / (1 - n u) times sum |a||b|, n = k + 1 (Higham 2002, section 3.1). u is 2^-24,
/// except on a GPU's matrix units (bfloat16, float16, tfloat32), which may cut bits off where they add: there it is
/// 2^-23. (They add the products of 4, 8 or 16 of k and the sum so far at a time, each cut by less than 2^-24 of the
/// largest, and cut the result by less than 2^-23: no more than 11/16 of a 2^-23 for one of eight k, 7/8 for one of
/// four. Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021.) In these bounds a float16 or a number of eight
/// bits below its type's least normal number counts as that, for so the units align it.
///
/// On a CPU with AMX operands of split<bfloat16, N> and of float16 are multiplied in pieces; kernel/matmul/cpu/unit/split.hpp has
/// the bound, which for float16 and for three pieces is this one, but for sums of three products and fewer.
///
/// Matrix units that multiply operands of eight bits as they are (tiles.hpp) may hold sums in 14 bits. Only 32 of k are
/// summed there at a time, sixteen and sixteen: an error of 35 2^-13 times sum |a||b|, whatever k is, beside that of
/// the float additions of these sums.
///
/// An engine (exec/matmul_engine.hpp) keeps to that too, but may cut operands for tfloat32 where halftone rounds
/// them.
///
/// Where `compute`, an operand or the result is a double, sums and epilogue are in double (matmul/fp64.hpp).
#pragma once

#include <halftone/kernel/matmul/epilogue.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/memory/square_sum.hpp>
#include <halftone/policy/category.hpp>
#include <halftone/policy/check.hpp>
#include <halftone/policy/recipe.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace kernel {

/// Specialised for each device: `run<Compute>(device, a, b, epilogue)` over views that check_matmul has seen.
template <class Device>
struct matmul;

}  // namespace kernel

namespace detail {

/// A matrix without its element type, of which only shape and strides are looked at.
using untyped_matrix = view<const std::byte, 2>;

template <class T>
untyped_matrix untyped(const view<T, 2>& v) {
    return {reinterpret_cast<const std::byte*>(v.data()), v.shape(), v.strides()};
}

inline void check_matmul_operand(const char* which, const untyped_matrix& v) {
    if (v.stride_of(0) != 1 && v.stride_of(1) != 1 && v.size() > 1) {
        fail<shape_error>("matmul: neither axis of ", which, " ", v.shape(), " is contiguous; its strides are ",
                          v.strides());
    }
}

inline void check_matmul_shapes(const untyped_matrix& a, const untyped_matrix& b, const untyped_matrix& c) {
    if (a.extent_of(1) != b.extent_of(0)) {
        fail<shape_error>("matmul: the inner extents differ: a is ", a.shape(), ", b is ", b.shape(), "; b needs ",
                          a.extent_of(1), " rows");
    }
    const shape<2> expected{a.extent_of(0), b.extent_of(1)};
    if (!(c.shape() == expected))
        fail<shape_error>("matmul: c is ", c.shape(), "; ", a.shape(), " times ", b.shape(), " gives ", expected);
    check_matmul_operand("a", a);
    check_matmul_operand("b", b);
    detail::expect_whole_rows("matmul", "c", c);
    detail::expect_elements_once("matmul", "c", c);
}

template <class A, class B, class C>
void check_matmul(const view<A, 2>& a, const view<B, 2>& b, const view<C, 2>& c) {
    check_matmul_shapes(untyped(a), untyped(b), untyped(c));
}

/// The product whose sums go through a kernel's epilogue. A device that can sums the `squares` of a result of floats as it
/// stores it; others leave them alone.
template <class Compute, class Device, class A, class B, class Operands, class Results>
void run_product(Device& device, const view<A, 2>& a, const view<B, 2>& b,
                 const detail::matmul_epilogue<Operands, Results>& epilogue, square_sum* squares) {
    using product_kernel = kernel::matmul<Device>;
    if constexpr (requires { product_kernel::template run<Compute>(device, a, b, epilogue, squares); }) {
        product_kernel::template run<Compute>(device, a, b, epilogue, squares);
    } else {
        product_kernel::template run<Compute>(device, a, b, epilogue);
    }
}

/// c = ab or c += ab.
template <class Compute, class Device, class A, class B, class C>
void product(Device& device, const view<A, 2>& a, const view<B, 2>& b, const view<C, 2>& c, write_mode mode,
             square_sum* squares = nullptr) {
    check_matmul(a, b, c);
    if (mode == write_mode::overwrite) {
        run_product<Compute>(device, a, b, epilogue_of(plain{}, c), squares);
    } else {
        run_product<Compute>(device, a, b, epilogue_of(add_product{}, c), squares);
    }
}

/// c[i] = epilogue(a[i] b[i]), plain or add_product: a launch for all of them where the device has one, with the bits of one
/// for each.
template <class Compute, class Device, class A, class B, class C, class Epilogue>
void run_product_each(Device& device, const view<A, 3>& a, const view<B, 3>& b, const view<C, 3>& c,
                      const Epilogue& epilogue) {
    using product_kernel = kernel::matmul<Device>;
    const extent count = c.extent_of(0);
    if (count == 0) return;
    check_matmul(matrix(a, 0), matrix(b, 0), matrix(c, 0));
    const auto first = epilogue_of(epilogue, matrix(c, 0));
    if constexpr (requires { product_kernel::template run_each<Compute>(device, a, b, count, first, extent{}); }) {
        product_kernel::template run_each<Compute>(device, a, b, count, first, c.stride_of(0));
    } else {
        for (extent i = 0; i < count; ++i)
            run_product<Compute>(device, matrix(a, i), matrix(b, i), epilogue_of(epilogue, matrix(c, i)), nullptr);
    }
}
template <class Compute, class Device, class A, class B, class C>
void product_each(Device& device, const view<A, 3>& a, const view<B, 3>& b, const view<C, 3>& c, write_mode mode) {
    if (mode == write_mode::overwrite) {
        run_product_each<Compute>(device, a, b, c, plain{});
    } else {
        run_product_each<Compute>(device, a, b, c, add_product{});
    }
}

}  // namespace detail

/// c = epilogue(ab). a: (m, k), b: (k, n), either transposed or not; c: (m, n) with contiguous rows. Views, tensors of
/// any element types that halftone knows. c may be an operand of the epilogue but must not overlap a or b.
/// Throws shape_error.
template <class P, class Device, class A, class B, class C, class Epilogue = plain>
void matmul(Device& device, const A& a, const B& b, const C& c, const Epilogue& epilogue = {}) {
    static_assert(
        decltype(as_view(a))::rank == 2 && decltype(as_view(b))::rank == 2 && decltype(as_view(c))::rank == 2,
        "halftone: matmul takes a, b and c of rank 2; flatten leading axes with as_rows, or use batched_matmul");
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    detail::check_matmul(as_view(a), as_view(b), as_view(c));
    kernel::matmul<Device>::template run<unscaled_compute<roles>>(device, as_view(a), as_view(b),
                                                                  epilogue_of(epilogue, as_view(c)));
}

/// Says what is missing, where a compiler would say that no function matches.
template <class Device, class A, class B, class C, class... Epilogue>
    requires(sizeof...(Epilogue) <= 1 && detail::viewable<A> && detail::viewable<B> && detail::viewable<C>)
void matmul(Device&, const A&, const B&, const C&, const Epilogue&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: matmul is called without a policy: ht::matmul<ht::amp_bf16>(device, a, b, c)");
}

/// c[i] = a[i] b[i] for every i, with the bits of matmul; on a GPU in one launch. a: (count, m, k), b: (count, k, n), c:
/// (count, m, n). Throws shape_error.
template <class P, class Device, class A, class B, class C>
void batched_matmul(Device& device, const A& a, const B& b, const C& c) {
    static_assert(decltype(as_view(a))::rank == 3 && decltype(as_view(b))::rank == 3 && decltype(as_view(c))::rank == 3,
                  "halftone: batched_matmul takes a, b and c of rank 3, (count, rows, columns)");
    const auto x = as_view(a);
    const auto y = as_view(b);
    const auto z = as_view(c);
    if (x.extent_of(0) != z.extent_of(0) || y.extent_of(0) != z.extent_of(0)) {
        fail<shape_error>("batched_matmul: a holds ", x.extent_of(0), " matrices, b ", y.extent_of(0), ", c ",
                          z.extent_of(0));
    }
    detail::expect_elements_once("batched_matmul", "c", z);
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    detail::run_product_each<unscaled_compute<roles>>(device, x, y, z, plain{});
}
template <class Device, class A, class B, class C>
    requires(detail::viewable<A> && detail::viewable<B> && detail::viewable<C>)
void batched_matmul(Device&, const A&, const B&, const C&) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: batched_matmul is called without a policy: ht::batched_matmul<ht::amp_bf16>(device, a, b, c)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
