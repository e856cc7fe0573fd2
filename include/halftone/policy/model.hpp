// SPDX-License-Identifier: MIT
/// \file
/// A model as types: its layers, their paths, the types in which their parameters are stored, and whether a recipe's
/// rules name layers that exist. All of it is known at compile time, without an object of the model.
///
/// A model states:
///
///     template <class P>
///     struct block {                               // a container needs no `policy`: the paths of its layers name it
///         ht::nn::layer_norm<ht::at<P, "norm">> norm;
///         ht::nn::linear<ht::at<P, "fc">> fc;
///         static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.fc); }
///     };
///
/// and a layer states:
///
///     using policy = P;                                          // P is at<..., "the layer's name">
///     using operation = ht::op::linear;                          // its category decides the types it computes in
///     static constexpr bool owns_parameters = true;              // it has parameters itself, not only its children
///
/// A container whose layers are not members (a list whose length is known at run time) names their types: `using
/// children = ht::types<...>`.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <halftone/config.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/policy/category.hpp>
#include <halftone/policy/path.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/policy/types.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// A function object for `visit` that returns the types of the children.
struct collector {
    /// The types of the layers that `visit` passes.
    template <class... Ts>
    constexpr types<std::remove_cvref_t<Ts>...> operator()(Ts&&...) const {
        return {};
    }
};

}  // namespace detail

/// Has a policy, and therefore a path.
template <class M>
concept layer = requires {
    typename M::policy;
};

/// A layer with parameters of its own.
template <class M>
concept parameter_owner = layer<M> && requires {
    requires M::owns_parameters;
};

namespace detail {

template <class T>
inline constexpr bool is_types = false;
template <class... Ts>
inline constexpr bool is_types<types<Ts...>> = true;

template <class M>
concept visitable = requires(M& model) {
    M::visit(model, collector{});
};

template <class M>
struct children {
    using type = types<>;
};
template <visitable M>
struct children<M> {
    using type = decltype(M::visit(std::declval<M&>(), collector{}));
    static_assert(is_types<type>,
                  "halftone: visit must call f once, with all children, and return what it returns: "
                  "static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.fc); }");
};
template <class M>
    requires requires { typename M::children; }
struct children<M> {
    using type = typename M::children;
};

template <class M>
struct layers;
template <class List>
struct layers_below;
template <class... Ms>
struct layers_below<types<Ms...>> {
    using type = concatenate_t<typename layers<Ms>::type...>;
};
template <class M>
struct layers : layers_below<typename children<M>::type> {};
template <layer M>
struct layers<M> {
    using type = concatenate_t<types<M>, typename layers_below<typename children<M>::type>::type>;
};

}  // namespace detail

/// The types of a model's children, as types<...>.
template <class Model>
using children_of = typename detail::children<Model>::type;

/// Every layer of a model, itself included, parents before children, as types<...>.
template <class Model>
using layers_of = typename detail::layers<Model>::type;

namespace detail {

template <class L>
struct operation {
    using type = void;
};
template <class L>
    requires requires { typename L::operation; }
struct operation<L> {
    using type = typename L::operation;
};

template <class P, class Op>
struct weight_compute {
    using type = compute_type<P, Op>;
};
template <class P>
struct weight_compute<P, void> {
    using type = typename resolve<P>::compute;
};

template <class... Ls>
constexpr bool any_matches(const path_name& pattern, types<Ls...>) {
    return (path_matches(pattern, path_of<typename Ls::policy>) || ...);
}

template <class... Ls>
struct paths {
    // One more than the number of layers, and empty, so that a model without layers is not an array of length zero.
    static constexpr path_name value[sizeof...(Ls) + 1]{path_of<typename Ls::policy>..., path_name{}};
};

}  // namespace detail

/// The operation of a layer, void where it names none.
template <class Layer>
using operation_of = typename detail::operation<Layer>::type;

namespace detail {

/// A layer whose result is the residual stream, in the role `stream`, as it says with `static constexpr bool gives_stream =
/// true`: an embedding, or the norm of a post-norm block.
template <class L>
concept stream_giving = requires {
    requires L::gives_stream;
};

/// The operation that a layer computes, where its `operation` only says how its parameters are stored (for a tied
/// parameter, say): `using computes = op::embedding;`.
template <class L>
struct computed_by {
    using type = operation_of<L>;
};
template <class L>
    requires requires { typename L::computes; }
struct computed_by<L> {
    using type = typename L::computes;
};

}  // namespace detail

/// How a parameter is stored. Parameters of equal storage<...> are kept side by side in one group of the store.
template <number Param, number Compute, number Accumulate, number State, rounding ParamRounding,
          rounding CopyRounding = rounding::nearest_even, master_layout Masters = master_layout::whole,
          number Reduce = Accumulate>
