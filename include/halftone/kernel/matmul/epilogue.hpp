// SPDX-License-Identifier: MIT
/// \file
/// Epilogues: what is computed from a product's sums before they are stored. Bias, activation, residual, and their
/// gradients.
///
///     ht::matmul<P>(device, a, b, c, ht::bias{beta});                  // c = ab + beta
///     ht::matmul<P>(device, a, b, c, ht::row_bias{beta});              // c = ab + beta, one value for each row
///     ht::matmul<P>(device, a, b, c, ht::bias_gelu{beta});             // c = gelu(ab + beta)
///     ht::matmul<P>(device, a, b, c, ht::bias_gelu_keep{beta, pre});   // the same; pre = ab + beta is stored as well
///     ht::matmul<P>(device, a, b, c, ht::bias_residual{beta, x});      // c = ab + beta + x
///     ht::matmul<P>(device, a, b, c, ht::gelu_gradient{pre});          // c = ab gelu'(pre)
///     ht::matmul<P>(device, a, b, c, ht::add_product{});               // c += ab
///     ht::matmul<P>(device, a, b, c, ht::then{f, x, beta});            // c = f(ab, x, beta), f as for ht::map
///     ht::matmul<P>(device, a, b, c, ht::of_scaled{ht::bias{beta}, &p, &q});  // c = p q ab + beta; p, q: device memory
///
/// Each is shorthand for an expression over the sum and some operands; a kernel evaluates it on the float sums and
/// rounds once, when it stores. An epilogue of your own is a type with an overload of `epilogue_of`.
#pragma once

#include <halftone/kernel/map/expression/derivative.hpp>
#include <halftone/kernel/map/expression/expression.hpp>
#include <halftone/kernel/map/expression/short_form.hpp>
#include <halftone/tensor/tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// An operand with one value for each column.
template <class T>
struct column_operand {
    const T* data;
};
/// An operand with one value for each row.
template <class T>
struct row_operand {
    const T* data;
};
/// An operand with one value for each element.
template <class T>
struct matrix_operand {
    const T* data;
    extent stride;
};
/// A result: the expression over the sum (argument 0) and the operands (1, 2, …), and the view that it is stored to.
template <class Expression, class T>
struct matmul_result {
    Expression expression;
    T* data;
    extent stride;
};

/// Operands of an epilogue whose sums are first multiplied by up to two factors in the device's memory.
template <class Operands>
struct scaled_sums {
    static constexpr std::size_t count = Operands::count;
    Operands operands;
    const float *first, *second;
};

/// Everything that a kernel needs for completing a block of sums.
template <class Operands, class Results>
struct matmul_epilogue {
    Operands operands;
    Results results;
};

template <class T>
column_operand<std::remove_const_t<T>> operand_of(const view<T, 1>& v) {
    return {v.data()};
}
template <class T>
matrix_operand<std::remove_const_t<T>> operand_of(const view<T, 2>& v) {
    return {v.data(), v.stride_of(0)};
}
template <class Expression, class T>
auto result_of(const Expression& given, const view<T, 2>& v) {
    const auto e = symbolic::shorten<T>(given);
    return matmul_result<std::remove_const_t<decltype(e)>, T>{e, v.data(), v.stride_of(0)};
}

template <class Operands, class Results>
matmul_epilogue<Operands, Results> make_epilogue(const Operands& operands, const Results& results) {
    return {operands, results};
}

template <class T, class C>
void check_operand(const view<T, 1>& v, const view<C, 2>& c) {
    if (v.extent_of(0) != c.extent_of(1))
        fail<shape_error>("matmul: a bias of ", v.extent_of(0), " values for ", c.extent_of(1), " columns");
    expect_contiguous("matmul", "the bias", v);
}
template <class T, class C>
void check_operand(const view<T, 2>& v, const view<C, 2>& c) {
    if (!(v.shape() == c.shape()))
        fail<shape_error>("matmul: an epilogue's operand is ", v.shape(), ", the product ", c.shape());
    expect_whole_rows("matmul", "an epilogue's operand", v);
}

inline constexpr symbolic::argument<0> product_sum{};
inline constexpr symbolic::argument<1> first_operand{};
inline constexpr symbolic::argument<2> second_operand{};

