// SPDX-License-Identifier: MIT
/// \file
/// The parts that all optimizers share: parameter groups, moments, step counts, and the checks of a step.
///
///     auto outcome = optimizer.step(grads);        // changes nothing if a gradient is not finite, or so large that a moment
///                                                  // would not be (kernel/common/update/records.hpp)
///     if (outcome.skipped()) log(ht::name(outcome.result()));          // asks the device
///     optimizer.set_lr(1e-4);
///
/// Headers of scale/ and optim/ do not depend on a device: gradients, records, moments and parameters are in the
/// device's memory, and the host reads them only on request. A program also includes the kernels of its device.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>

#include <halftone/kernel/quantize/quantize.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/optim/average.hpp>
#include <halftone/optim/groups.hpp>
#include <halftone/optim/step_counts.hpp>
#include <halftone/optim/schedule.hpp>
#include <halftone/optim/step_result.hpp>
#include <halftone/policy/check.hpp>
#include <halftone/scale/accumulator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// An optimizer's record in the device's memory: the part that kernels read, and the schedule with which the device
/// updates the rate, so that a captured step uses later changes of the schedule.
struct optimizer_record {
    kernel::step_record step{};
    schedule_options schedule{};
    skip_counts skips{};
};

}  // namespace detail

/// Whether a step was taken. Valid until the optimizer's next step; the optimizer must outlive it.
template <class Device>
class step_outcome {
  public:
    step_outcome(const detail::device_value<detail::optimizer_record, Device>& record, const std::int64_t& calls)
        : record_(&record), calls_(&calls), call_(calls) {}

    /// True if the step changed nothing: neither parameters, nor moments, nor the step count. On a GPU it waits for the
    /// device. Throws state_error after another step.
    bool skipped() const { return result() != step_result::taken; }
    /// Whether and why the step was skipped. Waits and throws as skipped().
    step_result result() const {
        if (*calls_ != call_)
            fail<state_error>("step_outcome: read after a further step; read it before, or ask skipped_steps()");
        return static_cast<step_result>(record_->read().step.skips);
    }
    /// The result of the last step as an integer in the device's memory, for work on the device.
    const std::int32_t* on_device() const { return &record_->data()->step.skips; }

  private:
    const detail::device_value<detail::optimizer_record, Device>* record_;
    const std::int64_t* calls_;
    std::int64_t call_;
};

/// The state for resuming a run, apart from parameters and moments.
struct optimizer_state {
    std::int64_t steps = 0;
    std::int64_t skipped = 0;
    double lr = 0;
    skip_counts skips{};  ///< `skipped` by reason; all 0 in a state without reasons
    /// One for each parameter that is trained, in the store's order, if windows left some out; otherwise empty.
    std::vector<std::int64_t> step_counts{};

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("steps", self.steps), f("skipped", self.skipped), f("lr", self.lr), f("skips", self.skips);
        f("step_counts", self.step_counts);
    }
};

/// A part of an optimizer's moments or averages, for a checkpoint: one moment of one parameter, say.
struct optimizer_slab {
    std::string name;       ///< "moment_0", "ema", ...
    std::size_t entry = 0;  ///< the parameter, by its index in the store
    std::byte* data = nullptr;  ///< in the device's memory
    std::size_t each = 0;       ///< bytes of an element
    const char* type = "";      ///< the name of the number type; "byte" for codes
    std::vector<extent> shape{};
    std::size_t first = 0;  ///< the parameter's element, or code, with which it begins: not 0 only if the store is divided

    /// The size of the slab's part in bytes.
    std::size_t bytes() const {
        std::size_t n = each;
        for (const extent e : shape) n *= static_cast<std::size_t>(e);
        return n;
    }
};

namespace detail {

struct begin_step {
    optimizer_record* record;
    const std::int32_t* found_inf;
    const kernel::gradient_record* gradients;
    const kernel::part_record* part;
    float largest;  ///< the largest gradient for which the rule's moments stay finite
    std::int32_t has_work;

