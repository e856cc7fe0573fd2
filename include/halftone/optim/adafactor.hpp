// SPDX-License-Identifier: MIT
/// \file
/// Adafactor (Shazeer and Stern 2018) over a model's parameters, as torch.optim.Adafactor computes it: an optimizer
/// whose state is small compared with the parameters. It stores one fp32 variance for each row and each column of a
/// matrix, where AdamW stores two moments for each element; a parameter that is not a matrix has one variance for each
/// element.
///
///     ht::adafactor optimizer{device, model, {.lr = 0.01, .weight_decay = 0.1}, {{"*.norm", {.weight_decay = 0}}}};
///     optimizer.step(grads);               // three passes over gradients, two over parameters: 26 bytes per parameter in fp32
///
/// In step t the rate is min(lr, 1 / sqrt(t)) times the larger of the parameter's root mean square and epsilon2, so
/// that it is relative to the parameter's size. An update whose root mean square exceeds d is scaled down to d. The
/// decay is lr weight_decay times the parameter, as in AdamW. kernel/optimizer_step/adafactor/adafactor.hpp has the
/// formulas and the contract.
///
/// The program includes the kernels of its device: <halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda.
///
/// A step changes nothing if a gradient, or its square, is not finite. A parameter that no backward pass of the window
/// reached is unchanged, and the step does not count for it: t counts each parameter's steps. Tables with sparse
/// gradients are rejected, as by torch.optim.Adafactor. PyTorch factors the last two axes of parameters with more axes;
/// here these have one variance for each element.
#pragma once

#include <optional>

#include <halftone/kernel/optimizer_step/adafactor/adafactor.hpp>
#include <halftone/optim/rule_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

template <class Device, class Model>
class adafactor;

/// Adafactor's hyperparameters, with the defaults of torch.optim.Adafactor, whose eps is (epsilon1, epsilon2).
struct adafactor_options {
    double lr = 1e-2;           ///< the upper limit of the relative rate
    double beta2_decay = -0.8;  ///< the weight of new squares is t^beta2_decay in step t; 0 or less
    std::optional<double> epsilon1 = std::nullopt;  ///< lower limit of a variance's root, 2^-63 or more; none: distance from
                                                    ///< 1 to the next number of the parameter's type, 2^-23 for float
    double epsilon2 = 1e-3;                         ///< lower limit of the root mean square of a parameter
    double d = 1;                                   ///< upper limit of the root mean square of an update; 1 or more
    double weight_decay = 0;
    std::uint64_t seed = 0;  ///< seed of stochastic rounding, if the policy uses it
    double ema_decay = 0;    ///< decay of the parameters' moving average (optim/average.hpp); 0: no average

    static constexpr const char* name = kernel::adafactor_rule::name;
    template <class Device, class Model>
    using optimizer = adafactor<Device, Model>;
};

/// Adafactor over a model's parameters. Device and model must outlive it.
template <class Device, class Model>
class adafactor : public detail::rule_optimizer<Device, Model, kernel::adafactor_rule> {
    using base = detail::rule_optimizer<Device, Model, kernel::adafactor_rule>;

  public:
    /// Allocates the variances. If groups freeze parameters, construct the optimizer before accumulators. Throws
    /// argument_error for options out of range, for a group that names no parameter and for a table with a sparse
    /// gradient, state_error before the store's commit, and out_of_memory.
    adafactor(Device& device, Model& model, const adafactor_options& options = {},
              std::initializer_list<parameter_group> groups = {})
        : adafactor(device, model, options, std::vector<parameter_group>(groups)) {}
    adafactor(Device& device, Model& model, const adafactor_options& options, std::vector<parameter_group> groups)
        : base(device, model, {options.beta2_decay, options.epsilon1.value_or(0), options.epsilon2, options.d}, options.lr,
               options.weight_decay, options.seed, std::move(groups), options.ema_decay),
          options_(options),
          record_(device) {
        check();
        detail::expect_undivided("adafactor", model);
        parameters_ = &model.parameters();
        place(model.parameters());
        base::set_segments([](const store::entry&, detail::update_segment& s) { s.is_alone = true; });
    }

    /// Updates parameters, variances and copies. Throws as the other optimizers' step().
    template <class G>
    step_outcome<Device> step(G&& g) {
        if constexpr (detail::check_step<Device, Model, std::remove_cvref_t<G>>())
            return base::run_step(g, launch{this}, kernel::adafactor_rule::largest_gradient());
    }

