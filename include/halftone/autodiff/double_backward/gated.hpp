// SPDX-License-Identifier: MIT
/// \file
/// The rule (engine/rule.hpp) of gated linear units: splits the input into its halves, computes the gradient of each by
/// a map, and joins the two gradients.
#pragma once

#include <halftone/autodiff/double_backward/free_rules.hpp>
#include <halftone/autodiff/op/gated.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class Op, class E, class Y, class X, int Rank>
struct rule<gated_record<Op, E, Y, X, Rank>> {
    template <class Tape>
    static void run(Tape& tape, const gated_record<Op, E, Y, X, Rank>& r, const auto& gradient) {
        const auto& dx = std::get<0>(r.gradients);
        const variable<Y, 1> dy = flat(gradient);
        if (!tape.takes(dx)) return;
        auto& root = tape.inner();
        const extent half = r.half(), rows = r.rows();
        const join_layout layout{rows, 2 * half};
        const variable<X, 1> all = flat(r.x);
        const auto first = part_of<Op, X>(root, all, layout, 0, half), second = part_of<Op, X>(root, all, layout, half, half);
        const auto of = [&]<int I>(std::integral_constant<int, I>) {
            return evaluate<Op, X>(root, dy.shape(), detail::gradient_expression<I, 2>(r.expression), first, second, dy);
        };
        const auto of_first = of(std::integral_constant<int, 0>{});
        const auto of_second = of(std::integral_constant<int, 1>{});
        using part = std::remove_cvref_t<decltype(of_first)>;
        tape.give(dx, join<Op, X>(root, shape<1>{2 * half * rows}, rows, joined_inputs<part, part>{{of_first, of_second}}));
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
