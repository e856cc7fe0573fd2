// SPDX-License-Identifier: MIT
/// \file
/// The rule (engine/rule.hpp) of split, and the sum over broadcast axes, which several rules use. Other operations that change
/// shapes are linear maps (op/linear_map.hpp), which need no rule.
#pragma once

#include <halftone/autodiff/double_backward/tape.hpp>
#include <halftone/autodiff/op/shapes.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class T, int Rank, std::size_t Parts>
struct rule<split_record<T, Rank, Parts>> {
    template <class Tape>
    static void run(Tape& tape, const split_record<T, Rank, Parts>& r) {
        const auto& dx = std::get<0>(r.gradients);
        for (std::size_t i = 0; i < Parts; ++i) {
            if (!tape.has(r.part(i))) continue;
            const variable<T, Rank> dy = tape.take(r.part(i));
            if (tape.takes(dx)) tape.give(dx, mapped<T>(tape.inner(), dy, put_part<op::split, Rank>{r.at[i]}, dx.shape()));
        }
    }
};

/// The sum over the axes along which `to` has extent 1, and over those that `to` does not have.
template <class T, class Root, class X, int Rank, int To>
variable<T, To> sum_to(Root& root, const variable<X, Rank>& x, const shape<To>& s) {
    return mapped<T>(root, x, broadcast_over::of(s, x.shape()).transposed(), s);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
