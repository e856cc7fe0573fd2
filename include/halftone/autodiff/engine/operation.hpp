// SPDX-License-Identifier: MIT
/// \file
/// What differentiable operations share: their types, absent operands, and gradients that pass through unchanged.
#pragma once

#include <halftone/autodiff/engine/hook.hpp>
#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/policy/check.hpp>
#include <halftone/policy/operations.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// In place of an optional operand: a linear layer without a bias, say.
struct absent {
    constexpr bool is_frozen() const { return true; }
};
/// Whether T is `absent`.
template <class T>
inline constexpr bool is_absent = std::is_same_v<std::remove_cvref_t<T>, absent>;

/// The types of an operation: of products' operands, of its result, and of the incoming gradient as backward products
/// read it. 8-bit operands are scaled by Scaling (policy/scaling.hpp). InputGrad and WeightGrad are the operand types
/// of the two backward products, by default the wider of Compute and Grad.
template <class Compute, class Output, class Grad, class Scaling = void,
          class InputGrad = typename detail::read_gradient<Compute, Grad>::type,
          class WeightGrad = typename detail::read_gradient<Compute, Grad>::type>
struct roles {
    using compute = Compute;
    using output = Output;
    using grad = Grad;
    using scaling = Scaling;
    using input_grad = InputGrad;
    using weight_grad = WeightGrad;
};

namespace detail {

/// True, or a compile-time error if an operation of layers is given a policy in place of roles.
template <class Roles>
consteval bool check_roles_given() {
    constexpr bool is_no_policy = requires {
        typename Roles::input_grad;
        typename Roles::weight_grad;
        requires !precision_policy<Roles>;
    };
    static_assert(is_no_policy,
                  "halftone: the template argument given to this operation is not its roles: the policy is the "
                  "context's, ht::linear(ht::autocast<policy>(ctx), x, w, b), and a layer gives ht::layer_roles<...>");
    return true;
}

template <class P, class Op, class Context, class... Inputs>
struct layer_types {
    static_assert(check_policy<P>());
    using policy = policy_within<P, policy_of<Context>>;
    using compute = compute_type<policy, Op>;
    static_assert(is_fp64<compute> || (!std::is_same_v<Inputs, double> && ...),
                  "halftone: this layer is given doubles, and its policy computes in fewer bits, where autocast leaves "
                  "fp64 alone: cast them, ht::cast<float>(ctx, x), or give the layer ht::full_fp64");
    using type = roles<compute, typename policy::output, grad_type<policy, Op>,
                       std::conditional_t<eight_bit<compute>, scaling_of<policy>, void>, input_grad_type<policy, Op>,
                       weight_grad_type<policy, Op>>;
};

}  // namespace detail

/// The types of the operation Op of a layer with policy P, called in a context with inputs of these element types; a
/// compile-time error if P is invalid or does not fit the inputs.
template <class P, class Op, class Context, class... Inputs>
using layer_roles = detail::marked_roles<typename detail::layer_types<P, Op, Context, Inputs...>::type, P, Context>;

namespace detail {

template <class Roles, class Output>
struct with_result;
template <class Compute, class Old, class Grad, class Scaling, class InputGrad, class WeightGrad, class Output>
struct with_result<roles<Compute, Old, Grad, Scaling, InputGrad, WeightGrad>, Output> {
    using type = roles<Compute, Output, Grad, Scaling, InputGrad, WeightGrad>;
};

}  // namespace detail

/// layer_roles of a layer whose result is the residual stream: the result has the policy's `stream` (policy/roles.hpp).
template <class P, class Op, class Context, class... Inputs>
using stream_roles =
    detail::marked_roles<typename detail::with_result<typename detail::layer_types<P, Op, Context, Inputs...>::type,
                                                      detail::stream_of<policy_within<P, policy_of<Context>>>>::type,
                         P, Context>;

/// The view with const elements.
template <class T, int Rank>
const_view<T, Rank> as_const(const view<T, Rank>& v) {
    return v;
}

