// SPDX-License-Identifier: MIT
/// \file
/// The hooks of a shadow run's two tapes (shadow.hpp), and the notes of the first one's operations.
///
/// Both are watched tapes, which also show the operations' internal values. On the policy's tape each record is
/// examined when it is made and before it runs: bounds_of<Record>, found in the list of observe/operations.hpp by the
/// operation's tag, gives the bound of each result without the last rounding.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <halftone/number/classify.hpp>
#include <halftone/observe/operations.hpp>
#include <halftone/observe/watch/watched_tape.hpp>
#include <halftone/policy/lora.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The tape's model: the policy's, or its twin in fp32.
enum class shadow_side { policy, twin };

/// fp32 in place of another policy.
template <class P>
struct in_fp32 : full_fp32 {
    using stands_for = P;
};
/// A policy in fp32; for a recipe, its rules with fp32 in all of them.
template <class P>
struct policy_in_fp32 {
    using type = in_fp32<P>;
};
template <class P>
struct policy_in_fp32<in_fp32<P>> {
    using type = in_fp32<P>;
};
template <policy_marker P>
struct policy_in_fp32<P> {
    using type = P;
};
/// With adapters at the same layers.
template <class P>
    requires(
        requires { typename P::adapter; } && !requires { typename P::stands_for; })
struct policy_in_fp32<P> {
    using type = lora<in_fp32<typename P::adapter>, in_fp32<P>>;
};
template <class P>
    requires(
        requires { typename P::adapter; } && requires { typename P::stands_for; })
struct policy_in_fp32<P> {
    using type = P;
};
template <class Default, class... Rules>
struct policy_in_fp32<recipe<Default, Rules...>> {
    using type = recipe<typename policy_in_fp32<Default>::type,
                        halftone::rule<Rules::pattern, typename policy_in_fp32<typename Rules::policy>::type>...>;
};
template <class P, path_name Name>
struct policy_in_fp32<at<P, Name>> {
    using type = at<typename policy_in_fp32<P>::type, Name>;
};
/// A tensor of the policy's step, in host memory.
struct shadow_tensor {
    watched_operation by;
    halftone::pass pass;
    tensor_role role;
    std::string parameter;
    value_format format;
    std::vector<float> values;
    std::vector<double> bound;  // without the last rounding; empty: this tensor is not judged
    std::vector<double> added;  // magnitudes of the old values to which the result was added
};

/// n u / (1 - n u) (Higham 2002, section 3.1).
inline double shadow_gamma(double n, double u) { return n * u < 1 ? n * u / (1 - n * u) : HUGE_VAL; }

