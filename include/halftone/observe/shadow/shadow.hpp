// SPDX-License-Identifier: MIT
/// \file
/// A shadow run compares a step under a policy with the same step in fp32, operation by operation, and finds the first
/// operation that differs by more than its rounding explains.
///
///     ht::shadow_twin<decltype(model)> twin{device, config};       // the same model in fp32, with the same arguments
///     const auto report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
///         return scaler.scale(m.loss(tape, batch));                // the loss for backward(); called for both
///     });
///     report.print(std::cout);                                     // report.first(): the first such operation, or nullptr
///
/// The twin gets the model's weights as kernels read them. After each of its operations, forward and backward, its
/// results are compared with the policy's and then replaced by them, so that each operation is judged by its own
/// rounding alone. The bound follows from the types in which it computes and stores, and from its shape (products.hpp,
/// linear.hpp, attention.hpp, losses.hpp, rows.hpp). The bound is exceeded by underflow, overflow, stale copies of
/// weights, stale scales of 8-bit operands, and custom operations that cast wrongly or lose terms of sums. Such an
/// operation is expected to give what floats would give from the values that it gets, rounded once, or as often as it
/// states (`static constexpr int roundings = 2;`), and once more for differences between floats. Float sums differ by
/// their length, which is estimated or stated (`sum_length`: autodiff/op/apply.hpp). Errors that the operation also
/// makes in fp32 cannot be seen.
///
/// Values below a type's least normal number count as correctly rounded if most of the tensor is larger (by the root
/// mean square of the fp32 values), otherwise as underflow. Results of inputs that are not finite are not judged: their
/// bound is infinite, or the fp32 result is not finite either.
///
/// Accumulators, optimizer and scaler are not touched. Meant for occasional steps, outside of captured steps: the host
/// waits for every tensor, keeps all of them, and computes the bounds itself.
#pragma once

#include <halftone/error.hpp>
#include <halftone/memory/kept_states.hpp>
#include <halftone/memory/weight_values.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/observe/shadow/attention.hpp>
#include <halftone/observe/shadow/channel_norm.hpp>
#include <halftone/observe/shadow/conv2d.hpp>
#include <halftone/observe/shadow/linear.hpp>
#include <halftone/observe/shadow/losses.hpp>
#include <halftone/observe/shadow/report.hpp>
#include <halftone/observe/shadow/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class Model>
struct model_in_fp32 {
    static_assert(
        !std::is_same_v<Model, Model>,
        "halftone: shadow_twin: this model is not a template of a policy alone, so that its type in fp32 cannot be derived; "
        "name that type yourself: my_model<ht::full_fp32> twin{...};");
};
template <template <class> class Model, class P>
struct model_in_fp32<Model<P>> {
    using type = Model<typename policy_in_fp32<P>::type>;
};

/// Compares the values that its tape shows with those that were noted, and replaces them.
template <class Device>
class shadow_comparison final : public tensor_listener {
  public:
    shadow_comparison(Device& device, const std::vector<shadow_tensor>& noted, std::vector<shadow_row>& rows)
        : device_(&device), noted_(&noted), rows_(&rows) {}

    void on_tensor(const watched_tensor& t) override {
        if (next_ == noted_->size()) different(place_of(*t.by), "nothing more");
        const shadow_tensor& p = (*noted_)[next_++];
        const std::string parameter = t.parameter == nullptr ? "" : t.parameter;
        if (p.by.layer != t.by->layer || p.by.operation != t.by->operation || p.pass != t.pass || p.role != t.role ||
            p.parameter != parameter || static_cast<extent>(p.values.size()) != t.count)
            different(place_of(*t.by), place_of(p.by));
        if (!p.bound.empty()) rows_->push_back(compare(p, fetched_floats(*device_, t.format, t.data, t.count), t.format));
        std::vector<std::byte> values(p.values.size() * t.format->bytes);
        t.format->narrow(p.values.data(), p.values.size(), values.data());
        device_->memory().write(const_cast<void*>(t.data), values.data(), values.size());
    }
    void finish() const {
        if (next_ != noted_->size()) different("nothing more", place_of((*noted_)[next_].by));
    }

