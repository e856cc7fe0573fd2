// SPDX-License-Identifier: MIT
/// \file
/// The rules (engine/rule.hpp) of free operations other than maps: matmul, cat and stack, as_variable.
#pragma once

#include <halftone/autodiff/double_backward/rules.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/autodiff/op/products.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class T, int Rank>
factor<T> factor_of_matrices(const variable<T, Rank>& v) {
    const shape<Rank>& s = v.shape();
    const extent each = s[Rank - 2] * s[Rank - 1];
    return factor_of(v, {each == 0 ? 0 : v.size() / each, s[Rank - 2], s[Rank - 1]});
}

/// A matrix, or matrices, as a product of orientation Turned reads them: as stored, or transposed.
template <orientation Turned, class T, int Rank>
factor<T> factor_read(const variable<T, Rank>& v) {
    const factor<T> stored = factor_of_matrices(v);
    return Turned == orientation::straight ? stored : !stored;
}

template <class Roles, class A, class B, class Y, int Rank, orientation OfA, orientation OfB>
struct rule<matmul_record<Roles, A, B, Y, Rank, OfA, OfB>> {
    template <class Tape>
    static void run(Tape& tape, const matmul_record<Roles, A, B, Y, Rank, OfA, OfB>& r, const auto& gradient) {
        static_assert(check_double_backward_operands<typename Roles::compute, A, B>());
        using by_input = typename Roles::input_grad;
        using by_weight = typename Roles::weight_grad;
        const factor<Y> g = factor_of_matrices(gradient);
        if (tape.takes(r.da)) {
            const factor<B> b = factor_read<OfB>(r.b);
            if constexpr (OfA == orientation::straight) {
                tape.give(r.da, recorded_product<by_input, A>(tape.inner(), g, !b));
            } else {
                tape.give(r.da, recorded_product<by_input, A>(tape.inner(), b, !g));
            }
        }
        if (tape.takes(r.db)) {
            const factor<A> a = factor_read<OfA>(r.a);
            if constexpr (OfB == orientation::straight) {
                tape.give(r.db, recorded_product<by_weight, B>(tape.inner(), !a, g));
            } else {
                tape.give(r.db, recorded_product<by_weight, B>(tape.inner(), !g, a));
            }
        }
    }
};

/// A part of a joined tensor; Op is the operation that joined it.
template <class Op, class T, class Y>
struct part_record {
    using operation = Op;
    join_layout layout;
    extent begin, width;
    gradient_of<T, 1> dy;
    gradient_of<Y, 1> dall;

    template <class Tape>
    void propagate(Tape& tape) {
        if (const auto to = tape.gradient_target(dall)) {
            const view<Y, 1> out(to.data, dall.shape());
            if (to.mode == write_mode::overwrite) tape.device().fill(to.data, out.size(), Y(0.0f));
            copy_rows(tape.device(), const_view<T, 2>(dy.view().data(), {layout.rows, width}),
                      layout.part(out, begin, width), to.mode);
        }
    }
};

template <class Op, class T, class Root, class Y>
variable<T, 1> part_of(Root& root, const variable<Y, 1>& all, const join_layout& layout, extent begin, extent width) {
    auto part = root.template make<T>(shape<1>{layout.rows * width}, all.wants_gradient());
    copy_rows(root.device(), layout.part(as_const(all.view()), begin, width),
              view<T, 2>(part.view().data(), {layout.rows, width}), write_mode::overwrite);
    if (all.wants_gradient())
        root.record(part_record<Op, T, Y>{layout, begin, width, gradient_of(part), gradient_of(all)});
    return part;
}

template <class Op, class Y, int Rank, class Gradients>
struct rule<join_record<Op, Y, Rank, Gradients>> {
    template <class Tape>
    static void run(Tape& tape, const join_record<Op, Y, Rank, Gradients>& r, const auto& gradient) {
        const variable<Y, 1> dy = flat(gradient);
        extent begin = 0;
        for_each_joined(r.gradients, [&](const auto& dx) { give(tape, r.layout, dy, dx, begin); });
    }

  private:
    template <class Tape, class T, int R>
    static void give(Tape& tape, const join_layout& layout, const variable<Y, 1>& dy, const gradient_of<T, R>& dx,
                     extent& begin) {
        const extent width = layout.width_of(dx.shape().size());
        if (tape.takes(dx)) tape.give(dx, part_of<Op, T>(tape.inner(), dy, layout, begin, width));
        begin += width;
    }
};

template <class Storage, class T, int Rank>
struct rule<parameter_read_record<Storage, T, Rank>> {
    template <class Tape>
    static void run(Tape& tape, const parameter_read_record<Storage, T, Rank>& r, const variable<T, Rank>& dy) {
        if (tape.takes(r.source)) tape.give(r.source, halftone::cast<float>(tape.inner(), dy));
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
