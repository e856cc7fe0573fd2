// SPDX-License-Identifier: MIT
/// \file
/// The precision ledger (policy/ledger.hpp) of an actual run: the forward pass runs once on a tape that keeps only the
/// types with which operations were called, and those of their backward passes.
///
///     ht::tape recorder{device, ht::ledger_of_calls};
///     model.loss(recorder, batch);                        // any code that takes a context
///     ht::print_ledger(std::cout, recorder.entries());
///     if (recorder.casts() > 12) ...
///
/// Layers of a list that have one type are listed once. Passes that do not run, because an input is a constant or a
/// weight is frozen, are omitted; an operation without any gradient makes no record and is not listed. A free operation
/// is named by the layer called before it, as watched tapes do. Of a custom operation (autodiff/op/apply.hpp) the
/// ledger knows the types of its inputs, after casts, and of its result; its backward function is assumed to compute in
/// the same type. A user-defined record is listed with "?" for its types.
#pragma once

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include <halftone/autodiff/op/apply.hpp>
#include <halftone/autodiff/op/conv2d.hpp>
#include <halftone/autodiff/op/cross_entropy.hpp>
#include <halftone/autodiff/op/modified_attention.hpp>
#include <halftone/autodiff/op/channel_norm.hpp>
#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/embedding.hpp>
#include <halftone/autodiff/op/linear.hpp>
#include <halftone/autodiff/op/loss.hpp>
#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/autodiff/op/norm.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/softmax.hpp>
#include <halftone/observe/operations.hpp>
#include <halftone/policy/ledger_table.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The kind of a tape that keeps types only.
struct ledger_tape {};
/// Written as ht::tape recorder{device, ht::ledger_of_calls}.
inline constexpr ledger_tape ledger_of_calls{};

