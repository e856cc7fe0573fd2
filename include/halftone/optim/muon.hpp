// SPDX-License-Identifier: MIT
/// \file
/// Muon (Jordan et al. 2024) over the hidden matrices of a model, and AdamW over all its other parameters.
///
///     ht::muon optimizer{device, model, {.hidden = {"h"}, .lr = 0.02, .adamw = {.lr = 3e-4}}, {{"h.0", {.lr_scale = 0.5}}}};
///     optimizer.step(grads);
///
/// `hidden` selects matrices by patterns, as groups do: of the parameters that a pattern matches, Muon updates the
/// matrices, and AdamW the biases and gains. Embeddings and the head should not be selected. A matrix's momentum is
/// made nearly orthogonal (kernel/optimizer_step/muon/orthogonal.hpp) by products of the policy P, by default in bf16:
///
///     m = m + (1 - momentum) (g - m),   u = orthogonal(g + momentum (m - g)),   w = w (1 - lr weight_decay) - lr ratio u
///
/// as torch.optim.Muon computes it. Unscaling, clipping, overflow, masters, groups, schedules and the average of
/// parameters are those of the other optimizers (rule_optimizer.hpp, kernel/optimizer_step/optimizer_step.hpp).
///
/// The optimizer's rate is that of hidden matrices. The rate of the other parameters is stored as a multiple of it, so
/// that a schedule and set_lr change both. Hidden matrices of the same shape are multiplied together, at most `batch`
/// of them; their bits do not depend on it. Memory is allocated for both moments of all parameters, of which a hidden
/// matrix uses only the first, and for the largest batch: at most four copies of its matrices in P's output type.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <halftone/kernel/optimizer_step/muon/orthogonal.hpp>
#include <halftone/kernel/optimizer_step/rule/muon.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/policy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The factor of Muon's rate for a matrix of shape (out, in): torch.optim.Muon's adjust_lr_fn.
enum class muon_adjust_lr {
    original,         ///< sqrt(max(1, out / in))
    match_rms_adamw,  ///< 0.2 sqrt(max(out, in)), so that rates and decays of AdamW can be used (Liu et al. 2025)
};

// The default of P stands at the definition: CUDA 13.0's cudafe++ writes it there, too, where a declaration before has it.
template <class Device, class Model, class P>
class muon;

/// Options of ht::muon, with the defaults of torch.optim.Muon.
struct muon_options {
    std::vector<std::string> hidden{};  ///< patterns of the paths of the matrices that Muon updates
    double lr = 1e-3;                   ///< more than 0
    double weight_decay = 0.1;          ///< of hidden matrices
    double momentum = 0.95;
    bool nesterov = true;
    newton_schulz_options newton_schulz{};
    muon_adjust_lr adjust_lr_fn = muon_adjust_lr::original;
    int batch = 0;          ///< matrices of the same shape in a batched product, each with its memory; 0: all of them
    adamw_options adamw{};  ///< for all other parameters, including rate and decay; seed and ema_decay are for all parameters

    static constexpr const char* name = "muon";
    template <class Device, class Model>
    using optimizer = muon<Device, Model, amp_bf16>;
};

/// Muon and AdamW over a model's parameters; P is the policy of Muon's products. Device and model must outlive it.
template <class Device, class Model, class P = amp_bf16>
class muon : public detail::rule_optimizer<Device, Model, kernel::adamw_rule> {
    using base = detail::rule_optimizer<Device, Model, kernel::adamw_rule>;
    using direction = typename resolve<P>::output;

  public:
    /// Allocates two moments per parameter. If groups freeze parameters, construct the optimizer before accumulators.
    /// Throws argument_error for options out of range, for groups that name no parameter, for a `hidden` pattern that
    /// names no matrix or one whose gradient is sparse; state_error before the store's commit, and out_of_memory.
    muon(Device& device, Model& model, const muon_options& options,
         std::initializer_list<parameter_group> groups = {})
        : muon(device, model, options, std::vector<parameter_group>(groups)) {}
    muon(Device& device, Model& model, const muon_options& options, const std::vector<parameter_group>& groups)
        : base(device, model, {options.adamw.beta1, options.adamw.beta2, options.adamw.epsilon}, options.lr,
               options.weight_decay, options.adamw.seed, groups, options.adamw.ema_decay, muon_options::name),
          options_(options),
          records_(device) {
        check();
        detail::expect_undivided(muon_options::name, model);
        find_hidden(model.parameters());
        const double share = options.adamw.lr / options.lr;
        base::set_segments([&](const store::entry& e, detail::update_segment& s) {
            s.is_alone = is_hidden(s.entry);
            if (s.is_alone) return;
            const group_options o = detail::options_of(e.path, groups);
            s.rates = {o.lr.value_or(0), o.lr ? 0 : o.lr_scale.value_or(1) * share,
                       o.weight_decay.value_or(options.adamw.weight_decay)};
        });
    }

