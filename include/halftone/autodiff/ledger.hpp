// SPDX-License-Identifier: MIT
/// \file
/// The precision ledger (policy/ledger.hpp) of what really happens: the forward pass runs once on a tape that keeps
/// nothing but the types that operations were called with, and those that their backward passes would run in.
///
///     ht::tape recorder{device, ht::ledger_of_calls};
///     model.loss(recorder, batch);                        // any code that takes a context
///     ht::print_ledger(std::cout, recorder.entries());
///     if (recorder.casts() > 12) ...
///
/// Blocks of a list whose layers have one type stand there once, however many they are. What no gradient flows through
/// is in no record, and so not here. Of an operation of the user's own (apply.hpp) it is known what its inputs are cast
/// to and what it gives; its backward function is taken to work in the same type. A record of the user's own making is
/// named, with "?" for types.
#pragma once

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include <halftone/autodiff/apply.hpp>
#include <halftone/autodiff/attention.hpp>
#include <halftone/autodiff/dropout.hpp>
#include <halftone/autodiff/embedding.hpp>
#include <halftone/autodiff/linear.hpp>
#include <halftone/autodiff/loss.hpp>
#include <halftone/autodiff/matmul.hpp>
#include <halftone/autodiff/norm.hpp>
#include <halftone/autodiff/reduce.hpp>
#include <halftone/autodiff/softmax.hpp>
#include <halftone/policy/ledger_table.hpp>

namespace halftone::inline HALFTONE_ABI {

/// Marks a tape that keeps types alone: ht::tape recorder{device, ht::ledger_of_calls}.
struct ledger_tape {};
inline constexpr ledger_tape ledger_of_calls{};

namespace detail::ledger {

/// The lines of a record: of the operation whose backward pass it would be.
template <class Record>
struct of_record {
    static std::array<ledger_entry, 1> lines() {
        return {ledger_entry{Record::operation::name, ledger_pass::forward, "?", "?", "?"}};
    }
};

/// What is known of a weight: how a parameter is stored, or the type of a variable in its place.
template <class Weight>
struct weight_storage {
    using param = typename Weight::compute;
    using compute = typename Weight::compute;
    using accumulate = typename Weight::compute;
};
template <class Storage, int Rank>
struct weight_storage<parameter<Storage, Rank>> : Storage {};

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct of_record<linear_record<Roles, X, Y, Rank, Weight, Bias>> {
    static auto lines() { return linear<Roles, X, Y, weight_storage<Weight>>(op::linear::name); }
};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct of_record<scaled_linear_record<Roles, X, Y, Rank, Weight, Bias>> {
    static auto lines() { return linear<Roles, X, Y, typename Weight::storage>(op::linear::name); }
};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct of_record<mlp_record<Roles, X, Y, Rank, Weight, Bias>> {
    static auto lines() { return mlp<Roles, X, Y, typename Weight::storage>(op::mlp::name); }
};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct of_record<scaled_mlp_record<Roles, X, Y, Rank, Weight, Bias>> {
    static auto lines() { return mlp<Roles, X, Y, typename Weight::storage>(op::mlp::name); }
};
template <class X, class Y, int Rank, class Gain, class Bias>
struct of_record<layer_norm_record<X, Y, Rank, Gain, Bias>> {
    static auto lines() { return rows<promote<float, X, Y>, X, Y>(op::layer_norm::name); }
};
template <class X, class Y, int Rank, class Gain>
struct of_record<rms_norm_record<X, Y, Rank, Gain>> {
    static auto lines() { return rows<promote<float, X, Y>, X, Y>(op::rms_norm::name); }
};
template <class Y, class Table, class Positions>
struct of_record<embedding_record<Y, Table, Positions>> {
    static auto lines() { return embedding<Y, typename Table::storage>(op::embedding::name); }
};
template <class Roles, class T>
struct of_record<self_attention_record<Roles, T>> {
    static auto lines() {
        return attention<typename Roles::compute, typename Roles::input_grad, T>(op::attention::name);
    }
};
template <class Roles, class T>
struct of_record<attention_record<Roles, T>> {
    static auto lines() {
        return attention<typename Roles::compute, typename Roles::input_grad, T>(op::attention::name);
    }
};
template <class Roles, class X, int Rank, class Weight>
struct of_record<linear_cross_entropy_record<Roles, X, Rank, Weight>> {
    static auto lines() {
        return linear_cross_entropy<Roles, X, typename Weight::storage>(op::linear_cross_entropy::name);
    }
};
template <class X, int Rank>
struct of_record<cross_entropy_record<X, Rank>> {
    static auto lines() { return rows<promote<float, X>, X, promote<float, X>>(op::cross_entropy::name); }
};
/// Softmax reads what it gave, not what it was given, once more.
template <class Op, template <class> class Kernel, class X, class Y, int Rank>
struct of_record<softmax_record<Op, Kernel, X, Y, Rank>> {
    static std::array<ledger_entry, 2> lines() {
        using In = promote<float, X, Y>;
        return {entry<In, Y>(Op::name, ledger_pass::forward, operand<X, In>("x")),
                entry<In, X>(Op::name, ledger_pass::input_gradient, operand<Y, In>("y"), operand<Y, In>("dy"))};
    }
};

// ---- element by element

inline constexpr const char* operand_names[] = {"a", "b", "c"};

/// Lists operands, as many as a line has room for.
struct operand_list {
    ledger_operand* next;
    ledger_operand* end;

