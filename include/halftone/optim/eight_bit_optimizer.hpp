// SPDX-License-Identifier: MIT
/// \file
/// An optimizer constructed from a rule, whose moments are stored in 8 bits: all of adamw_8bit.hpp except its options.
///
/// Layout of the state, by group of the store: for each moment, one slab of codes with a byte per element, in which
/// every parameter begins at a multiple of 256 (kernel::eight_bit_block), in the store's order; one slab of absmax
/// values with a float for every 256 codes; and one slab of the moments that are stored in the policy's `state` type,
/// parameter after parameter. Blocks are counted from a parameter's first element, as in bitsandbytes, so that a
/// parameter's state does not depend on its neighbours.
#pragma once

#include <halftone/kernel/optimizer_step/eight_bit/eight_bit.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/optim/rule_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// An optimizer with a rule over a model's parameters, with moments in 8 bits. Device and model must outlive it.
template <class Device, class Model, class Rule>
class eight_bit_optimizer : public rule_optimizer<Device, Model, Rule> {
    using base = rule_optimizer<Device, Model, Rule>;
    static constexpr std::size_t block = static_cast<std::size_t>(kernel::eight_bit_block);

  public:
    ~eight_bit_optimizer() { parameters_->await_readers(); }

    /// Updates parameters, moments and copies. Throws as the other optimizers' step().
    template <class G>
    step_outcome<Device> step(G&& g);

    /// Whether a parameter's moments are in 8 bits, by its index in the store.
    bool is_eight_bit(std::size_t entry) const { return places_[entry].is_eight_bit; }
    /// The codes of moment number `which` of a group of the store, in the device's memory, with the layout at the top
    /// of this file. To resume a run, write them, together with absmax() and moment().
    std::span<std::uint8_t> codes(int which, std::size_t group) const {
        const buffer& b = codes_[at(which, group)];
        return {reinterpret_cast<std::uint8_t*>(b.data()), b.bytes()};
    }
    /// The largest magnitudes of the blocks of codes.
    std::span<float> absmax(int which, std::size_t group) const {
        const buffer& b = absmax_[at(which, group)];
        return {reinterpret_cast<float*>(b.data()), b.bytes() / sizeof(float)};
    }
    /// The first element of a parameter's codes in its group's slab, or of its moments in that of moment().
    std::size_t place(std::size_t entry) const { return places_[entry].first; }
    /// Calls f as the other optimizers' visit_slabs, also for codes and absmax values.
    template <class F>
    void visit_slabs(const F& f) const {
        for (int which = 0; which < Rule::moments; ++which) {
            for (std::size_t i = 0; i < places_.size(); ++i) {
                const store::entry& e = parameters_->entries()[i];
                if (!e.frozen) visit_moment(which, i, e, f);
            }
        }
        base::visit_averages(f);
    }

  protected:
    /// Parameters of `min_8bit_size` elements or more have moments in 8 bits, unless their gradient is sparse.
    eight_bit_optimizer(const char* name, Device& device, Model& model, const Rule& rule, double lr, double weight_decay,
                        std::uint64_t seed, std::vector<parameter_group> groups, double ema_decay, extent min_8bit_size)
        : base(device, model, rule, lr, weight_decay, seed, std::move(groups), ema_decay, name, false),
          maps_(device, kernel::make_dynamic_maps()) {
        if (min_8bit_size < 0)
            fail<argument_error>(name, ": min_8bit_size is ", min_8bit_size, "; expected 0 or more");
        parameters_ = &model.parameters();
        make_places(model.parameters(), static_cast<std::size_t>(min_8bit_size));
        base::set_segments([&](const store::entry& e, update_segment& s) {
            s.is_eight_bit = places_[s.entry].is_eight_bit;
            s.state = places_[s.entry].first;
            // The gap after it is not a part of its last block.
            if (s.is_eight_bit) s.count = elements_here(*parameters_, e);
        });
    }

  private:
    struct state_place {
        bool is_eight_bit = false;
        std::size_t first = 0;  // index in the group's codes, or in its other moments
    };
    struct launch {
        const eight_bit_optimizer* self;
        template <class Storage>
        void operator()(const update_segment& s, const gradient_slabs& slabs,
                        const kernel::gradient_factors* factors) const {
            if constexpr (!has_sparse_gradient<Storage>) {
                if (s.is_eight_bit) return self->template update_codes<Storage>(s, slabs, factors);
            }
            self->template update<Storage>(s, slabs, factors);
        }
    };

    template <class F>
    void visit_moment(int which, std::size_t entry, const store::entry& e, const F& f) const {
        const std::string number = std::to_string(which);
        const state_place& p = places_[entry];
        const store::group& g = parameters_->groups()[e.group];
        const std::size_t count = elements_here(*parameters_, e), first = parameters_->updated_here(e).first;
        if (parameters_->is_divided() && count == 0) return;
        const std::vector<extent> shape =
            parameters_->is_divided() ? std::vector<extent>{static_cast<extent>(count)} : e.shape;
        if (!p.is_eight_bit) {
            return f(optimizer_slab{"moment_" + number, entry, base::moment(which, e.group).data() + p.first * g.state_bytes,
                                    g.state_bytes, g.state_type->name, shape, first});
        }
        f(optimizer_slab{"codes_" + number, entry, codes_[at(which, e.group)].data() + p.first, 1, "byte", shape, first});
        f(optimizer_slab{"absmax_" + number,
                         entry,
                         absmax_[at(which, e.group)].data() + p.first / block * sizeof(float),
                         sizeof(float),
                         number_traits<float>::name,
                         {static_cast<extent>(ceil_div(count, block))},
                         first / block});
    }

