// SPDX-License-Identifier: MIT
/// \file
/// Stochastic gradient descent with momentum, as torch.optim.SGD computes it.
///
///     ht::sgd optimizer{device, model, {.lr = 0.1f, .momentum = 0.9f, .kind = ht::nesterov}};
///     optimizer.step(grads);
///
/// The device may be any whose kernels the program includes: <halftone/kernel.hpp> has those of ht::cpu,
/// <halftone/cuda.cuh> those of ht::cuda.
///
/// Numeric contract: kernel/sgd/sgd.hpp has it. A step whose gradients are not finite, or whose momentum would not be,
/// changes nothing.
///
/// A parameter that no backward pass of the window reached stays as it is: it neither decays nor moves on, nor counts
/// the step.
///
/// Of a table with a sparse gradient (nn/sparse_embedding.hpp) a step changes the rows that were looked up in its
/// window, and no others. Without momentum and decay the result has the bits of a dense gradient. With them it is
/// another rule: a row that was not looked up neither decays nor moves on, and keeps its momentum until it is looked up
/// again.
#pragma once

#include <halftone/kernel/sgd/sgd.hpp>
#include <halftone/optim/optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

using kernel::momentum_kind;
/// {.kind = ht::nesterov}.
inline constexpr momentum_kind nesterov = momentum_kind::nesterov;

/// SGD's rates, as torch.optim.SGD has them.
struct sgd_options {
    double lr = 1e-3;
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;
    momentum_kind kind = momentum_kind::plain;
    std::uint64_t seed = 0;  ///< of stochastic rounding, where the policy asks for it
};

/// Stochastic gradient descent over a model's parameters. It refers to device and model, which must live longer.
template <class Device, class Model>
class sgd : public detail::optimizer<Device, Model, 1> {
    using base = detail::optimizer<Device, Model, 1>;

  public:
    /// Takes memory for one moment a parameter where there is momentum. Call it before accumulators are made where
    /// groups freeze parameters. Throws argument_error for options out of range and for a group that names no
    /// parameter, state_error before the store's commit, out_of_memory.
    sgd(Device& device, Model& model, const sgd_options& options = {},
        std::initializer_list<parameter_group> groups = {})
        : sgd(device, model, options, std::vector<parameter_group>(groups)) {}
    sgd(Device& device, Model& model, const sgd_options& options, std::vector<parameter_group> groups)
        : base("sgd", device, model, options.lr, options.weight_decay, std::move(groups),
               options.momentum == 0 ? base::kept::no : base::kept::yes),
          options_(options) {
        base::check_rate("momentum", options.momentum);
        if (!is_finite(options.dampening))
            fail<argument_error>("sgd: dampening is ", options.dampening, "; expected a number");
        if (options.kind == momentum_kind::nesterov && (options.momentum == 0 || options.dampening != 0)) {
            fail<argument_error>("sgd: Nesterov's momentum with momentum ", options.momentum, " and dampening ",
                                 options.dampening, "; expected a momentum and no dampening");
        }
    }

    /// Updates parameters, momentum and copies. Throws state_error where the same gradients were used before, where the
    /// order of unscale, step and update is another, or where they went through fp16 and no scaler unscaled them;
    /// argument_error for gradients of other models.
    template <class G>
    step_outcome<Device> step(G&& g) {
        if constexpr (detail::check_step<Device, Model, std::remove_cvref_t<G>>()) {
            return base::run_step(g, launch{this}, kernel::sgd_largest_gradient(coefficients()));
        }
    }

    const sgd_options& options() const { return options_; }

  private:
    struct launch {
        const sgd* self;
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
            "halftone: sgd: momentum adds up gradients and overflows in fp16 (role `state`): take bfloat16 or "
            "float, ht::with_state<P, ht::bfloat16>");
        const store::group& g = base::group_of(s);
        view<accumulate, 1> gradient;
        if constexpr (!has_sparse_gradient<Storage>) {
            gradient = base::template part_of<accumulate>(
                reinterpret_cast<std::byte*>(slabs.template group<Storage>(s.group).data()), s.gradient, s.count);
        }
        const kernel::sgd_arguments<master, copy, accumulate, state> arguments{
            .master = base::template part_of<master>(g.master.data(), s.master, s.count),
            .copy = g.copy_bytes == 0 ? view<copy, 1>{} : base::template part_of<copy>(g.copy.data(), s.copy, s.count),
            .gradient = gradient,
            .momentum = options_.momentum == 0
                            ? view<state, 1>{}
                            : base::template part_of<state>(base::moment(0, s.group).data(), s.gradient, s.count),
            .coefficients = coefficients(),
            .rates = s.rates,
            .factors = factors,
            .step = base::step_data(s),
            .key = base::key_of(s, options_.seed)};
        if constexpr (has_sparse_gradient<Storage>) {
            kernel::sgd<Device>::template run_rows<Storage::param_rounding, master, copy, accumulate, state,
                                                   Storage::copy_rounding>(base::device(), arguments,
                                                                           slabs.template rows<accumulate>(s.entry));
        } else {
            kernel::sgd<Device>::template run<Storage::param_rounding, master, copy, accumulate, state,
                                              Storage::copy_rounding>(base::device(), arguments);
        }
    }

    kernel::sgd_coefficients coefficients() const { return {options_.momentum, options_.dampening, options_.kind}; }

    sgd_options options_;
};

template <class Device, class Model>
sgd(Device&, Model&) -> sgd<Device, Model>;
template <class Device, class Model>
sgd(Device&, Model&, const sgd_options&) -> sgd<Device, Model>;
template <class Device, class Model>
sgd(Device&, Model&, const sgd_options&, std::initializer_list<parameter_group>) -> sgd<Device, Model>;
template <class Device, class Model>
sgd(Device&, Model&, const sgd_options&, std::vector<parameter_group>) -> sgd<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