namespace detail::ledger {

/// The lines of the passes that run.
template <std::size_t N>
std::vector<ledger_entry> running(const std::array<ledger_entry, N>& all, const std::array<bool, N>& runs) {
    std::vector<ledger_entry> lines;
    for (std::size_t i = 0; i < N; ++i) {
        if (runs[i]) lines.push_back(all[i]);
    }
    return lines;
}
template <std::size_t N, class Record>
std::vector<ledger_entry> running_linear(const std::array<ledger_entry, N>& all, const Record& r) {
    return running(all, {true, r.dx.is_wanted(), !r.weight.is_frozen()});
}
/// If only operands after the activation take a gradient, nothing from before it is kept.
template <std::size_t N, class Record>
std::vector<ledger_entry> running_mlp(const std::array<ledger_entry, N>& all, const Record& r) {
    const bool passes_back = !r.pre.is_empty();
    return running(
        all, {true, true, passes_back, passes_back && r.dx.is_wanted(), !r.down.is_frozen(), passes_back && !r.up.is_frozen()});
}
/// The lines of a norm.
template <class X, class Y, class Storage, class Record>
std::array<ledger_entry, 2> running_rows(const char* op, const Record& r) {
    using In = promote<float, X, Y>;
    return r.dx.is_wanted() ? rows<In, X, Y>(op) : rows_of_constant<In, X, Y, Storage>(op);
}

/// The storage of a weight: that of a parameter, or the type of a variable in its place.
template <class Weight>
struct weight_storage {
    using param = typename Weight::compute;
    using compute = typename Weight::compute;
    using accumulate = typename Weight::compute;
};
template <class Storage, int Rank>
struct weight_storage<parameter<Storage, Rank>> : Storage {};

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct linear_lines<linear_record<Roles, X, Y, Rank, Weight, Bias>> {
    static auto lines(const linear_record<Roles, X, Y, Rank, Weight, Bias>& r) {
        return running_linear(linear<Roles, X, Y, weight_storage<Weight>>(op::linear::name), r);
    }
};
template <class Roles, class X, class Y, class Weight, class Bias>
struct linear_lines<conv2d_record<Roles, X, Y, Weight, Bias>> {
    static auto lines(const conv2d_record<Roles, X, Y, Weight, Bias>& r) {
        return running_linear(linear<Roles, X, Y, weight_storage<Weight>>(op::conv2d::name), r);
    }
};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct linear_lines<scaled_linear_record<Roles, X, Y, Rank, Weight, Bias>> {
    static auto lines(const scaled_linear_record<Roles, X, Y, Rank, Weight, Bias>& r) {
        return running_linear(linear<Roles, X, Y, typename Weight::storage>(op::linear::name), r);
    }
};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct mlp_lines<mlp_record<Roles, X, Y, Rank, Weight, Bias>> {
    static auto lines(const mlp_record<Roles, X, Y, Rank, Weight, Bias>& r) {
        return running_mlp(mlp<Roles, X, Y, typename Weight::storage>(op::mlp::name), r);
    }
};
template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct mlp_lines<scaled_mlp_record<Roles, X, Y, Rank, Weight, Bias>> {
    static auto lines(const scaled_mlp_record<Roles, X, Y, Rank, Weight, Bias>& r) {
        return running_mlp(mlp<Roles, X, Y, typename Weight::storage>(op::mlp::name), r);
    }
};
template <class X, class Y, int Rank, class Gain, class Bias>
struct norm_lines<layer_norm_record<X, Y, Rank, Gain, Bias>> {
    static auto lines(const layer_norm_record<X, Y, Rank, Gain, Bias>& r) {
        return running_rows<X, Y, typename Gain::storage>(op::layer_norm::name, r);
    }
};
template <class X, class Y, int Rank, class Gain>
struct norm_lines<rms_norm_record<X, Y, Rank, Gain>> {
    static auto lines(const rms_norm_record<X, Y, Rank, Gain>& r) {
        return running_rows<X, Y, typename Gain::storage>(op::rms_norm::name, r);
    }
};
/// Norms of images: the type of gain's and bias's gradients is the record's.
template <class Record>
struct channel_storage {
    using accumulate = typename Record::types::gradient;
};
template <class Op, class X, class Y, class Gain, class Bias>
struct norm_lines<channel_norm_record<Op, X, Y, Gain, Bias>> {
    using record = channel_norm_record<Op, X, Y, Gain, Bias>;
    static auto lines(const record& r) { return running_rows<X, Y, channel_storage<record>>(Op::name, r); }
};
template <class Y, class Table, class Positions>
struct embedding_lines<embedding_record<Y, Table, Positions>> {
    static auto lines(const embedding_record<Y, Table, Positions>&) {
        return embedding<Y, typename Table::storage>(op::embedding::name);
    }
};
template <class Roles, class T>
struct attention_lines<self_attention_record<Roles, T>> {
    static auto lines(const self_attention_record<Roles, T>&) {
        return attention<typename Roles::compute, typename Roles::input_grad, T>(op::attention::name);
    }
};
template <class Roles, class T>
struct attention_lines<attention_record<Roles, T>> {
    static auto lines(const attention_record<Roles, T>&) {
        return attention<typename Roles::compute, typename Roles::input_grad, T>(op::attention::name);
    }
};
template <class Roles, class T, class E>
struct attention_lines<modified_attention_record<Roles, T, E>> {
    static auto lines(const modified_attention_record<Roles, T, E>&) {
        return attention<typename Roles::compute, typename Roles::input_grad, T>(op::attention::name);
    }
};
template <class Roles, class T, class E>
struct attention_lines<modified_self_attention_record<Roles, T, E>> {
    static auto lines(const modified_self_attention_record<Roles, T, E>&) {
        return attention<typename Roles::compute, typename Roles::input_grad, T>(op::attention::name);
    }
};
template <class Roles, class X, int Rank, class Weight>
struct linear_cross_entropy_lines<linear_cross_entropy_record<Roles, X, Rank, Weight>> {
    static auto lines(const linear_cross_entropy_record<Roles, X, Rank, Weight>& r) {
        return running(
            linear_cross_entropy<Roles, X, typename Weight::storage>(op::linear_cross_entropy::name),
            {true, r.logits.is_empty() && r.weight_sums.is_empty(), r.dx.is_wanted(), !r.weight.is_frozen()});
    }
};
/// The lines of a linear cross-entropy with options, whose logits are never kept.
template <class Roles, class X, int Rank, class Weight>
struct linear_cross_entropy_lines<weighted_linear_cross_entropy_record<Roles, X, Rank, Weight>> {
    static auto lines(const weighted_linear_cross_entropy_record<Roles, X, Rank, Weight>& r) {
        return running(linear_cross_entropy<Roles, X, typename Weight::storage>(op::linear_cross_entropy::name),
                       {true, true, r.dx.is_wanted(), !r.weight.is_frozen()});
    }
};
template <class X, int Rank>
struct cross_entropy_lines<cross_entropy_record<X, Rank>> {
    static auto lines(const cross_entropy_record<X, Rank>&) {
        return rows<promote<float, X>, X, promote<float, X>>(op::cross_entropy::name);
    }
};
template <class X, int Rank, int LossRank>
struct cross_entropy_lines<weighted_cross_entropy_record<X, Rank, LossRank>> {
    static auto lines(const weighted_cross_entropy_record<X, Rank, LossRank>&) {
        return rows<promote<float, X>, X, promote<float, X>>(op::cross_entropy::name);
    }
};
/// The gradient of softmax reads the result again, not the input.
template <class Op, template <class> class Kernel, class X, class Y, int Rank>
struct softmax_lines<softmax_record<Op, Kernel, X, Y, Rank>> {
    static std::array<ledger_entry, 2> lines(const softmax_record<Op, Kernel, X, Y, Rank>&) {
        using In = promote<float, X, Y>;
        return {entry<In, Y>(Op::name, ledger_pass::forward, operand<X, In>("x")),
                entry<In, X>(Op::name, ledger_pass::input_gradient, operand<Y, In>("y"), operand<Y, In>("dy"))};
    }
};

// ---- pointwise operations

inline constexpr const char* operand_names[] = {"a", "b", "c"};

/// A list of operands, up to the number that a line has room for.
struct operand_list {
    ledger_operand* next;
    ledger_operand* end;