struct storage {
    using param = Param;            ///< the master
    using compute = Compute;        ///< the copy that kernels read; the same type as the master: no copy
    using accumulate = Accumulate;  ///< the gradient buffer
    using state = State;            ///< each moment
    using reduce = Reduce;          ///< gradients as they are sent between ranks; the same type: as they are
    static constexpr rounding param_rounding = ParamRounding;
    static constexpr rounding copy_rounding = CopyRounding;
    static constexpr bool is_split = Masters == master_layout::split;
    using master = std::conditional_t<is_split, bfloat16_remainder, Param>;  ///< the type in the slab of masters
};

/// How the weight of a linear layer is stored whose copy is in blocks of a format (number/block_format.hpp); Dense is what it would
/// be otherwise, and its `compute` the type as which products read the numbers by default.
template <class Dense, class Format>
struct coded_storage : Dense {
    using format = Format;
};
/// A storage whose copy is in blocks of a format.
template <class Storage>
concept coded = requires {
    typename Storage::format;
};

namespace detail {

/// How an embedding's table is stored whose gradient is sparse: the rows that were looked up
/// (memory/gradient_rows.hpp).
template <class Dense>
struct sparse_storage : Dense {};

}  // namespace detail

/// Whether the gradient of a parameter with this storage is sparse.
template <class Storage>
inline constexpr bool has_sparse_gradient = false;
template <class Dense>
inline constexpr bool has_sparse_gradient<detail::sparse_storage<Dense>> = true;

namespace detail {

template <class Op, class Storage>
struct storage_for {
    using type = Storage;
};
template <class Op, class Storage>
    requires requires { requires Op::gradient_is_sparse; }
struct storage_for<Op, Storage> {
    using type = sparse_storage<Storage>;
};

/// The type in which gradients in buffers of type Accumulate travel, where the policy says Reduce: Accumulate itself if
/// Reduce has all its numbers, and would only send zeros with them.
template <class Accumulate, class Reduce>
using wire_type = std::conditional_t<
    (number_traits<Reduce>::significand_bits >= number_traits<Accumulate>::significand_bits &&
     number_traits<Reduce>::max_exponent >= number_traits<Accumulate>::max_exponent &&
     number_traits<Reduce>::min_exponent <= number_traits<Accumulate>::min_exponent),
    Accumulate, Reduce>;

template <class P, class Op>
struct signature {
    using r = policy_within<P, as_given>;  // a layer that inherits its policy stores its parameters as full_fp32 does
    // 8-bit operands are made with each use from a copy in the type that all other operations read. So parameters can
    // be tied, and frozen ones need only their copy. Reading the copy also takes half the bytes of reading the master.
    using read = typename weight_compute<r, Op>::type;
    using copy = std::conditional_t<eight_bit<read>, typename r::output, storage_of<read>>;
    // Without a copy nothing is rounded, and no master can be split into a copy and a remainder.
    static constexpr bool is_copied = !std::is_same_v<typename r::param, copy>;
    static constexpr bool is_split = layout_of<r>() == master_layout::split &&
                                     std::is_same_v<typename r::param, float> && std::is_same_v<copy, bfloat16>;
    using type = storage<typename r::param, copy, typename r::accumulate, typename r::state, r::param_rounding,
                         is_copied ? copy_rounding_of<r>() : rounding::nearest_even,
                         is_split ? master_layout::split : master_layout::whole,
                         wire_type<typename r::accumulate, typename r::reduce>>;
};

/// How a layer's state is stored: as full_fp32 does, or as full_fp64 where that is the policy.
template <class P>
struct state_signature_of {
    static constexpr bool is_double = std::is_same_v<typename policy_within<P, as_given>::param, double>;
    using type = typename signature<std::conditional_t<is_double, full_fp64, full_fp32>, void>::type;
};

/// How the weight of a linear layer with policy P is stored.
template <class P, class Op>
struct weight_signature_of {
    using type = typename storage_for<Op, typename signature<P, Op>::type>::type;
};
template <class P, class Op>
    requires states_copy<policy_within<P, as_given>>
struct weight_signature_of<P, Op> {
    using r = policy_within<P, as_given>;
    static_assert(
        !eight_bit<compute_type<r, Op>>,
        "halftone: the weights of this layer are in blocks (role `copy`), from which no 8-bit operands are made; "
        "give it a `compute` of 16 bits: ht::with_copy<ht::pure_bf16, ht::nf4>");
    static_assert(layout_of<r>() == master_layout::whole,
                  "halftone: the weights of this layer are in blocks (role `copy`), which no split master has");
    using type = coded_storage<typename signature<P, Op>::type, typename r::copy>;
};

template <class L>
struct own_signature {
    using type = types<>;
};
template <parameter_owner L>
struct own_signature<L> {
    using type = types<
        typename storage_for<operation_of<L>, typename signature<typename L::policy, operation_of<L>>::type>::type>;
};
/// A linear layer's weight may be stored otherwise than its bias: using weight_storage = weight_signature<P, Op>.
template <parameter_owner L>
    requires requires { typename L::weight_storage; }
struct own_signature<L> {
    using type = types<
        typename L::weight_storage,
        typename storage_for<operation_of<L>, typename signature<typename L::policy, operation_of<L>>::type>::type>;
};
/// A layer that has a state in addition to its parameters says so: static constexpr bool owns_state = true.
template <parameter_owner L>
    requires requires { requires L::owns_state; }
struct own_signature<L> {
    using type = types<
        typename storage_for<operation_of<L>, typename signature<typename L::policy, operation_of<L>>::type>::type,
        typename state_signature_of<typename L::policy>::type>;
};

template <class Layers>
struct signatures;
template <class... Ls>
struct signatures<types<Ls...>> {
    using type = unique_t<concatenate_t<typename own_signature<Ls>::type...>>;
};

template <class Layers>
struct owners;
template <class... Ls>
struct owners<types<Ls...>> {
    using type = concatenate_t<std::conditional_t<parameter_owner<Ls>, types<Ls>, types<>>...>;
};

template <class... Ls>
constexpr bool any_needs_scaling(types<Ls...>) {
    return (needs_scaling<typename Ls::policy> || ...);
}

/// Whether a layer with policy P and operation Op has amax histories (memory/amax_history.hpp).
template <class P, class Op>
constexpr bool keeps_amaxes() {
    if constexpr (std::is_void_v<Op>) {
        return false;
    } else {
        using r = policy_within<P, as_given>;
        return eight_bit<compute_type<r, Op>> && scaling_of<r>::rule.history > 0;
    }
}
template <class... Ls>
constexpr bool any_keeps_amaxes(types<Ls...>) {
    return (keeps_amaxes<typename Ls::policy, operation_of<Ls>>() || ...);
}

}  // namespace detail

