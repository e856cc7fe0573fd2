// SPDX-License-Identifier: MIT
/// \file
/// Locates overflows: finds the first operation of a step that gave an infinity or a NaN, with the path of its layer.
///
///     ht::tape tape{device, ht::watched};
///     ht::overflow_finder finder{device, tape};
///     for (...) {
///         ...                                                // backward passes, unscale
///         const auto outcome = optimizer.step(grads);
///         finder.end_step(outcome);
///         scaler.update();
///     }
///     for (const ht::overflow& o : finder.take()) std::cout << o.text() << '\n';      // waits for the device
///
///     step 12 skipped (infinity): h.1.mlp, mlp, forward: 37 +inf of 8192 values in float16, the finite ones up to 65472;
///     before it h.1.mlp.norm, layer_norm, gave 4.1 at most
///
/// Each tensor is counted by a kernel (kernel/count_nonfinite), and a record in the device's memory stores the first
/// that was not finite: nothing waits, and captured steps are covered, too. The host reads the record and adds names in
/// take(). "First" is in time: forward before backward, earlier micro-batches before later ones.
///
/// Variables put onto the tape (constant, leaf, to_device) are counted as well; if one was not finite already, the
/// report says so. finder.take(model) also examines the weights, those of that layer first, with
/// their current values, which are those of the step if it was skipped. Doubles are not counted: for an infinity that
/// an operation gave in double the report names the first operation whose result has another type, a cast for instance.
#pragma once

#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <halftone/kernel/count_nonfinite/count_nonfinite.hpp>
#include <halftone/observe/overflow/source.hpp>
#include <halftone/observe/watch/watched_tape.hpp>
#include <halftone/optim/optimizer.hpp>
#include <halftone/scale/device_value.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A step that was skipped, or in which a value was not finite.
struct overflow {
    std::int64_t step = 0;                        ///< counted by end_step, from 1
    step_result result = step_result::taken;      ///< the result of the first optimizer that skipped it
    bool is_located = false;                      ///< false: no operation gave such a value, and the members below are empty
    watched_operation by;
    halftone::pass pass = pass::forward;
    int micro_batch = 0;                          ///< number of the micro-batch in the step, from 1
    tensor_role role = tensor_role::value;
    std::string parameter;    ///< for its gradient, or a product's operand; otherwise empty
    watched_operand operand;  ///< for an operand: which one, and its 8-bit type
    float scale = 0;          ///< for an operand
    value_format format = value_format::float32;
    extent elements = 0;
    kernel::nonfinite_counts found;
    watched_operation before;  ///< the operation counted before, in the same pass; otherwise empty
    float before_largest = 0;                     ///< the largest magnitude of its values
    overflow_source input;   ///< the first input of the tape before it in the micro-batch that was not finite
    overflow_source weight;  ///< for a forward operation and take(model): a weight of its layer, or of the model

    bool is_skipped() const { return result != step_result::taken; }
    /// "+inf", "-inf" or "NaN": infinities first, since they cause NaNs.
    const char* kind() const {
        return found.positive_infinities > 0 ? "+inf" : found.negative_infinities > 0 ? "-inf" : "NaN";
    }
    /// One line of text.
    std::string text() const;
};

namespace detail {

/// A magnitude as text: "65472", "0.00123", "3.1e+20".
inline std::string magnitude_text(float x) {
    char text[32];
    std::snprintf(text, sizeof text, x >= 1e5f && x < 1e6f ? "%.6g" : "%.5g", static_cast<double>(x));
    return text;
}

struct overflow_entry {
    std::int64_t step = 0;
    std::int32_t result = 0;
    std::int32_t tensor = -1, before = -1;
    float before_largest = 0;
    kernel::nonfinite_counts found{};
    float scale = 0;
    std::int32_t input = -1, input_micro_batch = 0;
    kernel::nonfinite_counts input_found{};
};

/// The device's record of the current step.
struct overflow_record {
    overflow_entry step{};
    // The values or gradients counted last, by this operation and by the one before it.
    std::int32_t operation = -1, latest = -1, earlier = -1;
    float latest_largest = 0, earlier_largest = 0;
    std::int64_t steps = 0, written = 0;
};

struct note_counts {
    overflow_record* record;
    const kernel::nonfinite_counts* counts;
    std::int32_t operation, tensor, is_additional;  // is_additional: a parameter's gradient, or an operand
    const tensor_scale* scale;  // for an operand; otherwise nullptr

