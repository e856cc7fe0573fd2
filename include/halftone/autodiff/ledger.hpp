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
/// Blocks of a list whose layers have one type stand there once, however many they are. An operation of the user's own
/// that states nothing about its types is named, with "?" for them.
#pragma once

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include <halftone/autodiff/attention.hpp>
#include <halftone/autodiff/embedding.hpp>
#include <halftone/autodiff/linear.hpp>
#include <halftone/autodiff/loss.hpp>
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

template <class Roles, class X, class Y, int Rank, class Weight, class Bias>
struct of_record<linear_record<Roles, X, Y, Rank, Weight, Bias>> {
    static auto lines() { return linear<Roles, X, Y, typename Weight::storage>(op::linear::name); }
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
    static auto lines() { return rows<float, X, Y>(op::layer_norm::name); }
};
template <class X, class Y, int Rank, class Gain>
struct of_record<rms_norm_record<X, Y, Rank, Gain>> {
    static auto lines() { return rows<float, X, Y>(op::rms_norm::name); }
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
    static auto lines() { return rows<float, X, float>(op::cross_entropy::name); }
};
template <class Op, template <class> class Kernel, class X, class Y, int Rank>
struct of_record<softmax_record<Op, Kernel, X, Y, Rank>> {
    static auto lines() { return rows<float, X, Y>(Op::name); }
};

/// What is done element by element has its numbers in float registers. Where the operation's category says fp32,
/// reading others is a cast; else it computes in the type that its inputs meet in.
template <class Op, class Y, class... Inputs>
std::array<ledger_entry, 2> by_element() {
    using In = std::conditional_t<computes_by_rows<Op>, promote<float, Inputs...>, promote<Inputs...>>;
    constexpr const char* names[] = {"a", "b", "c"};
    using First = std::tuple_element_t<0, std::tuple<Inputs...>>;
    ledger_entry forward = entry<In, Y>(Op::name, ledger_pass::forward, {});
    const ledger_entry backward = entry<In, First>(Op::name, ledger_pass::input_gradient, operand<Y, In>("dy"));
    int i = 0;
    const auto read = [&](const ledger_operand& o) {
        if (i < ledger_entry::most_operands) forward.operands[i] = o;
        ++i;
    };
    (read(operand<Inputs, In>(names[i < 3 ? i : 2])), ...);
    return {forward, backward};
}
template <class Op, class Expression, class Y, int Rank, class... Inputs>
struct of_record<map_record<Op, Expression, Y, Rank, Inputs...>> {
    static auto lines() { return by_element<Op, Y, typename Inputs::value_type...>(); }
};
template <class Op, class Expression, class Y, class... Inputs>
struct of_record<reduce_record<Op, Expression, Y, Inputs...>> {
    static auto lines() { return by_element<Op, Y, typename Inputs::value_type...>(); }
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