/// How the parameters of a layer with policy P and operation Op are stored. The operation matters: a norm under
/// amp_bf16 computes in fp32, so it reads its master and has no copy.
template <class P, class Op = void>
using storage_signature = typename detail::storage_for<Op, typename detail::signature<P, Op>::type>::type;

/// How the weight of a linear layer with policy P and operation Op is stored: as storage_signature has it, or in the blocks that the
/// policy's role `copy` names.
template <class P, class Op = void>
using weight_signature = typename detail::weight_signature_of<P, Op>::type;

/// How the state of a layer with policy P is stored, such as running statistics.
template <class P>
using state_signature = typename detail::state_signature_of<P>::type;

namespace detail {

/// The layers of a model that own parameters, as types<...>.
template <class Model>
using owners_of = typename owners<layers_of<Model>>::type;

}  // namespace detail

/// The distinct storage<...> of a model's parameters, in the order of its layers, as types<...>.
template <class Model>
using signatures_of = typename detail::signatures<layers_of<Model>>::type;

/// Whether some layer of the model needs a loss scale.
template <class Model>
inline constexpr bool model_needs_scaling = detail::any_needs_scaling(layers_of<Model>{});

namespace detail {

/// Whether some layer of the model scales its 8-bit operands by their history (delayed scaling).
template <class Model>
inline constexpr bool model_keeps_amaxes = detail::any_keeps_amaxes(detail::owners_of<Model>{});

}  // namespace detail

/// Whether a rule for Pattern names a layer of the model.
template <path_name Pattern, class Model>
inline constexpr bool names_a_layer = detail::any_matches(Pattern, layers_of<Model>{});

namespace detail {

/// Appears in the compiler's message, spelling the path character by character.
template <class PathText>
struct no_layer_at {};

template <class Where, bool Named>
struct rule_check {
    static_assert(Named,
                  "halftone: this rule's path names no layer of the model; the path stands in no_layer_at<...>; "
                  "ht::print_policies, for the model under a plain policy, lists the paths that exist");
};

template <class P, class Model>
struct recipe_check {};
template <class Default, class... Rules, class Model>
struct recipe_check<recipe<Default, Rules...>, Model>
    : rule_check<no_layer_at<spelled_path<at<void, Rules::pattern>>>, names_a_layer<Rules::pattern, Model>>... {};

}  // namespace detail

/// True, or a compile-time error for each rule of the recipe P that names no layer of the Model. Call it in the
/// constructor of the whole model: of a part of it, at<...>, the rules for the other parts would count as errors.
template <class P, class Model>
consteval bool check_recipe() {
    static_assert(sizeof(detail::recipe_check<P, Model>) > 0);
    return true;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