    explicit operand_list(ledger_entry& e, int first = 0)
        : next(e.operands + first), end(e.operands + ledger_entry::most_operands) {}
    void add(const ledger_operand& o) {
        if (next != end) *next++ = o;
    }
};

/// The type in which Op computes each element. If its category is fp32, reading other types is a cast; otherwise it is
/// the type to which its inputs promote.
template <class Op, class... Inputs>
using element_type = std::conditional_t<computes_by_rows<Op>, promote<float, Inputs...>, promote<Inputs...>>;

/// Which inputs of an operation take a gradient.
template <class... Gradients>
std::array<bool, sizeof...(Gradients)> wanted_of(const std::tuple<Gradients...>& gradients) {
    return std::apply([](const auto&... dx) { return std::array<bool, sizeof...(Gradients)>{dx.is_wanted()...}; },
                      gradients);
}

/// The forward pass, and a gradient for each input that takes one.
template <class Op, class In, class Reads, class Y, class... Inputs>
std::vector<ledger_entry> by_element(const std::array<bool, sizeof...(Inputs)>& is_wanted) {
    using list = std::tuple<Inputs...>;
    std::vector<ledger_entry> lines{entry<In, Y>(Op::name, ledger_pass::forward, {})};
    operand_list forward(lines[0]);
    int i = 0;
    (forward.add(operand<Inputs, In>(operand_names[i < 2 ? i++ : 2])), ...);
    const auto gradient = [&]<std::size_t By, std::size_t... I>(std::index_sequence<By>, std::index_sequence<I...>) {
        if (!is_wanted[By]) return;
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

/// The lines of a record with its operands' gradients in a tuple and `reads` (maps, reductions, joins): each operand's
/// type, and what each gradient reads.
template <class Record>
concept tells_reads = requires(const Record& r) {
    typename Record::reads;
    r.gradients;
    r.dy;
};
template <class Op, class Reads, class Y, int Rank, class... Inputs, int... Ranks>
auto lines_of_fields(const gradient_of<Y, Rank>&, const std::tuple<gradient_of<Inputs, Ranks>...>& inputs) {
    return by_element<Op, element_type<Op, Inputs...>, Reads, Y, Inputs...>(wanted_of(inputs));
}
/// As many inputs of one type as there are at run time.
template <class Op, class Reads, class Y, int Rank, class Input, int InputRank>
auto lines_of_fields(const gradient_of<Y, Rank>&, const std::vector<gradient_of<Input, InputRank>>& inputs) {
    const bool is_wanted = std::any_of(inputs.begin(), inputs.end(), [](const auto& dx) { return dx.is_wanted(); });
    return by_element<Op, element_type<Op, Input>, Reads, Y, Input>({is_wanted});
}
/// The lines of any other record, of which only the name is known.
template <class Record>
struct usual_lines {
    static auto lines(const Record& r) {
        if constexpr (tells_reads<Record>) {
            return lines_of_fields<typename Record::operation, typename Record::reads>(r.dy, r.gradients);
        } else {
            return std::array{ledger_entry{Record::operation::name, ledger_pass::forward, "?", "?", "?"}};
        }
    }
};
/// A residual is added in its own type.
template <class X, class Y, int Rank>
struct dropout_lines<dropout_record<X, Y, Rank>> {
    static auto lines(const dropout_record<X, Y, Rank>& r) {
        return by_element<op::dropout, X, reads_nothing, Y, X>({r.dx.is_wanted()});
    }
};

// ---- custom operations

/// An input of apply: its type, where its gradient is written, and in which type that is stored.
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
/// An input that is cast is passed as To; fp64 is not cast.
template <class To, class T>
using handed = std::conditional_t<std::is_void_v<To> || is_fp64<T>, T, To>;

template <class Op, class Y, int Rank, class Kept, class To, class Policy, class... Destinations>
struct usual_lines<apply_record<Op, Y, Rank, Kept, std::tuple<Destinations...>, To, Policy>> {
    using record = apply_record<Op, Y, Rank, Kept, std::tuple<Destinations...>, To, Policy>;

    static std::vector<ledger_entry> lines(const record& r) {
        using In = promote<handed<To, typename apply_input<Destinations, To>::stored>...>;
        std::vector<ledger_entry> all{entry<In, Y>(Op::name, ledger_pass::forward, {})};
        operand_list list(all[0]);
        int i = 0;
        const auto see = [&]<class D>(std::type_identity<D>) {
            using stored = typename apply_input<D, To>::stored;
            list.add(operand<stored, handed<To, stored>>(operand_names[i < 2 ? i : 2]));
            if ((r.wanted >> i++ & 1) == 0) return;
            all.push_back(entry<In, typename apply_input<D, To>::gradient>(Op::name, apply_input<D, To>::pass,
                                                                           operand<Y, Y>("dy")));
        };
        (see(std::type_identity<Destinations>{}), ...);
        return all;
    }
};

// ---- products of variables, and parameters as variables

template <class Roles, class A, class B, class Y, int Rank, orientation OfA, orientation OfB>
struct matmul_lines<matmul_record<Roles, A, B, Y, Rank, OfA, OfB>> {
    static auto lines(const matmul_record<Roles, A, B, Y, Rank, OfA, OfB>& r) {
        using C = typename Roles::compute;
        using I = typename Roles::input_grad;
        using W = typename Roles::weight_grad;
        constexpr const char* name = op::matmul::name;
        const std::array<ledger_entry, 3> all{
            entry<C, Y>(name, ledger_pass::forward, operand<A, C>("a"), operand<B, C>("b")),
            entry<I, A>(name, ledger_pass::input_gradient, operand<Y, I>("dy"), operand<B, I>("b")),
            entry<W, B>(name, ledger_pass::input_gradient, operand<A, W>("a"), operand<Y, W>("dy"))};
        return running(all, {true, r.da.is_wanted(), r.db.is_wanted()});
    }
};
template <class Storage, class T, int Rank>
struct parameter_lines<parameter_read_record<Storage, T, Rank>> {
    static std::array<ledger_entry, 2> lines(const parameter_read_record<Storage, T, Rank>&) {
        return {entry<T, T>(as_variable_operation::name, ledger_pass::forward, operand<T, T>("parameter")),
                entry<T, typename Storage::accumulate>(as_variable_operation::name, ledger_pass::weight_gradient,
                                                       operand<T, T>("dy"))};
    }
};

}  // namespace detail::ledger

namespace detail {

/// Stores the types with which records were made, and keeps no record.
class ledger_hook : public tape_hook {
  public:
    static constexpr bool keeps_records = false;
    static constexpr bool names_layers = true;

    using tape_hook::tape_hook;
    const std::vector<ledger_entry>& entries() const { return entries_; }

    template <class Where>
    void begin(const char*) {
        place_ = "-", after_ = latest_;
        if constexpr (requires { typename Where::layer; }) {
            using layer = typename Where::layer;
            if (path_of<layer>.size() != 0) place_ = latest_ = ledger::place_text<layer>.data, after_ = "";
        }
    }
    template <class Record>
    void record(const Record& r) {
        for (ledger_entry e : lines_of<Record>::lines(r)) {
            e.path = place_, e.after = after_;
            if (std::find(entries_.begin(), entries_.end(), e) == entries_.end()) entries_.push_back(e);
        }
        place_ = "-";
    }
    void forget() { entries_.clear(), latest_ = ""; }

  private:
    const char* place_ = "-";
    const char* after_ = "";
    const char* latest_ = "";  // the layer of the last operation that belongs to a layer
    std::vector<ledger_entry> entries_;
};

}  // namespace detail

/// A tape that computes as any other, keeps nothing for a backward pass, and stores the types of each operation called.
template <class Device>
class tape<Device, ledger_tape> : public detail::hooked_tape<Device, detail::ledger_hook> {
  public:
    explicit tape(Device& device, ledger_tape = ledger_of_calls)
        : detail::hooked_tape<Device, detail::ledger_hook>(device) {}

    /// The operations called since the tape was made or cleared, in order; repeated calls with the same types are
    /// listed once.
    const std::vector<ledger_entry>& entries() const { return this->hook().entries(); }
    /// How many operands of all entries are read in another type than they are stored in.
    int casts() const {
        int n = 0;
        for (const ledger_entry& e : entries()) n += e.casts();
        return n;
    }
};
template <class Device>
tape(Device&, ledger_tape) -> tape<Device, ledger_tape>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
