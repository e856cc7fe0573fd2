// SPDX-License-Identifier: MIT
/// \file
/// Products of variables as free operations: matmul, also batched; and linear, which takes parameters, too.
///
///     auto y = ht::matmul(ht::autocast<ht::amp_bf16>(ctx), a, b);            // (…, m, k) times (…, k, n), or times (k, n)
///     auto y = ht::matmul<float>(ctx, a, b);                                 // in fp32, in every region
///     auto scores = ht::matmul(ctx, q, ht::transposed(k));                   // q kᵀ; k is not copied
///     auto y = ht::linear(ctx, x, w, b);                                     // x wᵀ + b; w, b: variables or parameters
///     auto w = ht::as_variable(ctx, layer.weight);                           // a parameter, for all other operations
///
/// In a region operands are read in the policy's `compute`, which is also the result's type; on a bare tape in the type
/// that they promote to; an explicit type overrides both. Operands are rounded by the kernel as it reads them: no cast
/// copy is kept, so none can be out of date. A parameter is read from the store's copy if that has the type: weights
/// are rounded once when they change, however often they are used.
///
/// Backward products read their operands in the region's `input_grad` and `weight_grad` (policy/roles.hpp), wherever
/// backward is called: the gradient of matmul's a in `input_grad`, that of b, which corresponds to a weight, in
/// `weight_grad`; likewise for linear's x and w. The gradients have the types of the inputs. Numeric contract:
/// kernel::matmul's.
#pragma once

#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/linear.hpp>
#include <halftone/autodiff/op/pointwise.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class As>
concept type_choice = std::same_as<As, by_category> || number<As>;

template <class As, class P, class Op, class Compute>
struct backward_types {  // for an explicit type
    using input_grad = Compute;
    using weight_grad = Compute;
};
template <class P, class Op, class Compute>
    requires(!policy_marker<resolve<P>> && !is_fp64<Compute>)
struct backward_types<by_category, P, Op, Compute> {
    using R = resolve<P>;
    using wider = typename read_gradient<Compute, grad_type<R, Op>>::type;
    using input_grad = typename backward_role<typename stated_input_grad<R>::type, wider>::type;
    using weight_grad = typename backward_role<typename stated_weight_grad<R>::type, wider>::type;
};

/// The types of Op as a free operation: by its category, and without scales for 8-bit operands.
template <class Op>
struct as_free {
    static constexpr const char* name = Op::name;
    static constexpr category cast_rule = operation_category<Op>::value;
};

/// The types of the product Op with operands of these element types.
template <class As, class P, class Op, class... Inputs>
struct product_types {
    using compute = chosen_compute<As, P, Op, Inputs...>;
    using output = chosen_output<As, P, Op, Inputs...>;
    using backward = backward_types<As, P, Op, compute>;
    using type = roles<compute, output, compute, void, typename backward::input_grad, typename backward::weight_grad>;
};
template <class As, class Context, class Op, class... Inputs>
using product_roles = typename product_types<As, policy_of<Context>, as_free<Op>, Inputs...>::type;

template <class T, int Rank>
view<T, 3> as_matrices(const view<T, Rank>& v) {
    const extent rows = v.extent_of(Rank - 2), columns = v.extent_of(Rank - 1);
    return {v.data(), {rows * columns == 0 ? 0 : v.size() / (rows * columns), rows, columns}};
}

/// For variables of this rank: one matrix, for which the batched kernel is not instantiated, or any number of matrices.
template <class Compute, int Rank, class Device, class A, class B, class C>
void products(Device& device, const view<A, 3>& a, const view<B, 3>& b, const view<C, 3>& c, write_mode mode) {
    if constexpr (Rank == 2) {
        if (c.extent_of(0) > 0) product<Compute>(device, matrix(a, 0), matrix(b, 0), matrix(c, 0), mode);
    } else {
        product_each<Compute>(device, a, b, c, mode);
    }
}

/// A variable's matrices as a product reads them.
template <orientation Turned, class T, int Rank>
view<T, 3> matrices_read(const view<T, Rank>& v) {
    const auto stored = as_matrices(v);
    return Turned == orientation::straight ? stored : transpose(stored);
}

