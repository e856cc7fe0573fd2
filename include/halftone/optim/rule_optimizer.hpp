// SPDX-License-Identifier: MIT
/// \file
/// An optimizer constructed from a rule (kernel/optimizer_step/optimizer_step.hpp): all of adamw.hpp, lion.hpp and
/// sgd.hpp except their options.
///
///     template <class Device, class Model>
///     class mine : public detail::rule_optimizer<Device, Model, kernel::my_rule> { ... };       // a constructor, options()
#pragma once

#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/optim/optimizer.hpp>
#include <halftone/optim/optimizer_options.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// An optimizer with a rule over a model's parameters. Device and model must outlive it.
template <class Device, class Model, class Rule>
class rule_optimizer : public optimizer<Device, Model> {
    using base = optimizer<Device, Model>;

  public:
    /// Updates parameters, moments and copies. Throws state_error if the same gradients were used before, if unscale,
    /// step and update are called in another order, or if the gradients passed through fp16 and no scaler unscaled
    /// them; argument_error for gradients of other models.
    template <class G>
    step_outcome<Device> step(G&& g);

    /// Replaces the parameters by their averages until the end of the scope, for evaluation. Parameters that no step
    /// has changed stay as they are. Allocates 4 bytes per parameter for this time, and on a GPU waits for the device.
    /// Throws state_error for an optimizer without `ema_decay` and if averages are already in place, and out_of_memory.
    [[nodiscard]] averaged_parameters<rule_optimizer> average_parameters() {
        return averaged_parameters<rule_optimizer>(*this);
    }

  protected:
    /// `seed` is for stochastic rounding. Allocates the rule's moments, unless the optimizer does so itself.
    rule_optimizer(Device& device, Model& model, const Rule& rule, double lr, double weight_decay, std::uint64_t seed,
                   std::vector<parameter_group> groups, double ema_decay = 0, const char* name = Rule::name,
                   bool allocates = true)
        : base(name, device, model, lr, weight_decay, std::move(groups), Rule::moments,
               rule.keeps() && allocates ? base::kept::yes : base::kept::no, ema_decay),
          rule_(rule),
          seed_(seed) {}

    const Rule& rule() const { return rule_; }

    /// The parameters and copies of a segment, and a rule.
    template <class Storage, class AnyRule, class Accumulate, class State>
    auto arguments_of(const update_segment& s, const AnyRule& rule) const {
        using master = typename Storage::master;
        using copy = typename Storage::compute;
        const store::group& g = base::group_of(s);
        return kernel::optimizer_step_arguments<AnyRule, master, copy, Accumulate, State>{
            .master = base::template part_of<master>(g.master.data(), s.master, s.count),
            .copy = g.copy_bytes == 0 ? view<copy, 1>{} : base::template part_of<copy>(g.copy.data(), s.copy, s.count),
            .gradient = {},
            .rule = rule,
            .rates = s.rates};
    }

    /// Adds the other arguments of a step: its record, the random key, the average.
    template <class Arguments>
    void finish_arguments(Arguments& arguments, const update_segment& s) const {
        arguments.step = base::step_data(s);
        arguments.key = base::key_of(s, seed_);
        if (base::ema_decay() == 0) return;
        arguments.average = {base::ema(s.group).data() + s.average, {static_cast<extent>(s.count)}};
        arguments.average_decay = base::ema_decay();
    }
    /// The step of a segment with the rule.
    template <class Storage>
    void update(const update_segment& s, const gradient_slabs& slabs, const kernel::gradient_factors* factors) const {
        using master = typename Storage::master;
        using copy = typename Storage::compute;
        using accumulate = typename Storage::accumulate;
        using state = typename Storage::state;
        static_assert(Rule::template check_state<state>());
        using step = kernel::optimizer_step<Device>;
        auto arguments = arguments_of<Storage, Rule, accumulate, state>(s, rule_);
        arguments.factors = factors;
        finish_arguments(arguments, s);
        for (int i = 0; i < Rule::moments && rule_.keeps(); ++i)
            arguments.moments[i] = base::template part_of<state>(base::moment(i, s.group).data(), s.state, s.count);
        if constexpr (has_sparse_gradient<Storage>) {
            step::template run_rows<Storage::param_rounding, Rule, master, copy, accumulate, state,
                                    Storage::copy_rounding>(base::device(), arguments,
                                                            slabs.template rows<accumulate>(s.entry));
        } else {
            arguments.gradient = base::template part_of<accumulate>(
                reinterpret_cast<std::byte*>(slabs.template group<Storage>(s.group).data()), s.gradient, s.count);
            step::template run<Storage::param_rounding, Rule, master, copy, accumulate, state, Storage::copy_rounding>(
                base::device(), arguments);
        }
    }

  private:
    friend class averaged_parameters<rule_optimizer>;

    void begin_average() {
        base::open_average();
        // Saves the parameters' values as floats, for every type, before any of them is replaced.
        assign(false, [this](std::size_t group) { return base::ema(group).data(); });
        assign(true, [this](std::size_t group) { return base::ema(group).data(); });
        base::gather();
    }
    void end_average() {
        assign(true, [this](std::size_t group) { return saved(group); });
        base::close_average();
        base::gather();
    }
    float* saved(std::size_t group) const {
        return reinterpret_cast<float*>(base::average().saved[group].data());
    }
    /// Sets the parameters to the values at from(group), or saves them there.
    template <class From>
    void assign(bool takes, const From& from) const {
        base::for_each_segment(base::average().segments, [&]<class Storage>(const update_segment& s) {
            if constexpr (!has_sparse_gradient<Storage>) assign_segment<Storage>(s, takes, from(s.group));
        });
    }
    template <class Storage>
    void assign_segment(const update_segment& s, bool takes, float* from) const {
        auto arguments = arguments_of<Storage, kernel::assign_rule, float, float>(s, {takes});
        const auto place = [&](float* slab) {
            return view<float, 1>(slab + s.average, {static_cast<extent>(s.count)});
        };
        const auto* const records = base::average().records.data();
        arguments.factors = &records->factors, arguments.step = &records->step;
        arguments.gradient = place(from);
        if (!takes) arguments.average = place(saved(s.group));
        kernel::optimizer_step<Device>::template run<rounding::nearest_even, kernel::assign_rule, typename Storage::master,
                                                     typename Storage::compute, float, float, Storage::copy_rounding>(
            base::device(), arguments);
    }

    struct launch {
        const rule_optimizer* self;
        template <class Storage>
        void operator()(const update_segment& s, const gradient_slabs& slabs,
                        const kernel::gradient_factors* factors) const {
            self->update<Storage>(s, slabs, factors);
        }
    };

    Rule rule_;
    std::uint64_t seed_;
};

// Not `inline`, so that its instantiations can be in halftone::compiled.
template <class Device, class Model, class Rule>
template <class G>
step_outcome<Device> rule_optimizer<Device, Model, Rule>::step(G&& g) {
    if constexpr (check_step<Device, Model, std::remove_cvref_t<G>>())
        return base::run_step(g, launch{this}, rule_.largest_gradient());
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
