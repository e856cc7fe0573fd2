// SPDX-License-Identifier: MIT
/// \file
/// What magnitudes a step's tensors have, operation by operation: what their types make zeros of or infinities, and
/// which layers would do better in another type.
///
///     ht::tape tape{device, ht::watched};
///     {
///         ht::numerics_collector numerics{device, tape};     // looks at what follows; the host waits for each tensor
///         ...                                                // a step, or some
///         const ht::numerics_view view = numerics.take(model, scaler.get_scale());
///         view.print(std::cout);
///         for (const auto& p : view.proposals()) std::cout << p.text << '\n';
///     }
///
/// Numeric contract: counts, exact, of the values as they lie in memory (gradients times the loss scale). Of weights
/// the wider source is there as well, so that it is known which zeros are made by rounding; of all others it is known
/// how many values lie below the type's least normal number, where bits are lost, and how many are zeros, whatever made
/// them. Operands of eight bits are counted as the product reads them, scaled, beside the tensor that they were made
/// of: how many numbers became zero or saturated, at which scale. numerics_json.hpp and numerics_html.hpp write it to
/// files.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <halftone/autodiff/watched.hpp>
#include <halftone/memory/store.hpp>
#include <halftone/observe/operand_proposals.hpp>
#include <halftone/observe/statistics.hpp>

namespace halftone::inline HALFTONE_ABI {

struct numerics_row {
    watched_operation by;                 ///< of weights: `layer` alone
    halftone::pass pass = pass::forward;  ///< of weights: update
    tensor_role role = tensor_role::value;
    std::string parameter;                ///< of weights and their gradients: the path
    value_format format = value_format::float32;
    tensor_statistics counts{};
    extent underflowed = -1;              ///< zeros that rounding has made of other numbers; -1: nobody can know
    extent overflowed = -1;               ///< infinities that it has made of finite numbers; -1: nobody can know
    operand_counts operand{};             ///< of operands alone

    bool is_weight() const { return pass == pass::update; }
    bool is_operand() const { return role == tensor_role::operand; }
    const char* tensor() const { return is_weight() ? "weight" : name(role); }
    /// Shares of the finite values other than zero: below the least normal number of the type, and half its largest or
    /// more.
    double subnormal() const {
        return with_format(format, [this]<class T>(T) { return counts.template subnormal<T>(); });
    }
    double saturation() const {
        return with_format(format, [this]<class T>(T) {
            const extent all = counts.count(-149, 127);
            return all == 0 ? 0.0
                            : static_cast<double>(counts.count(number_traits<T>::max_exponent - 1, 127)) /
                                  static_cast<double>(all);
        });
    }
    /// How often all of it can be doubled before its largest value overflows.
    int doublings() const {
        const int largest = with_format(format, []<class T>(T) { return number_traits<T>::max_exponent; });
        for (int e = 127; e >= -149; --e) {
            if (counts.count(e, e) > 0) return largest - 1 - e;
        }
        return largest;
    }
};

struct numerics_proposal {
    std::string layer;   ///< empty: of the loss scale
    std::string policy;  ///< "ht::amp_bf16", "ht::full_fp32"; empty: none
    std::string text;    ///< why, with the numbers, and the rule
};

struct numerics_view {
    std::vector<numerics_row> rows;  ///< in the order of the operations; then weights
    float loss_scale = 1;
    std::int64_t step = 0;           ///< where somebody has said it

    /// A line for each tensor.
    void print(std::ostream& out) const;
    /// What the counts speak for, where more than this share of a tensor's values is concerned.
    std::vector<numerics_proposal> proposals(double threshold = 0.01) const;
};

template <class Device>
class numerics_collector final : public tensor_listener {
  public:
    /// Looks at the tape's tensors as long as it lives. Not within a step that is being captured.
    numerics_collector(Device& device, tape<Device, watched_tape>& watched_by_it)
        : device_(&device), tape_(&watched_by_it) {
        tape_->watch(*this);
    }
    template <class Kind, bool IsWatched = detail::check_watched<Kind>()>
    numerics_collector(Device&, tape<Device, Kind>&) = delete;
    ~numerics_collector() override { tape_->unwatch(*this); }