/// a and b are kept in their own memory order, not transposed.
template <class Roles, class A, class B, class Y, int Rank, orientation OfA = orientation::straight,
          orientation OfB = orientation::straight>
struct matmul_record {
    using operation = op::matmul;
    variable<A, Rank> a;  // each is kept if the other takes a gradient
    variable<B, Rank> b;
    gradient_of<A, Rank> da;
    gradient_of<B, Rank> db;
    gradient_of<Y, Rank> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        const auto g = as_matrices(as_const(dy.view()));
        tape.template note_gradients_as<typename Roles::input_grad>();
        tape.template note_gradients_as<typename Roles::weight_grad>();
        if (const auto to = tape.gradient_target(da)) {
            const auto right = matrices_read<OfB>(b.view());
            const auto out = as_matrices(view<A, Rank>(to.data, da.shape()));
            if constexpr (OfA == orientation::straight) {
                products<typename Roles::input_grad, Rank>(tape.device(), g, transpose(right), out, to.mode);
            } else {
                products<typename Roles::input_grad, Rank>(tape.device(), right, transpose(g), out, to.mode);
            }
        }
        if (const auto to = tape.gradient_target(db)) {
            const auto left = matrices_read<OfA>(a.view());
            const auto out = as_matrices(view<B, Rank>(to.data, db.shape()));
            if constexpr (OfB == orientation::straight) {
                products<typename Roles::weight_grad, Rank>(tape.device(), transpose(left), g, out, to.mode);
            } else {
                products<typename Roles::weight_grad, Rank>(tape.device(), transpose(g), left, out, to.mode);
            }
        }
    }
};

/// A variable in place of a layer's parameter.
template <class T, int Rank>
struct variable_weight : gradient_of<T, Rank> {
    using compute = T;
    static constexpr bool is_variable = true;
    variable<T, Rank> value;

    explicit variable_weight(const variable<T, Rank>& v) : gradient_of<T, Rank>(v), value(v) {}
    const_view<T, Rank> values() const { return value.view(); }
    /// Whether it takes no gradient: the layer's input then need not be kept.
    bool is_frozen() const { return !value.wants_gradient(); }
};
template <class T, int Rank>
bool wants_gradient(const variable_weight<T, Rank>& w) {
    return w.value.wants_gradient();
}

template <class T, int Rank>
variable_weight<T, Rank> as_weight(const variable<T, Rank>& v) {
    return variable_weight<T, Rank>(v);
}
template <class Storage, int Rank>
const parameter<Storage, Rank>& as_weight(const parameter<Storage, Rank>& p) {
    return p;
}
inline absent as_weight(const absent&) { return {}; }

template <class T>
struct element {};
template <class T, int Rank>
struct element<variable<T, Rank>> {
    using type = T;
};
template <class Storage, int Rank>
struct element<parameter<Storage, Rank>> {
    using type = typename Storage::param;
};
/// The type of a variable's elements, or of a parameter's master.
template <class T>
using element_of = typename element<T>::type;

template <class T, int Rank>
inline constexpr bool is_weight_of_rank = false;
template <class T, int Rank>
inline constexpr bool is_weight_of_rank<variable<T, Rank>, Rank> = true;
template <class Storage, int Rank>
inline constexpr bool is_weight_of_rank<parameter<Storage, Rank>, Rank> = true;
/// A variable, or a parameter of a store, of this rank.
template <class T, int Rank>
concept weight_of_rank = is_weight_of_rank<T, Rank>;

template <class As, class Context, class X, int Rank, class W, class B>
auto free_linear(Context&& context, const variable<X, Rank>& x, const W& weight, const B& bias) {
    return halftone::linear<product_roles<As, Context, op::linear, X, element_of<W>>>(context, x, as_weight(weight),
                                                                                      as_weight(bias));
}

struct as_variable_operation : operation_kind::parameter_read {
    static constexpr const char* name = "as_variable";
};

