// SPDX-License-Identifier: MIT
/// \file
/// Interval arithmetic on the expressions of score_mods and mask_mods: finds blocks of queries and keys that are fully
/// masked, so that kernels can skip them.
///
///     detail::interval x[] = {interval::any(), interval::of(b), interval::of(h), {0, 31}, {512, 767}};
///     detail::intervals::of(expression, x).high < -3e38            // no query of 0 to 31 sees a key of 512 to 767
///
/// An unknown value is the interval of all numbers, so that a fully masked block may be computed, but a block with a
/// visible pair is never skipped. A score of NaN counts as visible. Functions that are not listed here give the
/// interval of all numbers. The ends of an interval are moved outwards by the rounding errors of float, in which
/// kernels evaluate the expression.
#pragma once

#include <algorithm>
#include <cmath>

#include <halftone/kernel/attention/score_mod/lookup.hpp>

#include <halftone/number/precise/begin.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The numbers from low to high.
struct interval {
    double low, high;

    static constexpr interval any() { return {-HUGE_VAL, HUGE_VAL}; }
    static constexpr interval of(double x) { return {x, x}; }
    /// The numbers between two results; all numbers if one of them is NaN, as operations on infinities give.
    static interval between(double a, double b) {
        if (!(a <= b)) return any();
        return {a - rounding(a), b + rounding(b)};
    }
    /// An upper limit of the rounding error of a float near x; 0 for whole numbers, such as positions.
    static double rounding(double x) {
        if (std::fabs(x) <= 0x1p24 && x == std::floor(x)) return 0;
        return std::fabs(x) <= 3.0e38 ? std::fabs(x) * 0x1p-22 + 0x1p-126 : 0;
    }
    bool is_one() const { return low == high; }
};

/// The values that a condition may have.
struct truth {
    bool may_hold, may_fail;
};

struct intervals {
    template <int Index>
    static interval of(const symbolic::argument<Index>&, const interval* x) {
        return x[Index];
    }
    static interval of(const symbolic::constant& c, const interval*) { return interval::of(static_cast<double>(c.value)); }
    static interval of(const symbolic::zero&, const interval*) { return interval::of(0); }
    static interval of(const symbolic::one&, const interval*) { return interval::of(1); }

    template <class Op, class A>
    static interval of(const symbolic::unary<Op, A>& e, const interval* x) {
        return apply(Op{}, of(e.operand, x));
    }
    template <class Op, class A, class B>
    static interval of(const symbolic::binary<Op, A, B>& e, const interval* x) {
        return apply(Op{}, of(e.left, x), of(e.right, x));
    }
    template <class C, class A, class B>
    static interval of(const symbolic::choice<C, A, B>& e, const interval* x) {
        const truth c = of(e.condition, x);
        const interval yes = of(e.yes, x), no = of(e.no, x);
        if (!c.may_fail) return yes;
        if (!c.may_hold) return no;
        return {std::min(yes.low, no.low), std::max(yes.high, no.high)};
    }
    template <class Function, class... A>
    static interval of(const symbolic::external<Function, A...>& e, const interval* x) {
        return of_call(e.function, e.operands, x, std::index_sequence_for<A...>{});
    }

    template <class A, class B>
    static truth of(const symbolic::comparison<symbolic::op::less, A, B>& e, const interval* x) {
        const interval a = of(e.left, x), b = of(e.right, x);
        return {a.low < b.high, a.high >= b.low};
    }
    template <class A, class B>
    static truth of(const symbolic::comparison<symbolic::op::less_equal, A, B>& e, const interval* x) {
        const interval a = of(e.left, x), b = of(e.right, x);
        return {a.low <= b.high, a.high > b.low};
    }
    template <class A, class B>
    static truth of(const symbolic::comparison<symbolic::op::equal, A, B>& e, const interval* x) {
        const interval a = of(e.left, x), b = of(e.right, x);
        return {a.low <= b.high && b.low <= a.high, !(a.is_one() && b.is_one() && a.low == b.low)};
    }
    template <class A, class B>
    static truth of(const symbolic::logical<symbolic::op::both, A, B>& e, const interval* x) {
        const truth a = of(e.left, x), b = of(e.right, x);
        return {a.may_hold && b.may_hold, a.may_fail || b.may_fail};
    }
    template <class A, class B>
    static truth of(const symbolic::logical<symbolic::op::either, A, B>& e, const interval* x) {
        const truth a = of(e.left, x), b = of(e.right, x);
        return {a.may_hold || b.may_hold, a.may_fail && b.may_fail};
    }
    template <class A>
    static truth of(const symbolic::complement<A>& e, const interval* x) {
        const truth a = of(e.operand, x);
        return {a.may_fail, a.may_hold};
    }