    HALFTONE_HD step_result result() const {
        if (has_work == 0) return step_result::nothing;
        if (*found_inf != kernel::found_nothing)
            return *found_inf == kernel::found_nan ? step_result::not_a_number : step_result::infinity;
        if (kernel::is_beyond(*gradients, *part, largest)) return step_result::infinity;
        return gradients->outlier != 0 ? step_result::outlier : step_result::taken;
    }
    HALFTONE_HD void operator()() const {
        kernel::step_record& r = record->step;
        r.skips = static_cast<std::int32_t>(result());
        record->skips.count(result());
        r.multiplier = rate_multiplier(record->schedule, r.steps);
        ++(r.skips != 0 ? r.skipped : r.steps);
    }
};

/// What all optimizers over a model's parameters share; derived classes know how an element changes.
template <class Device, class Model>
class optimizer {
    static_assert(check_trainable<Model>());

  public:
    optimizer(const optimizer&) = delete;
    optimizer& operator=(const optimizer&) = delete;
    ~optimizer() { parameters_->await_readers(); }

    /// The optimizer's kind: "adamw", "muon", ...
    const char* name() const { return name_; }
    /// The store of the parameters that it updates.
    store& parameter_store() const { return *parameters_; }

    /// The learning rate of the next step, including the schedule's factor, for parameters whose group does not set a
    /// rate.
    double lr() const {
        const optimizer_record r = record_.read();
        return r.step.lr * rate_multiplier(r.schedule, r.step.steps);
    }
    /// The learning rate of the last step, also if it was skipped; before any step, and after load(), the full rate.
    double last_lr() const {
        const kernel::step_record r = record_.read().step;
        return r.lr * r.multiplier;
    }
    /// Sets the learning rate, by which the schedule's and groups' factors are multiplied. Throws argument_error unless
    /// it is 0 or more.
    void set_lr(double lr) {
        check_rate("lr", lr);
        optimizer_record r = record_.read();
        r.step.lr = lr;
        record_.write(r);
    }
    /// Sets the schedule, which continues from the number of steps taken so far. Captured steps follow it, too.
    void set_schedule(const schedule_options& s) {
        if (s.total_steps < 0 || s.warmup_steps < 0 || !(s.warmup_ratio >= 0 && s.warmup_ratio <= 1) ||
            !(s.final_ratio >= 0 && s.final_ratio <= 1)) {
            fail<argument_error>(name_,
                                 ": a schedule has total_steps and warmup_steps of 0 or more, warmup_ratio and "
                                 "final_ratio between 0 and 1");
        }
        if (s.total_steps == 0 && (s.shape != halftone::schedule::constant || s.warmup_ratio > 0)) {
            fail<argument_error>(name_, ": this schedule needs total_steps");
        }
        if (s.shape == halftone::schedule::polynomial && !(s.power > 0 && is_finite(s.power)))
            fail<argument_error>(name_, ": a polynomial schedule's power is ", s.power, "; expected more than 0");
        if (s.shape == halftone::schedule::warmup_stable_decay &&
            (s.decay_steps < 1 || s.decay_steps > s.total_steps - warmup_steps(s))) {
            fail<argument_error>(name_, ": a schedule of ", s.total_steps, " steps with ", warmup_steps(s),
                                 " of warm-up has decay_steps of ", s.decay_steps, "; expected 1 to ",
                                 s.total_steps - warmup_steps(s));
        }
        optimizer_record r = record_.read();
        r.schedule = s;
        record_.write(r);
    }
    schedule_options schedule() const { return record_.read().schedule; }
    /// The rate and the decay that it was made with, whatever set_lr() and load() have done since.
    double made_with_lr() const { return made_with_lr_; }
    double made_with_weight_decay() const { return made_with_weight_decay_; }
    /// Calls f(path, kernel::group_rates) for each parameter that is trained, with the rates that its group gives it.
    template <class F>
    void visit_rates(const F& f) const {
        for (const update_segment& s : each_) f(entry_of(s).path, s.rates);
    }

