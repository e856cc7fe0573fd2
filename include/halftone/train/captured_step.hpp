// SPDX-License-Identifier: MIT
/// \file
/// A training step as one piece of work: a device that can (exec/capture.hpp) captures it, on a GPU as one CUDA graph,
/// and replays it from then on.
///
///     ht::captured_step step{device, [&](const ht::language_batch& batch) {
///         auto loss = model.loss(tape, batch);
///         tape.backward(scaler.scale(loss), acc);
///         auto grads = scaler.unscale(acc.take());
///         ht::clip_grad_norm(grads, 1.0f);
///         optimizer.step(grads);
///         scaler.update();
///         return loss;
///     }};
///     for (...) step(batch);
///     std::cout << step.loss() << ' ' << step.reason();            // waits; "captured: a step of (8, 128), (8, 128)"
///
/// The first step with inputs of some shapes runs as it is, so that scratch memory and kernels are ready; the next is
/// captured, or the one after, where memory was still growing; all others are replays, in which the host does no more
/// than upload the inputs. Where a replay would be wrong the step is captured anew, and reason() says why: other
/// shapes, memory that has moved, parameters that were frozen.
///
/// A step is called with views, or with values that have with_views (as ht::language_batch). They may lie in host
/// memory, other memory each time; the step is handed the same over memory that the captured step keeps, in the
/// device's. What it reads of the host besides, a limit of clipping say, is that of the capture: call renew() after a
/// change. What the device's records hold is followed: learning rate, schedule, loss scale.
///
/// Inside a step nothing waits for the device: what would, does not get past the capture (capture_error says what to
/// do). The host's part of a step must be over with it: gradients taken, tapes empty, no variable kept but for the loss
/// returned. A micro-batch alone, which leaves a window of gradients open, is right, but begins anew in each window.
/// After an exception inside, clear the tape and discard what the accumulator gathered.
///
/// On a CPU a step runs as it is, every time, in memory that is reused. The numbers are the same in each case, to the
/// bit.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <halftone/autodiff/engine/variable.hpp>
#include <halftone/exec/capture.hpp>
#include <halftone/train/step_inputs.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a call of a captured step did.
enum class step_run {
    uncaptured,  ///< ran the step as it is
    captured,    ///< captured the step, and did what it captured
    replayed,
};

/// How many captured steps are kept.
struct captured_step_options {
    int most_graphs = 8;  ///< shapes that are kept; the one that was not used for the longest time makes room
};

namespace detail {

template <class Device>
struct captured_by {
    struct type {};
};
template <capturing_device Device>
struct captured_by<Device> {
    using type = typename Device::captured;
};

}  // namespace detail

/// `Step` is called with the inputs, and returns a loss (variable<float, 0>) or nothing. One thread at a time. Device and
/// all that the step refers to must outlive it.
template <class Device, class Step>
class captured_step {
  public:
    /// Throws argument_error for no graphs.
    captured_step(Device& device, Step step, const captured_step_options& options = {})
        : device_(&device), step_(std::move(step)), most_(options.most_graphs) {
        if (most_ < 1) fail<argument_error>("captured_step: ", most_, " graphs at most; expected 1 or more");
    }
    captured_step(const captured_step&) = delete;
    captured_step& operator=(const captured_step&) = delete;

    /// Throws what the step throws, and capture_error for a step that cannot be captured: nothing on the device has
    /// changed then. Throws shape_error for a view with gaps, out_of_memory.
    template <class... Inputs>
    step_run operator()(const Inputs&... inputs) {
        if constexpr (capturing_device<Device>) {
            return run_or_replay(inputs...);
        } else {
            run(detail::map_views(inputs, [](const auto& v) { return v; })...);
            if (reason_.empty()) reason_ = "uncaptured: this device runs each step as it is";
            return step_run::uncaptured;
        }
    }

    /// The loss that the last step returned. Waits for the device. Throws state_error where there is none.
    float loss() const {
        if (loss_.data() == nullptr)
            fail<state_error>("captured_step: loss() of a step that has not run yet, or returns none");
        float value;
        device_->memory().read(&value, loss_.data(), sizeof value);
        return value;
    }
    /// Why the last step that was no replay ran as it did, in a sentence.
    const std::string& reason() const { return reason_; }
    /// How often the step was captured so far, and how often it was replayed beyond that.
    std::int64_t captures() const { return captures_; }
    std::int64_t replays() const { return replays_; }

