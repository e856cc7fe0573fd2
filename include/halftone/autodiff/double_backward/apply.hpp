// SPDX-License-Identifier: MIT
/// \file
/// Custom operations (op/apply.hpp) on a tape for second derivatives. The forward function runs as on any
/// tape and may launch kernels; the operations of the backward function are recorded, so that its gradients can be
/// differentiated. PyTorch does the same for a torch.autograd.Function whose backward is not marked
/// once_differentiable.
///
/// A value that forward keeps must be one of its inputs, as it got them, or its result: how these depend on the inputs
/// is known to the tape. Any other value throws, unless it was detached, ht::keep(y, ht::detach(ctx, mask)), which
/// makes it a constant. A backward function that launches kernels of its own does not compile here.
#pragma once

#include <array>
#include <tuple>

#include <halftone/autodiff/double_backward/tape.hpp>
#include <halftone/autodiff/op/apply.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The context of a backward function whose operations are recorded on Tape.
template <class Tape, class Policy>
class recorded_context {
  public:
    using policy = Policy;
    using device_type = typename Tape::device_type;
    static constexpr bool records = true;

    recorded_context(Tape& tape, std::uint64_t wanted) : tape_(&tape), wanted_(wanted) {}
    Tape& root() const { return *tape_; }
    bool wants(int input) const { return (wanted_ >> input & 1) != 0; }

    template <class T, int Rank>
    auto constant(const view<T, Rank>& values) const {
        return tape_->constant(values);
    }
    template <class T, int Rank>
    auto to_device(const view<T, Rank>& values) const {
        return tape_->to_device(values);
    }

    /// device() and make() exist only in contexts that record nothing.
    template <class Any = void>
    device_type& device() const {
        refuse<Any>();
        return tape_->device();
    }
    template <class T, int Rank>
    variable<T, Rank> make(const shape<Rank>& s, bool = false) const {
        refuse<T>();
        return tape_->template make<T>(s, false);
    }

  private:
    template <class Any>
    static constexpr void refuse() {
        static_assert(!std::is_same_v<Any, Any>,
                      "halftone: apply: on a tape for second derivatives the operations of backward are recorded, and "
                      "the derivative of a kernel that it launches by ctx.device(), or of what it writes into "
                      "ctx.make(), is not known: compose this backward of halftone's operations (ht::map, ht::matmul, ...), or "
                      "apply it on ht::tape tape{device}");
    }

    Tape* tape_;
    std::uint64_t wanted_;
};

/// What a kept value is: the input of that number, or one of these.
inline constexpr int kept_result_itself = -1, kept_constant = -2;

/// `from` gets the origin of each kept value; `inputs` are apply's arguments that are operands.
template <class Record, class Y, class Kept, class Inputs>
struct double_backward_apply_record : Record {
    Y y;
    Inputs inputs;
    std::array<int, std::tuple_size_v<Kept>> from;
};

template <class Op, class To, class Policy>
struct double_backward_application {
    template <class Root, class Body, class... Arguments>
    static auto run(Root& root, Body& body, std::uint64_t wanted, const Arguments&... arguments) {
        const std::tuple<decltype(cast_argument<To>(body, arguments))...> given{cast_argument<To>(body, arguments)...};
        const auto returned =
            with_kept(std::apply([&body](const auto&... in) { return Op::forward(body, in...); }, given));
        const auto y = result_of_apply<Op>(root, returned.result, wanted != 0, arguments...);
        using Y = std::remove_const_t<decltype(y)>;
        using kept = std::remove_cvref_t<decltype(returned.kept)>;
        if (wanted != 0) {
            const auto slots = std::apply([](const auto&... in) { return std::tuple_cat(slot_of(in)...); }, given);
            auto inputs = std::tuple_cat(input_of(arguments)...);
            auto destinations = std::tuple_cat(destination_of(arguments)...);
            using record = apply_record<Op, typename Y::value_type, Y::rank, kept, decltype(destinations), To, Policy>;
            std::array<int, std::tuple_size_v<kept>> from{};
            std::size_t next = 0;
            std::apply(
                [&](const auto&... k) { ((from[next++] = origin(root, k, returned.result.slot(), slots)), ...); },
                returned.kept);
            root.record(double_backward_apply_record<record, Y, kept, decltype(inputs)>{
                {returned.kept, std::move(destinations), gradient_of(y), wanted}, y, std::move(inputs), from});
        }
        return y;
    }

  private:
    using index = graph::index;