    /// The number of steps that changed the parameters, and of those that were skipped.
    std::int64_t steps() const { return record_.read().step.steps; }
    std::int64_t skipped_steps() const { return record_.read().step.skipped; }
    /// The number of skipped steps by reason.
    skip_counts skips() const { return record_.read().skips; }
    /// Whether the last step was skipped, and why.
    bool last_step_skipped() const { return last_result() != step_result::taken; }
    step_result last_result() const { return static_cast<step_result>(record_.read().step.skips); }

    optimizer_state state() const {
        const optimizer_record r = record_.read();
        return {r.step.steps, r.step.skipped, r.step.lr, r.skips, own_.read(each_, r.step.steps)};
    }
    /// Restores counts and rate; moments are written through moment(). Throws argument_error for invalid counts;
    /// nothing changes then.
    void load(const optimizer_state& s) {
        if (s.steps < 0 || s.skipped < 0)
            fail<argument_error>(name_, ": a state with ", s.steps, " steps and ", s.skipped, " skipped ones");
        for (const std::int64_t count : {s.skips.infinity, s.skips.not_a_number, s.skips.outlier, s.skips.nothing}) {
            if (count < 0 || count > s.skipped)
                fail<argument_error>(name_, ": a state with ", s.skipped, " skipped steps, ", count,
                                     " of them for one reason");
        }
        const auto is_invalid = [&](std::int64_t steps) { return steps < 0 || steps > s.steps; };
        if ((!s.step_counts.empty() && s.step_counts.size() != each_.size()) ||
            std::any_of(s.step_counts.begin(), s.step_counts.end(), is_invalid)) {
            fail<argument_error>(name_, ": a state with the step counts of ", s.step_counts.size(),
                                 " parameters; expected none, or for each of ", each_.size(), ", 0 to ", s.steps);
        }
        check_rate("lr", s.lr);
        parameters_->await_readers();
        own_.load(each_, s.step_counts, s.steps);
        knows_segments_ = false;
        record_.write({{.steps = s.steps, .skipped = s.skipped, .lr = s.lr}, schedule(), s.skips});
    }

    /// The number of moments of each parameter, also of those that are not stored.
    int moments() const { return moment_count_; }
    /// Moment number `which` of all parameters of a group of the store, in their `state` type and with the layout of
    /// gradients, in the device's memory; empty if the optimizer has none. (Adafactor and the optimizers with 8-bit
    /// moments have layouts of their own.)
    std::span<std::byte> moment(int which, std::size_t group) const {
        const buffer& b = moments_[static_cast<std::size_t>(which) * parameters_->groups().size() + group];
        return {b.data(), b.bytes()};
    }

    /// Calls f(const optimizer_slab&) for everything that a resumed run needs beside state(): the moments and averages of
    /// all parameters that are trained. Other optimizers have other slabs.
    template <class F>
    void visit_slabs(const F& f) const {
        for (int which = 0; which < moment_count_; ++which) {
            for (const update_segment& s : each_) {
                const store::group& g = group_of(s);
                if (moment(which, s.group).empty()) continue;
                visit_part(s, {"moment_" + std::to_string(which), s.entry,
                               moment(which, s.group).data() + s.average * g.state_bytes, g.state_bytes, g.state_type->name}, f);
            }
        }
        visit_averages(f);
    }

