// SPDX-License-Identifier: MIT
/// \file
/// A training step as one unit of work: captured on a device that supports it (exec/capture.hpp), on a GPU as one CUDA
/// graph, and replayed from then on.
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
/// The first step with inputs of certain shapes runs uncaptured, which allocates scratch memory and loads kernels. The
/// next one is captured, or a later one if memory was still growing. All others are replays, for which the host only
/// uploads the inputs. If a replay would be wrong, because of other shapes, memory that has moved, or frozen
/// parameters, the step is captured again, and reason() says why.
///
/// A step is called with views, or with values that have with_views (as ht::language_batch). They may be in host
/// memory, at other addresses each time; the step gets copies in device memory that the captured step owns. Other host
/// values that the step reads, such as a clipping limit, keep their value of the capture: call renew() after changing
/// one. Values in the device's records may change: learning rate, schedule, loss scale.
///
/// Inside of a step nothing may wait for the device: the capture throws (capture_error says what to do). At the end of
/// a step the host must hold nothing of it: gradients taken, tapes empty, no variable kept except the returned loss. A
/// single micro-batch, which leaves its window open, is allowed, but is captured again in each window. After an
/// exception inside, clear the tape and discard the accumulator's window.
///
/// On a CPU every step runs uncaptured, in reused memory. The bits are the same in all cases.
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
    uncaptured,  ///< ran the step uncaptured
    captured,    ///< captured the step and ran the graph
    replayed,
};

/// Limits of a captured step.
struct captured_step_options {
    int most_graphs = 8;  ///< number of graphs for different shapes; the least recently used is dropped
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

/// The twin of a device that captures steps (exec/measure.hpp): it has memory for their inputs, and captures none.
template <class Device>
concept plans_captures = requires { requires Device::plans_captures; };

}  // namespace detail

/// `Step` is called with the inputs, and returns a loss (variable<float, 0>) or nothing. Used by one thread at a time.
/// The device and everything that the step refers to must outlive it.
template <class Device, class Step>
class captured_step {
  public:
    /// Throws argument_error for most_graphs below 1.
    captured_step(Device& device, Step step, const captured_step_options& options = {})
        : device_(&device), step_(std::move(step)), most_(options.most_graphs) {
        set_most_graphs(most_);
    }
    captured_step(const captured_step&) = delete;
    captured_step& operator=(const captured_step&) = delete;

    /// Runs a step. Throws what the step throws; capture_error, without an effect on the device, for a step that cannot
    /// be captured; shape_error for a view that is not contiguous; and out_of_memory.
    template <class... Inputs>
    step_run operator()(const Inputs&... inputs) {
        if constexpr (capturing_device<Device>) {
            return run_or_replay(inputs...);
        } else if constexpr (detail::plans_captures<Device>) {
            plan& p = plan_for(inputs...);
            p.last_use = ++calls_;
            p.inputs.fill(*device_, inputs...);
            p.inputs.call([this](const auto&... own) { this->run(own...); }, inputs...);
            device_->memory().capture_dependencies().settle();
            return step_run::uncaptured;
        } else {
            run(detail::map_views(inputs, [](const auto& v) { return v; })...);
            if (reason_.empty()) reason_ = "uncaptured: this device does not capture steps";
            return step_run::uncaptured;
        }
    }

    /// The loss that the last step returned. Waits for the device. Throws state_error if there is none.
    float loss() const {
        if (loss_.data() == nullptr)
            fail<state_error>("captured_step: loss() of a step that has not run yet, or returns none");
        float value;
        device_->memory().read(&value, loss_.data(), sizeof value);
        return value;
    }
    /// Why the last step that was not a replay was run as it was, in a sentence.
    const std::string& reason() const { return reason_; }
    /// The number of captures and of replays so far.
    std::int64_t captures() const { return captures_; }
    std::int64_t replays() const { return replays_; }

    /// The number of graphs that it keeps.
    int most_graphs() const { return most_; }
    /// Sets it. Throws argument_error for one below 1.
    void set_most_graphs(int most) {
        if (most < 1) fail<argument_error>("captured_step: ", most, " graphs at most; expected 1 or more");
        most_ = most;
    }

    /// Captures again from now on: to be called after changing a host value that the step reads. `why` appears in
    /// reason().
    void renew(const std::string& why) {
        for (plan& p : plans_) p.drop(why);
    }

  private:
    /// The state for inputs of certain shapes.
    struct plan {
        detail::step_inputs inputs;
        std::uint64_t last_use = 0;
        std::string change{};                ///< why it was last captured again, or will be
        bool is_tried = false;               ///< it has run uncaptured without allocating, while ...
        detail::capture_dependency_list::snapshot dependencies{};  ///< ... these were the dependencies
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
        if (!p.work && p.is_tried) capture_dependencies.settle();  // other work may have allocated since
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
                                       : "captured again: a step of " + p.inputs.text() + "; " + p.change;
            return step_run::captured;
        }
        call();
        // After settle() has joined blocks of memory, only another run can tell whether the step fits into them.
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
            // The returned loss keeps a block of the arena. Any other block in use would have another address in each
            // step, while a graph contains fixed addresses.
            if (const std::size_t live = loss.graph().arena().live(); live > block_alignment) {
                fail<state_error>("captured_step: ", live - block_alignment,
                                  " bytes of results outlive the step; copy results that are needed longer to other memory");
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
        if (plans_.size() >= static_cast<std::size_t>(most_)) {
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
