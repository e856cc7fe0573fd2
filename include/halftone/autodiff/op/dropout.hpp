// SPDX-License-Identifier: MIT
/// \file
/// Dropout on a tape.
///
///     auto y = ht::dropout(ctx, x, {.p = 0.1f});                 // in x's type, unless its category says otherwise
///     auto y = ht::dropout(ctx, x, {.p = 0.1f}, residual);       // residual + dropout(x), in the residual's type, in one pass
///
/// It is active on a tape that records. In an inference context, and with p = 0, the result is x itself. No mask is
/// stored: the backward pass computes the same random numbers again (engine/random_draws.hpp describes which, and how a
/// step is repeated).
///
/// Numeric contract: kernel/dropout/dropout.hpp.
#pragma once

#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/kernel/dropout/dropout.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of dropout.
struct dropout_options {
    float p = 0.5f;  ///< the probability with which an element is dropped, 0 to 1
};

namespace detail {

/// Throws argument_error for a p outside [0, 1].
inline float dropout_probability(const char* where, float p) {
    if (!(p >= 0 && p <= 1)) fail<argument_error>(where, ": p is ", p, "; expected 0 to 1");
    return p;
}

/// True, or a compile-time error, for a context in which dropout is called.
template <class Context>
consteval bool check_dropout() {
    static_assert(
        !runs_own_operation<Context>,
        "halftone: dropout: the functions of a custom operation (ht::apply) run in a context that does not record, "
        "where dropout would do nothing even in training: call it on the tape, before or after ht::apply");
    return true;
}

/// Throws argument_error if a layer with dropout is called in such a context; its probability is known at run time
/// only.
template <class Context>
void check_layer_dropout(const char* layer, float residual_dropout) {
    if constexpr (runs_own_operation<Context>) {
        if (residual_dropout != 0) {
            fail<argument_error>(
                layer, ": residual_dropout is ", residual_dropout,
                ", and the functions of a custom operation (ht::apply) run in a context that does not record, "
                "where dropout would do nothing even in training: call the layer on the tape, before or after "
                "ht::apply, or set its residual_dropout to 0");
        }
    }
}

template <class Y, class Root, class X, int Rank, class Residual = absent>
variable<Y, Rank> dropped(Root& root, const variable<X, Rank>& x, const kernel::dropout_draw& draw,
                          const Residual& residual = {});

template <class X, class Y, int Rank>
struct dropout_record {
    using operation = op::dropout;
    kernel::dropout_draw draw;
    gradient_of<X, Rank> dx;
    gradient_of<Y, Rank> dresidual;  // empty without a residual
    gradient_of<Y, Rank> dy;
    bool has_residual;

    template <class Tape>
    void propagate(Tape& tape) {
        if (const auto to = tape.gradient_target(dx)) {
            const view<X, 1> out(to.data, {dx.shape().size()});
            const const_view<X, 1> base = to.mode == write_mode::add ? as_const(out) : const_view<X, 1>{};
            kernel::dropout<typename Tape::device_type>::run(tape.device(), as_const(flatten(dy)), base, out, draw);
        }
        if (has_residual) pass_gradient(tape, dy, dresidual);
    }
    /// Dropout is linear, so its gradient is dropout of dy with the same draw.
    template <class Tape>
    void differentiate(Tape& tape, const auto& gradient) const {
        if (tape.takes(dx)) tape.give(dx, dropped<X>(tape.inner(), gradient, draw));
        if (has_residual && tape.takes(dresidual)) tape.give(dresidual, gradient);
    }
};

template <class Y, class Root, class X, int Rank, class Residual>
variable<Y, Rank> dropped(Root& root, const variable<X, Rank>& x, const kernel::dropout_draw& draw,
                          const Residual& residual) {
    const bool wanted = wants_gradient(x, residual);
    auto y = root.template make<Y>(x.shape(), wanted);
    const_view<Y, 1> base;
    if constexpr (!is_absent<Residual>) {
        if (!(residual.shape() == x.shape()))
            fail<shape_error>("dropout: the residual is ", residual.shape(), "; expected ", x.shape());
        base = as_const(flatten(residual));
    }
    kernel::dropout<typename Root::device_type>::run(root.device(), as_const(flatten(x)), base, flatten(y), draw);
    if constexpr (Root::records) {
        if (wanted) {
            dropout_record<X, Y, Rank> r{draw, gradient_of(x), {}, gradient_of(y), !is_absent<Residual>};
            if constexpr (!is_absent<Residual>) r.dresidual = gradient_of(residual);
            root.record(std::move(r));
        }
    }
    return y;
}

}  // namespace detail

/// x with each element set to zero with probability p and otherwise divided by 1 - p (inverted dropout, Srivastava et
/// al. 2014). In a context that records nothing, and for p = 0, x itself. Which elements are dropped follows from the
/// tape's random_state; the backward pass drops the same. Throws argument_error for a p outside [0, 1].
template <recording_context Context, class X, int Rank>
auto dropout(Context&& context, const variable<X, Rank>& x, const dropout_options& options) {
    static_assert(detail::check_dropout<Context>());
    using Y = chosen_output<by_category, policy_of<Context>, op::dropout, X>;
    const float p = detail::dropout_probability("dropout", options.p);
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (p > 0) {
            auto& root = context.root();
            const auto range = root.template range<policy_of<Context>>(op::dropout::name);
            const auto draw = root.graph().random.next(root.device(), root.graph().pass());
            return detail::dropped<Y>(root, x, kernel::dropout_draw::of(draw.record, draw.number, p));
        }
    }
    return detail::given_as<op::dropout, Y>(context, x);
}
template <recording_context Context, class Storage, int Rank>
void dropout(Context&&, const parameter<Storage, Rank>&, const dropout_options&) {
    detail::refuse_parameter<Context>();
}

/// residual + dropout(x); only the sum is rounded. Throws shape_error, too.
template <recording_context Context, class X, int Rank, class Y>
variable<Y, Rank> dropout(Context&& context, const variable<X, Rank>& x, const dropout_options& options,
                          const variable<Y, Rank>& residual) {
    static_assert(detail::check_dropout<Context>());
    const float p = detail::dropout_probability("dropout", options.p);
    auto& root = context.root();
    // x, converted if a user has changed the operation's category.
    const auto in =
        detail::given_as<op::dropout, chosen_output<by_category, policy_of<Context>, op::dropout, X>>(context, x);
    const auto range = root.template range<policy_of<Context>>(op::dropout::name);
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (p > 0) {
            const auto draw = root.graph().random.next(root.device(), root.graph().pass());
            return detail::dropped<Y>(root, in, kernel::dropout_draw::of(draw.record, draw.number, p), residual);
        }
    }
    return detail::dropped<Y>(root, in, kernel::dropout_draw::of(nullptr, 0, 0), residual);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