namespace detail {

template <class T>
inline constexpr bool is_variable = false;
template <class T, int Rank>
inline constexpr bool is_variable<variable<T, Rank>> = true;

template <class Root>
inline constexpr bool is_double_backward = false;
template <class Device>
inline constexpr bool is_double_backward<tape<Device, double_backward_tape>> = true;

/// A context whose operations must be differentiable twice.
template <class Context>
inline constexpr bool records_double_backward =
    is_double_backward<std::remove_cvref_t<decltype(std::declval<Context&>().root())>>;

/// The context in which the functions of a user's operation run (autodiff/op/apply.hpp).
template <class Context>
concept runs_own_operation = requires {
    requires std::remove_cvref_t<decltype(std::declval<Context&>().root())>::runs_own_operation;
};

/// A composition of operations that are differentiable twice, used in place of Op: `run(tape, its arguments)`. Defined
/// in autodiff/double_backward/double_backward.hpp.
template <class Op, class Roles>
struct composition;

/// The type in which a loss is summed: float, or double if an input is double.
template <class... T>
using loss_type = kernel::statistic<T...>;

template <class P, class Op, class... T>
struct loss_given {
    using type = free_output<P, Op, T...>;
};
template <class P, class Op, class... T>
    requires policy_marker<resolve<P>>
struct loss_given<P, Op, T...> {
    using type = loss_type<T...>;
};
/// The type of a loss: in a region that of its category, fp32; on a bare tape that of the sum, since models, whose
/// layers may give 16-bit results by their own policies, compute their losses there.
template <class P, class Op, class... T>
using loss_output = typename loss_given<P, Op, T...>::type;

/// The product of all extents except the last.
template <int Rank>
extent rows_of(const shape<Rank>& s) {
    extent n = 1;
    for (int axis = 0; axis + 1 < Rank; ++axis) n *= s[axis];
    return n;
}

template <int Rank>
shape<Rank> with_last(shape<Rank> s, extent last) {
    s[Rank - 1] = last;
    return s;
}

/// How matrices are read: as stored, or transposed.
enum class orientation { straight, transposed };
constexpr orientation operator!(orientation o) {
    return o == orientation::straight ? orientation::transposed : orientation::straight;
}

template <class T, int Rank>
bool wants_gradient(const variable<T, Rank>& v) {
    return v.wants_gradient();
}
template <class Storage, int Rank>
bool wants_gradient(const parameter<Storage, Rank>& p) {
    return !p.is_frozen();
}
inline bool wants_gradient(const absent&) { return false; }
template <class First, class Second, class... Rest>
bool wants_gradient(const First& first, const Second& second, const Rest&... rest) {
    return wants_gradient(first) || wants_gradient(second, rest...);
}

/// A master that is stored whole.
template <class Storage, int Rank>
auto whole_master(const parameter<Storage, Rank>& p) {
    static_assert(!Storage::is_split,
                  "halftone: this operation reads a parameter in a wider type than its bf16 copy, and its master is "
                  "split (ht::with_split_master), so that it is stored nowhere as fp32: keep this layer's masters whole, "
                  "ht::rule<\"embed\", ht::amp_bf16>, or let the reader compute in bfloat16");
    if constexpr (!Storage::is_split) return as_const(p.master());
}

/// A parameter as an operation that computes in Compute reads it, in the forward and the backward pass: its copy if the
/// copy holds as many bits, or is codes of a block format; otherwise its master.
template <class Compute, class Storage, int Rank>
auto values_for(const parameter<Storage, Rank>& p) {
    if constexpr (coded<Storage> || contains<typename Storage::compute, Compute>) {
        return p.values();
    } else {
        return whole_master(p);
    }
}

/// A variable that stands for a parameter, as an operation reads it: its values (op/matmul.hpp).
template <class Compute, class Weight>
    requires(Weight::is_variable)
auto values_for(const Weight& weight) {
    return weight.values();
}

template <class Residual, class Output>
struct sum_with {
    using type = typename Residual::value_type;
};
template <class Output>
struct sum_with<absent, Output> {
    using type = Output;
};

/// The result type of an operation that adds a residual: the residual's type, as in `x += f(x)`; the float sum is rounded
/// to it once. Without a residual, the policy's `output`.
template <class Residual, class Output>
using sum_type = typename sum_with<Residual, Output>::type;

/// Throws argument_error for an id outside [0, count) that is not `ignored`; the host reads them.
template <int Rank>
void expect_ids(const char* operation, const char* what, const view<const std::int32_t, Rank>& ids, extent count,
                const std::int32_t* ignored = nullptr) {
    const auto all = flatten(ids);
    for (extent r = 0; r < all.size(); ++r) {
        const std::int32_t id = all(r);
        if ((id >= 0 && id < count) || (ignored != nullptr && id == *ignored)) continue;
        if (ignored == nullptr)
            fail<argument_error>(operation, ": the ", what, " of row ", r, " is ", id, "; expected 0 to ", count - 1);
        fail<argument_error>(operation, ": the ", what, " of row ", r, " is ", id, "; expected 0 to ", count - 1, ", or ",
                             *ignored, " to ignore the row");
    }
}

/// Ids in memory that the device can read. Ids from host memory are checked here (expect_ids). For ids that only a GPU can
/// read, its kernels give NaN instead.
template <class Root, int Rank>
variable<std::int32_t, Rank> ids_to_device(Root& root, const char* operation, const char* what,
                                       const view<const std::int32_t, Rank>& ids, extent count,
                                       const std::int32_t* ignored = nullptr) {
    if (!root.device().reaches(ids.data())) expect_ids(operation, what, ids, count, ignored);
    return root.to_device(ids);
}

/// to += from, by elements.
template <class Tape, class T, int Rank>
void add_into(Tape& tape, const view<T, Rank>& from, const view<T, Rank>& to) {
    map(
        tape.device(), [](auto a, auto b) { return a + b; }, as_const(flatten(to)), as_const(flatten(from)),
        flatten(to));
}

/// Calls run(view) with the memory that a kernel overwrites with a contribution to a gradient: the gradient's own for the first
/// contribution; separate memory for another use of the same variable, which is then added. Not called where no gradient is
/// wanted.
template <class Tape, class T, int Rank, class Run>
void contribute(Tape& tape, const gradient_of<T, Rank>& gradient, const Run& run) {
    const auto to = tape.gradient_target(gradient);
    if (!to) return;
    const view<T, Rank> own(to.data, gradient.shape());
    if (to.mode != write_mode::add) return run(own);
    const auto separate = tape.template make<T>(gradient.shape(), false);
    run(separate.view());
    add_into(tape, separate.view(), own);
}

/// The gradient of an operation whose derivative is one: passes it through. The first contribution shares memory.
template <class Tape, class T, int Rank>
void pass_gradient(Tape& tape, const gradient_of<T, Rank>& from, const gradient_of<T, Rank>& to) {
    if (!tape.takes_gradient(to)) return;
    if (!to.is_there()) return tape.graph().share_gradient(from.slot(), to.slot());
    add_into(tape, from.view(), view(tape.gradient_target(to).data, to.shape()));
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