    explicit operand_list(ledger_entry& e, int first = 0)
        : next(e.operands + first), end(e.operands + ledger_entry::most_operands) {}
    void add(const ledger_operand& o) {
        if (next != end) *next++ = o;
    }
};

/// The type of the registers in which Op computes element by element. Where its category says fp32, reading others is a
/// cast; else it is what its inputs meet in.
template <class Op, class... Inputs>
using element_type = std::conditional_t<computes_by_rows<Op>, promote<float, Inputs...>, promote<Inputs...>>;

/// Which inputs all gradients read: one map computes them.
template <class Expression, class... Inputs>
struct read_by_map {
    template <std::size_t I, std::size_t>
    static constexpr bool value = kept_inputs<Expression, Inputs...>::template keeps<I>();
};
/// Which inputs the gradient of the By-th reads.
template <class Expression, class... Inputs>
struct read_by_each {
    template <std::size_t I, std::size_t By>
    static constexpr bool value =
        reads<static_cast<int>(I), decltype(derivative<static_cast<int>(By)>(std::declval<Expression>()))>;
};
struct reads_nothing {
    template <std::size_t, std::size_t>
    static constexpr bool value = false;
};

/// The forward pass, and a gradient for each input.
template <class Op, class In, class Reads, class Y, class... Inputs>
std::vector<ledger_entry> by_element() {
    using list = std::tuple<Inputs...>;
    std::vector<ledger_entry> lines{entry<In, Y>(Op::name, ledger_pass::forward, {})};
    operand_list forward(lines[0]);
    int i = 0;
    (forward.add(operand<Inputs, In>(operand_names[i < 2 ? i++ : 2])), ...);
    const auto gradient = [&]<std::size_t By, std::size_t... I>(std::index_sequence<By>, std::index_sequence<I...>) {
        ledger_entry e =
            entry<In, std::tuple_element_t<By, list>>(Op::name, ledger_pass::input_gradient, operand<Y, In>("dy"));
        operand_list read(e, 1);
        const auto see = [&](bool is_read, const ledger_operand& o) {
            if (is_read) read.add(o);
        };
        (see(Reads::template value<I, By>, operand<std::tuple_element_t<I, list>, In>(operand_names[I < 2 ? I : 2])),
         ...);
        lines.push_back(e);
    };
    [&]<std::size_t... By>(std::index_sequence<By...> all) { (gradient(std::index_sequence<By>{}, all), ...); }
    (std::index_sequence_for<Inputs...>{});
    return lines;
}
template <class Op, class Expression, class Y, int Rank, class... Inputs>
struct of_record<map_record<Op, Expression, Y, Rank, Inputs...>> {
    static auto lines() {
        return by_element<Op, element_type<Op, typename Inputs::value_type...>, read_by_map<Expression, Inputs...>, Y,
                          typename Inputs::value_type...>();
    }
};
template <class Op, class Expression, class Y, class... Inputs>
struct of_record<reduce_record<Op, Expression, Y, Inputs...>> {
    static auto lines() {
        return by_element<Op, element_type<Op, typename Inputs::value_type...>, read_by_each<Expression, Inputs...>, Y,
                          typename Inputs::value_type...>();
    }
};
/// Copied, whole or in part.
template <class Op, class Y, int Rank, class... Inputs>
struct of_record<join_record<Op, Y, Rank, Inputs...>> {
    static auto lines() {
        return by_element<Op, element_type<Op, typename Inputs::value_type...>, reads_nothing, Y,
                          typename Inputs::value_type...>();
    }
};
/// A residual is added where it lies.
template <class X, class Y, int Rank>
struct of_record<dropout_record<X, Y, Rank>> {
    static auto lines() { return by_element<op::dropout, X, reads_nothing, Y, X>(); }
};

// ---- operations of the user's own

/// An input of apply: what has its type, where its gradient goes, and in which type it lies there.
template <class Destination, class To>
struct apply_input;
template <class T, int Rank, class To>
struct apply_input<gradient_of<T, Rank>, To> {
    using stored = T;
    using gradient = T;
    static constexpr ledger_pass pass = ledger_pass::input_gradient;
};
template <class Storage, int Rank, class To>
struct apply_input<parameter<Storage, Rank>, To> {
    using stored = std::conditional_t<std::is_same_v<To, typename Storage::compute>, To, typename Storage::param>;
    using gradient = typename Storage::accumulate;
    static constexpr ledger_pass pass = ledger_pass::weight_gradient;
};
/// What is cast is handed over as To; fp64 is not cast.
template <class To, class T>
using handed = std::conditional_t<std::is_void_v<To> || is_fp64<T>, T, To>;

template <class Op, class Y, int Rank, class Kept, class To, class... Destinations>
struct of_record<apply_record<Op, Y, Rank, Kept, std::tuple<Destinations...>, To>> {
    static std::vector<ledger_entry> lines() {
        using In = promote<handed<To, typename apply_input<Destinations, To>::stored>...>;
        std::vector<ledger_entry> all{entry<In, Y>(Op::name, ledger_pass::forward, {})};
        operand_list list(all[0]);
        int i = 0;
        const auto see = [&]<class D>(std::type_identity<D>) {
            using stored = typename apply_input<D, To>::stored;
            list.add(operand<stored, handed<To, stored>>(operand_names[i < 2 ? i++ : 2]));
            all.push_back(entry<In, typename apply_input<D, To>::gradient>(Op::name, apply_input<D, To>::pass,
                                                                           operand<Y, Y>("dy")));
        };
        (see(std::type_identity<Destinations>{}), ...);
        return all;
    }
};

// ---- products of variables, and parameters as variables

template <class Roles, class A, class B, class Y, int Rank>
struct of_record<matmul_record<Roles, A, B, Y, Rank>> {
    static std::array<ledger_entry, 3> lines() {
        using C = typename Roles::compute;
        using I = typename Roles::input_grad;
        constexpr const char* name = op::matmul::name;
        return {entry<C, Y>(name, ledger_pass::forward, operand<A, C>("a"), operand<B, C>("b")),
                entry<I, A>(name, ledger_pass::input_gradient, operand<Y, I>("dy"), operand<B, I>("b")),
                entry<I, B>(name, ledger_pass::input_gradient, operand<A, I>("a"), operand<Y, I>("dy"))};
    }
};
template <class Storage, class T, int Rank>
struct of_record<parameter_read_record<Storage, T, Rank>> {
    using op = typename parameter_read_record<Storage, T, Rank>::operation;
    static std::array<ledger_entry, 2> lines() {
        return {entry<T, T>(op::name, ledger_pass::forward, operand<T, T>("parameter")),
                entry<T, typename Storage::accumulate>(op::name, ledger_pass::weight_gradient, operand<T, T>("dy"))};
    }
};

}  // namespace detail::ledger

template <class Device>
class tape<Device, ledger_tape> : public basic_context<Device, recording::on> {
    using base = basic_context<Device, recording::on>;