    /// Captures anew from now on: after a change of something that the step reads of the host. `why` shows in reason().
    void renew(const std::string& why) {
        for (plan& p : plans_) p.drop(why);
    }

  private:
    /// What is known of a step with inputs of some shapes.
    struct plan {
        detail::step_inputs inputs;
        std::uint64_t last_use = 0;
        std::string change{};                ///< why it was captured anew last, or will be
        bool is_tried = false;               ///< it ran as it is, and took no memory but what is there while ...
        detail::capture_dependency_list::snapshot dependencies{};  ///< ... these are as they were
        std::optional<typename detail::captured_by<Device>::type> work{};

        void drop(const std::string& why) {
            work.reset();
            change = why;
        }
    };

    template <class... Inputs>
    step_run run_or_replay(const Inputs&... inputs) {
        plan& p = plan_for(inputs...);
        p.last_use = ++calls_;
        p.inputs.fill(*device_, inputs...);
        detail::capture_dependency_list& capture_dependencies = device_->memory().capture_dependencies();
        if (!p.work && p.is_tried) capture_dependencies.settle();  // what others have done since
        if (p.is_tried) {
            if (const char* change = capture_dependencies.first_change_since(p.dependencies)) {
                p.drop(change);
                p.is_tried = false;
            }
        }
        if (p.work) {
            device_->replay(*p.work);
            ++replays_;
            return step_run::replayed;
        }
        const auto call = [&] { p.inputs.call([this](const auto&... own) { this->run(own...); }, inputs...); };
        if (p.is_tried) {
            p.work.emplace(device_->capture(call));
            device_->replay(*p.work);
            ++captures_;
            reason_ = p.change.empty() ? "captured: a step of " + p.inputs.text()
                                       : "captured anew: a step of " + p.inputs.text() + "; " + p.change;
            return step_run::captured;
        }
        call();
        // Where memory was joined, only a further run can tell that the step fits into it.
        const bool may_want_more = capture_dependencies.settle();
        p.dependencies = capture_dependencies.now();
        p.is_tried = !may_want_more;
        reason_ = "uncaptured: a step of " + p.inputs.text() + "; " +
                  (!p.change.empty() ? p.change
                   : may_want_more   ? "its memory was still growing"
                                     : arrival_);
        return step_run::uncaptured;
    }

    template <class... Inputs>
    void run(const Inputs&... inputs) {
        using result = std::remove_cvref_t<decltype(step_(inputs...))>;
        if constexpr (std::is_void_v<result>) {
            step_(inputs...);
        } else {
            static_assert(std::is_same_v<result, variable<float, 0>>,
                          "halftone: captured_step: a step returns its loss, a variable<float, 0>, or nothing");
            const result loss = step_(inputs...);
            if (loss_.data() == nullptr) loss_ = buffer(device_->memory(), sizeof(float), memory_kind::other);
            device_->copy(loss_.data(), loss.view().data(), sizeof(float));
            // The loss takes a block; what is out beside it would lie elsewhere in each step, and replays know one
            // place.
            if (const std::size_t live = loss.graph().arena().live(); live > block_alignment) {
                fail<state_error>("captured_step: ", live - block_alignment,
                                  " bytes of results outlive the step; what is to last wants memory of its own");
            }
        }
    }

    template <class... Inputs>
    plan& plan_for(const Inputs&... inputs) {
        for (plan& p : plans_) {
            if (p.inputs.fits(inputs...)) return p;
        }
        const auto used_before = [](const plan& a, const plan& b) { return a.last_use < b.last_use; };
        arrival_ = plans_.empty() ? "the first one"
                                  : "the one before was of " +
                                        std::max_element(plans_.begin(), plans_.end(), used_before)->inputs.text();
        plan fresh{detail::step_inputs(*device_, inputs...)};
        if (plans_.size() == static_cast<std::size_t>(most_)) {
            const auto oldest = std::min_element(plans_.begin(), plans_.end(), used_before);
            arrival_ += ", and " + oldest->inputs.text() + " made room for it";
            plans_.erase(oldest);
        }
        plans_.push_back(std::move(fresh));
        return plans_.back();
    }

    Device* device_;
    Step step_;
    int most_;
    std::vector<plan> plans_;
    buffer loss_;
    std::string reason_, arrival_;
    std::int64_t captures_ = 0, replays_ = 0;
    std::uint64_t calls_ = 0;
};

template <class Device, class Step>
captured_step(Device&, Step) -> captured_step<Device, Step>;
template <class Device, class Step>
captured_step(Device&, Step, const captured_step_options&) -> captured_step<Device, Step>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