    void on_tensor(const watched_tensor& t) override {
        const auto [at, is_new] = numbers_.try_emplace(
            key{t.by, t.pass, t.role, t.parameter == nullptr ? "" : t.parameter, t.operand.tensor}, view_.rows.size());
        if (is_new) view_.rows.push_back({*t.by, t.pass, t.role, t.parameter == nullptr ? "" : t.parameter, t.format});
        numerics_row& row = view_.rows[at->second];
        if (row.is_operand()) {
            row.format = t.operand.format;
            detail::count_operand(*device_, t, row.operand, row.counts);
            row.underflowed = row.operand.flushed, row.overflowed = 0;
            return;
        }
        with_values(t, [&]<class V>(const V& values) { row.counts.add(statistics_of(*device_, values)); });
    }

    /// All that was seen so far, and the model's weights as they are now; begins anew.
    template <class Model>
    numerics_view take(const Model& model, float loss_scale = 1, std::int64_t step = 0) {
        numbers_.clear();
        numerics_view view = std::exchange(view_, {});
        view.loss_scale = loss_scale;
        view.step = step;
        const store& parameters = model.parameters();
        for (const store::entry& e : parameters.entries()) add_weight(view, parameters, e, signatures_of<Model>{});
        return view;
    }

  private:
    struct key {
        const watched_operation* by;
        halftone::pass pass;
        tensor_role role;
        std::string parameter;
        scaled_tensor operand;
        friend bool operator<(const key& a, const key& b) {
            return std::tie(a.by, a.pass, a.role, a.parameter, a.operand) <
                   std::tie(b.by, b.pass, b.role, b.parameter, b.operand);
        }
    };

    template <class... Storages>
    static void add_weight(numerics_view& view, const store& parameters, const store::entry& e, types<Storages...>) {
        const store::group& group = parameters.groups()[e.group];
        ((group.key == store::key_of<Storages>() ? add_weight_of<Storages>(view, parameters, group, e) : void()), ...);
    }
    /// What kernels read, beside the master that it was rounded from.
    template <class Storage>
    static void add_weight_of(numerics_view& view, const store& parameters, const store::group& group,
                              const store::entry& e) {
        using param = typename Storage::param;
        using compute = typename Storage::compute;
        if constexpr (detail::is_watchable<param> && detail::is_watchable<compute>) {
            const bool copied = group.copy_bytes != 0;
            if (group.param_bytes != sizeof(param) || (copied && group.copy_bytes != sizeof(compute))) return;
            numerics_row row{.by = {e.path.substr(0, e.path.rfind('.')), "", ""},
                             .pass = pass::update,
                             .parameter = e.path,
                             .format = detail::format_of<compute>()};
            std::vector<compute> read(e.count);
            const std::byte* const slab = copied ? group.copy.data() : group.master.data();
            parameters.memory().read(read.data(), slab + (copied ? e.copy : e.master) * sizeof(compute),
                                     e.count * sizeof(compute));
            row.counts =
                detail::statistics_on_host(const_view<compute, 1>(read.data(), {static_cast<extent>(e.count)}));
            if (copied && e.master != store::nowhere) {
                std::vector<param> masters(e.count);
                parameters.memory().read(masters.data(), group.master.data() + e.master * sizeof(param),
                                         e.count * sizeof(param));
                row.underflowed = row.overflowed = 0;
                for (std::size_t i = 0; i < e.count; ++i) {
                    const float wide = static_cast<float>(masters[i]);
                    if (is_finite(wide) && wide != 0 && static_cast<float>(read[i]) == 0) ++row.underflowed;
                    if (is_finite(wide) && !is_finite(read[i])) ++row.overflowed;
                }
            }
            view.rows.push_back(std::move(row));
        }
    }

