// SPDX-License-Identifier: MIT
/// \file
/// The matrix product c = f(ab), with a fused epilogue f.
///
///     ht::matmul<ht::amp_bf16>(device, a, b, c);                            // (m, k) times (k, n) into (m, n)
///     ht::matmul<ht::amp_bf16>(device, a, ht::transpose(w), c, ht::bias_gelu{beta});
///
/// Numeric contract: operands are rounded to the policy's `compute` (unchanged if they have that type), products are
/// summed in `accum` (float), the epilogue is evaluated on the sums in float, and its results are rounded once, to
/// nearest even, to the element type of c. The order of a sum depends on a CPU on k alone; on a GPU on the shape, the
/// types and the device's model, since a long k may be divided into parts whose sums are added in order
/// (device/tiles.hpp).
///
/// The error of a sum is at most n u / (1 - n u) times sum |a||b|, n = k + 1 (Higham 2002, section 3.1). u is 2^-24,
/// except on a GPU's matrix units (bfloat16, float16, tfloat32), which may truncate where they add: there it is 2^-23.
/// (They add the sum so far and the products of 4, 8 or 16 of k at a time, each truncated by less than 2^-24 of the
/// largest, and truncate the result by less than 2^-23: no more than 11/16 of a 2^-23 for one of eight k, 7/8 for one
/// of four. Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021.) In these bounds a float16 or 8-bit number
/// below its type's least normal number counts as that number, because the units align it so.
///
/// On a CPU with AMX operands of split<bfloat16, N> and of float16 are multiplied in pieces;
/// kernel/matmul/cpu/unit/split.hpp has the bound, which for float16 and for three pieces is this one, except for sums
/// of at most three products.
///
/// 8-bit matrix units (device/tiles.hpp) may hold sums in 14 bits. Only 32 of k are summed there at a time, in two
/// groups of sixteen: an error of 35 2^-13 times sum |a||b|, for any k, in addition to that of adding these sums in
/// float.
///
/// An engine (exec/matmul_engine.hpp) has the same bounds, but may truncate operands to tfloat32 where halftone rounds
/// them.
///
/// A coded matrix (tensor/coded_matrix.hpp) as b: each number is decoded in float, then as above. On a CPU a piece of it is
/// decoded where it is packed, never the whole matrix; elsewhere, and for products in double, all of it before, into the
/// workspace.
///
/// If `compute`, an operand or the result is a double, sums and epilogue are in double (matmul/fp64.hpp).
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <halftone/kernel/matmul/epilogue.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/memory/square_sum.hpp>
#include <halftone/policy/category.hpp>
#include <halftone/policy/check.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/tensor/coded_matrix.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace kernel {

/// Specialised for each device: `run<Compute>(device, a, b, epilogue)`, for views that check_matmul has accepted.
template <class Device>
struct matmul;

/// Specialised for each device: `run(device, m, to)` decodes a coded matrix into a view of the shape in which it is stored.
template <class Device>
struct decode_matrix;

}  // namespace kernel