    HALFTONE_HD void operator()() const {
        overflow_record& r = *record;
        if (r.step.tensor >= 0) return;
        const bool is_new = r.operation != operation;
        if (!counts->is_finite()) {
            r.step.tensor = tensor;
            r.step.found = *counts;
            r.step.scale = scale == nullptr ? 0 : scale->scale;
            r.step.before = is_new ? r.latest : r.earlier;
            r.step.before_largest = is_new ? r.latest_largest : r.earlier_largest;
            return;
        }
        if (is_new) {
            r.earlier = r.latest, r.earlier_largest = r.latest_largest;
            r.operation = operation, r.latest = -1, r.latest_largest = 0;
        }
        if (is_additional != 0) return;
        r.latest = tensor;
        r.latest_largest = r.latest_largest < counts->largest ? counts->largest : r.latest_largest;
    }
};

struct note_input_counts {
    overflow_record* record;
    const kernel::nonfinite_counts* counts;
    std::int32_t tensor, micro_batch;

    HALFTONE_HD void operator()() const {
        overflow_entry& e = record->step;
        if (e.tensor >= 0 || counts->is_finite() || (e.input >= 0 && e.input_micro_batch == micro_batch)) return;
        e.input = tensor, e.input_micro_batch = micro_batch, e.input_found = *counts;
    }
};

struct note_result {
    overflow_record* record;
    const std::int32_t* result;
    HALFTONE_HD void operator()() const {
        if (record->step.result == 0) record->step.result = *result;
    }
};

struct end_watched_step {
    overflow_record* record;
    overflow_entry* entries;
    std::int64_t room;

    HALFTONE_HD void operator()() const {
        overflow_record& r = *record;
        r.step.step = ++r.steps;
        if (r.step.tensor >= 0 || r.step.result != 0) entries[r.written++ % room] = r.step;
        r.step = {};
        r.operation = r.latest = r.earlier = -1;
    }
};
struct forget_step {
    overflow_record* record;
    HALFTONE_HD void operator()() const {
        record->step = {};
        record->operation = record->latest = record->earlier = -1;
    }
};

}  // namespace detail

/// A listener that finds, for every skipped step, the first operation whose value or gradient was not finite. It does
/// not wait for the device before take().
template <class Device>
class overflow_finder final : public tensor_listener {
  public:
    /// Observes the tape's tensors during its lifetime; device and tape must outlive it. Stores up to `steps` steps
    /// between two calls of take(). Throws argument_error for 0.
    overflow_finder(Device& device, tape<Device, watched_tape>& watched_by_it, std::size_t steps = 1024)
        : tape_(&watched_by_it), record_(device), nonfinite_(device), room_(steps),
          entries_(device.memory(), steps * sizeof(detail::overflow_entry), memory_kind::other) {
        if (steps == 0) fail<argument_error>("overflow_finder: remembers 0 steps; expected 1 or more");
        tape_->watch(*this);
    }
    template <class Kind, bool IsWatched = detail::check_watched<Kind>()>
    overflow_finder(Device&, tape<Device, Kind>&) = delete;
    ~overflow_finder() override { tape_->unwatch(*this); }

