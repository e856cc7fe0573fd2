// SPDX-License-Identifier: MIT
/// \file
/// The tape whose gradients can be differentiated again; double_backward.hpp shows its use.
///
/// It records as every tape does, so that results and the gradients of backward() are those of a plain tape. With each
/// record it stores a rule: how the gradients of the operation's inputs follow from that of its result, in operations
/// that are recorded on the same tape. gradients() applies the rules and keeps the records.
#pragma once

#include <halftone/autodiff/engine/gradient_variables.hpp>
#include <halftone/autodiff/engine/rule.hpp>
#include <halftone/autodiff/op/pointwise.hpp>
#include <halftone/kernel/convert/convert.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// ht::tape tape{device, ht::double_backward}: a tape whose gradients may be part of another loss.
inline constexpr double_backward_tape double_backward{};

namespace detail {

struct conflicting_kinds {};

}  // namespace detail

/// A tape whose gradients() returns variables, of which another loss may be computed: the backward passes of recorded
/// operations consist of recorded operations. Third derivatives are not supported.
template <class Device>
class tape<Device, double_backward_tape> : public tape<Device> {
    using base = tape<Device>;
    using index = detail::graph::index;

  public:
    tape(Device& device, double_backward_tape) : base(device) {}
    ~tape() { forget(); }
    /// The tape itself; operations call root() on any context.
    tape& root() { return *this; }

    /// Memory for a result, with undefined contents.
    template <class T, int Rank>
    variable<T, Rank> make(const shape<Rank>& s, bool wants_gradient) {
        static_assert(!std::is_same_v<T, double>,
                      "halftone: tape: second derivatives are taken in float, and an operation here gives double: cast "
                      "its operands, ht::cast<float>(tape, x), or record on ht::tape tape{device}; "
                      "ht::check_gradients compares first derivatives in double");
        return base::template make<T>(s, wants_gradient);
    }
    /// Records an operation, which must have a rule.
    template <class Record>
    void record(Record&& r) {
        using type = std::remove_cvref_t<Record>;
        if (rules_.size() == rules_.capacity()) rules_.reserve(2 * rules_.size() + 16);
        const type& kept = this->graph().template push<base>(std::forward<Record>(r));
        rules_.push_back({&kept,
                          [](tape& t, const void* payload) {
                              const type& r = *static_cast<const type*>(payload);
                              if constexpr (detail::has_one_result<type, base>) {
                                  if (t.has(r.dy)) detail::rule<type>::run(t, r, t.take(r.dy));
                              } else {
                                  detail::rule<type>::run(t, r);
                              }
                          },
                          type::operation::name});
    }

    /// The gradients of `loss` (a scalar, optionally weighted or scaled) with respect to the targets: a model, which
    /// means all of its parameters that the loss depends on and that are not frozen; single parameters; variables. They
    /// are variables of this tape, which keeps its records, and may be part of another loss. Gradients of a scaled loss
    /// are ht::scaled, for scaler.unscale.
    ///
    /// Throws as backward does; also argument_error for a variable that takes no gradient and for a frozen parameter,
    /// and state_error if the loss does not depend on a variable or on any parameter of a model, or would need a third
    /// derivative: a loss that contains gradients may be differentiated by backward() only.
    template <class Loss, class... Targets>
    auto gradients(const Loss& loss, const Targets&... by) {
        static_assert(
            sizeof...(Targets) > 0,
            "halftone: gradients: name what the loss is to be differentiated by: tape.gradients(loss, model)");
        const auto& scalar = loss_variable(loss);
        using T = typename std::remove_cvref_t<decltype(scalar)>::value_type;
        this->check_loss(scalar);
        const walk here(*this);
        (ask(by), ...);
        {
            const auto seed = base::template make<T>(shape<0>{}, false);
            this->device().run(detail::begin_gradient<T>{seed.view().data(), loss_seed(loss)});
            give(gradient_of(scalar), seed);
        }
        for (std::size_t i = rules_.size(); i-- > 0;) {
            const halftone::range inside(this->graph().listener, rules_[i].operation, pass::backward);
            rules_[i].run(*this, rules_[i].record);
        }
        check_order();
        gradient_variables<Device> found(*this, spare_);
        (collect(found, by), ...);
        return scaled_as(loss, std::move(found));
    }

