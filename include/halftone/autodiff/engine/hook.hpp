// SPDX-License-Identifier: MIT
/// \file
/// The hook of a tape: the interface through which a diagnostic tool observes operations. Operations do not depend on
/// any tool, and a tool adds no code to any operation.
///
/// Operations make the following calls on the root of their context. A plain tape and an inference context have no hook
/// and do only the call's main work; a hooked_tape also calls the hook:
///
///     const auto range = root.template range<Where>(op::outer::name);    // an operation begins, and ends with the scope
///     auto y = root.template make<Y>(shape, wanted);                     // memory for a result; the first one is the result
///     auto y = root.template make_over<Where>(name, values, wanted);     // a result in existing memory
///     detail::read_scaled(root, x, q, scale, weight, tensor, rule);      // the operation reads q, x quantised to eight bits
///     Op::forward(body, detail::read<How>(root, make)...);               // a user's function reads an argument
///     root.record(outer_record<...>{...});                               // the operation is complete; `operation` is its tag
///     tape.gradient_target(dx); tape.give_gradient(value, dx);           // record.propagate(tape) gives a gradient
///
/// Operations ask two questions. One that may have nothing to do, such as a cast to the same type, asks whether it may
/// be skipped: `detail::leaves_out<Context>`. A layer that can be one operation or several asks which types decide:
/// `detail::chosen_by<P>` (nn/mlp.hpp).
///
/// A tool derives from tape_hook, whose functions do nothing, and redefines those that it needs. They are not virtual:
/// a function that a tool does not define costs nothing.
///
///     struct result_counter : ht::detail::tape_hook {
///         using tape_hook::tape_hook;
///         template <class T, int Rank>
///         void give(const ht::variable<T, Rank>& y, bool) { elements += y.size(); }
///         ht::extent elements = 0;
///     };
///     ht::detail::hooked_tape<ht::cpu, result_counter> tape{device};
///     model.loss(tape, batch);
///     std::cout << tape.hook().elements;
///
/// A tool's knowledge of single operations (error bounds, types) is in observe/operations.hpp, by the operation's kind.
#pragma once

#include <halftone/autodiff/engine/tape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// How a custom operation reads an operand: unchanged, or as a new variable, which was converted or made of
/// a parameter.
enum class reading { as_it_is, converted, parameter };

/// The base of hooks: each function does nothing. A hook is constructed with the tape that it belongs to.
struct tape_hook {
    static constexpr bool keeps_records = true;  ///< whether the tape keeps records and has a backward pass
    static constexpr bool names_layers = false;  ///< whether roles name their layer, and lists their index
    static constexpr bool leaves_out = true;     ///< whether operations that have nothing to do are skipped
    template <class P>
    using region_policy = P;  ///< the policy that replaces P in autocast<P>
    template <class T, class Storage>
    using parameter_type = T;  ///< the type that replaces T in as_variable<T>

    tape_hook() = default;
    template <class Tape>
    explicit tape_hook(Tape&) {}
    tape_hook(const tape_hook&) = delete;
    tape_hook& operator=(const tape_hook&) = delete;

    // ---- forward

    /// constant(), leaf() or to_device() has made a variable.
    template <class T, int Rank>
    void input(const variable<T, Rank>&) {}
    /// An operation of this name begins. Where: the roles of its layer, or the policy of its region.
    template <class Where>
    void begin(const char*) {}
    void end() {}
    /// Tells the tape's listener of the layer of the operation that has begun.
    void tell_layer() const {}
    /// Memory was made for an operation's result, or for its intermediate values; the values are complete at end().
    template <class T, int Rank>
    void give(const variable<T, Rank>&, bool) {}
    /// A custom operation, Op, has the result y, from the arguments of apply().
    template <class Op, class Y, class... Inputs>
    void give_own(const Y&, const Inputs&...) {}
    /// A custom operation reads an argument; it gets the returned value in its place.
    template <reading How, class V>
    V read(V argument) {
        return argument;
    }
    /// A product with this weight reads q in place of x.
    template <class X, class Q, int Rank, class Scale, class Weight, class Tensor, class Rule>
    void read_scaled(const view<X, Rank>&, const view<Q, Rank>&, const Scale*, const Weight&, Tensor, const Rule&) {}
    /// The operation is complete and has stored this record for the backward pass.
    template <class Record>
    void record(const Record&) {}
    /// An object that lives while layer `index` of a list is called.
    struct list_scope {
        template <class Hook, class Path>
        list_scope(Hook&, const Path&, int) {}
        list_scope(const list_scope&) = delete;
        list_scope& operator=(const list_scope&) = delete;
    };

    // ---- backward

