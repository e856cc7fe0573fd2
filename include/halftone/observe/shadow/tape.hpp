// SPDX-License-Identifier: MIT
/// \file
/// The two tapes of a shadow run (shadow.hpp), and what is noted of the first one's operations.
///
/// Both are watched tapes that show what operations keep for themselves as well. On the policy's tape each record is
/// looked at when it is made and before it runs: shadow_rule<Record>, specialised for the library's records in
/// linear.hpp, attention.hpp and the like, says how far rounding may carry each result, the last
/// rounding aside. So operations themselves know nothing of shadows.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <halftone/number/classify.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Kinds of tapes: the policy's, and that of its twin in fp32.
struct shadowed_tape {};
struct shadow_twin_tape {};
template <class Kind>
concept shadow_kind = std::is_same_v<Kind, shadowed_tape> || std::is_same_v<Kind, shadow_twin_tape>;

/// fp32 in the place of another policy.
template <class P>
struct in_fp32 : full_fp32 {
    using stands_for = P;
};
/// A policy in fp32, a recipe with its rules, all of them in fp32.
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
template <class Default, class... Rules>
struct policy_in_fp32<recipe<Default, Rules...>> {
    using type = recipe<typename policy_in_fp32<Default>::type,
                        halftone::rule<Rules::pattern, typename policy_in_fp32<typename Rules::policy>::type>...>;
};
template <class P, path_name Name>
struct policy_in_fp32<at<P, Name>> {
    using type = at<typename policy_in_fp32<P>::type, Name>;
};
template <class P, class Device>
struct region_policy<P, tape<Device, shadow_twin_tape>> : policy_in_fp32<P> {};

struct outside_regions {
    using policy = as_given;
};
template <class A, class B>
inline constexpr bool stand_for_alike<in_fp32<A>, in_fp32<B>> =
    std::is_same_v<typename layer_types<A, op::linear, outside_regions>::type,
                   typename layer_types<B, op::linear, outside_regions>::type>&&
        std::is_same_v<storage_signature<A, op::linear>, storage_signature<B, op::linear>>;
template <class P>
inline constexpr bool stands_for_scaled<in_fp32<P>> = eight_bit<compute_type<resolve<P>, op::linear>>;

/// A tensor of the policy's step, in host memory.
struct shadow_tensor {
    watched_operation by;
    halftone::pass pass;
    tensor_role role;
    std::string parameter;
    value_format format;
    std::vector<float> values;
    std::vector<double> bound;  // without the last rounding's part; empty: nothing is said of this tensor
    std::vector<double> added;  // magnitudes of what was there before, and the result was added to
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

/// Of what is finite.
inline float largest_magnitude(const std::vector<float>& values) {
    float largest = 0;
    for (const float v : values) {
        if (is_finite(v)) largest = std::max(largest, std::fabs(v));
    }
    return largest;
}

/// What rounding does to values: at most u times the magnitude. Below a type's least normal number it is more; that is
/// taken for as good as nothing where these are the small ones among many, and for underflow where the root of the mean
/// square lies there itself.
struct rounding_rule {
    double u, floor;

    template <class T>
    static rounding_rule to(double rms) {
        using traits = number_traits<T>;
        return {traits::unit_roundoff, std::min(static_cast<double>(traits::min_normal), rms)};
    }
    double operator()(double value) const { return u * std::max(std::fabs(value), floor); }
};

/// Notes of what a tape shows, with the bounds that rules gave.
template <class Device>
class shadow_notes final : public tensor_listener {
  public:
    explicit shadow_notes(Device& device) : device_(&device) {}

    std::vector<shadow_tensor> tensors;

