// SPDX-License-Identifier: MIT
/// \file
/// Operations that select elements by a condition: where, masked_fill, the triangles tril and triu, and one_hot.
///
///     auto y = ht::where(ctx, keep, a, b);                       // a if keep is true, else b
///     auto y = ht::masked_fill(ctx, scores, hidden, -INFINITY);  // -INFINITY if hidden is true, else scores
///     auto y = ht::tril(ctx, x);                                 // 0 above the diagonal
///     auto y = ht::one_hot<float>(ctx, index, classes);          // (…, classes)
///
/// A mask is a variable or a view of bool, or of std::uint8_t with 0 for false and 1 for true. A view may be in host
/// memory; memory that the device can read must stay unchanged until the backward pass has run. A variable of any
/// number type is a mask, too: zeros are false, all other values, including NaN, are true.
///
/// Each operation is a symbolic map (kernel/map): one kernel forward and one backward. The gradient of an element goes
/// to the operand that it was selected from. In every region results have the type of the operands, which does not
/// depend on the mask.
#pragma once

#include <halftone/autodiff/op/gather.hpp>
#include <halftone/autodiff/op/pointwise.hpp>
#include <halftone/kernel/one_hot/one_hot.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class T>
inline constexpr bool is_mask_byte = std::is_same_v<T, bool> || std::is_same_v<T, std::uint8_t>;

/// A mask as a map reads it. The byte of a true bool is 1, which read as a float8_e5m2 is 2^-16, so that maps can
/// compare it with 0 without a conversion.
template <class Root, class T, int Rank>
auto as_mask(Root&, const variable<T, Rank>& mask) {
    static_assert(is_mask_byte<T> || number<T>, "halftone: a mask is of bool, of std::uint8_t or of a number type");
    if constexpr (is_mask_byte<T>) {
        mask.graph().retain(mask.slot());
        return variable<kernel::mask_element, Rank>(mask.graph(), mask.slot(), mask.shape());
    } else {
        return mask;
    }
}
template <class Root, class T, int Rank>
auto as_mask(Root& root, const view<T, Rank>& mask) {
    using plain = std::remove_const_t<T>;
    static_assert(is_mask_byte<plain> || number<plain>,
                  "halftone: a mask is of bool, of std::uint8_t or of a number type");
    if constexpr (is_mask_byte<plain>) {
        return root.to_device(const_view<kernel::mask_element, Rank>(
            reinterpret_cast<const kernel::mask_element*>(mask.data()), mask.shape(), mask.strides()));
    } else {
        return root.to_device(mask);
    }
}

/// A mask that is 1 where column - row, of the last two axes, is at most `diagonal`.
template <class Root, int Rank>
variable<kernel::mask_element, Rank> triangle_of(Root& root, const shape<Rank>& s, extent diagonal) {
    static_assert(Rank >= 2, "halftone: tril and triu take matrices: variables of rank 2 and more");
    auto mask = root.template make<kernel::mask_element>(s, false);
    kernel::triangle_mask(root.device(), s[Rank - 2], s[Rank - 1], diagonal, flatten(mask));
    return mask;
}

}  // namespace detail

/// torch.where(mask, a, b): a where the mask is true, else b. The result has the mask's shape and the type that a and b
/// promote to; a and b have the mask's shape, or one value, or one value for each column. Recorded with the gradients
/// with respect to a and b. Throws shape_error.
template <class As = by_category, recording_context Context, class Mask, class A, class B, int RankA, int RankB>
auto where(Context&& context, const Mask& mask, const variable<A, RankA>& a, const variable<B, RankB>& b) {
    const auto m = detail::as_mask(context.root(), mask);
    using Y = chosen_output<As, policy_of<Context>, op::where, A, B>;
    return detail::evaluate<op::where, Y>(
        context, m.shape(),
        halftone::trace<3>([](auto is, auto yes, auto no) { return halftone::where(is != 0, yes, no); }), m, a, b);
}
/// torch.where(mask, a, b) with a number b: a where the mask is true, else b.
template <class As = by_category, recording_context Context, class Mask, class A, int Rank>
auto where(Context&& context, const Mask& mask, const variable<A, Rank>& a, double b) {
    const auto m = detail::as_mask(context.root(), mask);
    using Y = chosen_output<As, policy_of<Context>, op::where, A>;
    return detail::evaluate<op::where, Y>(
        context, m.shape(), halftone::trace<2>([b](auto is, auto yes) { return halftone::where(is != 0, yes, b); }), m, a);
}
/// torch.where(mask, a, b) with a number a: a where the mask is true, else b.
template <class As = by_category, recording_context Context, class Mask, class B, int Rank>
auto where(Context&& context, const Mask& mask, double a, const variable<B, Rank>& b) {
    const auto m = detail::as_mask(context.root(), mask);
    using Y = chosen_output<As, policy_of<Context>, op::where, B>;
    return detail::evaluate<op::where, Y>(
        context, m.shape(), halftone::trace<2>([a](auto is, auto no) { return halftone::where(is != 0, a, no); }), m, b);
}