    /// The averages of all parameters of a group of the store, in the layout of gradients, in the device's memory;
    /// empty without `ema_decay`. To resume a run, write them, as well as the moments.
    std::span<float> ema(std::size_t group) const {
        if (averages_.empty()) return {};
        const buffer& b = averages_[group];
        return {reinterpret_cast<float*>(b.data()), b.bytes() / sizeof(float)};
    }
    /// The average of a parameter, in the device's memory: zeros before the first step that changed it. Throws
    /// argument_error without `ema_decay`, for parameters of other models and frozen ones.
    template <class Storage, int Rank>
    const_view<float, Rank> ema(const parameter<Storage, Rank>& p) const {
        if (averages_.empty()) fail<argument_error>(name_, ": ema() of an optimizer that was made without ema_decay");
        if (parameters_->is_divided())
            fail<state_error>(name_, ": ema() of a parameter that is sharded; this rank has a part of its average only");
        if (!updates(p)) fail<argument_error>(name_, ": ema() of a parameter that this optimizer does not update");
        const store::entry& e = parameters_->entries()[p.entry()];
        return {ema(e.group).data() + e.gradient, p.shape()};
    }

  protected:
    enum class kept { no, yes };

    optimizer(const char* name, Device& device, Model& model, double lr, double weight_decay,
              std::vector<parameter_group> groups, int moment_count, kept moments, double ema_decay)
        : name_(name),
          moment_count_(moment_count),
          parameters_(&model.parameters()),
          made_with_lr_(lr),
          made_with_weight_decay_(weight_decay),
          record_(device, optimizer_record{{.lr = lr}, {}}),
          own_(parameters_->memory()) {
        check_rate("lr", lr);
        check_rate("weight_decay", weight_decay);
        parameters_->check_committed();
        check_visited<Model>(name, *parameters_);
        check_groups(name, *parameters_, groups);
        freeze_groups(*parameters_, groups);
        each_ = make_segments(*parameters_, weight_decay, groups);
        layout_ = parameters_->layout();
        for (int which = 0; which < moment_count_; ++which) {
            for (const store::group& g : parameters_->groups()) {
                moments_.emplace_back(parameters_->memory(), moments == kept::yes ? g.moments * g.state_bytes : 0,
                                      memory_kind::moment);
                parameters_->memory().clear(moments_.back().data(), moments_.back().bytes());
            }
            if (moments == kept::no) continue;
            for (const store::entry& e : parameters_->entries())
                parameters_->tell_moments(e, parameters_->groups()[e.group].state_bytes,
                                          moments_[moments_.size() - parameters_->groups().size() + e.group].data());
        }
        make_averages(ema_decay);
    }

    /// Whether steps update a parameter.
    template <class Storage, int Rank>
    bool updates(const parameter<Storage, Rank>& p) const {
        return &p.owner() == parameters_ && !p.is_frozen();
    }
    /// Throws argument_error unless a beta, the factor of an exponential mean, is 0 or more and less than 1.
    void check_beta(double beta) const {
        if (!(beta >= 0 && beta < 1))
            fail<argument_error>(name_, ": a beta is ", beta, "; expected 0 or more and less than 1");
    }
    /// For an optimizer that was constructed without moments, before the first step: allocates `bytes` for moment
    /// number `which` of a group of the store, in a layout that the optimizer chooses.
    void take_moment(int which, std::size_t group, std::size_t bytes) {
        buffer& b = moments_[static_cast<std::size_t>(which) * parameters_->groups().size() + group];
        b = buffer(parameters_->memory(), bytes, memory_kind::moment);
        parameters_->memory().clear(b.data(), b.bytes());
    }
    /// The averages for visit_slabs.
    template <class F>
    void visit_averages(const F& f) const {
        if (averages_.empty()) return;
        for (const update_segment& s : each_) {
            visit_part(s, {"ema", s.entry, reinterpret_cast<std::byte*>(ema(s.group).data() + s.average), sizeof(float),
                           number_traits<float>::name}, f);
        }
    }
    /// Calls f for the part of a parameter that this rank updates, if there is any.
    template <class F>
    void visit_part(const update_segment& s, optimizer_slab slab, const F& f) const {
        const store::entry& e = entry_of(s);
        slab.shape = e.shape;
        if (parameters_->is_divided()) {
            const element_range part = parameters_->updated_here(e);
            if (part.count == 0) return;
            slab.first = part.first;
            slab.shape = {static_cast<extent>(std::min(part.count, e.count - part.first))};
        }
        f(slab);
    }