    /// Adds the gradients of parameters to `acc` and empties the tape. Gradients from gradients() on which `loss`
    /// depends are differentiated a second time.
    template <class Loss, class Accumulator>
    void backward(const Loss& loss, Accumulator& acc) {
        const after_pass end(*this);
        base::backward(loss, acc);
    }
    /// Computes the gradients of a loss that depends on leaves and on no parameters, and empties the tape.
    template <class Loss>
    void backward(const Loss& loss) {
        const after_pass end(*this);
        base::backward(loss);
    }
    /// Discards all records.
    void clear() {
        base::clear();
        forget();
    }

    // ---- called by rules

    /// The context of a rule's operations, which records for backward passes only.
    base& inner() { return *this; }

    /// Whether a gradient has arrived at a record's result.
    template <class T, int Rank>
    bool has(const gradient_of<T, Rank>& result) const {
        return gradient_at(result.slot()) != none;
    }
    /// The gradient of a record's result; call it only if has() is true.
    template <class T, int Rank>
    variable<T, Rank> take(const gradient_of<T, Rank>& result) {
        index& at = gradients_[place(result.slot())];
        if (is_requested(result.slot())) this->graph().retain(at);
        return {this->graph(), is_requested(result.slot()) ? at : std::exchange(at, none), result.shape()};
    }
    /// Whether an input takes a gradient.
    template <class T, int Rank>
    bool takes(const gradient_of<T, Rank>& input) const {
        return this->takes_gradient(input) && (!this->graph().is_leaf(input.slot()) || is_requested(input.slot()));
    }
    template <class Storage, int Rank>
    bool takes(const parameter<Storage, Rank>& p) const {
        const index* const at = parameter_at(p.owner(), p.entry());
        return at != nullptr && *at != not_requested;
    }
    bool takes(const absent&) const { return false; }
    /// Sets an input's gradient, or adds to it if it has one.
    template <class T, int Rank, int Any>
    void give(const gradient_of<T, Rank>& input, const variable<T, Any>& gradient) {
        const std::size_t at = place(input.slot());
        if (gradients_.size() <= at) gradients_.resize(at + 1, none);
        if (gradients_[at] == none) given_.push_back(input.slot());
        add(gradients_, at, gradient);
    }
    template <class Storage, int Rank, int Any>
    void give(const parameter<Storage, Rank>& p, const variable<float, Any>& gradient) {
        add(parameter_gradients_,
            static_cast<std::size_t>(parameter_at(p.owner(), p.entry()) - parameter_gradients_.data()), gradient);
    }
    /// A parameter as an operation that computes in Compute reads it, in float: a variable whose gradient goes to the
    /// parameter. Each call of gradients() reads a parameter once, and reads it again in the next call, since it may
    /// have changed.
    template <class Compute, class Storage, int Rank>
    variable<float, Rank> variable_of(const parameter<Storage, Rank>& p) {
        static_assert(
            !coded<Storage>,
            "halftone: tape: weights in blocks (role `copy`) have no second derivatives: give the model a policy "
            "without them, or record on ht::tape tape{device}");
        const auto values = detail::values_for<Compute>(p);
        using S = typename decltype(values)::value_type;
        static_assert(contains<float, S>,
                      "halftone: tape: parameters wider than float have no second derivatives: give the model a policy "
                      "with fp32 masters, ht::full_fp32, or record on ht::tape tape{device}");
        detail::graph& g = this->graph();
        for (const read_parameter& known : read_) {
            if (known.data == values.data())
                return g.retain(known.slot), variable<float, Rank>(g, known.slot, p.shape());
        }
        if (read_.size() == read_.capacity()) read_.reserve(2 * read_.size() + 16);
        const bool wanted = !p.is_frozen();
        variable<float, Rank> v;
        if constexpr (std::is_same_v<S, float>) {
            v = {g,
                 g.make_result(
                     g.make_block_over(values.data(), static_cast<std::size_t>(values.size()) * sizeof(float)), wanted),
                 p.shape()};
        } else {
            v = base::template make<float>(p.shape(), wanted);
            kernel::convert<Device>::run(this->device(), flatten(values), flatten(v));
        }
        if (wanted)
            base::record(detail::parameter_record<Storage>{{p.owner(), p.entry(), shape<1>{p.shape().size()}},
                                                           gradient_of(detail::flat(v))});
        g.retain(v.slot());
        read_.push_back({values.data(), v.slot()});
        return v;
    }

