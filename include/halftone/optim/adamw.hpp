// SPDX-License-Identifier: MIT
/// \file
/// AdamW (Loshchilov and Hutter 2019) over a model's parameters, as torch.optim.AdamW computes it.
///
///     ht::adamw optimizer{device, model, {.lr = 3e-4f, .weight_decay = 0.1f},
///                         {{"*.norm", {.weight_decay = 0}}, {"h.0", ht::frozen}}};
///     optimizer.step(grads);               // one read-write pass, 30 bytes a parameter in fp32 with a 16-bit copy
///
/// The device may be any whose kernels the program includes: <halftone/kernel.hpp> has those of ht::cpu,
/// <halftone/cuda.cuh> those of ht::cuda.
///
/// Numeric contract: kernel/adamw/adamw.hpp has it. A step whose gradients are not finite, or whose squares would not be,
/// changes nothing.
///
/// A parameter that no backward pass of the window reached stays as it is: it neither decays nor moves on, nor counts
/// the step. Its bias corrections are those of its own steps.
///
/// Of a table with a sparse gradient (nn/sparse_embedding.hpp) a step changes the rows that were looked up in its
/// window, and no others: a row that was not keeps its values and its moments, where AdamW over a dense gradient would
/// decay both and go on moving it. Rows of every step have the bits of a dense gradient. torch.optim.SparseAdam is lazy
/// in this way, too; it has no decay, which here is decoupled and of the rows that are changed, and adds epsilon before
/// the bias is corrected.
#pragma once

#include <halftone/kernel/adamw/adamw.hpp>
#include <halftone/optim/optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// AdamW's rates, as torch.optim.AdamW has them.
struct adamw_options {
    double lr = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 1e-2;
    std::uint64_t seed = 0;  ///< of stochastic rounding, where the policy asks for it
};

/// AdamW over a model's parameters. It refers to device and model, which must live longer.
template <class Device, class Model>
class adamw : public detail::optimizer<Device, Model, 2> {
    using base = detail::optimizer<Device, Model, 2>;

  public:
    /// Takes memory for two moments a parameter. Call it before accumulators are made where groups freeze parameters.
    /// Throws argument_error for options out of range and for a group that names no parameter, state_error before the
    /// store's commit, out_of_memory.
    adamw(Device& device, Model& model, const adamw_options& options = {},
          std::initializer_list<parameter_group> groups = {})
        : adamw(device, model, options, std::vector<parameter_group>(groups)) {}
    adamw(Device& device, Model& model, const adamw_options& options, std::vector<parameter_group> groups)
        : base("adamw", device, model, options.lr, options.weight_decay, std::move(groups), base::kept::yes),
          options_(options) {
        for (const double beta : {options.beta1, options.beta2}) {
            if (!(beta >= 0 && beta < 1))
                fail<argument_error>("adamw: a beta is ", beta, "; expected 0 or more and less than 1");
        }
        base::check_rate("epsilon", options.epsilon);
    }

    /// Updates parameters, moments and copies. Throws state_error where the same gradients were used before, where the
    /// order of unscale, step and update is another, or where they went through fp16 and no scaler unscaled them;
    /// argument_error for gradients of other models.
    template <class G>
    step_outcome<Device> step(G&& g);

    const adamw_options& options() const { return options_; }

  private:
    struct launch {
        const adamw* self;
        template <class Storage>
        void operator()(const detail::update_segment& s, const gradient_slabs& slabs,
                        const kernel::gradient_factors* factors) const {
            self->update<Storage>(s, slabs, factors);
        }
    };

    template <class Storage>
    void update(const detail::update_segment& s, const gradient_slabs& slabs,
                const kernel::gradient_factors* factors) const {
        using master = typename Storage::master;
        using copy = typename Storage::compute;
        using accumulate = typename Storage::accumulate;
        using state = typename Storage::state;
        static_assert(
            !narrow_range<state>,
            "halftone: adamw: the squares of gradients underflow in fp16 (role `state`): take bfloat16 or float, "
            "ht::with_state<P, ht::bfloat16>");
        const store::group& g = base::group_of(s);
        view<accumulate, 1> gradient;
        if constexpr (!has_sparse_gradient<Storage>) {
            gradient = base::template part_of<accumulate>(
                reinterpret_cast<std::byte*>(slabs.template group<Storage>(s.group).data()), s.gradient, s.count);
        }
        const kernel::adamw_arguments<master, copy, accumulate, state> arguments{
            .master = base::template part_of<master>(g.master.data(), s.master, s.count),
            .copy = g.copy_bytes == 0 ? view<copy, 1>{} : base::template part_of<copy>(g.copy.data(), s.copy, s.count),
            .gradient = gradient,
            .first = base::template part_of<state>(base::moment(0, s.group).data(), s.gradient, s.count),
            .second = base::template part_of<state>(base::moment(1, s.group).data(), s.gradient, s.count),
            .decays = {options_.beta1, options_.beta2, options_.epsilon},
            .rates = s.rates,
            .factors = factors,
            .step = base::step_data(s),
            .key = base::key_of(s, options_.seed)};
        if constexpr (has_sparse_gradient<Storage>) {
            kernel::adamw<Device>::template run_rows<Storage::param_rounding, master, copy, accumulate, state,
                                                     Storage::copy_rounding>(base::device(), arguments,
                                                                             slabs.template rows<accumulate>(s.entry));
        } else {
            kernel::adamw<Device>::template run<Storage::param_rounding, master, copy, accumulate, state,
                                                Storage::copy_rounding>(base::device(), arguments);
        }
    }

    adamw_options options_;
};

// Not `inline`, so that halftone::compiled can have it.
template <class Device, class Model>
template <class G>
step_outcome<Device> adamw<Device, Model>::step(G&& g) {
    if constexpr (detail::check_step<Device, Model, std::remove_cvref_t<G>>()) {
        return base::run_step(g, launch{this}, kernel::adamw_largest_gradient);
    }
}

template <class Device, class Model>
adamw(Device&, Model&) -> adamw<Device, Model>;
template <class Device, class Model>
adamw(Device&, Model&, const adamw_options&) -> adamw<Device, Model>;
template <class Device, class Model>
adamw(Device&, Model&, const adamw_options&, std::initializer_list<parameter_group>) -> adamw<Device, Model>;
template <class Device, class Model>
adamw(Device&, Model&, const adamw_options&, std::vector<parameter_group>) -> adamw<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