/// torch.masked_fill(x, mask, value): `value` where the mask is true, else x. The result has x's shape; the mask has
/// x's shape, or one value for each column. Recorded with the gradient with respect to x. Throws shape_error.
template <class As = by_category, recording_context Context, class X, int Rank, class Mask>
auto masked_fill(Context&& context, const variable<X, Rank>& x, const Mask& mask, double value) {
    const auto m = detail::as_mask(context.root(), mask);
    using Y = chosen_output<As, policy_of<Context>, op::masked_fill, X>;
    return detail::evaluate<op::masked_fill, Y>(
        context, x.shape(),
        halftone::trace<2>([value](auto a, auto is) { return halftone::where(is != 0, value, a); }), x, m);
}

/// torch.tril(x, diagonal): the lower triangle of each matrix of x, (…, rows, columns): x where column - row is at most
/// `diagonal`, else 0. Recorded with the gradient with respect to x; the mask takes a byte for each element until the
/// backward pass.
template <class As = by_category, recording_context Context, class X, int Rank>
auto tril(Context&& context, const variable<X, Rank>& x, extent diagonal = 0) {
    using Y = chosen_output<As, policy_of<Context>, op::tril, X>;
    return detail::evaluate<op::tril, Y>(
        context, x.shape(), halftone::trace<2>([](auto a, auto is) { return halftone::where(is != 0, a, 0); }), x,
        detail::triangle_of(context.root(), x.shape(), diagonal));
}
/// torch.triu(x, diagonal): the upper triangle of each matrix of x: x where column - row is at least `diagonal`, else 0.
template <class As = by_category, recording_context Context, class X, int Rank>
auto triu(Context&& context, const variable<X, Rank>& x, extent diagonal = 0) {
    using Y = chosen_output<As, policy_of<Context>, op::triu, X>;
    return detail::evaluate<op::triu, Y>(
        context, x.shape(), halftone::trace<2>([](auto a, auto is) { return halftone::where(is != 0, 0, a); }), x,
        detail::triangle_of(context.root(), x.shape(), diagonal - 1));
}

/// torch.nn.functional.one_hot(index, classes): for each index a row of zeros with a 1 at that class, in type T. index:
/// (…) of std::int32_t, a variable or a view, which may be in host memory. Result: (…, classes), a constant. Throws
/// argument_error for an index that is not a class, unless only the GPU can read it: then its row is NaN.
template <class T = float, recording_context Context, class Index>
variable<T, Index::rank + 1> one_hot(Context&& context, const Index& index, extent classes) {
    if (classes < 0) fail<argument_error>("one_hot: ", classes, " classes; expected 0 or more");
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>("one_hot");
    const auto chosen = detail::index_to_device(root, "one_hot", index, classes);
    shape<Index::rank + 1> s{};
    for (int a = 0; a < Index::rank; ++a) s[a] = chosen.shape()[a];
    s[Index::rank] = classes;
    using device = typename std::remove_cvref_t<Context>::device_type;
    if constexpr (!requires { requires device::runs_simt_kernels; }) {  // a GPU's kernel cannot throw
        root.device().run([&] { detail::expect_ids("one_hot", "index", as_const(flatten(chosen)), classes); });
    }
    auto y = root.template make<T>(s, false);
    halftone::one_hot(root.device(), as_const(flatten(chosen)), as_rows(y));
    return y;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