  private:
    static std::string place_of(const watched_operation& by) {
        return by.layer.empty() ? by.operation : by.layer + " " + by.operation;
    }
    [[noreturn]] static void different(const std::string& twin, const std::string& policy) {
        fail<argument_error>("shadow_run: the twin runs other operations than the model: ", twin, " where it has ",
                             policy, "; construct it as the model is, and let the step do the same for both");
    }

    /// The policy's values with what its twin computed, whose type is `in`.
    static shadow_row compare(const shadow_tensor& p, const std::vector<float>& expected, value_format in) {
        shadow_row row{.by = p.by,
                       .pass = p.pass,
                       .role = p.role,
                       .parameter = p.parameter,
                       .format = p.format,
                       .elements = static_cast<extent>(expected.size())};
        const double rms = root_mean_square(expected);
        const auto round = rounding_rule::to(p.format, rms), of_twin = rounding_rule::to(in, rms);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const double added = p.added.empty() ? 0 : p.added[i] + std::fabs(static_cast<double>(expected[i]));
            const double bound = p.bound[i] + round(static_cast<double>(expected[i])) + round.u * added +
                                 of_twin.u * (std::fabs(static_cast<double>(expected[i])) + added) + of_twin.step;
            look(row, static_cast<extent>(i), p.values[i], expected[i], bound);
        }
        return row;
    }

  public:
    /// Compares an element.
    static void look(shadow_row& row, extent at, float value, float expected, double bound) {
        // For inputs that are not finite. If the bound depends on the result alone, `expected` is not finite then.
        if (!(bound < HUGE_VAL) || !is_finite(static_cast<float>(bound))) return;
        double ratio = 0;
        if (is_finite(value) && is_finite(expected)) {
            const double difference = std::fabs(static_cast<double>(value) - static_cast<double>(expected));
            if (difference > bound) ++row.beyond;
            ratio = difference == 0 ? 0 : bound == 0 ? HUGE_VAL : difference / bound;
        } else if (is_finite(value) != is_finite(expected)) {
            ++row.beyond;
            ratio = HUGE_VAL;
        }
        if (at != 0 && row.elements != 0 && ratio <= row.ratio) return;
        row.ratio = ratio, row.at = at;
        row.value = static_cast<double>(value), row.expected = static_cast<double>(expected), row.bound = bound;
    }

  private:
    Device* device_;
    const std::vector<shadow_tensor>* noted_;
    std::vector<shadow_row>* rows_;
    std::size_t next_ = 0;
};

/// Gives the twin the weights that the model's kernels read, and compares these with the masters.
template <class Device>
class shadow_weights {
  public:
    shadow_weights(const store& from, store& to, std::vector<shadow_row>& rows) : from_(&from), to_(&to), rows_(&rows) {
        const auto& a = from.entries();
        const auto& b = to.entries();
        bool same = a.size() == b.size();
        for (std::size_t i = 0; same && i < a.size(); ++i) same = a[i].path == b[i].path && a[i].count == b[i].count;
        if (!same)
            fail<argument_error>(
                "shadow_run: the twin has other parameters than the model; construct it as the model is");
        for (const store::entry& e : a) {
            if (e.frozen) to.freeze(e.path);
        }
        if (from.adapters().are_merged() && !to.adapters().are_merged()) to.adapters().set_merged();
    }
    template <class... Storages>
    void copy(types<Storages...>) const {
        for (std::size_t i = 0; i < from_->entries().size(); ++i) {
            const store::group& group = from_->groups()[from_->entries()[i].group];
            ((group.key == store::key_of<Storages>() ? copy_one<Storages>(i, group) : void()), ...);
        }
    }