inline double root_mean_square(const std::vector<float>& values) {
    double sum = 0;
    for (const float v : values) {
        if (is_finite(v)) sum += static_cast<double>(v) * static_cast<double>(v);
    }
    return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

/// The largest finite magnitude.
inline float largest_magnitude(const std::vector<float>& values) {
    float largest = 0;
    for (const float v : values) {
        if (is_finite(v)) largest = std::max(largest, std::fabs(v));
    }
    return largest;
}

/// The bound of rounding values: u times the magnitude. Below a type's least normal number the relative error is
/// larger; that is accepted if these values are few and small compared with the others, and counts as underflow if the root
/// mean square itself is there. A type without ieee_spacing has an absolute error beside the relative one instead.
struct rounding_rule {
    double u, floor, step = 0;

    static rounding_rule to(value_format format, double rms) {
        if (!format->ieee_spacing || format->is_fixed_point())
            return {format->unit_roundoff, 0, std::min(format->min_subnormal / 2, rms)};
        return {format->unit_roundoff, std::min(format->min_normal, rms)};
    }
    template <class T>
    static rounding_rule to(double rms) {
        return to(value_format::of<T>(), rms);
    }
    double operator()(double value) const { return u * std::max(std::fabs(value), floor) + step; }
};

/// The notes of a tape's operations, with the bounds from the rules.
template <class Device>
class shadow_notes final : public tensor_listener {
  public:
    explicit shadow_notes(Device& device) : device_(&device) {}

    std::vector<shadow_tensor> tensors;

    void on_tensor(const watched_tensor& t) override {
        shadow_tensor s{*t.by, t.pass, t.role, t.parameter == nullptr ? "" : t.parameter, t.format, {}, {}, {}};
        s.values = fetched_floats(*device_, t.format, t.data, t.count);
        if (const auto bound = bounds_.find(t.data); bound != bounds_.end()) {
            s.bound = bound->second;
        } else if (const auto of = of_parameters_.find(s.parameter); of != of_parameters_.end()) {
            s.bound = of->second;
        } else if (std::find(internal_.begin(), internal_.end(), t.data) == internal_.end()) {
            s.bound = usual_bound(s);
        }
        if (const auto before = added_.find(t.data); before != added_.end()) s.added = before->second;
        tensors.push_back(std::move(s));
    }

    // ---- called by the tape

    void begin_operation() {
        bounds_.clear();
        of_parameters_.clear();
        added_.clear();
        internal_.clear();
        targets_.clear();
        first_made_ = nullptr;
        roundings_ = 1, length_ = 1, unit_ = 0, summed_ = 0;
    }
    void note_made(const void* data, extent count, bool is_result) {
        if (first_made_ == nullptr) first_made_ = data;
        note_length(count);
        if (!is_result) internal_.push_back(data);
    }
    void note_internal(const void* data, extent count) {
        internal_.push_back(data);
        note_length(count);
    }
    void note_length(extent count) { length_ = std::max(length_, count); }
    /// A gradient is written to `data`: added to the old values or, if is_there is false, the first there.
    template <class T>
    void note_target(const T* data, extent count, bool is_there) {
        if constexpr (is_watchable<T>) {
            // If an operation gives two gradients to the same input, the first has not been written yet when the second
            // target is requested.
            const bool is_again = std::find(targets_.begin(), targets_.end(), data) != targets_.end();
            targets_.push_back(data);
            note_length(count);
            if (!is_there) return;
            auto& sum = added_[data];
            sum.resize(static_cast<std::size_t>(count));
            if (is_again) return;
            const auto before = read(const_view<T, 1>(data, {count}));
            for (std::size_t i = 0; i < before.size(); ++i) sum[i] += std::fabs(static_cast<double>(before[i]));
        }
    }

    // ---- called by the rules

    Device& device() const { return *device_; }
    /// The first tensor that the operation made.
    const void* first_made() const { return first_made_; }
    template <class T, int Rank>
    std::vector<float> read(const view<T, Rank>& values) const {
        const auto all = flatten(values);
        return fetched_floats(*device_, value_format::of<std::remove_const_t<T>>(), all.data(), all.size());
    }
    /// The value that the gradient belongs to, if it still exists.
    template <class T, int Rank>
    static const T* value_of(const gradient_of<T, Rank>& g) {
        if (!g.is_empty() && g.graph().value_block(g.slot()) != graph::none)
            return reinterpret_cast<const T*>(g.graph().value(g.slot()));
        return nullptr;
    }
    void bound_value(const void* data, std::vector<double> bound) { add(bounds_[data], std::move(bound)); }
    template <class T, int Rank>
    void bound_gradient(const gradient_of<T, Rank>& g, std::vector<double> bound) {
        if (g.graph().has_gradient(g.slot())) add(bounds_[g.graph().gradient(g.slot())], std::move(bound));
    }
    template <class Storage, int Rank>
    void bound_gradient(const parameter<Storage, Rank>& p, std::vector<double> bound) {
        add(of_parameters_[p.owner().entries()[p.entry()].path], std::move(bound));
    }
    void bound_gradient(const absent&, const std::vector<double>&) {}
    /// The bound for an operation without a rule of its own: `roundings` roundings of its results, or of values of
    /// magnitude `unit` if larger, and float sums of `length` terms; a gradient with fewer elements than `summed` is
    /// also summed over these. `steps`: the absolute errors of all that are summed, together.
    void expect(int roundings, extent length, double unit = 0, extent summed = 0, double steps = 0) {
        roundings_ = roundings, length_ = std::max<extent>(length, 1), unit_ = unit, summed_ = summed, steps_ = steps;
    }

  private:
    static void add(std::vector<double>& to, std::vector<double>&& more) {
        if (to.empty()) {
            to = std::move(more);
        } else {
            for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
        }
    }
    /// For values that are not finite only the sums' part: the fp32 result shows whether they had to be.
    std::vector<double> usual_bound(const shadow_tensor& s) const {
        const auto round = rounding_rule::to(s.format, root_mean_square(s.values));
        const double u = std::max(unit_, round.u);
        const auto largest = static_cast<double>(largest_magnitude(s.values));
        const extent count = std::max<extent>(static_cast<extent>(s.values.size()), 1),
                     length = length_ + summed_ / count;
        const double sums = 2 * shadow_gamma(static_cast<double>(length), unit_roundoff<float>) * largest +
                            steps_ / static_cast<double>(count);
        std::vector<double> bound(s.values.size(), sums);
        for (std::size_t i = 0; i < bound.size(); ++i) {
            if (is_finite(s.values[i])) bound[i] += roundings_ * (u * std::fabs(static_cast<double>(s.values[i])) + round.step);
        }
        return bound;
    }

    Device* device_;
    std::map<const void*, std::vector<double>> bounds_, added_;
    std::map<std::string, std::vector<double>> of_parameters_;
    std::vector<const void*> internal_, targets_;
    const void* first_made_ = nullptr;
    int roundings_ = 1;
    extent length_ = 1, summed_ = 0;
    double unit_ = 0, steps_ = 0;
};

/// The bounds of results of a custom operation: rows.hpp.
template <class Op>
struct own_bounds;

/// The hook of one of the two tapes.
template <class Device, shadow_side Side>
class shadow_hook : public watch_hook<Device> {
    using watch_base = watch_hook<Device>;
    static constexpr bool has_notes = Side == shadow_side::policy;

  public:
    static constexpr bool leaves_out = false;  // policy and twin must have the same operations
    template <class P>
    using region_policy = typename std::conditional_t<has_notes, std::type_identity<P>, policy_in_fp32<P>>::type;
    /// The twin's store has fp32 only, and gets the values read here.
    template <class T, class Storage>
    using parameter_type =
        std::conditional_t<std::is_same_v<T, typename Storage::compute>, T, typename Storage::param>;

    explicit shadow_hook(tape<Device>& owner) : watch_base(owner) {}
    /// For the policy's tape: the listener that receives bounds.
    void note_in(shadow_notes<Device>& notes)
        requires has_notes
    {
        notes_ = &notes;
        this->watch(notes);
    }

    // ---- forward

    template <class Where>
    void begin(const char* operation) {
        this->show();
        if constexpr (has_notes) notes_->begin_operation();
        watch_base::template begin<Where>(operation);
    }
    /// Memory for a result, shown to the listeners when the next operation begins.
    template <class T, int Rank>
    void give(const variable<T, Rank>& made, bool wants_gradient) {
        if constexpr (is_watchable<T>) {
            if (!this->is_open_ || made.size() == 0) return;
            this->note_value(made);
            const bool is_result = std::exchange(this->is_first_, false) || wants_gradient;
            if constexpr (has_notes) notes_->note_made(made.view().data(), made.size(), is_result);
        }
    }
    /// Called for all results; a record exists only if a gradient is wanted.
    template <class Op, class Y, class... Inputs>
    void give_own(const Y& y, const Inputs&... inputs) {
        if constexpr (has_notes) own_bounds<Op>::forward(*notes_, y, inputs...);
    }
    /// Shows the arguments of a user's operation before it runs: as copies, since they may be in the store. The twin's
    /// version of a parameter may differ from what is read here, and is not compared.
    template <reading How, class V>
    V read(V argument) {
        using T = typename V::value_type;
        if constexpr (How == reading::as_it_is || !is_watchable<T>) {
            return argument;
        } else {
            const bool was_open = std::exchange(this->is_open_, false);
            const V copy = this->owner_->template make<T>(argument.shape(), false);
            this->owner_->device().copy(copy.view().data(), argument.view().data(),
                                        static_cast<std::size_t>(copy.size()) * sizeof(T));
            if (copy.size() != 0) {
                this->note_value(copy);
                if constexpr (has_notes && How == reading::parameter)
                    notes_->note_internal(copy.view().data(), copy.size());
                this->show();
                if constexpr (has_notes) notes_->begin_operation();
            }
            this->is_open_ = was_open;
            return copy;
        }
    }
    /// Operands are judged by the results of their products; the twin has no 8-bit operands.
    template <class... Ts>
    void read_scaled(const Ts&...) {}
    template <class Record>
    void record(const Record& r) {
        if constexpr (has_notes) bounds_of<Record>::forward(*notes_, r);
    }

    // ---- backward

    template <class Record, class Run>
    void backward(const Record& r, const watched_operation* by, const Run& run) {
        watch_base::backward(r, by, [&] {
            if constexpr (has_notes) {
                notes_->begin_operation();
                const auto finish = bounds_of<Record>::backward(*notes_, r);
                run();
                finish();
            } else {
                run();
            }
        });
    }
    /// Where the gradient of v is written; also noted.
    template <class T, int Rank>
    void give_gradient(const gradient_of<T, Rank>& v, const T* data, write_mode mode) {
        watch_base::give_gradient(v, data, mode);
        if constexpr (has_notes) {
            if (data != nullptr) notes_->note_target(data, v.shape().size(), mode == write_mode::add);
        }
    }
    /// Where the gradient of a parameter is written; also noted.
    template <class Storage, int Rank>
    void give_parameter_gradient(const parameter<Storage, Rank>& p, const typename Storage::accumulate* data,
                                 write_mode mode) {
        watch_base::give_parameter_gradient(p, data, mode);
        if constexpr (has_notes) notes_->note_target(data, p.shape().size(), mode == write_mode::add);
    }

  private:
    shadow_notes<Device>* notes_ = nullptr;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
