// SPDX-License-Identifier: MIT
/// \file
/// The rules (engine/rule.hpp) of operations that change shapes, and the two operations that they use: place, which
/// writes a part into a tensor of zeros (the gradient of taking a part), and the sum over broadcast axes (the gradient
/// of expand). The gradients of these two are again taking a part and expand.
#pragma once

#include <halftone/autodiff/double_backward/tape.hpp>
#include <halftone/autodiff/op/shapes.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A tensor of zeros, except for the elements at the positions `at`; Op is the operation that took these elements.
template <class Op, class T, int From, int Rank>
struct put_record {
    using operation = Op;
    placement<Rank> at;
    gradient_of<T, Rank> dpart;
    gradient_of<T, From> dall;

    template <class Tape>
    void backward(Tape& tape) {
        if (!dall.is_there()) return;
        if (const auto to = tape.gradient_target(dpart))
            write_strided(tape.device(), at.in(as_const(dall.view()).data()), view<T, Rank>(to.data, dpart.shape()),
                          to.mode);
        tape.finish(dall);
    }
};
template <class Op, class Root, class T, int From, int Rank>
variable<T, From> put(Root& root, const variable<T, Rank>& part, const placement<Rank>& at, const shape<From>& s) {
    auto all = root.template make<T>(s, part.wants_gradient());
    write_part(root.device(), as_const(part.view()), at, all.view().data(), all.size(), write_mode::overwrite);
    if (part.wants_gradient()) root.record(put_record<Op, T, From, Rank>{at, gradient_of(part), gradient_of(all)});
    return all;
}

template <class Op, class T, int From, int Rank>
struct rule<take_record<Op, T, From, Rank>> {
    template <class Tape>
    static void run(Tape& tape, const take_record<Op, T, From, Rank>& r) {
        if (!tape.has(r.dy)) return;
        const variable<T, Rank> dy = tape.take(r.dy);
        const auto& dx = std::get<0>(r.gradients);
        if (tape.takes(dx)) tape.give(dx, put<Op>(tape.inner(), dy, r.at, dx.shape()));
    }
};
template <class T, int Rank, std::size_t Parts>
struct rule<split_record<T, Rank, Parts>> {
    template <class Tape>
    static void run(Tape& tape, const split_record<T, Rank, Parts>& r) {
        const auto& dx = std::get<0>(r.gradients);
        for (std::size_t i = 0; i < Parts; ++i) {
            if (!tape.has(r.part(i))) continue;
            const variable<T, Rank> dy = tape.take(r.part(i));
            if (tape.takes(dx)) tape.give(dx, put<op::split>(tape.inner(), dy, r.at[i], dx.shape()));
        }
    }
};

/// The sum over the axes along which `to` has extent 1, and over those that `to` does not have.
template <class X, class T, int To, int Rank>
struct sum_to_record {
    using operation = op::expand;
    gradient_of<X, Rank> dx;
    gradient_of<T, To> dy;

    template <class Tape>
    void backward(Tape& tape) {
        if (!dy.is_there()) return;
        if (const auto to = tape.gradient_target(dx)) {
            const auto from = expand(as_const(dy.view()), dx.shape());
            const view<X, Rank> out(to.data, dx.shape());
            using map = kernel::map<typename Tape::device_type>;
            if (to.mode == write_mode::overwrite) {
                map::template run<kernel::map_layout::any>(tape.device(), make_pack(symbolic::argument<0>{}),
                                                           make_pack(out), make_pack(from));
            } else {
                map::template run<kernel::map_layout::any>(tape.device(),
                                                           make_pack(symbolic::argument<0>{} + symbolic::argument<1>{}),
                                                           make_pack(out), make_pack(as_const(out), from));
            }
        }
        tape.finish(dy);
    }
};
template <class T, class Root, class X, int Rank, int To>
variable<T, To> sum_to(Root& root, const variable<X, Rank>& x, const shape<To>& s) {
    auto y = root.template make<T>(s, x.wants_gradient());
    kernel::sum_over_broadcast(root.device(), as_const(x.view()), view<T, Rank>(y.view().data(), lifted<Rank>(s)),
                               write_mode::overwrite);
    if (x.wants_gradient()) root.record(sum_to_record<X, T, To, Rank>{gradient_of(x), gradient_of(y)});
    return y;
}

template <class T, int From, int Rank>
struct rule<expand_record<T, From, Rank>> {
    template <class Tape>
    static void run(Tape& tape, const expand_record<T, From, Rank>& r) {
        if (!tape.has(r.dy)) return;
        const variable<T, Rank> dy = tape.take(r.dy);
        const auto& dx = std::get<0>(r.gradients);
        if (tape.takes(dx)) tape.give(dx, sum_to<T>(tape.inner(), dy, dx.shape()));
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