    /// Updates parameters, moments and copies. Throws as the other optimizers' step().
    template <class G>
    step_outcome<Device> step(G&& g) {
        if constexpr (detail::check_step<Device, Model, std::remove_cvref_t<G>>()) {
            waiting_.clear();
            const auto outcome = base::run_step(g, launch{this}, kernel::muon_momentum_rule::largest_gradient());
            update_waiting();
            return outcome;
        }
    }

    /// The options that it was constructed with.
    const muon_options& options() const { return options_; }
    /// Whether Muon updates a parameter, by its index in the store.
    bool is_hidden(std::size_t entry) const { return hidden_[entry]; }
    /// Calls f as the other optimizers' visit_slabs; a hidden matrix has one moment.
    template <class F>
    void visit_slabs(const F& f) const {
        base::visit_slabs([&](const optimizer_slab& s) {
            if (s.name != "moment_1" || !is_hidden(s.entry)) f(s);
        });
    }

  private:
    struct launch {
        muon* self;
        template <class Storage>
        void operator()(const detail::update_segment& s, const gradient_slabs& slabs,
                        const kernel::gradient_factors* factors) const {
            if constexpr (!has_sparse_gradient<Storage>) {
                if (self->is_hidden(s.entry)) return self->wait(s, slabs, factors);
            }
            self->template update<Storage>(s, slabs, factors);
        }
    };

    void check() const {
        base::check_beta(options_.adamw.beta1);
        base::check_beta(options_.adamw.beta2);
        base::check_rate("epsilon", options_.adamw.epsilon);
        base::check_rate("adamw.lr", options_.adamw.lr);
        base::check_rate("adamw.weight_decay", options_.adamw.weight_decay);
        if (options_.batch < 0) fail<argument_error>("muon: batch is ", options_.batch, "; expected 0 or more");
        if (!(options_.lr > 0))
            fail<argument_error>("muon: lr is 0; expected more than 0, since AdamW's rate is a multiple of it");
        if (!(options_.momentum >= 0 && options_.momentum < 1))
            fail<argument_error>("muon: momentum is ", options_.momentum, "; expected 0 or more and less than 1");
        const newton_schulz_options& n = options_.newton_schulz;
        if (n.steps < 0 || n.steps >= 100 || !(n.epsilon > 0) || !is_finite(n.a) || !is_finite(n.b) || !is_finite(n.c)) {
            fail<argument_error>("muon: newton_schulz has steps ", n.steps, ", epsilon ", n.epsilon, ", coefficients ", n.a,
                                 ", ", n.b, ", ", n.c, "; expected 0 to 99 steps, an epsilon of more than 0, finite ones");
        }
    }

    void find_hidden(store& parameters) {
        hidden_.resize(parameters.entries().size());
        for (const std::string& pattern : options_.hidden) {
            bool names_one = false;
            for (std::size_t i = 0; i < hidden_.size(); ++i) {
                const store::entry& e = parameters.entries()[i];
                if (e.rows == 0 || !path_matches(pattern.c_str(), e.path.c_str())) continue;
                names_one = true;
                if (parameters.groups()[e.group].has_sparse_gradients)
                    fail<argument_error>("muon: the hidden pattern '", pattern, "' names ", e.path,
                                         ", whose gradient is sparse; leave it out, so that AdamW updates it");
                hidden_[i] = !e.frozen && e.count > 0;
            }
            if (!names_one) fail<argument_error>("muon: the hidden pattern '", pattern, "' names no matrix");
        }
        take_room(parameters);
    }
    /// Allocates memory for the largest batch.
    void take_room(store& parameters) {
        std::size_t most = 0, most_gram = 0;
        for (std::size_t i = 0; i < hidden_.size(); ++i) {
            if (!hidden_[i]) continue;
            const store::entry& e = parameters.entries()[i];
            std::size_t alike = 0;
            for (std::size_t j = 0; j < hidden_.size(); ++j)
                alike += hidden_[j] && shape_of(parameters.entries()[j]) == shape_of(e) ? 1 : 0;
            const std::size_t together = std::min(alike, most_together());
            const auto least = static_cast<std::size_t>(std::min(e.rows, e.width));
            most = std::max(most, together * e.count);
            most_gram = std::max(most_gram, together * least * least);
        }
        for (buffer* b : {&first_, &second_, &grams_}) {
            const std::size_t count = b == &grams_ ? 2 * most_gram : most;
            *b = buffer(parameters.memory(), count * sizeof(direction), memory_kind::workspace);
            parameters.memory().clear(b->data(), b->bytes());
        }
    }
    std::size_t most_together() const {
        return options_.batch == 0 ? static_cast<std::size_t>(-1) : static_cast<std::size_t>(options_.batch);
    }
    static std::pair<extent, extent> shape_of(const store::entry& e) { return {e.rows, e.width}; }

