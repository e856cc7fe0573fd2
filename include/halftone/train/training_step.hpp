// SPDX-License-Identifier: MIT
/// \file
/// What a step of a trainer computes: the passes of its micro-batches, and the update. Included by trainer.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>
#include <halftone/observe/watch/watched_tape.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/outlier_guard.hpp>
#include <halftone/train/loss_meter.hpp>
#include <halftone/train/scaled_loss.hpp>
#include <halftone/train/step_beginning.hpp>
#include <halftone/train/trainer_context.hpp>
#include <halftone/train/trainer_optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The optimizer, scale, gradients and losses of a trainer, and a step that changes them.
template <class Device, class Model, class Kind, optimizer_options Options>
class training_step {
    using context_type = trainer_context<Device, Model>;
    struct no_finder {};

  public:
    static constexpr bool watches = std::is_same_v<Kind, watched_tape>;

    training_step(context_type& context, const asked_optimizer<Options>& asked, std::vector<parameter_group> groups)
        : optimizer(*context.device, *context.model, asked, context.arguments.optim, std::move(groups)),
          accumulator(*context.model),
          scaler(*context.device, {.init_scale = context.arguments.scaler.init_scale,
                                   .growth_interval = context.arguments.scaler.growth_interval,
                                   .min_scale = context.arguments.scaler.min_scale,
                                   .max_scale = context.arguments.scaler.max_scale,
                                   .hysteresis = context.arguments.scaler.hysteresis,
                                   .enabled = model_needs_scaling<Model>}),
          tape(*context.device),
          losses(*context.device, static_cast<std::size_t>(std::min<std::int64_t>(context.arguments.logging_steps, 4096))),
          context_(&context),
          before_(*context.device, context.model->parameters()),
          rate_(asked.options.lr) {
        const training_arguments& a = context.arguments;
        tape.seed(a.seed);
        set_schedule();
        if (a.scaler.outlier_factor > 0) {
            guard.emplace(*context.device, outlier_options{.factor = a.scaler.outlier_factor,
                                                           .window = a.scaler.outlier_window,
                                                           .warm_up = a.scaler.outlier_window / 2,
                                                           .of = outlier_of::both});
        }
        if constexpr (watches) {
            if (a.diagnosis.find_overflow == overflow_search::on) finder_.emplace(*context.device, tape);
        }
    }

    /// Makes the optimizer's rate that of the arguments' schedule: after another optimizer or number of steps.
    /// A run whose number of steps is not known yet has the schedule of a long one, which a checkpoint's is compared with.
    void set_schedule() {
        schedule_options s = schedule_of(context_->arguments, rate_);
        if (s.total_steps < 0) s.total_steps = std::int64_t{1} << 40;
        optimizer.base().set_schedule(s);
        own_schedule_ = s;
    }
    /// Makes the optimizer's rate that of the arguments' schedule, unless `found`, which the optimizer had before, is
    /// one that the program has set: that stays.
    void renew_schedule(const schedule_options& found) {
        found == own_schedule_ ? set_schedule() : optimizer.base().set_schedule(found);
    }
    /// The optimizer's rate, which the schedule multiplies.
    double rate() const { return rate_; }

    /// Runs the passes of this rank's micro-batches of a step's batch, and the update.
    template <class Batch>
    void train_on(const Batch& batch) {
        part_ = nullptr;
        context_->rows().for_each_part(batch, context_->state.step + 1, [&](const auto& micro, extent weight, extent all) {
            const auto loss = [&] {
                const scoped_range part(context_->listener, "forward", track::forward);
                return context_->model->loss(tape, micro);
            }();
            if constexpr (has_loss_divisor<Model, Batch>) {  // one after the other: clang++ 14 looks into what both discard
                if constexpr (has_loss_divisor<Model, std::remove_cvref_t<decltype(micro)>>) {
                    if (weight != 0 && weight != all) {
                        const Model& model = *context_->model;
                        const auto part = of_ranks(loss * share_of(tape, divisor_of(model, micro), divisor_of(model, batch)));
                        return note_loss(part, part);
                    }
                }
            }
            const auto part = of_ranks(loss * (static_cast<double>(weight) / static_cast<double>(all)));
            note_loss(part, loss, static_cast<double>(weight));
        });
        if (context_->ranks != nullptr) {
            losses.set_step(context_->ranks->add_up(losses.step()));
            if (guard) guard->set_step(context_->ranks->add_up(guard->step()));
        }
        update();
        losses.end_step();
        is_updating_ = false, is_done_ = true;
    }
    /// Runs the passes and the update of a step's batch, uncaptured, with their tensors observed.
    template <class Batch>
    void observe_on(const Batch& batch) {
        if constexpr (watches) {
            numerics_collector<Device> numerics(*context_->device, tape);
            const float scale = scaler.get_scale();
            train_on(batch);
            const scoped_range here(context_->listener, "numerics", track::files);
            const numerics_view view = numerics.take(*context_->model, scale, context_->state.step + 1);
            context_->for_each_callback([&](trainer_callback& c) { c.on_numerics(context_->state, view); });
        }
    }