    /// Stored with each record, and passed to backward().
    struct noted {};
    noted note() const { return {}; }
    /// Wraps a backward pass, which begins with the loss.
    template <class T, class Run>
    void pass(const variable<T, 0>&, const Run& run) {
        run();
    }
    /// Wraps an operation's backward function.
    template <class Record, class Run>
    void backward(const Record&, const noted&, const Run& run) {
        run();
    }
    /// A gradient will be written to `data`; nullptr if the gradient has its own memory.
    template <class T, int Rank>
    void give_gradient(const gradient_of<T, Rank>&, const T*, write_mode) {}
    template <class Storage, int Rank>
    void give_parameter_gradient(const parameter<Storage, Rank>&, const typename Storage::accumulate*, write_mode) {}
    template <class Storage, int Rank>
    void give_rows(const parameter<Storage, Rank>&,
                   const gradient_slabs::row_place<typename Storage::accumulate>&) {}

    /// A backward pass computes operations again, whose results were given before (autodiff/op/checkpoint.hpp), or has
    /// done so.
    void recompute(bool) {}

    /// The tape discards its records.
    void forget() {}
};

/// A tape that tells its hook what operations do.
template <class Device, class Hook>
class hooked_tape
    : public std::conditional_t<Hook::keeps_records, tape<Device>, basic_context<Device, recording::on>> {
    using base = std::conditional_t<Hook::keeps_records, tape<Device>, basic_context<Device, recording::on>>;

  public:
    using hook_type = Hook;

    explicit hooked_tape(Device& device) : base(device), hook_(static_cast<base&>(*this)) {}
    hooked_tape& root() { return *this; }
    Hook& hook() { return hook_; }
    const Hook& hook() const { return hook_; }

    template <class Loss, class Accumulator>
    void backward(const Loss& loss, Accumulator& acc) {
        hook_.pass(loss_variable(loss), [&] { base::backward(loss, acc); });
    }
    template <class Loss>
    void backward(const Loss& loss) {
        hook_.pass(loss_variable(loss), [&] { base::backward(loss); });
    }
    void clear() {
        hook_.forget();
        if constexpr (Hook::keeps_records) base::clear();
    }

    template <class T, int Rank>
    auto constant(const view<T, Rank>& values) {
        return as_input(base::constant(values));
    }
    template <class T, int Rank>
    auto leaf(const view<T, Rank>& values) {
        return as_input(base::leaf(values));
    }
    template <class T, int Rank>
    auto to_device(const view<T, Rank>& values) {
        return as_input(base::to_device(values));
    }

    // ---- called by operations

    /// Destroyed at the end of the operation's scope: values made afterwards are not its results.
    struct operation_scope {
        Hook* hook;
        forward_range told;
        operation_scope(hooked_tape& t, const char* operation) : hook(&t.hook_), told(t.base::range(operation)) {
            hook->tell_layer();
        }
        operation_scope(const operation_scope&) = delete;
        operation_scope& operator=(const operation_scope&) = delete;
        ~operation_scope() { hook->end(); }
    };
    template <class Where = void>
    operation_scope range(const char* operation) {
        hook_.template begin<Where>(operation);
        return {*this, operation};
    }
    template <class T, int Rank>
    variable<T, Rank> make(const shape<Rank>& s, bool wants_gradient) {
        auto made = base::template make<T>(s, wants_gradient);
        hook_.give(made, wants_gradient);
        return made;
    }
    template <class Where = void, class T, int Rank>
    variable<T, Rank> make_over(const char* operation, const const_view<T, Rank>& values, bool wants_gradient) {
        if constexpr (Hook::leaves_out) {
            return base::make_over(operation, values, wants_gradient);
        } else {
            const auto here = range<Where>(operation);
            return copy_of(values, wants_gradient);
        }
    }
    template <class Op, class T, int Rank, class... Inputs>
    variable<T, Rank> make_result(const variable<T, Rank>& given, bool wants_gradient, const Inputs&... inputs) {
        auto y = copy_of(as_const(given.view()), wants_gradient);
        hook_.template give_own<Op>(y, inputs...);
        return y;
    }
    template <class Record>
    void record(Record&& r) {
        hook_.record(std::as_const(r));
        if constexpr (Hook::keeps_records) {
            if (!this->graph().is_recording()) return;
            this->graph().template push<base>(
                hooked_record<std::remove_cvref_t<Record>>{std::forward<Record>(r), hook_.note()});
        }
    }
    template <class T, int Rank>
    auto gradient_target(const gradient_of<T, Rank>& v) {
        const auto to = base::gradient_target(v);
        if (to) hook_.give_gradient(v, to.data, to.mode);
        return to;
    }
    template <class Storage, int Rank>
    auto gradient_target(const parameter<Storage, Rank>& p) {
        const auto to = base::gradient_target(p);
        if (to) hook_.give_parameter_gradient(p, to.data, to.mode);
        return to;
    }
    template <class Storage, int Rank>
    auto row_target(const parameter<Storage, Rank>& p, extent tokens) {
        const auto to = base::row_target(p, tokens);
        if (to.is_wanted) hook_.give_rows(p, to);
        return to;
    }
    template <class T, int Rank>
    void give_gradient(const variable<T, Rank>& value, const gradient_of<T, Rank>& v) {
        base::give_gradient(value, v);
        hook_.give_gradient(v, static_cast<const T*>(nullptr), write_mode::overwrite);
    }

  private:
    template <class Record>
    struct hooked_record {
        using operation = typename Record::operation;
        Record inner;
        decltype(std::declval<const Hook&>().note()) noted;

        void backward(base& t) {
            auto& self = static_cast<hooked_tape&>(t);
            self.hook_.backward(std::as_const(inner), noted, [&] { run_record(self, inner); });
        }
    };

    template <class T, int Rank>
    variable<T, Rank> as_input(variable<T, Rank> v) {
        hook_.input(v);
        return v;
    }
    /// A result in memory of its own, which a tool may overwrite.
    template <class T, int Rank>
    variable<T, Rank> copy_of(const const_view<T, Rank>& values, bool wants_gradient) {
        auto y = make<T>(values.shape(), wants_gradient);
        this->device().copy(y.view().data(), values.data(), static_cast<std::size_t>(y.size()) * sizeof(T));
        return y;
    }

    Hook hook_;
};