    template <class T>
    static auto input_of(const T& argument) {
        if constexpr (is_operand<T>) {
            return std::tuple<T>(argument);
        } else {
            return std::tuple<>{};
        }
    }
    /// The operand as forward got it.
    template <class T>
    static auto slot_of(const T& given) {
        if constexpr (is_operand<T>) {
            return std::tuple<index>(given.slot());
        } else {
            return std::tuple<>{};
        }
    }
    template <class Root, class K, class Slots>
    static int origin(Root& root, const K& kept, index result, const Slots& slots) {
        if constexpr (is_operand<K>) {
            int found = kept_constant, i = 0;
            std::apply([&](auto... s) { ((found = s == kept.slot() ? i : found, ++i), ...); }, slots);
            if (found != kept_constant) return found;
            if (kept.slot() == result) return kept_result_itself;
            if (!root.graph().is_leaf(kept.slot())) {
                fail<argument_error>(Op::name, ": forward keeps a value of shape ", kept.shape(),
                                     " that is neither an unchanged input nor the result, so that its derivative is "
                                     "not known: keep the inputs that it is computed from and compute it in backward, or "
                                     "keep ht::detach(ctx, it) if it is a constant");
            }
        }
        return kept_constant;
    }
};

template <class Op, class Y, int Rank, class Kept, class Destinations, class Cast, class Policy, class Inputs>
struct rule<double_backward_apply_record<apply_record<Op, Y, Rank, Kept, Destinations, Cast, Policy>, variable<Y, Rank>,
                                         Kept, Inputs>> {
    using record = double_backward_apply_record<apply_record<Op, Y, Rank, Kept, Destinations, Cast, Policy>, variable<Y, Rank>,
                                      Kept, Inputs>;
    static constexpr std::size_t count = std::tuple_size_v<Destinations>;

    template <class Tape>
    static void run(Tape& tape, const record& r, const variable<Y, Rank>& dy) {
        std::uint64_t wanted = 0;
        int i = 0;
        std::apply([&](const auto&... to) { ((wanted |= static_cast<std::uint64_t>(tape.takes(to)) << i++), ...); },
                   r.destinations);
        if (wanted == 0) return;
        recorded_context<std::remove_reference_t<decltype(tape.inner())>, Policy> body(tape.inner(), wanted);
        differentiate(tape, body, r, dy, std::make_index_sequence<std::tuple_size_v<Kept>>{});
    }

  private:
    template <class Tape, class Body, std::size_t... K>
    static void differentiate(Tape& tape, Body& body, const record& r, const variable<Y, Rank>& dy,
                              std::index_sequence<K...>) {
        // If it has none, the record's own backward function has the error message.
        if constexpr (has_backward<Op, Body, variable<Y, Rank>, std::tuple_element_t<K, Kept>...>) {
            const auto gradients = as_gradients(Op::backward(body, dy, connected<K>(tape, r)...));
            if constexpr (std::tuple_size_v<std::remove_const_t<decltype(gradients)>> == count)
                give_each(tape, r, gradients, std::make_index_sequence<count>{});
        }
    }

    /// A value that forward kept, as a variable of the tape that depends on the inputs.
    template <std::size_t K, class Tape>
    static auto connected(Tape& tape, const record& r) {
        using kept = std::tuple_element_t<K, Kept>;
        auto found = std::get<K>(r.kept);
        if constexpr (is_operand<kept>) {
            using T = typename kept::value_type;
            if constexpr (std::is_same_v<T, Y>) {
                if (r.from[K] == kept_result_itself) found = reshaped(r.y, found.shape());
            }
            int i = 0;
            const auto see = [&](const auto& input) {
                if (r.from[K] == i++) found = reshaped(as_given_to<T>(tape, input), found.shape());
            };
            std::apply([&](const auto&... input) { (see(input), ...); }, r.inputs);
        }
        return found;
    }
    template <class T, class Tape, class X, int R>
    static variable<T, R> as_given_to(Tape& tape, const variable<X, R>& input) {
        return halftone::cast<T>(tape.inner(), input);
    }
    template <class T, class Tape, class Storage, int R>
    static variable<T, R> as_given_to(Tape& tape, const parameter<Storage, R>& input) {
        return halftone::cast<T>(tape.inner(), tape.template variable_of<T>(input));
    }

    template <class Tape, class Gradients, std::size_t... I>
    static void give_each(Tape& tape, const record& r, const Gradients& gradients, std::index_sequence<I...>) {
        (give(tape, static_cast<int>(I), std::get<I>(r.destinations), std::get<I>(gradients)), ...);
    }
    template <class Tape, class T, int R, class Gradient>
    static void give(Tape& tape, int input, const gradient_of<T, R>& to, const Gradient& gradient) {
        if (gives_gradient<Op>(input, to.shape(), gradient) && tape.takes(to)) give_as<T>(tape, to, gradient);
    }
    template <class Tape, class Storage, int R, class Gradient>
    static void give(Tape& tape, int input, const parameter<Storage, R>& to, const Gradient& gradient) {
        if (gives_gradient<Op>(input, to.shape(), gradient) && tape.takes(to)) give_as<float>(tape, to, gradient);
    }
    template <class T, class Tape, class To, class Gradient>
    static void give_as(Tape& tape, const To& to, const Gradient& gradient) {
        if constexpr (is_variable<Gradient>) tape.give(to, halftone::cast<T>(tape.inner(), gradient));
    }
};

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