    void on_tensor(const watched_tensor& t) override {
        shadow_tensor s{*t.by, t.pass, t.role, t.parameter == nullptr ? "" : t.parameter, t.format, {}, {}, {}};
        with_values(t, [&]<class V>(const V& values) { s.values = read(values); });
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

    // ---- for the tape

    void begin_operation() {
        bounds_.clear();
        of_parameters_.clear();
        added_.clear();
        internal_.clear();
        targets_.clear();
        first_made_ = nullptr;
        roundings_ = 1, length_ = 1, unit_ = 0, summed_ = 0;
    }
    void note_made(const void* data) {
        if (first_made_ == nullptr) first_made_ = data;
    }
    void note_internal(const void* data, extent count) {
        internal_.push_back(data);
        note_length(count);
    }
    void note_length(extent count) { length_ = std::max(length_, count); }
    /// A gradient goes there, and is added to what is there or, where is_there is false, is the first.
    template <class T>
    void note_target(const T* data, extent count, bool is_there) {
        if constexpr (is_watchable<T>) {
            // What an operation gives twice to one input is not there yet as it asks for the second time.
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

    // ---- for rules

    Device& device() const { return *device_; }
    /// The first tensor that the operation made.
    const void* first_made() const { return first_made_; }
    template <class T, int Rank>
    std::vector<float> read(const view<T, Rank>& values) const {
        using element = std::remove_const_t<T>;
        const auto all = flatten(values);
        std::vector<element> host(static_cast<std::size_t>(all.size()));
        device_->memory().read(host.data(), all.data(), host.size() * sizeof(element));
        std::vector<float> floats(host.size());
        for (std::size_t i = 0; i < host.size(); ++i) floats[i] = static_cast<float>(host[i]);
        return floats;
    }
    /// The value that the gradient belongs to, where it is still there.
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
    /// Of an operation without a rule of its own: as many roundings of its results, or of those of `unit` where this is
    /// more, and float sums of so many terms; a gradient with fewer elements than `summed` sums these, too.
    void expect(int roundings, extent length, double unit = 0, extent summed = 0) {
        roundings_ = roundings, length_ = std::max<extent>(length, 1), unit_ = unit, summed_ = summed;
    }

  private:
    static void add(std::vector<double>& to, std::vector<double>&& more) {
        if (to.empty()) {
            to = std::move(more);
        } else {
            for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
        }
    }
    /// Of what is not finite the sums' part alone: fp32 says whether it had to be so.
    std::vector<double> usual_bound(const shadow_tensor& s) const {
        const double u = std::max(unit_, with_format(s.format, []<class T>(T) { return unit_roundoff<T>; }));
        const auto largest = static_cast<double>(largest_magnitude(s.values));
        const extent length = length_ + summed_ / std::max<extent>(static_cast<extent>(s.values.size()), 1);
        const double sums = 2 * shadow_gamma(static_cast<double>(length), unit_roundoff<float>) * largest;
        std::vector<double> bound(s.values.size(), sums);
        for (std::size_t i = 0; i < bound.size(); ++i) {
            if (is_finite(s.values[i])) bound[i] += roundings_ * u * std::fabs(static_cast<double>(s.values[i]));
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
    double unit_ = 0;
};

/// What is known of a record: forward(notes, record) when it is made, its operation having run; backward(notes, record)
/// before it runs, which returns what is to be called afterwards. This one knows nothing: results are held to what
/// expect() says, one rounding of what floats would give, and another one for what floats differ by.
template <class Record>
struct shadow_rule {
    template <class Notes>
    static void forward(Notes&, const Record&) {}
    template <class Notes>
    static auto backward(Notes&, const Record&) {
        return [] {};
    }
};

/// What is known of the results of an operation of the user's own: rows.hpp.
template <class Op>
struct shadow_own;

}  // namespace detail

/// The tape of a shadow run: of the policy, whose operations note bounds, or of its twin in fp32.
template <class Device, detail::shadow_kind Kind>
class tape<Device, Kind> : public tape<Device, watched_tape> {
    using watched_base = tape<Device, watched_tape>;
    static constexpr bool has_notes = std::is_same_v<Kind, detail::shadowed_tape>;

  public:
    using shadow = Kind;

    explicit tape(Device& device) : watched_base(device) {}
    tape& root() { return *this; }
    /// Of the policy's tape: the one listener that has bounds to note.
    void note(detail::shadow_notes<Device>& notes) {
        notes_ = &notes;
        this->watch(notes);
    }

    /// Begins an operation: what is made from now to the scope's end belongs to it.
    template <class Where = void>
    typename watched_base::operation_scope range(const char* operation) {
        this->show();
        if (notes_ != nullptr) notes_->begin_operation();
        return watched_base::template range<Where>(operation);
    }
    /// Memory for a result, shown to the listeners once the next operation begins.
    template <class T, int Rank>
    variable<T, Rank> make(const shape<Rank>& s, bool wants_gradient) {
        auto made = tape<Device, plain_tape>::template make<T>(s, wants_gradient);
        if constexpr (detail::is_watchable<T>) {
            if (this->is_open_ && made.size() != 0) {
                const auto block = this->graph().value_block(made.slot());
                this->graph().retain_block(block);
                this->pending_.push_back(
                    {tensor_role::value, nullptr, detail::format_of<T>(), made.view().data(), made.size(), block});
                const bool is_result = std::exchange(this->is_first_, false) || wants_gradient;
                if (notes_ != nullptr) {
                    notes_->note_made(made.view().data());
                    notes_->note_length(made.size());
                    if (!is_result) notes_->note_internal(made.view().data(), made.size());
                }
            }
        }
        return made;
    }
    /// What a user's operation is handed, shown before it runs: a copy, since it may lie in the store. What the twin
    /// has of a parameter may differ from what is read here, and is not compared.
    template <class T, int Rank>
    variable<T, Rank> handed(const variable<T, Rank>& argument, bool is_compared) {
        if constexpr (!detail::is_watchable<T>) {
            return argument;
        } else {
            const bool was_open = std::exchange(this->is_open_, false);
            const auto copy = tape<Device, plain_tape>::template make<T>(argument.shape(), false);
            this->device().copy(copy.view().data(), argument.view().data(),
                                static_cast<std::size_t>(copy.size()) * sizeof(T));
            if (copy.size() != 0) {
                const auto block = this->graph().value_block(copy.slot());
                this->graph().retain_block(block);
                this->pending_.push_back(
                    {tensor_role::value, nullptr, detail::format_of<T>(), copy.view().data(), copy.size(), block});
                if (notes_ != nullptr && !is_compared) notes_->note_internal(copy.view().data(), copy.size());
                this->show();
                if (notes_ != nullptr) notes_->begin_operation();
            }
            this->is_open_ = was_open;
            return copy;
        }
    }
    /// Of an operation of the user's own, which is only recorded where a gradient is wanted.
    template <class Op, class Y, class Destinations>
    void note_own(const Y& y, const Destinations& destinations) {
        if constexpr (has_notes) detail::shadow_own<Op>::forward(*notes_, y, destinations);
    }
    /// Operands are told by what their products give, and the twin has none.
    template <class... Ts>
    void note_operand(const Ts&...) {}
    /// Keeps what an operation's backward pass needs, and notes what its results may be off by.
    template <class Record>
    void record(Record&& r) {
        using type = std::remove_cvref_t<Record>;
        if constexpr (has_notes) {
            detail::shadow_rule<type>::forward(*notes_, std::as_const(r));
            watched_base::record(noted_record<type>{std::forward<Record>(r)});
        } else {
            watched_base::record(std::forward<Record>(r));
        }
    }
    /// Where the gradient of v goes, noted.
    template <class T, int Rank>
    auto gradient_target(const gradient_of<T, Rank>& v) {
        const auto to = watched_base::gradient_target(v);
        if (notes_ != nullptr && to) notes_->note_target(to.data, v.shape().size(), to.mode == write_mode::add);
        return to;
    }
    /// Where the gradient of a parameter goes, noted.
    template <class Storage, int Rank>
    auto gradient_target(const parameter<Storage, Rank>& p) {
        const auto to = watched_base::gradient_target(p);
        if (notes_ != nullptr && to) notes_->note_target(to.data, p.shape().size(), to.mode == write_mode::add);
        return to;
    }

  private:
    template <class Record>
    struct noted_record {
        using operation = typename Record::operation;
        Record inner;

        void backward(watched_base& t) {
            auto& self = static_cast<tape&>(t);
            self.notes_->begin_operation();
            const auto finish = detail::shadow_rule<Record>::backward(*self.notes_, std::as_const(inner));
            inner.backward(self);
            finish();
        }
    };

    detail::shadow_notes<Device>* notes_ = nullptr;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