template <class Root>
concept hooked = requires { typename std::remove_cvref_t<Root>::hook_type; };

template <class Root>
struct hook_of_root {
    using type = tape_hook;
};
template <hooked Root>
struct hook_of_root<Root> {
    using type = typename Root::hook_type;
};
/// The hook of a context's tape, or one that does nothing.
template <class Context>
using hook_of = typename hook_of_root<
    std::remove_cvref_t<decltype(std::declval<std::remove_cvref_t<Context>&>().root())>>::type;

/// Whether an operation that has nothing to do may be skipped in this context.
template <class Context>
inline constexpr bool leaves_out = hook_of<Context>::leaves_out;

/// Returns what make() returns, or what the hook returns in its place.
template <reading How, class Root, class Make>
decltype(auto) read(Root& root, const Make& make) {
    if constexpr (hooked<Root>) {
        return root.hook().template read<How>(make());
    } else {
        return make();
    }
}
/// Says that the next product with a weight reads q in place of x.
template <class Root, class X, class Q, int Rank, class Scale, class Weight, class Tensor, class Rule>
void read_scaled(Root& root, const view<X, Rank>& x, const view<Q, Rank>& q, const Scale* scale, const Weight& weight,
                 Tensor tensor, const Rule& rule) {
    if constexpr (hooked<Root>) root.hook().read_scaled(x, q, scale, weight, tensor, rule);
}

// ---- layers

/// A context whose hook distinguishes operations by their layers. In all others a layer's path is in no type and in no
/// code.
template <class Context>
concept layer_naming = requires { requires hook_of<Context>::names_layers; };

/// Roles that name their layer: `layer` is its policy, which has its path.
template <class Roles, class P>
struct roles_of_layer : Roles {
    using types = Roles;
    using layer = P;
};

template <class Roles, class P, class Context>
struct marked {
    using type = Roles;
};
template <class Roles, class P, layer_naming Context>
struct marked<Roles, P, Context> {
    using type = roles_of_layer<Roles, P>;
};
/// The roles of a layer with policy P as operations take them in a context.
template <class Roles, class P, class Context>
using marked_roles = typename marked<Roles, P, Context>::type;

/// While an object of this class lives, operations of a plain tape are in a layer of a list.
class list_scope_of_graph {
  public:
    list_scope_of_graph(graph& g, const char* list, int index) : graph_(&g) { g.enter(list, index); }
    list_scope_of_graph(const list_scope_of_graph&) = delete;
    list_scope_of_graph& operator=(const list_scope_of_graph&) = delete;
    ~list_scope_of_graph() { graph_->leave(); }

  private:
    graph* graph_;
};
template <class List>
inline constexpr auto list_path_text = path_of<List>.text();

/// An object that lives while the i-th layer of a list is called. `List` is the list's policy; its layers are one level
/// below.
template <class List, class Root>
auto within_list(Root& root, int index) {
    if constexpr (layer_naming<Root>) {
        struct scopes {
            typename hook_of<Root>::list_scope of_hook;
            list_scope_of_graph of_graph;
            scopes(Root& r, int i)
                : of_hook(r.hook(), path_of<List>, i), of_graph(r.graph(), list_path_text<List>.data, i) {}
        };
        return scopes(root, index);
    } else if constexpr (requires { root.graph().enter("", index); }) {
        return list_scope_of_graph(root.graph(), list_path_text<List>.data, index);
    } else {
        struct nothing {};
        return nothing{};
    }
}

template <class P>
struct choosing {
    using type = P;
};
template <class P>
    requires requires { typename P::stands_for; }
struct choosing<P> {
    using type = typename P::stands_for;
};
/// The policy by whose types a layer chooses its operations: P, or the policy that P replaces, so that the layer makes the
/// same choice under both.
template <class P>
using chosen_by = typename choosing<P>::type;

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