namespace detail {

/// A matrix without its element type: only its shape and strides are used.
using untyped_matrix = view<const std::byte, 2>;

template <class T>
untyped_matrix untyped(const view<T, 2>& v) {
    return {reinterpret_cast<const std::byte*>(v.data()), v.shape(), v.strides()};
}

void check_matmul_operand(const char* which, const untyped_matrix& v);

void check_matmul_shapes(const untyped_matrix& a, const untyped_matrix& b, const untyped_matrix& c);

template <class A, class B, class C>
void check_matmul(const view<A, 2>& a, const view<B, 2>& b, const view<C, 2>& c) {
    check_matmul_shapes(untyped(a), untyped(b), untyped(c));
}
template <class A, class Format, class C>
void check_matmul(const view<A, 2>& a, const coded_matrix<Format>& b, const view<C, 2>& c) {
    const view<const std::byte, 2> stored(b.data(), b.stored_shape());  // of which only shape and strides are used
    check_matmul_shapes(untyped(a), b.is_transposed() ? transpose(stored) : stored, untyped(c));
}

/// An epilogue's operand is in the memory of a result only if it is that result.
template <class T>
void expect_operand_apart(const column_operand<T>& o, const named_elements& result) {
    const view<const T, 1> v(o.data, {result.extents[1]});
    expect_apart("matmul", elements_of("the bias", v), result);
}
template <class T>
void expect_operand_apart(const row_operand<T>& o, const named_elements& result) {
    const view<const T, 1> v(o.data, {result.extents[0]});
    expect_apart("matmul", elements_of("the bias", v), result);
}
template <class T>
void expect_operand_apart(const matrix_operand<T>& o, const named_elements& result) {
    const view<const T, 2> v(o.data, {result.extents[0], result.extents[1]}, {o.stride, 1});
    expect_apart_or_same("matmul", elements_of("an epilogue's operand", v), result);
}

template <class Operands, std::size_t... K>
void expect_operands_apart(const Operands& operands, const named_elements& result, std::index_sequence<K...>) {
    (expect_operand_apart(operands.template at<K>(), result), ...);
}

/// Throws shape_error if a product reads this result of its epilogue.
template <class A, class B, class C, class Operands, class Expression, class R>
void expect_result_apart(const view<A, 2>& a, const view<B, 2>& b, const view<C, 2>& c, const Operands& operands,
                         const matmul_result<Expression, R>& of, const char* name) {
    const view<R, 2> v(of.data, c.shape(), {of.stride, 1});
    const named_elements result = elements_of(name, v);
    expect_apart("matmul", elements_of("a", a), result);
    expect_apart("matmul", elements_of("b", b), result);
    expect_operands_apart(operands, result, std::make_index_sequence<Operands::count>{});
}
/// Throws shape_error if a product reads one of its results: c, or what its epilogue keeps besides.
template <class A, class B, class C, class Operands, class Results>
void expect_product_apart(const view<A, 2>& a, const view<B, 2>& b, const view<C, 2>& c,
                          const matmul_epilogue<Operands, Results>& e) {
    if constexpr (Results::count == 2) {
        expect_result_apart(a, b, c, e.operands, e.results.first, "what the epilogue keeps");
        expect_result_apart(a, b, c, e.operands, e.results.rest.first, "c");
    } else {
        expect_result_apart(a, b, c, e.operands, e.results.first, "c");
    }
}

/// A product with any kernel's epilogue. Devices that can sum the `squares` of a float result as they store it do so;
/// others leave *squares unchanged.
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

/// To what codes are decoded: to bfloat16 for products in bfloat16, so that a block's few values are rounded and not all its
/// elements, and units take them as they are; else to floats, which are rounded as they are packed or loaded.
template <class Compute>
using decoded_type = std::conditional_t<std::is_same_v<Compute, bfloat16>, bfloat16, float>;

/// A product with a coded matrix that is decoded before, all of it, into the workspace: for devices and compute types without
/// a way of their own.
template <class Compute, class Device, class A, class Format, class Operands, class Results>
void multiply_decoded(Device& device, const view<A, 2>& a, const coded_matrix<Format>& b,
                      const detail::matmul_epilogue<Operands, Results>& epilogue) {
    using decoded = decoded_type<Compute>;
    const workspace::lease numbers(device.scratch(), b.elements() * sizeof(decoded));
    const view<decoded, 2> all(numbers.template as<decoded>(), b.stored_shape());
    kernel::decode_matrix<Device>::run(device, b, all);
    const view<const decoded, 2> stored = all;
    kernel::matmul<Device>::template run<Compute>(device, a, b.is_transposed() ? transpose(stored) : stored, epilogue);
}

/// A product with a coded matrix.
template <class Compute, class Device, class A, class Format, class Operands, class Results>
void run_product(Device& device, const view<A, 2>& a, const coded_matrix<Format>& b,
                 const detail::matmul_epilogue<Operands, Results>& epilogue, square_sum* squares) {
    using product_kernel = kernel::matmul<Device>;
    if constexpr (requires { product_kernel::template run<Compute>(device, a, b, epilogue, squares); }) {
        product_kernel::template run<Compute>(device, a, b, epilogue, squares);
    } else {
        multiply_decoded<Compute>(device, a, b, epilogue);
    }
}

/// c = ab or c += ab; b may be a coded matrix.
template <class Compute, class Device, class A, class B, class C>
void product(Device& device, const view<A, 2>& a, const B& b, const view<C, 2>& c, write_mode mode,
             square_sum* squares = nullptr) {
    check_matmul(a, b, c);
    if (mode == write_mode::overwrite) {
        run_product<Compute>(device, a, b, epilogue_of(plain{}, c), squares);
    } else {
        run_product<Compute>(device, a, b, epilogue_of(add_product{}, c), squares);
    }
}

/// The epilogue of matrix i of a batch.
template <class Epilogue, class C>
auto epilogue_of_each(const Epilogue& e, const view<C, 3>& c, extent i) {
    return epilogue_of(e, matrix(c, i));
}
template <class F, class T, class C>
auto epilogue_of_each(const then<F, view<T, 3>>& e, const view<C, 3>& c, extent i) {
    return epilogue_of(then(e.f, matrix(e.operands.first, i)), matrix(c, i));
}

/// True, or a compile-time error; throws shape_error for an operand that is not like c.
template <class Epilogue, class C>
void check_batched_epilogue(const Epilogue&, const view<C, 3>&) {
    static_assert(std::is_same_v<Epilogue, plain> || std::is_same_v<Epilogue, add_product>,
                  "halftone: batched_matmul takes the epilogues plain, add_product, and then{f, x} with one operand (count, "
                  "rows, columns) of c's element type");
}
template <class F, class T, class C>
void check_batched_epilogue(const then<F, view<T, 3>>& e, const view<C, 3>& c) {
    static_assert(std::is_same_v<std::remove_const_t<T>, C>,
                  "halftone: batched_matmul: the operand of its epilogue has c's element type");
    const auto& x = e.operands.first;
    if (!(x.shape() == c.shape()) || (x.extent_of(0) > 1 && x.stride_of(0) != c.stride_of(0)))
        fail<shape_error>("batched_matmul: the epilogue's operand is ", x.shape(), " with ", x.stride_of(0),
                          " elements from one matrix to the next, c ", c.shape(), " with ", c.stride_of(0));
}

/// c[i] = epilogue(a[i] b[i]), with an epilogue of batched_matmul: in one launch if the device can, with the bits of one
/// launch for each.
template <class Compute, class Device, class A, class B, class C, class Epilogue>
void run_product_each(Device& device, const view<A, 3>& a, const view<B, 3>& b, const view<C, 3>& c,
                      const Epilogue& epilogue) {
    using product_kernel = kernel::matmul<Device>;
    const extent count = c.extent_of(0);
    if (count == 0) return;
    check_matmul(matrix(a, 0), matrix(b, 0), matrix(c, 0));
    const auto first = epilogue_of_each(epilogue, c, 0);
    if constexpr (requires { product_kernel::template run_each<Compute>(device, a, b, count, first, extent{}); }) {
        product_kernel::template run_each<Compute>(device, a, b, count, first, c.stride_of(0));
    } else {
        for (extent i = 0; i < count; ++i)
            run_product<Compute>(device, matrix(a, i), matrix(b, i), epilogue_of_each(epilogue, c, i), nullptr);
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

/// c = epilogue(ab). a: (m, k), b: (k, n), each row-major or column-major; c: (m, n) with contiguous rows. Views or
/// tensors of any of halftone's element types. c may be an operand of the epilogue but must not overlap a or b. Throws
/// shape_error.
template <class P, class Device, class A, class B, class C, class Epilogue = plain>
void matmul(Device& device, const A& a, const B& b, const C& c, const Epilogue& epilogue = {}) {
    static_assert(
        decltype(as_view(a))::rank == 2 && decltype(as_view(b))::rank == 2 && decltype(as_view(c))::rank == 2,
        "halftone: matmul takes a, b and c of rank 2; flatten leading axes with as_rows, or use batched_matmul");
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    detail::check_matmul(as_view(a), as_view(b), as_view(c));
    const auto ending = epilogue_of(epilogue, as_view(c));
    if (!device.scratch().is_measuring()) detail::expect_product_apart(as_view(a), as_view(b), as_view(c), ending);
    kernel::matmul<Device>::template run<unscaled_compute<roles>>(device, as_view(a), as_view(b), ending);
}

/// c = epilogue(ab) with a coded matrix b, (k, n), or the transpose of one: each of its numbers is decoded in float as its
/// format defines, and rounded once to the policy's `compute`; then the product is as any other. c must not overlap a or b.
/// Throws shape_error.
template <class P, class Device, class A, class Format, class C, class Epilogue = plain>
void matmul(Device& device, const A& a, const coded_matrix<Format>& b, const C& c, const Epilogue& epilogue = {}) {
    static_assert(
        decltype(as_view(a))::rank == 2 && decltype(as_view(c))::rank == 2,
        "halftone: matmul takes a, b and c of rank 2; flatten leading axes with as_rows, or use batched_matmul");
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    detail::check_matmul(as_view(a), b, as_view(c));
    const auto ending = epilogue_of(epilogue, as_view(c));
    const view<const std::byte, 2> codes(b.data(), {1, static_cast<extent>(b.bytes())});
    if (!device.scratch().is_measuring()) detail::expect_product_apart(as_view(a), codes, as_view(c), ending);
    detail::run_product<unscaled_compute<roles>>(device, as_view(a), b, ending, nullptr);
}

/// Fails with a message, where compilers would only list candidates.
template <class Device, class A, class B, class C, class... Epilogue>
    requires(sizeof...(Epilogue) <= 1 && detail::viewable<A> && detail::viewable<B> && detail::viewable<C>)
void matmul(Device&, const A&, const B&, const C&, const Epilogue&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: matmul is called without a policy: ht::matmul<ht::amp_bf16>(device, a, b, c)");
}

/// c[i] = epilogue(a[i] b[i]) for every i, with the bits of matmul; on a GPU in one launch. a: (count, m, k), b: (count, k, n),
/// c: (count, m, n). The epilogue is plain, add_product, or then{f, x} with an x of c's layout. Throws shape_error.
template <class P, class Device, class A, class B, class C, class Epilogue = plain>
void batched_matmul(Device& device, const A& a, const B& b, const C& c, const Epilogue& epilogue = {}) {
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
    detail::check_batched_epilogue(epilogue, z);
    using roles = resolve<P>;
    static_assert(check_policy<roles>());
    detail::expect_apart(device, "batched_matmul", "a", a, "c", c);
    detail::expect_apart(device, "batched_matmul", "b", b, "c", c);
    if constexpr (requires { epilogue.operands.first.extent_of(2); })
        detail::expect_apart_or_same(device, "batched_matmul", "the epilogue's operand", epilogue.operands.first, "c",
                                     c);
    detail::run_product_each<unscaled_compute<roles>>(device, x, y, z, epilogue);
}
template <class Device, class A, class B, class C>
    requires(detail::viewable<A> && detail::viewable<B> && detail::viewable<C>)
void batched_matmul(Device&, const A&, const B&, const C&) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: batched_matmul is called without a policy: ht::batched_matmul<ht::amp_bf16>(device, a, b, c)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/matmul/matmul.body.hpp>
#endif