    double ratio(double rows, double columns) const {
        if (options_.adjust_lr_fn == muon_adjust_lr::original) return std::sqrt(std::max(1.0, rows / columns));
        return 0.2 * std::sqrt(std::max(rows, columns));
    }

    /// Adds a hidden matrix of the step to the waiting ones. Its gradient and factors stay valid until the step ends.
    void wait(const detail::update_segment& s, const gradient_slabs& slabs, const kernel::gradient_factors* factors) {
        waiting_.push_back(s);
        slabs_ = &slabs, factors_ = factors;
    }
    /// Updates the waiting matrices; those of the same shape are multiplied together.
    void update_waiting() {
        const auto shape = [this](const detail::update_segment& s) { return shape_of(base::entry_of(s)); };
        std::stable_sort(waiting_.begin(), waiting_.end(), [&](const auto& a, const auto& b) { return shape(a) < shape(b); });
        for (auto first = waiting_.begin(); first != waiting_.end();) {
            auto last = first + 1;
            while (last != waiting_.end() && shape(*last) == shape(*first) &&
                   static_cast<std::size_t>(last - first) < most_together())
                ++last;
            update_batch({first, last});
            first = last;
        }
    }
    void update_batch(const std::vector<detail::update_segment>& all) {
        const store::entry& e = base::entry_of(all.front());
        const shape<3> shape{static_cast<extent>(all.size()), e.rows, e.width};
        const view<direction, 3> first(reinterpret_cast<direction*>(first_.data()), shape),
            second(reinterpret_cast<direction*>(second_.data()), shape);
        base::for_each_segment(all, [&]<class Storage>(const detail::update_segment& s) {
            if constexpr (!has_sparse_gradient<Storage>) find_direction<Storage>(s, matrix(first, &s - all.data()));
        });
        const view<direction, 3> orthogonal =
            detail::orthogonalize<P>(base::device(), first, second, reinterpret_cast<direction*>(grams_.data()),
                                     options_.newton_schulz, records_.data());
        base::for_each_segment(all, [&]<class Storage>(const detail::update_segment& s) {
            if constexpr (!has_sparse_gradient<Storage>) update_matrix<Storage>(s, matrix(orthogonal, &s - all.data()));
        });
    }

    /// Updates the momentum of a matrix and writes its direction.
    template <class Storage>
    void find_direction(detail::update_segment s, const view<direction, 2>& to) const {
        using accumulate = typename Storage::accumulate;
        using state = typename Storage::state;
        static_assert(kernel::muon_momentum_rule::check_state<state>());
        s.count = base::entry_of(s).count;
        const auto gradient = base::template part_of<accumulate>(
            reinterpret_cast<std::byte*>(slabs_->template group<Storage>(s.group).data()), s.gradient, s.count);
        kernel::optimizer_step<Device>::template run<rounding::nearest_even>(
            base::device(),
            kernel::optimizer_step_arguments<kernel::muon_momentum_rule, direction, direction, accumulate, state>{
                .master = flatten(to),
                .gradient = gradient,
                .moments = {base::template part_of<state>(base::moment(0, s.group).data(), s.gradient, s.count)},
                .rule = {options_.momentum, options_.nesterov},
                .factors = factors_,
                .step = base::step_data(s),
                .key = base::key_of(s, options_.adamw.seed)});
    }
    /// Updates a matrix by its orthogonal direction.
    template <class Storage>
    void update_matrix(detail::update_segment s, const view<direction, 2>& orthogonal) const {
        const store::entry& e = base::entry_of(s);
        s.count = e.count;
        auto arguments = base::template arguments_of<Storage, kernel::muon_rule, direction, float>(
            s, {ratio(static_cast<double>(e.rows), static_cast<double>(e.width))});
        base::finish_arguments(arguments, s);
        arguments.gradient = flatten(orthogonal);
        arguments.factors = &records_.data()->none;
        kernel::optimizer_step<Device>::template run<Storage::param_rounding, kernel::muon_rule, typename Storage::master,
                                                     typename Storage::compute, direction, float, Storage::copy_rounding>(
            base::device(), arguments);
    }

    muon_options options_;
    std::vector<bool> hidden_;          // by parameter of the store
    buffer first_, second_, grams_;     // memory for the largest batch
    std::vector<detail::update_segment> waiting_;         // hidden matrices of the current step
    const gradient_slabs* slabs_ = nullptr;               // their gradients
    const kernel::gradient_factors* factors_ = nullptr;
    detail::device_value<detail::orthogonal_records, Device> records_;
};

template <class Device, class Model>
muon(Device&, Model&, const muon_options&) -> muon<Device, Model>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
