// SPDX-License-Identifier: MIT
/// \file
/// Gradient checkpointing: a part of a model stores only its inputs, and the backward pass recomputes everything else.
///
///     auto y = ht::checkpoint(ctx, block, x);                     // instead of block(ctx, x)
///     auto z = ht::checkpoint(ctx, [&](auto& c, const auto& h) { return down(c, ht::gelu(c, up(c, h))); }, y);
///
/// A block's activations exist only during the block's own forward and backward pass. The cost is a second forward pass
/// of the block. Checkpoints may be nested.
///
/// Numeric contract: values and gradients have the same bits as without checkpoints; dropout drops the same elements. What a
/// forward pass changes beside its result is changed once: running statistics of batch norm by the first pass, and amaxes of
/// delayed scaling have the same value after the second one. A function with other effects, such as a counter or a statistic
/// of its own, asks ht::is_recomputing(ctx) for them.
#pragma once

#include <tuple>
#include <type_traits>

#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/autodiff/engine/region.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// While an object of this class exists, a tape and its hook know that operations are recomputed.
template <class Root>
class recomputation {
  public:
    explicit recomputation(Root& root) : root_(&root) { tell(true); }
    recomputation(const recomputation&) = delete;
    recomputation& operator=(const recomputation&) = delete;
    ~recomputation() { tell(false); }

  private:
    void tell(bool now) {
        root_->graph().set_recomputing(now);
        if constexpr (hooked<Root>) root_->hook().recompute(now);
    }
    Root* root_;
};

/// What a checkpoint stores: the function, its arguments, and the number of the function's first random draw.
template <class Root, class Context, class Function, class Y, class... Arguments>
struct checkpoint_record {
    struct operation {
        static constexpr const char* name = "checkpoint";
    };

    Context context;  // a pointer to the tape, or a region of it
    Function function;
    std::tuple<Arguments...> arguments;
    gradient_of<typename Y::value_type, Y::rank> dy;
    std::uint32_t first_draw;

    void backward(tape<typename Root::device_type>& plain) {
        if (!dy.is_there()) return;
        Root& root = static_cast<Root&>(plain);
        graph& g = root.graph();
        const graph::place before = g.mark();
        // The gradient of what the function had captured, and returns, stays where it is.
        if (recompute(root) != dy.slot()) root.finish(dy);
        g.run_backward_to(before);
    }

  private:
    /// Repeats the forward pass, now recording it. The gradient of the first result becomes that of the new one, whose slot it
    /// returns.
    graph::index recompute(Root& root) {
        graph& g = root.graph();
        const std::uint32_t drawn = g.random.drawn(g.pass());
        g.random.go_back(first_draw);
        const recomputation<Root> here(root);
        const Y y = std::apply([&](const auto&... x) { return call(x...); }, arguments);
        g.random.go_back(drawn);
        if (!y.wants_gradient() || !(y.shape() == dy.shape()))
            fail<state_error>("checkpoint: the function gave another result, ", y.shape(), ", than before, ", dy.shape());
        if (y.slot() != dy.slot()) g.share_gradient(dy.slot(), y.slot());
        return y.slot();
    }
    template <class... X>
    Y call(const X&... x) {
        if constexpr (std::is_pointer_v<Context>) {
            return called(*context, x...);
        } else {
            return called(context, x...);
        }
    }
    template <class C, class... X>
    Y called(C& ctx, const X&... x) {
        if constexpr (std::is_pointer_v<Function>) {
            return (*function)(ctx, x...);
        } else {
            return function(ctx, x...);
        }
    }
};

/// A named function (an lvalue, such as a layer) is stored as a pointer, a temporary lambda by value.
template <class Function>
using kept_function = std::conditional_t<std::is_lvalue_reference_v<Function>, std::remove_reference_t<Function>*,
                                         std::remove_reference_t<Function>>;
template <class Function>
kept_function<Function> keep_function(std::remove_reference_t<Function>& f) {
    if constexpr (std::is_lvalue_reference_v<Function>) {
        return &f;
    } else {
        return std::move(f);
    }
}

template <class Root, class Context, class Function, class Y, class... X>
void record_checkpoint(Root& root, Context& context, std::remove_reference_t<Function>& f, const Y& y,
                       std::uint32_t first_draw, const X&... x) {
    constexpr bool is_tape = std::is_base_of_v<Root, Context>;
    using kept_context = std::conditional_t<is_tape, Context*, std::remove_const_t<Context>>;
    const auto keep = [](auto& c) -> kept_context {
        if constexpr (is_tape) {
            return &c;
        } else {
            return c;
        }
    };
    using record = checkpoint_record<Root, kept_context, kept_function<Function>, Y, X...>;
    root.graph().template push<tape<typename Root::device_type>>(
        record{keep(context), keep_function<Function>(f), {x...}, gradient_of(y), first_draw});
}

}  // namespace detail

/// Whether a checkpoint calls a function for the second time: in the backward pass, to have its values again. What the
/// function changes beside its result (a counter, a statistic) it has changed in the forward pass, and does not change now.
template <class Context>
    requires requires(Context& context) { context.root(); }
bool is_recomputing(Context&& ctx) {
    return ctx.root().graph().is_recomputing();
}

/// y = f(ctx, x…), a variable. No value that f computes is stored for the backward pass, which calls f again. f must
/// return the same result for the same arguments. It is a layer, which must outlive the backward pass, or a temporary
/// lambda, which is stored with everything that it captures. Variables and parameters that f uses other than as
/// arguments get their gradients, too. In contexts without a backward pass the call is f(ctx, x…). Throws what f
/// throws.
template <class Context, class Function, class... X>
    requires requires(Context& context) { context.root(); }
auto checkpoint(Context&& ctx, Function&& f, const X&... x) {
    using root_type = std::remove_reference_t<decltype(ctx.root())>;
    if constexpr (!root_type::records || !detail::hook_of<Context>::keeps_records) {
        return f(ctx, x...);
    } else {
        static_assert(!detail::records_double_backward<Context>,
                      "halftone: checkpoint: a tape for second derivatives differentiates its own backward pass and needs "
                      "all values: call the layer itself, block(ctx, x), or take ht::tape tape{device}");
        auto& root = ctx.root();
        detail::graph& g = root.graph();
        const std::uint32_t first_draw = g.random.drawn(g.pass());
        const auto y = [&] {
            const detail::graph::unrecorded here(g);
            return f(ctx, x...);
        }();
        using result = std::remove_const_t<decltype(y)>;
        static_assert(detail::is_variable<result>,
                      "halftone: checkpoint: the function's result is no variable: let it return one, and take several "
                      "results from several checkpoints");
        const auto is_y = [&](const auto& argument) {
            if constexpr (detail::is_variable<std::remove_cvref_t<decltype(argument)>>) {
                return argument.slot() == y.slot();
            } else {
                return false;
            }
        };
        if (g.is_recording() && y.wants_gradient() && !(is_y(x) || ...)) {
            detail::record_checkpoint<root_type, std::remove_reference_t<Context>, Function>(root, ctx, f, y, first_draw,
                                                                                            x...);
        }
        return y;
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
