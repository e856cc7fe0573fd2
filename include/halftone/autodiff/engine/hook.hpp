// SPDX-License-Identifier: MIT
/// \file
/// The hook of a tape: through it a diagnostic (a tool) sees what operations do. Operations know no tool, and a tool
/// adds no line to any operation.
///
/// An operation calls its root, whatever kind of context that is. A plain tape and an inference context have no hook, and
/// these calls are there what they would be without hooks. On a hooked_tape each call also tells the hook:
///
///     const auto range = root.template range<Where>(op::outer::name);    // the operation begins, and ends with the scope
///     auto y = root.template make<Y>(shape, wanted);                     // it gives a result; the result comes first
///     auto y = root.template make_over<Where>(name, values, wanted);     // it gives what lies in memory already
///     detail::read_scaled(root, x, q, scale, weight, tensor, rule);      // it reads q, of eight bits, in the place of x
///     Op::forward(body, detail::read<How>(root, make)...);               // a function of the user's reads an argument
///     root.record(outer_record<...>{...});                               // it is through; `operation` is its tag
///     tape.gradient_target(dx); tape.give_gradient(value, dx);           // record.backward(tape) gives a gradient
///
/// Two questions are left to operations. One that may have nothing to do, such as a cast to the type that is there, asks
/// whether it may be left out: `detail::leaves_out<Context>`. A layer that is either one operation or several asks by
/// whose types it chooses: `detail::chosen_by<P>` (nn/mlp.hpp).
///
/// A tool derives from tape_hook, whose functions do nothing, and declares those that it wants anew, under the same name.
/// None is virtual: a function that a tool does not declare costs nothing.
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
/// What tools know of single operations (error bounds, types) stands in observe/operations.hpp, by the operation's tag.
#pragma once

#include <halftone/autodiff/engine/tape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// How an operation of the user's own reads an operand: as it is, or as a variable of its own that was converted, or made
/// of a parameter.
enum class reading { as_it_is, converted, parameter };

/// The base of hooks: each function does nothing. A hook is constructed with the tape that it belongs to.
struct tape_hook {
    static constexpr bool keeps_records = true;  ///< the tape keeps records, and has a backward pass
    static constexpr bool names_layers = false;  ///< roles tell the layer that they are of, and lists the index
    static constexpr bool leaves_out = true;     ///< operations that have nothing to do are none on this tape
    template <class P>
    using region_policy = P;  ///< what autocast<P> is on this tape
    template <class T, class Storage>
    using parameter_type = T;  ///< of a parameter that as_variable<T> asks for

    tape_hook() = default;
    template <class Tape>
    explicit tape_hook(Tape&) {}
    tape_hook(const tape_hook&) = delete;
    tape_hook& operator=(const tape_hook&) = delete;

    // ---- forward

    /// A variable that constant(), leaf() or to_device() has put onto the tape.
    template <class T, int Rank>
    void input(const variable<T, Rank>&) {}
    /// An operation of this name begins. Where: the roles of a layer, or the policy of a region.
    template <class Where>
    void begin(const char*) {}
    void end() {}
    /// What is made for an operation's result, or for what it notes for itself; its values are there at end().
    template <class T, int Rank>
    void give(const variable<T, Rank>&, bool) {}
    /// The result y of an operation of the user's own, Op, and the arguments of apply().
    template <class Op, class Y, class... Inputs>
    void give_own(const Y&, const Inputs&...) {}
    /// An argument of an operation of the user's own. What is returned is read in its place.
    template <reading How, class V>
    V read(V argument) {
        return argument;
    }
    /// x, of which a product with this weight reads q.
    template <class X, class Q, int Rank, class Scale, class Weight, class Tensor, class Rule>
    void read_scaled(const view<X, Rank>&, const view<Q, Rank>&, const Scale*, const Weight&, Tensor, const Rule&) {}
    /// The operation is through, and has left this record for the backward pass.
    template <class Record>
    void record(const Record&) {}
    /// Stands for the index-th of a list of layers, while it lives.
    struct list_scope {
        template <class Hook, class Path>
        list_scope(Hook&, const Path&, int) {}
        list_scope(const list_scope&) = delete;
        list_scope& operator=(const list_scope&) = delete;
    };

    // ---- backward

    /// What is kept beside a record, and handed to backward().
    struct noted {};
    noted note() const { return {}; }
    /// Around the pass, which begins with the loss.
    template <class T, class Run>
    void pass(const variable<T, 0>&, const Run& run) {
        run();
    }
    /// Around an operation's backward function.
    template <class Record, class Run>
    void backward(const Record&, const noted&, const Run& run) {
        run();
    }
    /// Where a gradient goes, `data`, or nullptr where it has a place of its own.
    template <class T, int Rank>
    void give_gradient(const gradient_of<T, Rank>&, const T*, write_mode) {}
    template <class Storage, int Rank>
    void give_parameter_gradient(const parameter<Storage, Rank>&, const typename Storage::accumulate*, write_mode) {}
    template <class Storage, int Rank>
    void give_rows(const parameter<Storage, Rank>&,
                   const gradient_slabs::row_place<typename Storage::accumulate>&) {}

    /// The tape forgets what was recorded.
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

    // ---- for operations

    /// Ends with the operation's scope: what is made from then on is no result of its.
    struct operation_scope {
        Hook* hook;
        halftone::range told;
        operation_scope(hooked_tape& t, const char* operation) : hook(&t.hook_), told(t.base::range(operation)) {}
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
            self.hook_.backward(std::as_const(inner), noted, [&] { inner.backward(self); });
        }
    };

    template <class T, int Rank>
    variable<T, Rank> as_input(variable<T, Rank> v) {
        hook_.input(v);
        return v;
    }
    /// A result in memory of its own, so that a tool may write there.
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

/// Whether an operation that has nothing to do in this context may be left out.
template <class Context>
inline constexpr bool leaves_out = hook_of<Context>::leaves_out;

/// What make() returns, or what the hook gives in its place.
template <reading How, class Root, class Make>
decltype(auto) read(Root& root, const Make& make) {
    if constexpr (hooked<Root>) {
        return root.hook().template read<How>(make());
    } else {
        return make();
    }
}
/// Says that the product with a weight which is next reads q in the place of x.
template <class Root, class X, class Q, int Rank, class Scale, class Weight, class Tensor, class Rule>
void read_scaled(Root& root, const view<X, Rank>& x, const view<Q, Rank>& q, const Scale* scale, const Weight& weight,
                 Tensor tensor, const Rule& rule) {
    if constexpr (hooked<Root>) root.hook().read_scaled(x, q, scale, weight, tensor, rule);
}

// ---- layers

/// A context whose hook tells operations by their layers. For all others a layer's place is in no type and in no code.
template <class Context>
concept layer_naming = requires { requires hook_of<Context>::names_layers; };

/// Roles that say whose they are: `layer` is its policy, and so has its path.
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

/// Stands for the i-th of a list of layers, while it lives. `List` is the list's policy; its layers are one level
/// further down.
template <class List, class Root>
auto within_list(Root& root, int index) {
    if constexpr (layer_naming<Root>) {
        return typename hook_of<Root>::list_scope(root.hook(), path_of<List>, index);
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
/// The policy by whose types a layer chooses its operations: P, or the one that P stands for, so that both have the same.
template <class P>
using chosen_by = typename choosing<P>::type;

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