  public:
    static constexpr bool names_layers = true;

    explicit tape(Device& device, ledger_tape = ledger_of_calls) : base(device) {}
    tape& root() { return *this; }

    /// What was called since the tape was made or cleared, in that order; what was called again with the same types
    /// once.
    const std::vector<ledger_entry>& entries() const { return entries_; }
    int casts() const {
        int n = 0;
        for (const ledger_entry& e : entries_) n += e.casts();
        return n;
    }
    void clear() { entries_.clear(); }

    // ---- for operations

    template <class Where = void>
    halftone::range range(const char* operation) {
        place_ = "-";
        if constexpr (requires { typename Where::layer; }) {
            using layer = typename Where::layer;
            if (path_of<layer>.size() != 0) place_ = detail::ledger::place_text<layer>.data;
        }
        return base::range(operation);
    }
    /// Drops the record: nothing is kept for a backward pass.
    template <class Record>
    void record(Record&&) {
        for (ledger_entry e : detail::ledger::of_record<std::remove_cvref_t<Record>>::lines()) {
            e.path = place_;
            if (std::find(entries_.begin(), entries_.end(), e) == entries_.end()) entries_.push_back(e);
        }
        place_ = "-";
    }
    class list_scope {  // layers of one type stand in the ledger once
      public:
        list_scope(tape&, const path_name&, int) {}
        list_scope(const list_scope&) = delete;
        list_scope& operator=(const list_scope&) = delete;
    };

  private:
    const char* place_ = "-";
    std::vector<ledger_entry> entries_;
};
template <class Device>
tape(Device&, ledger_tape) -> tape<Device, ledger_tape>;

}  // namespace halftone::inline HALFTONE_ABI