    /// The number of a parameter's elements that this rank updates.
    static std::size_t elements_here(const store& parameters, const store::entry& e) {
        const element_range part = parameters.updated_here(e);
        return part.count == 0 ? 0 : std::min(part.count, e.count - part.first);
    }
    std::size_t at(int which, std::size_t group) const { return static_cast<std::size_t>(which) * groups_ + group; }

    void make_places(store& parameters, std::size_t min_8bit_size) {
        groups_ = parameters.groups().size();
        places_.resize(parameters.entries().size());
        std::vector<std::size_t> codes(groups_), others(groups_);
        const auto take = [](std::size_t& end, std::size_t room) { return std::exchange(end, end + room); };
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const store::entry& e = parameters.entries()[i];
            if (e.frozen) continue;
            state_place& p = places_[i];
            p.is_eight_bit = e.count >= min_8bit_size && !parameters.groups()[e.group].has_sparse_gradients;
            const std::size_t count = elements_here(parameters, e);
            p.first = p.is_eight_bit ? take(codes[e.group], round_up(count, block))
                                     : take(others[e.group], parameters.updated_here(e).count);
        }
        for (int which = 0; which < Rule::moments; ++which) {
            for (std::size_t g = 0; g < groups_; ++g) {
                codes_.push_back(cleared(parameters, codes[g]));
                absmax_.push_back(cleared(parameters, codes[g] / block * sizeof(float)));
                base::take_moment(which, g, others[g] * parameters.groups()[g].state_bytes);
            }
            for (std::size_t i = 0; i < places_.size(); ++i) tell(parameters, which, i);
        }
    }
    static buffer cleared(store& parameters, std::size_t bytes) {
        buffer b(parameters.memory(), bytes, memory_kind::moment);
        parameters.memory().clear(b.data(), bytes);
        return b;
    }
    /// Tells the memory's listener of the bytes of one moment of a parameter.
    void tell(const store& parameters, int which, std::size_t entry) const {
        const store::entry& e = parameters.entries()[entry];
        const state_place& p = places_[entry];
        if (e.frozen) return;
        const auto note = [&](std::size_t bytes, const std::byte* begin) {
            parameters.memory().usage().note_parameter(memory_kind::moment, e.path.c_str(), static_cast<std::ptrdiff_t>(bytes),
                                                       begin);
        };
        if (!p.is_eight_bit) {
            const std::size_t each = parameters.groups()[e.group].state_bytes;
            return note(parameters.updated_here(e).count * each, base::moment(which, e.group).data() + p.first * each);
        }
        const std::size_t room = round_up(elements_here(parameters, e), block), slab = at(which, e.group);
        note(room, codes_[slab].data() + p.first);
        // The slab of absmax values is rounded up as a whole; a parameter counts with the bytes that it adds to that.
        const auto absmaxes = [](std::size_t end) { return round_up(end / block * sizeof(float), block_alignment); };
        note(absmaxes(p.first + room) - absmaxes(p.first), absmax_[slab].data() + p.first / block * sizeof(float));
    }

    /// The step of a segment with moments in 8 bits.
    template <class Storage>
    void update_codes(const update_segment& s, const gradient_slabs& slabs, const kernel::gradient_factors* factors) const {
        using master = typename Storage::master;
        using copy = typename Storage::compute;
        using accumulate = typename Storage::accumulate;
        static_assert(
            !wide_number<master>,
            "halftone: an optimizer with moments in 8 bits steps over floats, which do not hold these parameters (role "
            "`param`): take ht::adamw, ht::lion or ht::sgd, whose steps over them are in double");
        if constexpr (!wide_number<master>) {
            kernel::eight_bit_step_arguments<Rule, master, copy, accumulate> a{
                .step = base::template arguments_of<Storage, Rule, accumulate, float>(s, base::rule()),
                .maps = maps_.data()};
            a.step.factors = factors;
            base::finish_arguments(a.step, s);
            a.step.gradient = base::template part_of<accumulate>(
                reinterpret_cast<std::byte*>(slabs.template group<Storage>(s.group).data()), s.gradient, s.count);
            for (int which = 0; which < Rule::moments; ++which) {
                const std::size_t slab = at(which, s.group);
                a.codes[which] = base::template part_of<std::uint8_t>(codes_[slab].data(), s.state, s.count);
                a.absmax[which] =
                    base::template part_of<float>(absmax_[slab].data(), s.state / block, ceil_div(s.count, block));
            }
            kernel::eight_bit_step<Device>::template run<Storage::param_rounding, Rule, master, copy, accumulate,
                                                         Storage::copy_rounding>(base::device(), a);
        }
    }

    store* parameters_ = nullptr;
    std::size_t groups_ = 0;
    std::vector<state_place> places_;      // by parameter of the store
    std::vector<buffer> codes_, absmax_;  // by moment and group
    device_value<kernel::dynamic_maps, Device> maps_;
};

// Not `inline`, so that its instantiations can be in halftone::compiled.
template <class Device, class Model, class Rule>
template <class G>
step_outcome<Device> eight_bit_optimizer<Device, Model, Rule>::step(G&& g) {
    if constexpr (check_step<Device, Model, std::remove_cvref_t<G>>())
        return base::run_step(g, launch{this}, base::rule().largest_gradient());
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