    void check_rate(const char* what, double value) const {
        if (!(value >= 0 && is_finite(value)))
            fail<argument_error>(name_, ": ", what, " is ", value, "; expected 0 or more");
    }

    /// A step: calls `launch.template operator()<Storage>(segment, slabs, factors)` for each segment. Skipped if a
    /// gradient is larger than `largest`.
    template <class Gradients, class Launch>
    step_outcome<Device> run_step(const Gradients& g, const Launch& launch,
                                  float largest = kernel::gradient_factors::no_limit) {
        if (average_) fail<state_error>(name_, ": step() while average_parameters() has put averages in place");
        window& w = g.check(name_);
        const std::size_t index = w.find(*parameters_);
        if (index == window::nowhere)
            fail<argument_error>(name_, ": these gradients belong to another model's parameters");
        if (parameters_->layout() != layout_)
            fail<state_error>(name_, ": parameters were frozen after this optimizer was made; freeze first");
        window::part& part = w.parts[index];
        if (part.stepped) {
            fail<state_error>(name_,
                              ": step() was called twice with the same gradients; one optimizer updates all of a "
                              "model, and groups give parts of it other rates");
        }
        if (std::is_void_v<typename Gradients::device_type> && w.is_narrow) {
            fail<state_error>(name_,
                              ": these gradients passed through fp16, in a region of autocast or an operation of that "
                              "type, where they underflow, and were not unscaled by a scaler: declare "
                              "ht::accumulator acc{model}, scale the loss, and take scaler.unscale(acc.take())");
        }
        if (!std::is_void_v<typename Gradients::device_type> && !w.stamp.is_current()) {
            fail<state_error>(name_, ": step() after the scaler's update(); call unscale, step, update in this order");
        }
        g.inspect(record_.device());
        parameters_->await_readers();
        part.stepped = true;
        ++calls_;
        find_segments(part.slabs);
        const bool has_work = std::find(reached_.begin(), reached_.end(), true) != reached_.end();
        const std::int32_t* const found_inf = w.found_inf() + index;
        record_.device().run(begin_step{record_.data(), found_inf, w.record(), w.part_records() + index, largest,
                                        has_work ? 1 : 0});
        if (has_work) own_.count(record_.device(), &record_.data()->step);
        // The step ends the window of delayed scaling, also for a model that is frozen as a whole.
        if (has_work) {
            end_window(&record_.data()->step.skips);
        } else if (each_.empty()) {
            end_window(found_inf);
        }
        for (const update_segment& s : segments_)
            launch_segment(s, part.slabs, &w.record()->factors, launch, signatures_of<Model>{});
        gather();
        return {record_, calls_};
    }

    const kernel::step_record* step_data(const update_segment& s) const {
        return own_.of(s.step_group, &record_.data()->step);
    }
    Device& device() const { return record_.device(); }

    /// A segment's range in a slab.
    template <class T>
    static view<T, 1> part_of(std::byte* slab, std::size_t first, std::size_t count) {
        return {reinterpret_cast<T*>(slab) + first, {static_cast<extent>(count)}};
    }
    /// The first parameter of a segment.
    const store::entry& entry_of(const update_segment& s) const { return parameters_->entries()[s.entry]; }
    /// Calls set(entry, segment) for each parameter that is trained, before the first step: its rates, and its is_alone.
    template <class Set>
    void set_segments(const Set& set) {
        for (update_segment& s : each_) set(entry_of(s), s);
    }
    store::group& group_of(const update_segment& s) const { return parameters_->groups()[s.group]; }