/// The element type of the view of something: a tensor, say.
template <class V>
using shown_by = std::remove_pointer_t<decltype(as_view(std::declval<const V&>()).data())>;

}  // namespace detail

/// c = ab.
struct plain {};
/// How kernels compute this epilogue into c.
template <class C>
auto epilogue_of(const plain&, const view<C, 2>& c) {
    return detail::make_epilogue(make_pack(), make_pack(detail::result_of(detail::product_sum, c)));
}

/// c += ab.
struct add_product {};
/// How kernels compute this epilogue into c.
template <class C>
auto epilogue_of(const add_product&, const view<C, 2>& c) {
    const auto sum = detail::product_sum + detail::first_operand;
    return detail::make_epilogue(make_pack(detail::operand_of(c)), make_pack(detail::result_of(sum, c)));
}

/// c = ab + values, one for each column.
template <class T>
struct bias {
    view<T, 1> values;
};
template <class T>
bias(view<T, 1>) -> bias<T>;
template <class V>
bias(const V&) -> bias<detail::shown_by<V>>;
/// How kernels compute this epilogue into c. Throws shape_error if the number of values differs from c's columns.
template <class T, class C>
auto epilogue_of(const bias<T>& e, const view<C, 2>& c) {
    detail::check_operand(e.values, c);
    const auto sum = detail::product_sum + detail::first_operand;
    return detail::make_epilogue(make_pack(detail::operand_of(e.values)), make_pack(detail::result_of(sum, c)));
}

/// c = ab + values, one for each row: the bias of a convolution, whose rows are channels.
template <class T>
struct row_bias {
    view<T, 1> values;
};
template <class T>
row_bias(view<T, 1>) -> row_bias<T>;
template <class V>
row_bias(const V&) -> row_bias<detail::shown_by<V>>;
/// How kernels compute this epilogue into c. Throws shape_error if the number of values differs from c's rows.
template <class T, class C>
auto epilogue_of(const row_bias<T>& e, const view<C, 2>& c) {
    if (e.values.extent_of(0) != c.extent_of(0))
        fail<shape_error>("matmul: a bias of ", e.values.extent_of(0), " values for ", c.extent_of(0), " rows");
    detail::expect_contiguous("matmul", "the bias", e.values);
    const auto sum = detail::product_sum + detail::first_operand;
    return detail::make_epilogue(make_pack(detail::row_operand<std::remove_const_t<T>>{e.values.data()}),
                                 make_pack(detail::result_of(sum, c)));
}

/// c = gelu(ab + values).
template <class T>
struct bias_gelu {
    view<T, 1> values;
};
template <class T>
bias_gelu(view<T, 1>) -> bias_gelu<T>;
template <class V>
bias_gelu(const V&) -> bias_gelu<detail::shown_by<V>>;
/// How kernels compute this epilogue into c. Throws shape_error if the number of values differs from c's columns.
template <class T, class C>
auto epilogue_of(const bias_gelu<T>& e, const view<C, 2>& c) {
    detail::check_operand(e.values, c);
    const auto activated = gelu(detail::product_sum + detail::first_operand);
    return detail::make_epilogue(make_pack(detail::operand_of(e.values)), make_pack(detail::result_of(activated, c)));
}

/// pre = ab + values and c = gelu(pre before it is rounded): a forward pass that keeps pre for the gradient.
template <class T, class Pre>
struct bias_gelu_keep {
    view<T, 1> values;
    view<Pre, 2> pre;
};
template <class T, class Pre>
bias_gelu_keep(view<T, 1>, view<Pre, 2>) -> bias_gelu_keep<T, Pre>;
template <class V, class Pre>
bias_gelu_keep(const V&, const Pre&) -> bias_gelu_keep<detail::shown_by<V>, detail::shown_by<Pre>>;
/// How kernels compute this epilogue into c. Throws shape_error if the values or `pre` do not fit c.
template <class T, class Pre, class C>
auto epilogue_of(const bias_gelu_keep<T, Pre>& e, const view<C, 2>& c) {
    detail::check_operand(e.values, c);
    detail::check_operand(e.pre, c);
    detail::expect_elements_once("matmul", "what bias_gelu_keep keeps", e.pre);
    const auto sum = detail::product_sum + detail::first_operand;
    return detail::make_epilogue(make_pack(detail::operand_of(e.values)),
                                 make_pack(detail::result_of(sum, e.pre), detail::result_of(gelu(sum), c)));
}

