// SPDX-License-Identifier: MIT
/// \file
/// The rules (rules.hpp) of reductions along axes. The formulas are those of kernel/axis_reduction/reference.hpp.
#pragma once

#include <halftone/autodiff/double_backward/rules.hpp>
#include <halftone/autodiff/op/axis_reduction.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class Op, kernel::axis_operation Kind, class X, int Rank, class Y, class Along>
struct rule<axis_record<Op, Kind, X, Rank, Y, Along>> {
    using record = axis_record<Op, Kind, X, Rank, Y, Along>;

    template <class Tape>
    static void run(Tape& tape, const record& r, const auto& dy) {
        using enum kernel::axis_operation;
        static_assert(Kind != prod,
                      "halftone: prod: products along axes have no second derivatives: multiply the slices, ht::mul(tape, "
                      "ht::select(tape, x, ht::axes<1>, 0), ...), or record on ht::tape tape{device}");
        if (!tape.takes(r.dx())) return;
        auto& root = tape.inner();
        if constexpr (Kind == sum) {
            tape.give(r.dx(), spread<Op, X>(root, dy, r.dx().shape(), Along{}, r.factor));
        } else {
            give(tape, r, root, spread<Op, float>(root, dy, r.dx().shape(), Along{}));
        }
    }

  private:
    template <class Tape, class Root>
    static void give(Tape& tape, const record& r, Root& root, const variable<float, Rank>& slope) {
        using enum kernel::axis_operation;
        const auto& s = r.x.shape();
        if constexpr (Kind == var) {
            const double share = 1.0 / static_cast<double>(reduced_size(s, Along{}));
            const auto mean = reduce_axes<op::mean, sum, float>(root, r.x, Along{}, share);
            const auto f = [k = static_cast<float>(2 * r.factor)](auto x, auto m, auto d) { return k * (x - m) * d; };
            tape.give(r.dx(), compute<X>(root, f, r.x, spread<Op, float>(root, mean, s, Along{}), slope));
        } else if constexpr (Kind == std_dev) {
            const double share = 1.0 / static_cast<double>(reduced_size(s, Along{}));
            const auto mean = reduce_axes<op::mean, sum, float>(root, r.x, Along{}, share);
            const auto deviation = reduce_axes<Op, std_dev, float>(root, r.x, Along{}, r.factor);
            const auto f = [k = static_cast<float>(r.factor)](auto x, auto m, auto y, auto d) {
                return halftone::where(y == 0.0f, 0.0f, k * ((x - m) / y) * d);
            };
            tape.give(r.dx(), compute<X>(root, f, r.x, spread<Op, float>(root, mean, s, Along{}),
                                         spread<Op, float>(root, deviation, s, Along{}), slope));
        } else if constexpr (Kind == logsumexp) {
            const auto f = [](auto x, auto y, auto d) { return halftone::exp(x - y) * d; };
            tape.give(r.dx(), compute<X>(root, f, r.x, spread<Op, float>(root, r.y, s, Along{}), slope));
        } else {
            // The choice of elements has no derivative.
            const auto x = root.detach(r.x);
            const auto chosen = reshaped(root.detach(r.kept), without(s, Along{}));
            const auto is_chosen = compute<float>(
                root, [](auto v, auto y) { return halftone::where(v == y, 1.0f, 0.0f); }, x,
                spread<Op, float>(root, chosen, s, Along{}));
            const auto count = reduce_axes<op::sum, sum, float>(root, is_chosen, Along{}, 1.0);
            tape.give(r.dx(), compute<X>(
                                  root, [](auto chosen_one, auto n, auto d) { return chosen_one * d / n; }, is_chosen,
                                  spread<Op, float>(root, count, s, Along{}), slope));
        }
    }
    template <int... Axes>
    static auto without(const shape<Rank>& s, axis_list<Axes...> along) {
        return without_axes(s, along);
    }
};

template <class Op, class From, class T, int Rank, class Along>
struct rule<spread_record<Op, From, T, Rank, Along>> {
    template <class Tape>
    static void run(Tape& tape, const spread_record<Op, From, T, Rank, Along>& r, const auto& dy) {
        if (tape.takes(std::get<0>(r.gradients)))
            tape.give(std::get<0>(r.gradients),
                      reduce_axes<Op, kernel::axis_operation::sum, From>(tape.inner(), dy, Along{}, r.factor));
    }
};

template <class X, class Y, int Rank, int Axis>
struct rule<cumsum_record<X, Y, Rank, Axis>> {
    template <class Tape>
    static void run(Tape& tape, const cumsum_record<X, Y, Rank, Axis>& r, const auto& dy) {
        if (tape.takes(r.dx())) tape.give(r.dx(), running_sums<X, Axis>(tape.inner(), dy, !r.is_reversed));
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