    /// The random numbers of parameters depend on their group in the store and their position in it, not on parameter
    /// groups or threads. The seed is changed so that random numbers differ from those of dropout and initial values,
    /// even if the user passes the same seed for all of them.
    static kernel::rounding_key key_of(const update_segment& s, std::uint64_t seed) {
        return {seed ^ 0x6f7074696d697a65u, static_cast<std::uint32_t>(4 * s.group), s.order};
    }

    /// Calls f.template operator()<Storage>(segment) for each of some segments.
    template <class F>
    void for_each_segment(const std::vector<update_segment>& segments, const F& f) const {
        const auto launch = [&]<class Storage>(const update_segment& s, const gradient_slabs*,
                                               const kernel::gradient_factors*) { f.template operator()<Storage>(s); };
        for (const update_segment& s : segments)
            launch_segment(s, static_cast<const gradient_slabs*>(nullptr), nullptr, launch, signatures_of<Model>{});
    }

    /// Allocates memory for the parameters, which are then replaced by averages. Throws state_error without averages,
    /// while averages are in place, and after parameters were frozen.
    void open_average() {
        if (averages_.empty())
            fail<state_error>(name_, ": average_parameters() of an optimizer that was made without ema_decay");
        parameters_->await_readers();
        if (average_) fail<state_error>(name_, ": average_parameters() while averages are in place already");
        if (parameters_->layout() != layout_)
            fail<state_error>(name_, ": parameters were frozen after this optimizer was made; freeze first");
        const std::int64_t all = steps();
        const std::vector<std::int64_t> own = own_.read(each_, all);
        const auto has_average = [&](const update_segment& s) {
            return (own.empty() ? all : own[static_cast<std::size_t>(&s - each_.data())]) > 0;
        };
        average_scope<Device> scope{{}, join_segments(*parameters_, each_, has_average),
                                    device_value<assign_records, Device>(device())};
        for (const buffer& b : averages_) {
            scope.saved.emplace_back(parameters_->memory(), b.bytes(), memory_kind::other);
            parameters_->memory().clear(scope.saved.back().data(), b.bytes());
        }
        average_.emplace(std::move(scope));
        parameters_->set_averaged(true);
    }
    void close_average() {
        average_.reset();
        parameters_->set_averaged(false);
    }
    /// Gathers what each rank holds whole, if the store is divided; to be called after parameters have changed.
    void gather() const {
        if (auto* const sharding = parameters_->sharding()) sharding->gather();
    }
    const average_scope<Device>& average() const { return *average_; }
    double ema_decay() const { return ema_decay_; }

  private:
    void make_averages(double decay) {
        if (!(decay >= 0 && decay < 1))
            fail<argument_error>(name_, ": ema_decay is ", decay, "; expected 0 or more and less than 1, 0 for none");
        ema_decay_ = decay;
        if (decay == 0) return;
        for (const update_segment& s : each_) {
            if (parameters_->groups()[s.group].has_sparse_gradients) {
                fail<argument_error>(name_, ": ema_decay with ", parameters_->entries()[s.entry].path,
                                     ", whose gradient is sparse: rows without a gradient would not update their average; "
                                     "use a dense gradient, or no average");
            }
        }
        for (const store::group& g : parameters_->groups()) {
            if (!g.param_type->is_held_by_float()) {
                fail<argument_error>(name_, ": ema_decay with parameters of ", g.param_type->name,
                                     ": averages are floats, which do not hold them; use no average");
            }
            averages_.emplace_back(parameters_->memory(), g.moments * sizeof(float), memory_kind::moment);
            parameters_->memory().clear(averages_.back().data(), averages_.back().bytes());
        }
        for (const store::entry& e : parameters_->entries())
            parameters_->tell_moments(e, sizeof(float), averages_[e.group].data());
    }