  private:
    template <class Op>
    static interval apply(Op, const interval&) {
        return interval::any();
    }
    static interval apply(symbolic::op::negate, const interval& a) { return {-a.high, -a.low}; }
    static interval apply(symbolic::op::abs, const interval& a) {
        const double most = std::max(std::fabs(a.low), std::fabs(a.high));
        return {a.low > 0 ? a.low : a.high < 0 ? -a.high : 0, most};
    }
    static interval apply(symbolic::op::relu, const interval& a) {
        return {std::max(a.low, 0.0), std::max(a.high, 0.0)};
    }
    static interval apply(symbolic::op::square, const interval& a) {
        const interval size = apply(symbolic::op::abs{}, a);
        return interval::between(size.low * size.low, size.high * size.high);
    }
    template <class Op>
    static interval apply(Op, const interval&, const interval&) {
        return interval::any();
    }
    static interval apply(symbolic::op::add, const interval& a, const interval& b) {
        return interval::between(a.low + b.low, a.high + b.high);
    }
    static interval apply(symbolic::op::subtract, const interval& a, const interval& b) {
        return interval::between(a.low - b.high, a.high - b.low);
    }
    static interval apply(symbolic::op::multiply, const interval& a, const interval& b) {
        const double corners[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
        for (const double c : corners) {
            if (!(std::fabs(c) < HUGE_VAL)) return interval::any();
        }
        return interval::between(*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4));
    }
    static interval apply(symbolic::op::minimum, const interval& a, const interval& b) {
        return {std::min(a.low, b.low), std::min(a.high, b.high)};
    }
    static interval apply(symbolic::op::maximum, const interval& a, const interval& b) {
        return {std::max(a.low, b.low), std::max(a.high, b.high)};
    }

    template <class Function, class Operands, std::size_t... I>
    static interval of_call(const Function&, const Operands&, const interval*, std::index_sequence<I...>) {
        return interval::any();
    }
    /// The smallest and the largest element of the part of the tensor that may be read; all numbers if that part is large.
    template <class T, int Rank, class Operands, std::size_t... I>
    static interval of_call(const lookup_function<T, Rank>& f, const Operands& operands, const interval* x,
                            std::index_sequence<I...>) {
        const interval places[] = {of(operands.template at<I>(), x)...};
        extent first[Rank], count[Rank], all = 1;
        for (int axis = 0; axis < Rank; ++axis) {
            first[axis] = f.within(places[axis].low, f.extents[axis]);
            count[axis] = f.within(places[axis].high, f.extents[axis]) - first[axis] + 1;
            all *= count[axis];
        }
        constexpr extent most = 1024;
        if (all < 1 || all > most) return interval::any();
        interval values{HUGE_VAL, -HUGE_VAL};
        for (extent i = 0; i < all; ++i) {
            extent rest = i, at = 0;
            for (int axis = Rank - 1; axis >= 0; --axis) {
                at += (first[axis] + rest % count[axis]) * f.strides[axis];
                rest /= count[axis];
            }
            const auto value = static_cast<double>(f.number(at));
            if (value != value) return interval::any();
            values = {std::min(values.low, value), std::max(values.high, value)};
        }
        return values;
    }
};

/// A block of queries and keys of one head.
struct attention_block {
    extent batch, head, first_query, queries, first_key, keys;
};

/// Whether the expression hides all keys of the block from all its queries.
template <class E>
bool hides_block(const E& score, const attention_block& b) {
    const auto each = [](extent first, extent count) {
        return interval{static_cast<double>(first), static_cast<double>(first + count - 1)};
    };
    const interval x[] = {interval::any(), each(b.batch, 1), each(b.head, 1), each(b.first_query, b.queries),
                          each(b.first_key, b.keys)};
    return intervals::of(score, x).high < static_cast<double>(-3.0e38f);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/number/precise/end.hpp>
