// SPDX-License-Identifier: MIT
/// \file
/// An optimizer made from a rule (kernel/optimizer_step/optimizer_step.hpp): all of adamw.hpp, lion.hpp and sgd.hpp
/// except their options.
///
///     template <class Device, class Model>
///     class mine : public detail::rule_optimizer<Device, Model, kernel::my_rule> { ... };       // a constructor, options()
#pragma once

#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/optim/optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// An optimizer by a rule over a model's parameters. Device and model must outlive it.
template <class Device, class Model, class Rule>
class rule_optimizer : public optimizer<Device, Model, Rule::moments> {
    using base = optimizer<Device, Model, Rule::moments>;

  public:
    /// Updates parameters, moments and copies. Throws state_error if the same gradients were used before, if unscale,
    /// step and update are called in another order, or if the gradients passed through fp16 and no scaler unscaled
    /// them; argument_error for gradients of other models.
    template <class G>
    step_outcome<Device> step(G&& g);

  protected:
    /// `seed` is for stochastic rounding. Allocates the moments that the rule has.
    rule_optimizer(Device& device, Model& model, const Rule& rule, double lr, double weight_decay, std::uint64_t seed,
                   std::vector<parameter_group> groups)
        : base(Rule::name, device, model, lr, weight_decay, std::move(groups),
               rule.keeps() ? base::kept::yes : base::kept::no),
          rule_(rule),
          seed_(seed) {}

    /// Throws argument_error unless a beta, the factor of an exponential mean, is 0 or more and less than 1.
    static void check_beta(double beta) {
        if (!(beta >= 0 && beta < 1))
            fail<argument_error>(Rule::name, ": a beta is ", beta, "; expected 0 or more and less than 1");
    }

  private:
    struct launch {
        const rule_optimizer* self;
        template <class Storage>
        void operator()(const update_segment& s, const gradient_slabs& slabs,
                        const kernel::gradient_factors* factors) const {
            self->update<Storage>(s, slabs, factors);
        }
    };

    template <class Storage>
    void update(const update_segment& s, const gradient_slabs& slabs, const kernel::gradient_factors* factors) const {
        using master = typename Storage::master;
        using copy = typename Storage::compute;
        using accumulate = typename Storage::accumulate;
        using state = typename Storage::state;
        static_assert(Rule::template check_state<state>());
        using step = kernel::optimizer_step<Device>;
        const store::group& g = base::group_of(s);
        kernel::optimizer_step_arguments<Rule, master, copy, accumulate, state> arguments{
            .master = base::template part_of<master>(g.master.data(), s.master, s.count),
            .copy = g.copy_bytes == 0 ? view<copy, 1>{} : base::template part_of<copy>(g.copy.data(), s.copy, s.count),
            .gradient = {},
            .rule = rule_,
            .rates = s.rates,
            .factors = factors,
            .step = base::step_data(s),
            .key = base::key_of(s, seed_)};
        for (int i = 0; i < Rule::moments && rule_.keeps(); ++i)
            arguments.moments[i] = base::template part_of<state>(base::moment(i, s.group).data(), s.gradient, s.count);
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