    /// The variances of the rows and columns of a matrix; for other parameters `rows` is empty and `columns` has one
    /// variance per element.
    struct parameter_variances {
        const_view<float, 1> rows, columns;
    };
    /// The variances of a parameter, in the device's memory. moment(0, group) is the memory of a whole group of the
    /// store, in fp32 for every `state` type. Throws argument_error for parameters of other models and frozen ones.
    template <class Storage, int Rank>
    parameter_variances variances(const parameter<Storage, Rank>& p) const {
        if (!base::updates(p)) fail<argument_error>("adafactor: variances() of a parameter that it does not update");
        const placed s = placed_of(p.owner().entries()[p.entry()], p.entry());
        return {s.rows, s.columns};
    }
    /// Calls f as the other optimizers' visit_slabs, for the variances.
    template <class F>
    void visit_slabs(const F& f) const {
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const store::entry& e = parameters_->entries()[i];
            if (e.frozen) continue;
            const placed s = placed_of(e, i);
            const auto slab = [&](const char* name, const view<float, 1>& values) {
                f(optimizer_slab{name, i, reinterpret_cast<std::byte*>(values.data()), sizeof(float),
                                 number_traits<float>::name, {values.size()}});
            };
            if (e.rows != 0) slab("row_variance", s.rows);
            slab("column_variance", s.columns);
        }
        base::visit_averages(f);
    }
    /// The options that it was constructed with.
    const adafactor_options& options() const { return options_; }

  private:
    static constexpr std::size_t aligned = 16;  // floats of a cache line

    struct launch {
        const adafactor* self;
        template <class Storage>
        void operator()(const detail::update_segment& s, const gradient_slabs& slabs,
                        const kernel::gradient_factors* factors) const {
            if constexpr (!has_sparse_gradient<Storage>) self->template update_parameter<Storage>(s, slabs, factors);
        }
    };
    struct placed {
        halftone::shape<2> shape;
        view<float, 1> rows, columns;
    };

    void check() const {
        const adafactor_options& o = options_;
        if (!(o.beta2_decay <= 0 && is_finite(o.beta2_decay)))
            fail<argument_error>("adafactor: beta2_decay is ", o.beta2_decay, "; expected 0 or less");
        if (o.epsilon1 && !(*o.epsilon1 >= 0x1p-63 && *o.epsilon1 <= 0x1p63)) {
            fail<argument_error>("adafactor: epsilon1 is ", *o.epsilon1,
                                 "; expected 2^-63 or more, so that its square is a normal float, and 2^63 or less");
        }
        if (!(o.d >= 1 && is_finite(o.d))) fail<argument_error>("adafactor: d is ", o.d, "; expected 1 or more");
        base::check_rate("epsilon2", o.epsilon2);
    }

    /// Assigns each parameter's variances a position in the memory of its group.
    void place(const store& parameters) {
        std::vector<std::size_t> bytes(parameters.groups().size());
        for (const store::entry& e : parameters.entries()) {
            places_.push_back(bytes[e.group] / sizeof(float));
            if (e.frozen) continue;
            if (parameters.groups()[e.group].has_sparse_gradients)
                fail<argument_error>("adafactor: the gradient of ", e.path,
                                     " is sparse; use a dense gradient, or another optimizer");
            const std::size_t rows = e.rows == 0 ? 0 : static_cast<std::size_t>(e.rows);
            const std::size_t columns = e.rows == 0 ? e.count : static_cast<std::size_t>(e.width);
            const std::size_t variances = (round_up(rows, aligned) + round_up(columns, aligned)) * sizeof(float);
            bytes[e.group] += variances;
            parameters.memory().usage().note_parameter(memory_kind::moment, e.path.c_str(),
                                                       static_cast<std::ptrdiff_t>(variances));
        }
        for (std::size_t g = 0; g < bytes.size(); ++g) base::take_moment(0, g, bytes[g]);
    }
    placed placed_of(const store::entry& e, std::size_t index) const {
        const bool is_matrix = e.rows != 0;
        const shape<2> shape{is_matrix ? e.rows : 1, is_matrix ? e.width : static_cast<extent>(e.count)};
        float* const first = reinterpret_cast<float*>(base::moment(0, e.group).data()) + places_[index];
        if (!is_matrix) return {shape, {}, {first, {shape[1]}}};
        return {shape, {first, {shape[0]}}, {first + round_up(static_cast<std::size_t>(shape[0]), aligned), {shape[1]}}};
    }

    template <class Storage>
    void update_parameter(detail::update_segment s, const gradient_slabs& slabs,
                          const kernel::gradient_factors* factors) const {
        using accumulate = typename Storage::accumulate;
        static_assert(
            !wide_number<typename Storage::param>,
            "halftone: adafactor steps over floats, which do not hold these parameters (role `param`): take ht::adamw, "
            "ht::lion, ht::sgd or ht::muon, whose steps over them are in double");
        const store::entry& e = base::entry_of(s);
        s.count = e.count;
        const placed now = placed_of(e, s.entry);
        const kernel::adafactor_rule rule{options_.beta2_decay,
                                          options_.epsilon1.value_or(2 * unit_roundoff<typename Storage::param>),
                                          options_.epsilon2, options_.d};
        auto arguments = base::template arguments_of<Storage, kernel::adafactor_rule, accumulate, float>(s, rule);
        base::finish_arguments(arguments, s);
        arguments.gradient = base::template part_of<accumulate>(
            reinterpret_cast<std::byte*>(slabs.template group<Storage>(s.group).data()), s.gradient, s.count);
        arguments.factors = factors;
        kernel::adafactor_step<Device>::template run<Storage::param_rounding, Storage::copy_rounding>(
            base::device(), kernel::adafactor_arguments<typename Storage::master, typename Storage::compute, accumulate>{
                                arguments, now.shape, now.rows, now.columns, record_.data()});
    }

    adafactor_options options_;
    store* parameters_ = nullptr;
    std::vector<std::size_t> places_;  // by parameter of the store, in floats
    detail::device_value<kernel::adafactor_record, Device> record_;
};

template <class Device, class Model>
adafactor(Device&, Model&) -> adafactor<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