  private:
    static constexpr index none = detail::graph::none, not_requested = -2;

    struct entry {
        const void* record;
        void (*run)(tape& t, const void* record);
        const char* operation;
    };
    struct visited_store {
        const store* owner;
        std::size_t first;  ///< of its entries in parameter_gradients_
    };
    struct read_parameter {
        const void* data;
        index slot;
    };
    /// The state of one call of gradients(), released at its end.
    struct walk {
        explicit walk(tape& t) : owner(&t) {}
        walk(const walk&) = delete;
        walk& operator=(const walk&) = delete;
        ~walk() { owner->end_walk(); }
        tape* owner;
    };
    /// Empties the tape at the end of a backward pass, even after an exception.
    struct after_pass {
        explicit after_pass(tape& t) : owner(&t) {}
        after_pass(const after_pass&) = delete;
        after_pass& operator=(const after_pass&) = delete;
        ~after_pass() {
            if (owner->graph().records() == 0) owner->forget();
        }
        tape* owner;
    };

    static std::size_t place(index slot) { return static_cast<std::size_t>(slot); }
    index gradient_at(index slot) const { return place(slot) < gradients_.size() ? gradients_[place(slot)] : none; }
    bool is_requested(index slot) const {
        for (const index a : requested_) {
            if (a == slot) return true;
        }
        return false;
    }
    const index* parameter_at(const store& owner, std::size_t entry) const {
        for (const visited_store& s : stores_) {
            if (s.owner == &owner) return &parameter_gradients_[s.first + entry];
        }
        return nullptr;
    }

    template <class T, int Rank>
    void add(std::vector<index>& all, std::size_t at, const variable<T, Rank>& gradient) {
        detail::graph& g = this->graph();
        if (all[at] == none) {
            g.retain(gradient.slot());
            all[at] = gradient.slot();
            return;
        }
        const variable<T, 1> before(g, std::exchange(all[at], none), {gradient.size()});
        const auto sum = detail::evaluate<op::add, T>(
            inner(), before.shape(), halftone::trace<2>(detail::add_function{}), before, detail::flat(gradient));
        g.retain(sum.slot());
        all[at] = sum.slot();
    }