    /// Runs the passes of a micro-batch of the largest shape, and drops what they computed: the memory that they needed
    /// is there from then on, and batches of other shapes fit in. Not done for models with states that a forward pass
    /// changes, such as running statistics.
    template <class Data>
    void warm_up(Data& data) {
        for (const auto& e : context_->model->parameters().entries()) {
            if (e.is_state) return;
        }
        const range here(context_->listener, "warm-up", pass::update);
        const random_state draws = tape.random_state();
        const auto largest = data.largest(context_->arguments.per_device_train_batch_size);
        {
            const auto loss = context_->model->loss(tape, largest);
            tape.backward(scaler.scale(of_ranks(loss)), accumulator);
        }
        drop();
        tape.restore(draws);
    }
    /// A step begins: everything that it changes before its end is kept, until end() or drop().
    void begin() {
        if (is_updating_)
            fail<state_error>("trainer: an exception has ended the update of step ", context_->state.step + 1,
                              ", and some of the parameters may have changed; make the model and the trainer again, and resume from "
                              "a checkpoint");
        before_.keep(tape.graph().random, guard ? &*guard : nullptr);
        is_done_ = false;
    }
    void end() { before_.forget(); }
    /// Whether the step is done, and an exception came behind it: from a callback that is told what was observed in it.
    bool is_done() const { return is_done_; }
    /// After an exception: brings back what begin() kept. If the device cannot do that, drop() tries it again.
    void take_back() noexcept {
        try {
            before_.take_back(tape.graph().random);
        } catch (const std::exception&) {  // the error at hand matters more
        }
    }
    /// Whether an exception has ended the update, so that parameters may have changed and the step cannot be repeated.
    bool is_updating() const { return is_updating_; }
    /// The update had no effect: it was being captured.
    void forget_update() { is_updating_ = false; }
    /// Cleans up after a step that ended with an exception.
    void drop() {
        tape.clear();
        before_.take_back(tape.graph().random);
        accumulator.discard();
        losses.discard();
        if (guard) guard->discard();
        scaler.load(scaler.state());  // begins a new round
        if constexpr (watches) tape.begin_step();
    }

    /// Notes what runs now, for messages, where it is not in an operation of the tape; nullptr: it is.
    void note_part(const char* part) { part_ = part; }
    /// The operation that ran last, its pass and its layer.
    template <class Inference>
    std::string place_of_last(Inference& inference) const {
        if (context_->is_evaluating) return inference.graph().place_of_last();
        if (part_ != nullptr) return part_;
        if constexpr (watches) {
            if (std::string place = tape.hook().place_of_last(); !place.empty()) return place;
        }
        return tape.graph().place_of_last();
    }
    /// Tells callbacks of the steps that were skipped since the last call. Waits for the device.
    void tell_overflows() {
        if constexpr (watches) {
            if (!finder_) return;
            for (const overflow& o : finder_->take(*context_->model)) {
                if (o.is_skipped()) context_->for_each_callback([&](trainer_callback& c) { c.on_overflow(context_->state, o); });
            }
        }
    }

    chosen_optimizer<Device, Model, Options> optimizer;
    halftone::accumulator<through_scaler, types<Model>> accumulator;
    grad_scaler<Device> scaler;
    halftone::tape<Device, Kind> tape;
    loss_meter<Device> losses;
    std::optional<outlier_guard<Device>> guard{};
    std::optional<measured_norm<Device>> norm{};  ///< of the last step; none without clipping

  private:
    template <class Loss>
    rank_loss<Loss> of_ranks(const Loss& loss) const {
        return {loss, context_->rank_count()};
    }
    /// Adds the gradients of `part`, of a batch's loss; means are computed from `told`, and its weight if it has none itself.
    template <class Part, class Told, class... Weight>
    void note_loss(const Part& part, const Told& told, Weight... weight) {
        const scoped_range whole(context_->listener, "backward", track::backward);
        tape.backward(scaler.scale(part), accumulator);
        check_scaled<Model>(accumulator);
        losses.add(told, weight...);
        if (guard) guard->add(told, weight...);
    }

    void update() {
        const scoped_range whole(context_->listener, "optimizer", track::update);
        part_ = "unscale (update)";
        auto gradients = [&] {
            const range here(context_->listener, "unscale", pass::update);
            return scaler.unscale(accumulator.take());
        }();
        if (guard) guard->watch(gradients);
        if (context_->arguments.max_grad_norm > 0) {
            part_ = "clip_grad_norm (update)";
            const range here(context_->listener, "clip_grad_norm", pass::update);
            norm = clip_grad_norm(gradients, static_cast<float>(context_->arguments.max_grad_norm));
        }
        part_ = optimizer.part();
        const range here(context_->listener, optimizer.base().name(), pass::update);
        if (context_->listener != nullptr && context_->listener->wants_work())
            context_->listener->work(optimizer.work(context_->device->memory().usage(), context_->model->parameters()));
        is_updating_ = true;  // until the step is done
        [[maybe_unused]] const auto outcome = optimizer.visit([&](auto& o) {
            try {
                return o.step(gradients);
            } catch (const state_error&) {  // refused before anything has changed
                is_updating_ = false;
                throw;
            }
        });
        if constexpr (watches) {
            if (finder_) finder_->end_step(outcome);
        }
        scaler.update();
    }

    context_type* context_;
    step_beginning<Device> before_;
    std::conditional_t<watches, std::optional<overflow_finder<Device>>, no_finder> finder_{};
    bool is_updating_ = false, is_done_ = false;
    double rate_;
    schedule_options own_schedule_{};  ///< that of the arguments, which the optimizer has unless the program sets another
    const char* part_ = nullptr;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
