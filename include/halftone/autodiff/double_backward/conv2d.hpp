// SPDX-License-Identifier: MIT
/// \file
/// The rule (engine/rule.hpp) of a convolution. A convolution, the gradient of its input and that of its weight are linear
/// in each of their two operands, and each is the transpose of another: of x, weight and result, any one is made of the
/// other two. So the gradients of all three are again of these three.
#pragma once

#include <halftone/autodiff/double_backward/rules.hpp>
#include <halftone/autodiff/op/conv2d.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Which of them is made of the other two, which are given in this order.
enum class conv2d_part { x, weight, y };

template <class Compute, conv2d_part Part, class Device, class A, class B, class R>
void make_conv2d_part(Device& device, const conv2d_problem& p, const view<A, 4>& first, const view<B, 4>& second,
                      const view<R, 4>& result) {
    const const_view<std::remove_const_t<A>, 4> a = first;
    const const_view<std::remove_const_t<B>, 4> b = second;
    if constexpr (Part == conv2d_part::x) {
        conv2d_input_gradient<Compute>(device, p, a, b, result, write_mode::overwrite);
    } else if constexpr (Part == conv2d_part::weight) {
        conv2d_weight_gradient<Compute>(device, p, a, b, result, write_mode::overwrite);
    } else {
        conv2d_forward<Compute>(device, p, a, b, no_bias{}, result);
    }
}

template <conv2d_part Part, class Compute, class A, class B, class R>
struct conv2d_part_record {
    using operation = op::conv2d;
    conv2d_problem p;
    variable<A, 4> first;  // each is kept if the other takes a gradient
    variable<B, 4> second;
    gradient_of<A, 4> dfirst;
    gradient_of<B, 4> dsecond;
    gradient_of<R, 4> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        using part = conv2d_part;
        const auto g = dy.view();
        contribute(tape, dfirst, [&](const view<A, 4>& to) {
            if constexpr (Part == part::y) make<part::x>(tape, second.view(), g, to);
            if constexpr (Part == part::weight) make<part::x>(tape, g, second.view(), to);
            if constexpr (Part == part::x) make<part::weight>(tape, g, second.view(), to);
        });
        contribute(tape, dsecond, [&](const view<B, 4>& to) {
            if constexpr (Part == part::y) make<part::weight>(tape, first.view(), g, to);
            if constexpr (Part == part::weight) make<part::y>(tape, first.view(), g, to);
            if constexpr (Part == part::x) make<part::y>(tape, g, first.view(), to);
        });
    }

  private:
    template <conv2d_part Of, class Tape, class C, class D, class E>
    void make(Tape& tape, const view<C, 4>& a, const view<D, 4>& b, const view<E, 4>& to) const {
        make_conv2d_part<Compute, Of>(tape.device(), p, a, b, to);
    }
};

template <conv2d_part Part, class Compute, class R, class Root, class A, class B>
variable<R, 4> recorded_conv2d_part(Root& root, const conv2d_problem& p, const variable<A, 4>& first,
                                    const variable<B, 4>& second) {
    const auto range = root.range(op::conv2d::name);
    const bool of_first = first.wants_gradient(), of_second = second.wants_gradient();
    auto result = root.template make<R>(Part == conv2d_part::x        ? p.input()
                                        : Part == conv2d_part::weight ? p.weight()
                                                                      : p.result(),
                                        of_first || of_second);
    make_conv2d_part<Compute, Part>(root.device(), p, first.view(), second.view(), result.view());
    if (of_first || of_second) {
        root.record(conv2d_part_record<Part, Compute, A, B, R>{p, of_second ? first : variable<A, 4>{},
                                                               of_first ? second : variable<B, 4>{}, gradient_of(first),
                                                               gradient_of(second), gradient_of(result)});
    }
    return result;
}

template <class Roles, class X, class Y, class Weight, class Bias>
struct rule<conv2d_record<Roles, X, Y, Weight, Bias>> {
    template <class Tape>
    static void run(Tape& tape, const conv2d_record<Roles, X, Y, Weight, Bias>& r, const variable<Y, 4>& dy) {
        using T = typename weight_gradient<Weight>::type;
        static_assert(check_double_backward_operands<typename Roles::compute, X, T>());
        const conv2d_problem p = r.problem();
        if (tape.takes(r.dx)) {
            const auto w = read_weight<typename Roles::compute>(tape, r.weight);
            tape.give(r.dx, recorded_conv2d_part<conv2d_part::x, typename Roles::input_grad, X>(tape.inner(), p, w, dy));
        }
        if (tape.takes(r.weight)) {
            tape.give(r.weight, recorded_conv2d_part<conv2d_part::weight, typename Roles::weight_grad, T>(tape.inner(), p,
                                                                                                          r.x, dy));
        }
        if constexpr (!is_absent<Bias>) {
            using B = typename weight_gradient<Bias>::type;
            if (tape.takes(r.bias))
                tape.give(r.bias, flat(sum_to<B>(tape.inner(), dy, shape<4>{1, p.outputs, 1, 1})));
        }
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