template <class Storage, class T, int Rank>
struct parameter_read_record {
    using operation = as_variable_operation;
    parameter<Storage, Rank> source;
    gradient_of<T, Rank> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        using accumulate = typename Storage::accumulate;
        if (const auto to = tape.gradient_target(source)) {
            const auto in = as_const(flatten(dy));
            const view<accumulate, 1> out(to.data, in.shape());
            if (to.mode == write_mode::overwrite) {
                map(
                    tape.device(), [](auto g) { return g; }, in, out);
            } else {
                map(
                    tape.device(), [](auto sum, auto g) { return sum + g; }, as_const(out), in, out);
            }
        }
    }
};

}  // namespace detail

/// The result of ht::transposed: a variable that a product reads with its last two axes exchanged, without a copy.
template <class T, int Rank>
class transposed_variable {
  public:
    explicit transposed_variable(const variable<T, Rank>& v) : stored_(v) {}
    /// The variable itself, not transposed.
    const variable<T, Rank>& stored() const { return stored_; }
    /// The shape with the last two axes exchanged.
    halftone::shape<Rank> shape() const {
        halftone::shape<Rank> s = stored_.shape();
        std::swap(s[Rank - 1], s[Rank - 2]);
        return s;
    }

  private:
    variable<T, Rank> stored_;
};

/// x with its last two axes exchanged, as an operand of ht::matmul: ht::matmul(ctx, q, ht::transposed(k)). Nothing is
/// copied, forward or backward; ht::transpose(ctx, x, ht::axes<-1, -2>) is a variable for all other operations. Source:
/// torch.Tensor.mT.
template <class T, int Rank>
transposed_variable<T, Rank> transposed(const variable<T, Rank>& x) {
    static_assert(Rank >= 2, "halftone: a transpose needs at least two axes");
    return transposed_variable<T, Rank>(x);
}
/// x itself.
template <class T, int Rank>
variable<T, Rank> transposed(const transposed_variable<T, Rank>& x) {
    return x.stored();
}

namespace detail {

template <orientation OfA, orientation OfB, class As, class Context, class A, class B, int Rank>
auto multiply_matrices(Context&& context, const variable<A, Rank>& a, shape<Rank> sa, const variable<B, Rank>& b,
                       shape<Rank> sb) {
    using roles = product_roles<As, Context, op::matmul, A, B>;
    using Y = typename roles::output;
    auto& root = context.root();
    for (int i = 0; i < Rank - 2; ++i) {
        if (sa[i] != sb[i]) fail<shape_error>("matmul: the leading extents differ: a is ", sa, ", b is ", sb);
    }
    const auto range = root.template range<policy_of<Context>>(op::matmul::name);
    const bool wanted = wants_gradient(a, b);
    auto y = root.template make<Y>(with_last(sa, sb[Rank - 1]), wanted);
    const auto left = matrices_read<OfA>(as_const(a.view()));
    const auto right = matrices_read<OfB>(as_const(b.view()));
    const auto out = as_matrices(y.view());
    products<typename roles::compute, Rank>(root.device(), left, right, out, write_mode::overwrite);
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) {
            root.record(matmul_record<roles, A, B, Y, Rank, OfA, OfB>{
                b.wants_gradient() ? a : variable<A, Rank>{}, a.wants_gradient() ? b : variable<B, Rank>{},
                gradient_of(a), gradient_of(b), gradient_of(y)});
        }
    }
    return y;
}

template <class V>
struct matmul_operand {
    static constexpr bool is_operand = false;
};
template <class T, int Rank>
struct matmul_operand<variable<T, Rank>> {
    static constexpr bool is_operand = true;
    static constexpr orientation turned = orientation::straight;
    static constexpr int rank = Rank;
    static const variable<T, Rank>& stored(const variable<T, Rank>& v) { return v; }
};
template <class T, int Rank>
struct matmul_operand<transposed_variable<T, Rank>> {
    static constexpr bool is_operand = true;
    static constexpr orientation turned = orientation::transposed;
    static constexpr int rank = Rank;
    static const variable<T, Rank>& stored(const transposed_variable<T, Rank>& v) { return v.stored(); }
};

}  // namespace detail