  private:
    template <class Storage>
    void copy_one(std::size_t i, const store::group& group) const {
        using param = typename Storage::param;
        using compute = typename Storage::compute;
        const store::entry& e = from_->entries()[i];
        const bool copied = group.copy_bytes != 0;
        const store::group& there = to_->groups()[to_->entries()[i].group];
        if (there.param_bytes != sizeof(float) || there.copy_bytes != 0)
            fail<argument_error>("shadow_run: the twin does not hold ", e.path,
                                 " in fp32; its policy is to be ht::full_fp32");
        if (!from_->is_here(e, 0, e.count))
            fail<state_error>("shadow_run: ", e.path, " is sharded, and this rank has a part of it only");
        const std::vector<compute> read = weight_values<Storage>(*from_, e);
        std::vector<float> values(e.count);
        for (std::size_t j = 0; j < e.count; ++j) values[j] = static_cast<float>(read[j]);
        if (to_->entries()[i].master == store::nowhere)
            fail<argument_error>("shadow_run: the twin has no master of ", e.path, "; let shadow_run freeze it");
        to_->write(i, 0, reinterpret_cast<const std::byte*>(values.data()), e.count);
        if constexpr (is_watchable<param> && is_watchable<compute> && !Storage::is_split) {
            if (!copied || e.master == store::nowhere) return;
            std::vector<param> masters(e.count);
            from_->memory().read(masters.data(), group.master.data() + e.master * sizeof(param),
                                 e.count * sizeof(param));
            shadow_row row{.by = {e.path.substr(0, e.path.rfind('.')), "", ""},
                           .pass = pass::update,
                           .parameter = e.path,
                           .format = value_format::of<compute>(),
                           .elements = static_cast<extent>(e.count)};
            std::vector<float> wide(e.count);
            for (std::size_t j = 0; j < e.count; ++j) wide[j] = static_cast<float>(masters[j]);
            const auto round = rounding_rule::to<compute>(root_mean_square(wide));
            for (std::size_t j = 0; j < e.count; ++j)
                shadow_comparison<Device>::look(row, static_cast<extent>(j), values[j], wide[j],
                                                round(static_cast<double>(wide[j])));
            rows_->push_back(std::move(row));
        }
    }

    const store* from_;
    store* to_;
    std::vector<shadow_row>* rows_;
};

/// Receives a shadow run's gradients.
struct shadow_gradients {
    gradient_slabs slabs;

    explicit shadow_gradients(store& s) : slabs(s) {}
    template <class Loss>
    void receive(const Loss&) {}
    gradient_slabs* find(const store& s) { return &s == &slabs.owner() ? &slabs : nullptr; }
};

}  // namespace detail

/// The type of a model with the same layers, all in fp32.
template <class Model>
using shadow_twin = typename detail::model_in_fp32<std::remove_cv_t<Model>>::type;

/// Runs a step twice; see the file's head. `step(tape, model)` returns the loss for backward(), scaled or not; it is
/// called for both models and must do the same each time. `random`: the state for dropout, tape.random_state() of the
/// tape that is investigated. The model is not changed, nor are its running statistics and amaxes; the twin's weights are.
/// Throws argument_error if model and twin differ in more than their types, and what the step throws.
template <class Device, class Model, class Twin, class Step>
shadow_report shadow_run(Device& device, Model& model, Twin& twin, const Step& step, const random_state& random = {}) {
    device.memory().expect_no_capture("a shadow run reads every tensor on the host; run it between steps");
    shadow_report report;
    const detail::kept_states kept(model.parameters());
    detail::shadow_weights<Device>(model.parameters(), twin.parameters(), report.rows).copy(signatures_of<Model>{});

    detail::shadow_notes<Device> notes(device);
    {
        detail::hooked_tape<Device, detail::shadow_hook<Device, detail::shadow_side::policy>> tape(device);
        tape.hook().note_in(notes);
        tape.restore(random);
        detail::shadow_gradients gradients(model.parameters());
        const auto loss = step(tape, static_cast<const Model&>(model));
        tape.backward(loss, gradients);
    }
    detail::shadow_comparison<Device> comparison(device, notes.tensors, report.rows);
    {
        detail::hooked_tape<Device, detail::shadow_hook<Device, detail::shadow_side::twin>> tape(device);
        tape.hook().watch(comparison);
        tape.restore(random);
        detail::shadow_gradients gradients(twin.parameters());
        const auto loss = step(tape, static_cast<const Twin&>(twin));
        tape.backward(loss, gradients);
    }
    comparison.finish();
    return report;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