    /// Ends a step that these optimizers have taken or skipped. Runs on the device, in order with its other work.
    template <class... Outcomes>
    void end_step(const Outcomes&... outcomes) {
        (device().run(detail::note_result{record_.data(), outcomes.on_device()}), ...);
        device().run(detail::end_watched_step{record_.data(), entries(), static_cast<std::int64_t>(room_)});
        tape_->begin_step();
        has_ended_one_ = true;
    }
    /// Discards the findings of the current step, after an exception.
    void discard() {
        device().run(detail::forget_step{record_.data()});
        tape_->begin_step();
        has_seen_one_ = false;
    }

    /// The steps since the last call that were skipped or in which a value was not finite, oldest first. Waits for the
    /// device. If there were more than it stores, the oldest are lost; lost() counts them. Throws state_error if
    /// tensors were counted and no step has ever ended.
    std::vector<overflow> take() {
        if (has_seen_one_ && !has_ended_one_)
            fail<state_error>(
                "overflow_finder: take() before any step has ended, so that there is nothing to report; call "
                "finder.end_step(optimizer.step(grads)) after each step, or finder.end_step() without an optimizer");
        const std::int64_t written = record_.read().written, room = static_cast<std::int64_t>(room_);
        if (written == taken_) return {};
        std::vector<detail::overflow_entry> all(room_);
        device().memory().read(all.data(), entries(), room_ * sizeof(detail::overflow_entry));
        if (written - taken_ > room) {
            lost_ += written - room - taken_;
            taken_ = written - room;
        }
        std::vector<overflow> result;
        for (; taken_ < written; ++taken_) result.push_back(named(all[static_cast<std::size_t>(taken_ % room)]));
        return result;
    }
    /// The steps that take() gives, and for forward operations also a weight that is not finite itself: of the layer,
    /// otherwise of the model.
    template <class Model>
    std::vector<overflow> take(const Model& model) {
        std::vector<overflow> all = take();
        detail::nonfinite_weights<Model> weights(model);
        for (overflow& o : all) {
            if (o.is_located && o.pass == pass::forward) o.weight = weights.read_by(o.by);
        }
        return all;
    }
    /// The number of steps whose findings were lost, because more were skipped between two calls of take() than it
    /// stores.
    std::int64_t lost() const { return lost_; }

    /// Counts a tensor.
    void on_tensor(const watched_tensor& t) override {
        has_seen_one_ = true;
        const auto id = number_of(tensors_, t);
        watched_tensor whole = t;  // for all tensors of an operation's pass
        whole.role = {}, whole.parameter = nullptr, whole.format = {}, whole.count = 0, whole.operand = {};
        const auto operation = number_of(operations_, whole);
        count(t);
        device().run(detail::note_counts{record_.data(), nonfinite_.data(), operation, id,
                                        t.role == tensor_role::parameter_gradient || t.role == tensor_role::operand,
                                        t.operand.scale});
    }
    /// Counts an input.
    void on_input(const watched_tensor& t) override {
        const auto id = number_of(tensors_, t);
        count(t);
        device().run(detail::note_input_counts{record_.data(), nonfinite_.data(), id, t.micro_batch});
    }

  private:
    void count(const watched_tensor& t) {
        with_values(t, [this]<class V>(const V& values) {
            kernel::count_nonfinite<Device>::run(record_.device(), values, nonfinite_.data());
        });
    }

    // Numbers of tensors, assigned once: captured steps contain them.
    struct order {
        static auto key(const watched_tensor& t) {
            return std::tuple(t.by, t.pass, t.micro_batch, t.role,
                              std::string_view(t.parameter == nullptr ? "" : t.parameter), t.format, t.count,
                              t.operand.tensor, t.operand.format);
        }
        bool operator()(const watched_tensor& a, const watched_tensor& b) const { return key(a) < key(b); }
    };
    struct numbers {
        std::map<watched_tensor, std::int32_t, order> of;
        std::vector<const watched_tensor*> all;
    };
    static std::int32_t number_of(numbers& n, const watched_tensor& t) {
        const auto [at, is_new] = n.of.try_emplace(t, static_cast<std::int32_t>(n.all.size()));
        if (is_new) n.all.push_back(&at->first);
        return at->second;
    }