/// c = ab + values + residual.
template <class T, class R>
struct bias_residual {
    view<T, 1> values;
    view<R, 2> residual;
};
template <class T, class R>
bias_residual(view<T, 1>, view<R, 2>) -> bias_residual<T, R>;
template <class V, class R>
bias_residual(const V&, const R&) -> bias_residual<detail::shown_by<V>, detail::shown_by<R>>;
/// How kernels compute this epilogue into c. Throws shape_error if the values or the residual do not fit c.
template <class T, class R, class C>
auto epilogue_of(const bias_residual<T, R>& e, const view<C, 2>& c) {
    detail::check_operand(e.values, c);
    detail::check_operand(e.residual, c);
    const auto sum = detail::product_sum + detail::first_operand + detail::second_operand;
    return detail::make_epilogue(make_pack(detail::operand_of(e.values), detail::operand_of(e.residual)),
                                 make_pack(detail::result_of(sum, c)));
}

/// c = ab gelu'(pre): the gradient of gelu's input, in the product that gives the gradient of its output.
template <class Pre>
struct gelu_gradient {
    view<Pre, 2> pre;
};
template <class Pre>
gelu_gradient(view<Pre, 2>) -> gelu_gradient<Pre>;
template <class V>
gelu_gradient(const V&) -> gelu_gradient<detail::shown_by<V>>;
/// How kernels compute this epilogue into c. Throws shape_error if `pre` does not fit c.
template <class Pre, class C>
auto epilogue_of(const gelu_gradient<Pre>& e, const view<C, 2>& c) {
    detail::check_operand(e.pre, c);
    const auto slope = derivative<1>(gelu(detail::first_operand));
    return detail::make_epilogue(make_pack(detail::operand_of(e.pre)),
                                 make_pack(detail::result_of(detail::product_sum * slope, c)));
}

/// Another epilogue, applied to ab times two factors in the device's memory (nullptr: 1): the inverse scales of 8-bit
/// operands (kernel/quantize).
template <class Epilogue>
struct of_scaled {
    Epilogue epilogue;
    const float *first, *second;
};
template <class Epilogue>
of_scaled(Epilogue, const float*, const float*) -> of_scaled<Epilogue>;

namespace detail {

template <class Operands, class Results>
matmul_epilogue<scaled_sums<Operands>, Results> scale_sums(const matmul_epilogue<Operands, Results>& e,
                                                           const float* first, const float* second) {
    return {{e.operands, first, second}, e.results};
}

}  // namespace detail

/// How kernels compute this epilogue into c.
template <class Epilogue, class C>
auto epilogue_of(const of_scaled<Epilogue>& e, const view<C, 2>& c) {
    return detail::scale_sums(epilogue_of(e.epilogue, c), e.first, e.second);
}

/// c = f(ab, operands…): f is a generic lambda as for ht::map; operands are (columns) or (rows, columns).
template <class F, class... Views>
struct then {
    F f;
    pack<Views...> operands;
    explicit then(const F& function, const Views&... views) : f(function), operands(make_pack(views...)) {}
};
template <class F, class... Views>
then(F, Views...) -> then<F, Views...>;

namespace detail {

template <class T, class... Rest>
pack<T, Rest...> prepend(const T& first, const pack<Rest...>& rest) {
    return {first, rest};
}

template <class C>
pack<> checked_operands(const pack<>&, const view<C, 2>&) {
    return {};
}
template <class C, class V, class... Rest>
auto checked_operands(const pack<V, Rest...>& views, const view<C, 2>& c) {
    check_operand(views.first, c);
    const auto rest = checked_operands(views.rest, c);
    return prepend(operand_of(views.first), rest);
}
}  // namespace detail

/// How kernels compute this epilogue into c. Throws shape_error if an operand does not fit c.
template <class F, class... Views, class C>
auto epilogue_of(const then<F, Views...>& e, const view<C, 2>& c) {
    return detail::make_epilogue(detail::checked_operands(e.operands, c),
                                 make_pack(detail::result_of(trace<1 + sizeof...(Views)>(e.f), c)));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