    template <class T, int Rank>
    void ask(const variable<T, Rank>& v) {
        if (&v.graph() != &this->graph()) fail<argument_error>("gradients: by a variable that is on another tape");
        if (!v.wants_gradient())
            fail<argument_error>("gradients: by a variable of shape ", v.shape(),
                                 " that takes no gradient; make it a leaf");
        if (this->graph().is_consumed(v.slot()))
            fail<state_error>("gradients: by a variable of shape ", v.shape(),
                              " that an earlier backward pass has consumed");
        requested_.push_back(v.slot());
    }
    template <class Storage, int Rank>
    void ask(const parameter<Storage, Rank>& p) {
        if (p.is_frozen())
            fail<argument_error>("gradients: by ", p.owner().entries()[p.entry()].path, ", which is frozen");
        table_of(p.owner())[p.entry()] = none;
    }
    template <class Model>
    void ask(const Model& model) {
        static_assert(
            requires { model.parameters().entries(); },
            "halftone: gradients: a loss is differentiated by models, parameters (model.head.weight) and variables of "
            "the tape");
        const auto& entries = model.parameters().entries();
        index* const table = table_of(model.parameters());
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (!entries[i].frozen) table[i] = none;
        }
    }
    index* table_of(const store& owner) {
        for (const visited_store& s : stores_) {
            if (s.owner == &owner) return &parameter_gradients_[s.first];
        }
        stores_.push_back({&owner, parameter_gradients_.size()});
        parameter_gradients_.resize(parameter_gradients_.size() + owner.entries().size(), not_requested);
        return &parameter_gradients_[stores_.back().first];
    }

    /// Throws if a gradient arrived at a value that a rule has computed: that would be a third derivative.
    void check_order() const {
        for (const index slot : given_) {
            if (gradient_at(slot) == none || this->graph().is_leaf(slot) || is_requested(slot)) continue;
            fail<state_error>(
                "gradients: this loss depends on gradients that an earlier gradients() gave, which would be "
                "differentiated a third time; call backward for it");
        }
    }

    template <class T, int Rank>
    void collect(gradient_variables<Device>& to, const variable<T, Rank>& v) {
        const index slot = gradient_at(v.slot());
        if (slot == none)
            fail<state_error>("gradients: the loss does not depend on this variable of shape ", v.shape());
        this->graph().retain(slot);
        put(to, this->graph_address(), place(v.slot()), variable<T, 1>(this->graph(), slot, {v.size()}));
    }
    template <class Storage, int Rank>
    void collect(gradient_variables<Device>& to, const parameter<Storage, Rank>& p) {
        if (!collect_entry(to, p.owner(), p.entry()))
            fail<state_error>("gradients: the loss does not depend on ", p.owner().entries()[p.entry()].path);
    }
    template <class Model>
    void collect(gradient_variables<Device>& to, const Model& model) {
        const store& owner = model.parameters();
        bool any = false;
        for (std::size_t i = 0; i < owner.entries().size(); ++i) any = collect_entry(to, owner, i) || any;
        if (!any) fail<state_error>("gradients: the loss depends on no parameter of this model");
    }
    bool collect_entry(gradient_variables<Device>& to, const store& owner, std::size_t entry) {
        const index slot = *parameter_at(owner, entry);
        if (slot == none || slot == not_requested) return false;
        this->graph().retain(slot);
        put(to, &owner, entry,
            variable<float, 1>(this->graph(), slot, {static_cast<extent>(owner.entries()[entry].count)}));
        return true;
    }
    template <class T>
    void put(gradient_variables<Device>& to, const void* owner, std::size_t key, const variable<T, 1>& value) {
        static_assert(contains<float, T>,
                      "halftone: gradients: by a variable wider than float: second derivatives are taken in float; take "
                      "them by const auto y = ht::cast<float>(tape, x)");
        if constexpr (std::is_same_v<T, float>) {
            to.items_.push_back({owner, key, value});
        } else {
            to.items_.push_back(
                {owner, key, detail::evaluate<op::map, float>(inner(), value.shape(), symbolic::argument<0>{}, value)});
        }
    }
    const void* graph_address() const { return &this->graph(); }

    void release(std::vector<index>& all) noexcept {
        for (index& slot : all) {
            if (slot >= 0) this->graph().release(std::exchange(slot, none));
        }
    }
    void end_walk() noexcept {
        release(gradients_);
        release(parameter_gradients_);
        parameter_gradients_.clear();
        given_.clear();
        requested_.clear();
        stores_.clear();
        for (const read_parameter& r : read_) this->graph().release(r.slot);
        read_.clear();
    }
    void forget() noexcept { rules_.clear(); }

    std::vector<entry> rules_;
    std::vector<index> gradients_;  ///< by slot; valid during gradients()
    std::vector<index> given_, requested_;
    std::vector<visited_store> stores_;
    std::vector<index> parameter_gradients_;
    std::vector<read_parameter> read_;
    std::shared_ptr<typename gradient_variables<Device>::lists> spare_ =
        std::make_shared<typename gradient_variables<Device>::lists>();
};
template <class Device>
tape(Device&, double_backward_tape) -> tape<Device, double_backward_tape>;

/// Two kinds at once: fails with a message.
template <class Device>
class tape<Device, detail::conflicting_kinds> {
  public:
    template <class First, class Second>
    tape(Device&, const First&, const Second&) {
        static_assert(sizeof(First) == 0,
                      "halftone: tape: one tape is not both for second derivatives and watched, since what it shows "
                      "are layers, and gradients that are variables have none: find the overflow of a step by the same "
                      "loss without its penalty, on ht::tape tape{device, ht::watched}");
    }
};
template <class Device, class Kind>
tape(Device&, const double_backward_tape&, const Kind&) -> tape<Device, detail::conflicting_kinds>;
template <class Device, class Kind>
tape(Device&, const Kind&, const double_backward_tape&) -> tape<Device, detail::conflicting_kinds>;

namespace detail {

struct invert_scale {
    float* to;
    const float* scale;
    HALFTONE_HD void operator()() const { *to = static_cast<float>(1.0 / static_cast<double>(*scale)); }
};

}  // namespace detail

template <class Device>
gradient_variables<Device> gradient_variables<Device>::over(const float* scale) && {
    const auto inverse = tape_->template make<float>(shape<0>{}, false);
    tape_->device().run(detail::invert_scale{inverse.view().data(), scale});
    for (item& i : items_) i.value = mul(*tape_, i.value, inverse);
    return std::move(*this);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