/// The product ab. a: (…, m, k) and b: (…, k, n) with the same leading axes, one product for each index along these; or
/// b: (k, n), one product for all rows of a. Each is a variable, or ht::transposed(variable), whose last two axes are
/// exchanged. Throws shape_error.
template <class As = by_category, recording_context Context, class A, class B>
    requires(detail::matmul_operand<A>::is_operand && detail::matmul_operand<B>::is_operand)
auto matmul(Context&& context, const A& a, const B& b) {
    using of_a = detail::matmul_operand<A>;
    using of_b = detail::matmul_operand<B>;
    constexpr int Rank = of_a::rank, Other = of_b::rank;
    static_assert(Rank >= 2 && (Other == Rank || Other == 2),
                  "halftone: matmul of variables takes matrices, (..., m, k) and (..., k, n) of one rank, or (..., m, "
                  "k) and (k, n); dot multiplies vectors");
    static_assert(Other == Rank || of_a::turned == detail::orientation::straight,
                  "halftone: matmul of ht::transposed(a) and one matrix for all of a's: their rows are not those of one "
                  "matrix in memory; ht::transpose(ctx, a, ht::axes<-2, -1>) makes a contiguous copy");
    const shape<Rank> sa = a.shape();
    const shape<Other> sb = b.shape();
    if (sa[Rank - 1] != sb[Other - 2]) {
        fail<shape_error>("matmul: the inner extents differ: a is ", sa, ", b is ", sb, "; b needs ", sa[Rank - 1],
                          " rows");
    }
    if constexpr (Rank != Other) {
        // The rows of all leading axes form one matrix.
        extent rows = 1;
        for (int i = 0; i < Rank - 1; ++i) rows *= sa[i];
        return reshape(context, matmul<As>(context, reshape(context, of_a::stored(a), shape<2>{rows, sa[Rank - 1]}), b),
                       detail::with_last(sa, sb[1]));
    } else {
        return detail::multiply_matrices<of_a::turned, of_b::turned, As>(context, of_a::stored(a), sa, of_b::stored(b),
                                                                         sb);
    }
}

/// x weightᵀ + bias. x: (…, in), weight: (out, in), bias: (out), optional; weight and bias are each a variable or a
/// parameter of a store. Throws shape_error.
template <class As = by_category, recording_context Context, class X, int Rank, detail::weight_of_rank<2> Weight>
auto linear(Context&& context, const variable<X, Rank>& x, const Weight& weight) {
    return detail::free_linear<As>(context, x, weight, absent{});
}
template <class As = by_category, recording_context Context, class X, int Rank, detail::weight_of_rank<2> Weight,
          detail::weight_of_rank<1> Bias>
    requires detail::type_choice<As>
auto linear(Context&& context, const variable<X, Rank>& x, const Weight& weight, const Bias& bias) {
    return detail::free_linear<As>(context, x, weight, bias);
}

/// A parameter as a variable of type T, by default the master's, or the copy's if float does not hold the master; its gradient goes
/// to the accumulator. Nothing is copied: the variable is a view of the store's master or copy.
template <class T = by_category, recording_context Context, class Storage, int Rank>
auto as_variable(Context&& context, const parameter<Storage, Rank>& p) {
    using param = typename Storage::param;
    using readable = std::conditional_t<wide_number<param>, typename Storage::compute, param>;
    using asked = std::conditional_t<std::is_same_v<T, by_category>, readable, T>;
    using type = typename detail::hook_of<Context>::template parameter_type<asked, Storage>;
    static_assert(std::is_same_v<type, readable> || std::is_same_v<type, typename Storage::compute>,
                  "halftone: as_variable: the store keeps this parameter in the types of its roles `param` and "
                  "`compute`; take one of them, and ht::cast<T>(ctx, ht::as_variable(ctx, p)) for another");
    using record = detail::parameter_read_record<Storage, type, Rank>;
    auto& root = context.root();
    const_view<type, Rank> values;
    if constexpr (std::is_same_v<type, typename Storage::compute>) {
        values = p.values();
    } else {
        values = detail::whole_master(p);
    }
    const bool wanted = !p.is_frozen();
    auto y = root.template make_over<policy_of<Context>>(record::operation::name, values, wanted);
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted) root.record(record{p, gradient_of(y)});
    }
    return y;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