    Device* device_;
    tape<Device, watched_tape>* tape_;
    std::map<key, std::size_t> numbers_;
    numerics_view view_;
};
template <class Device>
numerics_collector(Device&, tape<Device, watched_tape>&) -> numerics_collector<Device>;

namespace detail {

inline std::string row_text(const numerics_row& r) {
    return r.is_weight() ? r.parameter : place_of(r.by, " ");
}
inline std::string row_tensor_text(const numerics_row& r) {
    if (r.is_operand()) return operand_text(r.operand, r.parameter, r.by.layer) + " (operand)";
    if (r.role != tensor_role::parameter_gradient || r.is_weight()) return r.tensor();
    return gradient_text(r.parameter, r.by.layer);
}

}  // namespace detail

inline void numerics_view::print(std::ostream& out) const {
    char line[256];
    std::snprintf(line, sizeof line, "%-34s %-8s %-24s %-11s %9s %7s %9s %9s %8s %5s %9s %9s", "layer, operation",
                  "pass", "tensor", "type", "values", "zeros", "subnormal", "underflow", "infinite", "NaN", "largest",
                  "doublings");
    out << line;
    const bool has_operands =
        std::any_of(rows.begin(), rows.end(), [](const numerics_row& r) { return r.is_operand(); });
    out << (has_operands ? " saturated      amax     scale\n" : "\n");
    for (const numerics_row& r : rows) {
        const double all = static_cast<double>(std::max<extent>(r.counts.elements(), 1));
        std::snprintf(line, sizeof line, "%-34s %-8s %-24s %-11s %9lld %7s %9s %9s %8lld %5lld %9s %9d",
                      detail::row_text(r).c_str(), r.is_weight() ? "" : name(r.pass),
                      detail::row_tensor_text(r).c_str(), name(r.format), static_cast<long long>(r.counts.elements()),
                      detail::percent_text(static_cast<double>(r.counts.zeros) / all).c_str(),
                      detail::percent_text(r.subnormal()).c_str(),
                      r.underflowed < 0 ? "" : detail::percent_text(static_cast<double>(r.underflowed) / all).c_str(),
                      static_cast<long long>(r.counts.infinities), static_cast<long long>(r.counts.nans),
                      detail::number_text(static_cast<double>(r.counts.largest)).c_str(), r.doublings());
        out << line;
        if (r.is_operand()) {
            std::snprintf(line, sizeof line, " %9s %9s %9s",
                          detail::percent_text(static_cast<double>(r.operand.saturated) / all).c_str(),
                          detail::number_text(static_cast<double>(r.operand.amax)).c_str(),
                          detail::number_text(static_cast<double>(r.operand.scale)).c_str());
            out << line;
        }
        out << '\n';
    }
}

namespace detail {

/// What speaks against a layer's type, and by how much.
struct layer_findings {
    std::string reasons;
    bool fits_bf16 = true;  // of all values that were counted
};

/// What a larger loss scale would do.
struct scale_findings {
    int gradients = 0;  // that would no longer lie too low
    int doublings = 0;  // at which none of these does
};

template <class T>
void judge_row(const numerics_row& r, double threshold, int spare_doublings, float loss_scale, std::string& reason,
               scale_findings& scale) {
    using traits = number_traits<T>;
    const auto share_below = [&](int exponent) {
        const extent all = r.counts.count(-149, 127);
        return all == 0 ? 0.0 : static_cast<double>(r.counts.count(-149, exponent)) / static_cast<double>(all);
    };
    const std::string type = traits::name, least = number_text(traits::min_normal), most = number_text(traits::max);
    const extent elements = r.counts.elements();
    const auto of_all = [&](extent n) {
        return std::to_string(n) + " of " + std::to_string(elements) + " (" +
               percent_text(static_cast<double>(n) / static_cast<double>(elements)) + ")";
    };
    if (r.is_weight()) {
        if (static_cast<double>(r.underflowed) > threshold * static_cast<double>(elements))
            reason = of_all(r.underflowed) + " of " + r.parameter + " are zeros in " + type + " and not in the master";
        if (r.overflowed > 0)
            reason =
                of_all(r.overflowed) + " of " + r.parameter + " are infinite in " + type + " and not in the master";
        return;
    }
    if (r.role == tensor_role::value) {
        if (r.counts.infinities > 0) {
            reason = of_all(r.counts.infinities) + " of the values of " + r.by.operation + " are infinite in " + type +
                     ", which ends at " + most;
        } else if (r.doublings() == 0) {
            reason = "the values of " + r.by.operation + " reach " +
                     number_text(static_cast<double>(r.counts.largest)) + " in " + type + ", which ends at " + most;
        }
        return;
    }
    if (r.role != tensor_role::gradient) return;
    constexpr int below_normal = traits::min_exponent - 2;
    const double now = share_below(below_normal);
    if (now <= threshold) return;
    for (int d = 1; d <= spare_doublings; ++d) {
        if (share_below(below_normal - d) > threshold) continue;
        scale.doublings = std::max(scale.doublings, d);
        ++scale.gradients;
        return;
    }
    reason = percent_text(now) + " of the gradient that " + r.by.operation + " passes on lie below " + least + ", " +
             type + "'s least normal number, at a loss scale of " + number_text(static_cast<double>(loss_scale)) +
             " (and " + of_all(r.counts.zeros) + " are zeros); ";
    reason += spare_doublings == 0
                  ? "with a larger scale a gradient overflows"
                  : percent_text(share_below(below_normal - spare_doublings)) + " would at " +
                        std::to_string(spare_doublings) + " doublings, and at more a gradient overflows";
}

}  // namespace detail

inline std::vector<numerics_proposal> numerics_view::proposals(double threshold) const {
    // The scale is common to all layers: it grows as far as the gradient that overflows first.
    int spare = 127;
    bool has_gradients = false;
    for (const numerics_row& r : rows) {
        if (r.is_weight() || r.role != tensor_role::gradient || r.by.operation == "loss scale") continue;
        has_gradients = true;
        spare = std::min(spare, r.counts.infinities > 0 ? 0 : std::max(0, r.doublings()));
    }
    if (!has_gradients) spare = 0;

    std::vector<numerics_proposal> all;
    std::vector<std::pair<std::string, detail::layer_findings>> layers;
    detail::scale_findings scale;
    for (const numerics_row& r : rows) {
        if (r.by.layer.empty() || !r.by.after.empty() || r.format == value_format::float32 || r.is_operand()) continue;
        auto at = std::find_if(layers.begin(), layers.end(), [&](const auto& l) { return l.first == r.by.layer; });
        if (at == layers.end()) at = layers.insert(layers.end(), {r.by.layer, {}});
        std::string reason;
        with_format(r.format,
                    [&]<class T>(T) { detail::judge_row<T>(r, threshold, spare, loss_scale, reason, scale); });
        // What bfloat16 itself has lost, it does not hold.
        const bool fits =
            r.counts.subnormal<bfloat16>() <= threshold && (reason.empty() || r.format != value_format::bfloat16);
        at->second.fits_bf16 = at->second.fits_bf16 && fits;
        if (!reason.empty()) at->second.reasons += (at->second.reasons.empty() ? "" : "; ") + reason;
    }
    for (const auto& [layer, findings] : layers) {
        if (findings.reasons.empty()) continue;
        const std::string policy = findings.fits_bf16 ? "ht::amp_bf16" : "ht::full_fp32";
        all.push_back(
            {layer, policy, layer + ": " + findings.reasons + ": ht::rule<\"" + layer + "\", " + policy + ">"});
    }
    std::vector<std::pair<std::string, detail::operand_findings>> scaled;
    for (const numerics_row& r : rows) {
        if (!r.is_operand() || r.by.layer.empty()) continue;
        auto at = std::find_if(scaled.begin(), scaled.end(), [&](const auto& l) { return l.first == r.by.layer; });
        if (at == scaled.end()) at = scaled.insert(scaled.end(), {r.by.layer, {}});
        with_format(r.format, [&]<class T>(T) {
            detail::judge_operand<T>(r.operand, r.counts, detail::operand_text(r.operand, r.parameter, r.by.layer),
                                     threshold, at->second);
        });
    }
    for (const auto& [layer, findings] : scaled) {
        if (findings.reasons.empty()) continue;
        const std::string policy =
            findings.scaling_helps ? "ht::with_scaling<ht::fp8_hybrid, ht::current_scaling<>>" : "ht::amp_bf16";
        all.push_back(
            {layer, policy, layer + ": " + findings.reasons + ": ht::rule<\"" + layer + "\", " + policy + ">"});
    }
    if (scale.gradients > 0) {
        all.push_back(
            {"", "",
             "the loss scale: more than " + detail::percent_text(threshold) +
                 " of the gradient lies below its type's least normal number in " + std::to_string(scale.gradients) +
                 (scale.gradients == 1 ? " operation" : " operations") + "; at " + std::to_string(scale.doublings) +
                 " doublings of " + detail::number_text(static_cast<double>(loss_scale)) +
                 " in none of these, and no gradient of the step overflows before " + std::to_string(spare + 1)});
    }
    return all;
}

}  // namespace halftone::inline HALFTONE_ABI