    /// Determines the segments that this step updates: parameters that a backward pass of the window reached. The
    /// others do not decay or change, and the step does not count for them. Usually the segments are those of the
    /// previous step.
    void find_segments(const gradient_slabs& slabs) {
        bool is_as_before = std::exchange(knows_segments_, false);
        reached_.resize(each_.size());
        for (std::size_t i = 0; i < each_.size(); ++i) {
            const bool now = slabs.is_reached(each_[i].entry);
            is_as_before = is_as_before && reached_[i] == now;
            reached_[i] = now;
        }
        if (!is_as_before) {
            if (std::find(reached_.begin(), reached_.end(), true) != reached_.end())
                own_.divide(record_.device(), each_, reached_, &record_.data()->step);
            segments_ =
                join_segments(*parameters_, each_, [&](const update_segment& s) { return slabs.is_reached(s.entry); });
        }
        knows_segments_ = true;
    }

    /// Stores the window's amaxes in their histories, or discards them if *skips is not 0.
    void end_window(const std::int32_t* skips) {
        if constexpr (detail::model_keeps_amaxes<Model>) {
            const amax_histories& a = parameters_->amaxes();
            if (a.size() != 0) {
                kernel::quantize<Device>::roll(record_.device(), a.records(), a.size(), a.history(), a.windows(),
                                               skips);
            }
        }
    }

    template <class Slabs, class Launch, class... Storages>
    void launch_segment(const update_segment& s, const Slabs& slabs, const kernel::gradient_factors* factors,
                        const Launch& launch, types<Storages...>) const {
        const void* key = group_of(s).key;
        ((key == store::key_of<Storages>() ? launch.template operator()<Storages>(s, slabs, factors) : void()), ...);
    }

    const char* name_;
    int moment_count_;
    store* parameters_;
    double made_with_lr_, made_with_weight_decay_;
    detail::device_value<optimizer_record, Device> record_;
    step_counts own_;
    std::vector<update_segment> each_, segments_;  // one per parameter; those of the last step, joined
    std::vector<bool> reached_;                    // by index in each_: whether the last step reached it
    bool knows_segments_ = false;                  // whether segments_ are those of reached_
    std::vector<buffer> moments_;
    std::vector<buffer> averages_;  // by group of the store; or empty
    double ema_decay_ = 0;
    std::optional<average_scope<Device>> average_;  // while averages replace the parameters
    unsigned layout_ = 0;
    std::int64_t calls_ = 0;
};

/// Refuses a model that is sharded, for an optimizer whose steps are not elementwise.
template <class Model>
void expect_undivided(const char* name, Model& model) {
    static_assert(!is_sharded<Model>,
                  "halftone: this optimizer's steps need whole matrices, and each rank has a range of a sharded model's: take "
                  "ht::adamw, ht::lion, ht::sgd or their 8-bit forms, or ht::data_parallel in place of ht::shard");
    if (model.parameters().is_divided())
        fail<state_error>(name, ": its steps need whole matrices, and this model is sharded; take adamw, lion or sgd");
}

/// True, or a compile-time error with the reason why a step cannot use these gradients.
template <class Device, class Model, class G>
consteval bool check_step() {
    static_assert(
        !is_scaled<G>,
        "halftone: step: these gradients are still scaled by the loss scale; call scaler.unscale first: auto grads = "
        "scaler.unscale(acc.take());");
    static_assert(is_scaled<G> || is_gradients<G>,
                  "halftone: step takes gradients: what acc.take() or scaler.unscale(acc.take()) returns");
    if constexpr (is_gradients<G>) {
        using source = typename G::device_type;
        static_assert(
            !model_needs_scaling<Model> || !std::is_void_v<source>,
            "halftone: step: this model passes gradients through fp16, or a type of as short a range, where they "
            "underflow, and these were not unscaled by a scaler: declare ht::accumulator acc{model}, scale the loss, and take scaler.unscale(acc.take())");
        static_assert(std::is_void_v<source> || std::is_same_v<source, Device>,
                      "halftone: step: these gradients were unscaled on another kind of device");
    }
    return is_gradients<G>;
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
