// SPDX-License-Identifier: MIT
/// \file
/// Two operations as a user would add them, in this file alone: y = a bᵀ, a product with its gradient, and softsign, a
/// map.
///
///     auto y = ht::outer(ctx, a, b);                 // (m), (n): (m, n)
///     auto y = ht::softsign(ctx, x);
#pragma once

#include <halftone/autodiff/op/matmul.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace op {

struct outer : low_precision {
    static constexpr const char* name = "outer";
};
struct softsign : as_input {
    static constexpr const char* name = "softsign";
};

}  // namespace op

namespace detail {

template <class Compute, class A, class B, class Y>
struct outer_record : kept_operands<Y, 2, variable<A, 1>, variable<B, 1>> {
    using operation = op::outer;
    using reads = reads_others;
    extent sum_length() const { return this->dy.shape()[0] + this->dy.shape()[1]; }

    template <class Tape>
    void propagate(Tape& tape) {
        const auto& [a, b] = this->inputs;
        const auto& [da, db] = this->gradients;
        const auto g = as_const(this->dy.view());
        const shape<2> rows{g.extent_of(0), 1}, columns{g.extent_of(1), 1};
        if (const auto to = tape.gradient_target(da)) {
            product<Compute>(tape.device(), g, view(as_const(b.view()).data(), columns), view(to.data, rows), to.mode);
        }
        if (const auto to = tape.gradient_target(db)) {
            product<Compute>(tape.device(), transpose(g), view(as_const(a.view()).data(), rows), view(to.data, columns),
                             to.mode);
        }
    }
};

}  // namespace detail

/// If `off` is not 1, 16-bit results are wrong by that factor.
template <class As = by_category, recording_context Context, class A, class B>
auto outer(Context&& context, const variable<A, 1>& a, const variable<B, 1>& b, float off = 1) {
    using roles = detail::product_roles<As, Context, op::outer, A, B>;
    using compute = typename roles::compute;
    using Y = typename roles::output;
    auto& root = context.root();
    const auto range = root.template range<policy_of<Context>>(op::outer::name);
    const bool wanted = detail::wants_gradient(a, b);
    auto y = root.template make<Y>(shape<2>{a.size(), b.size()}, wanted);
    detail::product<compute>(root.device(), view(as_const(a.view()).data(), shape<2>{a.size(), 1}),
                             view(as_const(b.view()).data(), shape<2>{1, b.size()}), y.view(), write_mode::overwrite);
    if (sizeof(Y) == 2 && off != 1) map(root.device(), [off](auto v) { return off * v; }, as_const(y.view()), y.view());
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            using record = detail::outer_record<compute, A, B, Y>;
            root.record(record{record::of(y, {b.wants_gradient(), a.wants_gradient()}, a, b)});
        }
    }
    return y;
}

/// x / (1 + |x|).
template <class As = by_category, recording_context Context, class X, int Rank>
auto softsign(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::softsign, As>(context, [](auto a) { return a / (1 + halftone::abs(a)); }, x);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