    overflow named(const detail::overflow_entry& e) const {
        overflow o;
        o.step = e.step;
        o.result = static_cast<step_result>(e.result);
        if (e.tensor < 0) return o;
        const watched_tensor& t = *tensors_.all[static_cast<std::size_t>(e.tensor)];
        o.is_located = true;
        o.by = *t.by, o.pass = t.pass, o.micro_batch = t.micro_batch + 1, o.role = t.role, o.format = t.format,
        o.elements = t.count;
        if (t.parameter != nullptr) o.parameter = t.parameter;
        o.operand = {t.operand.tensor, t.operand.format, nullptr, nullptr, t.operand.rule};
        o.found = e.found, o.scale = e.scale;
        if (e.input >= 0 && e.input_micro_batch == t.micro_batch) {
            const watched_tensor& input = *tensors_.all[static_cast<std::size_t>(e.input)];
            o.input = {"", input.format, input.count, e.input_found};
        }
        if (e.before < 0) return o;
        const watched_tensor& before = *tensors_.all[static_cast<std::size_t>(e.before)];
        if (before.pass == t.pass && before.micro_batch == t.micro_batch)
            o.before = *before.by, o.before_largest = e.before_largest;
        return o;
    }

    Device& device() const { return record_.device(); }
    detail::overflow_entry* entries() const { return reinterpret_cast<detail::overflow_entry*>(entries_.data()); }

    tape<Device, watched_tape>* tape_;
    detail::device_value<detail::overflow_record, Device> record_;
    detail::device_value<kernel::nonfinite_counts, Device> nonfinite_;
    std::size_t room_;
    buffer entries_;
    numbers tensors_, operations_;
    std::int64_t taken_ = 0, lost_ = 0;
    bool has_seen_one_ = false, has_ended_one_ = false;
};
template <class Device>
overflow_finder(Device&, tape<Device, watched_tape>&) -> overflow_finder<Device>;
template <class Device>
overflow_finder(Device&, tape<Device, watched_tape>&, std::size_t) -> overflow_finder<Device>;

inline std::string overflow::text() const {
    std::string t = "step " + std::to_string(step);
    t += is_skipped() ? std::string(" skipped (") + name(result) + "): " : " taken: ";
    if (!is_located) {
        const bool is_nonfinite = result == step_result::infinity || result == step_result::not_a_number;
        return t + (is_nonfinite ? "no operation gave it: gradients overflowed as they were unscaled, were written by hand, or "
                             "are too large for a moment"
                           : "all values were finite");
    }
    t += detail::place_of(by) + ", " + name(pass);
    if (micro_batch > 1) t += ", micro-batch " + std::to_string(micro_batch);
    t += ": " + detail::nonfinite_text(found, elements) +
         (role == tensor_role::value      ? " values"
          : role == tensor_role::gradient ? " values of the gradient that it passes on"
          : role == tensor_role::operand
              ? std::string(" values of the ") + name(operand.tensor) + " of " + parameter + "'s product"
              : " values of the gradient of " + parameter);
    t += std::string(" in ") + name(format);
    if (role == tensor_role::operand)
        t += std::string(", read in ") + name(operand.format) + " at a scale of " + detail::magnitude_text(scale);
    if (elements > found.positive_infinities + found.negative_infinities + found.nans)
        t += ", the finite ones up to " + detail::magnitude_text(found.largest);
    if (!before.operation.empty())
        t += "; the operation before, " + detail::place_of(before) + ", gave magnitudes up to " +
             detail::magnitude_text(before_largest);
    if (input.elements > 0)
        t += "; an input of the tape held " + detail::source_text(input) + " already";
    if (weight.elements > 0) t += "; the weight " + weight.parameter + " itself holds " + detail::source_text(weight);
    return t;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
