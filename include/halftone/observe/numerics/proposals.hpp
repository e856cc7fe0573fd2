// SPDX-License-Identifier: MIT
/// \file
/// Proposals of a numerics view: another type for a layer, a region for a free operation, another loss scale, or the
/// finding that no type helps. Included by numerics.hpp only.
///
/// Rows are in the order of the operations. So the first value that is not finite comes from its own operation, and
/// later ones may have been passed on. A gradient has the type of the value that it belongs to: a gradient that an
/// operation passes on has the type of the previous operation's result, and a rule for that operation's layer widens
/// it. The cause of zeros is not known: if a gradient is all zeros and the one before it is not, underflow is only
/// suspected, and the text says so.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <halftone/number/bfloat16.hpp>
#include <halftone/observe/numerics/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

class numerics_judge {
  public:
    numerics_judge(const numerics_view& view, double threshold) : view_(view), rows_(view.rows), threshold_(threshold) {
        // All layers share the scale: it can grow up to the gradient that overflows first.
        spare_ = 127;
        bool has_gradients = false;
        for (const numerics_row& r : rows_) {
            if (r.is_weight() || r.is_operand() || is_value(r) || r.by.operation == "loss scale") continue;
            has_gradients = has_gradients || is_gradient(r);
            if (!is_zeros_alone(r)) spare_ = std::min(spare_, r.counts.infinities > 0 ? 0 : std::max(0, r.doublings()));
        }
        if (!has_gradients) spare_ = 0;
    }

    std::vector<numerics_proposal> take() {
        judge_origin();
        for (std::size_t i = 0; i < rows_.size(); ++i) judge(i);
        std::vector<numerics_proposal> all = std::move(first_);
        add_rules(all);
        add_operands(all);
        if (all.empty()) judge_weights(all);
        add_scale(all);
        return all;
    }

  private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// Objections to a layer's type, and their extent.
    struct findings {
        std::string reasons;
        bool fits_bf16 = true;  // whether all values that were counted fit bfloat16
    };

    findings& of_layer(const std::string& layer) {
        auto at = std::find_if(layers_.begin(), layers_.end(), [&](const auto& l) { return l.first == layer; });
        if (at == layers_.end()) at = layers_.insert(layers_.end(), {layer, {}});
        return at->second;
    }
    void add_reason(const std::string& layer, const std::string& reason) {
        std::string& reasons = of_layer(layer).reasons;
        reasons += (reasons.empty() ? "" : "; ") + reason;
    }
    void propose(const std::string& layer, const std::string& operation, const std::string& policy,
                 const std::string& text) {
        first_.push_back({layer, policy, text, operation});
    }

    /// The last values before those of row i's operation in the forward pass: usually its input.
    const numerics_row* given(std::size_t i) const {
        std::size_t at = 0;
        while (at < rows_.size() && !(is_value(rows_[at]) && same_operation(rows_[at].by, rows_[i].by))) ++at;
        if (at == rows_.size()) return nullptr;
        while (at-- > 0) {
            if (is_value(rows_[at]) && !same_operation(rows_[at].by, rows_[i].by)) return &rows_[at];
        }
        return nullptr;
    }
    /// The gradient before that of row i.
    const numerics_row* gradient_before(std::size_t i) const {
        while (i-- > 0) {
            if (is_gradient(rows_[i])) return &rows_[i];
        }
        return nullptr;
    }
    /// The layer whose rule widens row i: for a gradient, the layer of the value that it belongs to.
    std::string layer_of(std::size_t i) const {
        const numerics_row& r = rows_[i];
        if (!is_gradient(r)) return is_of_layer(r) ? r.by.layer : "";
        if (!r.by.after.empty()) return r.by.after;
        const numerics_row* from = given(i);
        if (from == nullptr) return r.by.layer;
        return from->by.after.empty() ? from->by.layer : from->by.after;
    }
    /// The operation's name in a sentence about a layer.
    std::string text_of(const numerics_row& r, const std::string& layer) const {
        return is_of_layer(r) && r.by.layer == layer ? r.by.operation : place_of(r.by, "'s ");
    }
    /// What numbers beyond a type's largest one are in it.
    static const char* beyond_text(value_format format) {
        return format->has_infinity ? "infinite" : format->shows_overflow ? "NaN" : "its largest number";
    }
    static std::string layer_text(const numerics_row& r) { return is_of_layer(r) ? r.by.layer + ": " : ""; }
    static bool is_weight_of(const numerics_row& r, const std::string& layer) {
        return r.is_weight() && !layer.empty() && r.parameter.rfind(layer + ".", 0) == 0;
    }
    template <class Condition>
    bool has_weight(const std::string& layer, const Condition& condition) const {
        return std::any_of(rows_.begin(), rows_.end(),
                           [&](const numerics_row& r) { return is_weight_of(r, layer) && condition(r); });
    }
    /// The type of short range in which the row's layer reads its weights, and thus its operands; float if there is none.
    value_format short_operands(const numerics_row& r) const {
        for (const numerics_row& w : rows_) {
            if (is_of_layer(r) && is_weight_of(w, r.by.layer) && w.format->is_short()) return w.format;
        }
        return {};
    }
    std::string scale_text() const { return number_text(static_cast<double>(view_.loss_scale)); }

    // ---- infinities and NaNs

    /// Judges the first row that is not finite; later ones may have been passed on from it.
    void judge_origin() {
        for (std::size_t i = 0; i < rows_.size() && origin_ == none; ++i) {
            if (!rows_[i].is_weight() && !rows_[i].is_operand() && not_finite(rows_[i]) > 0) origin_ = i;
        }
        if (origin_ == none) return;
        const numerics_row& r = rows_[origin_];
        const numerics_row* before = is_value(r) ? given(origin_) : gradient_before(origin_);
        // Read as float16, say, a number beyond its range is infinite, and the difference of two infinities is NaN.
        const value_format operands = short_operands(r);
        const bool is_read_as_infinity = before != nullptr && operands->is_short() && operands->shows_overflow &&
                                         static_cast<double>(before->counts.largest) > operands->max;
        const bool is_by_weight = is_value(r) && is_of_layer(r) && has_weight(r.by.layer, [](const numerics_row& w) {
                                      return w.overflowed > 0;  // judge() says so
                                  });
        if (r.counts.infinities == 0 && r.format->has_infinity && !is_read_as_infinity && !is_by_weight) return judge_nan(r);
        std::string what = not_finite_text(r);
        if (is_read_as_infinity) {
            what += ", and its input reaches " + number_text(static_cast<double>(before->counts.largest)) +
                    ", which is " + beyond_text(operands) + " in " + name(operands);
        }
        what += handed_text();
        if (!is_value(r)) return judge_gradient(what);
        const bool has_wider = r.format->is_short() || is_read_as_infinity || is_by_weight;
        if (!has_wider) {
            propose(r.by.layer, is_of_layer(r) ? "" : r.by.operation, "",
                    layer_text(r) + what +
                        (r.format == value_format::bfloat16 ? ": float has no larger range, so that no type helps"
                                                            : ": no type has a larger range") +
                        "; make the numbers smaller, in the data (where they may be infinite already) or in the layer before");
        } else if (is_of_layer(r)) {
            add_reason(r.by.layer, what);
        } else {
            propose_region(r, what);
        }
    }
    /// "10 of 20 (50%) of the values of linear are infinite in float16, which ends at 65504"
    std::string not_finite_text(const numerics_row& r) const {
        const std::string operation = is_of_layer(r) ? r.by.operation : place_of(r.by, " ");
        const std::string what = r.role == tensor_role::parameter_gradient
                                     ? "the " + row_tensor_text(r) + " by " + operation
                                 : is_gradient(r) ? "the gradient that " + operation + " passes on"
                                                  : "the values of " + operation;
        // A type without infinities has NaNs beyond its largest number.
        const bool has_infinity = r.format->has_infinity;
        if (r.counts.infinities == 0 && has_infinity) return of_all(r, r.counts.nans) + " of " + what + " are NaN";
        return of_all(r, has_infinity ? r.counts.infinities : r.counts.nans) + " of " + what +
               (has_infinity ? " are infinite in " : " are NaN in ") + name(r.format) + ", which ends at " +
               number_text(r.format->max);
    }
    std::string handed_text() const {
        int others = 0;
        for (std::size_t i = origin_ + 1; i < rows_.size(); ++i)
            others += is_value(rows_[i]) && not_finite(rows_[i]) > 0;
        if (others == 0) return "";
        return " (and passed on to " + std::to_string(others) + (others == 1 ? " operation" : " operations") +
               " after it, whose types are not the cause)";
    }
    void judge_nan(const numerics_row& r) {
        const std::string text = layer_text(r) + not_finite_text(r);
        const std::string layer = is_of_layer(r) ? r.by.layer : "", operation = is_of_layer(r) ? "" : r.by.operation;
        if (!is_value(r)) {
            propose(layer, operation, "",
                    text + ", and everything before it is finite: either infinities arise within the operation, where " +
                        (view_.loss_scale > 1 ? "a smaller loss scale than " + scale_text() +
                                                    " helps, which ht::grad_scaler chooses by itself"
                                              : "a wider type helps") +
                        ", or the derivative is undefined there (sqrt at 0), where no type helps");
            return;
        }
        const value_format operands = short_operands(r),
                           narrow = operands->is_short() || !layer.empty() ? operands : r.format;
        const std::string type = name(narrow);
        propose(layer, operation, "",
                text +
                    ", and all results before it are finite: there are NaNs in its data or weights, or "
                    "its result is undefined there (0 / 0, log of a negative number): no type helps" +
                    (!narrow->is_short() ? ""
                     : layer.empty()     ? ", unless " + type + " is too narrow within it: ht::autocast<ht::full_fp32>(ctx)"
                                         : ", unless " + type + " is too narrow for the data or within it: " +
                                               rule_text(layer, "ht::amp_bf16")));
    }
    void judge_gradient(const std::string& what) {
        const numerics_row& r = rows_[origin_];
        const std::string layer = layer_of(origin_);
        const bool is_narrow = r.format->is_short();
        std::string wider;
        if (r.role == tensor_role::parameter_gradient) {
            if (is_narrow) wider = "gradient buffers in float, ht::with_accumulate<P, float>";
        } else if (is_narrow && !layer.empty()) {
            wider = rule_text(layer, "ht::amp_bf16");
        }
        if (view_.loss_scale <= 1 && is_narrow && is_gradient(r) && !layer.empty()) return add_reason(layer, what);
        std::string text = layer_text(r) + what;
        if (view_.loss_scale > 1) {
            text += ": a smaller loss scale than " + scale_text() +
                    ", which ht::grad_scaler chooses by itself after the step that it skips";
            if (!wider.empty()) text += "; if other gradients underflow at that scale, " + wider;
        } else {
            text += wider.empty() ? ": no type has a larger range; make the numbers smaller" : ": " + wider;
        }
        propose(view_.loss_scale > 1 ? "" : layer, "", "", text);
    }
    void propose_region(const numerics_row& r, const std::string& what) {
        propose(r.by.layer, r.by.operation, "ht::full_fp32",
                what + ": call " + r.by.operation + " on floats in fp32, " + r.by.operation +
                    "(ht::autocast<ht::full_fp32>(ctx), ht::cast<float>(ctx, x)); the layer that reads its floats has "
                    "to hold them as well, ht::amp_bf16");
    }

    // ---- numbers that are too large or too small

    void judge(std::size_t i) {
        const numerics_row& r = rows_[i];
        if (r.format == value_format::float32 || r.is_operand() || r.counts.elements() == 0) return;
        if (r.role == tensor_role::parameter_gradient) return;
        const std::string layer = layer_of(i);
        const bool speaks = judge_numbers(i, layer);
        if (layer.empty()) return;
        // Values that bfloat16 itself has lost do not count.
        const bool fits =
            r.counts.subnormal<bfloat16>() <= threshold_ && !(speaks && r.format == value_format::bfloat16);
        findings& f = of_layer(layer);
        f.fits_bf16 = f.fits_bf16 && fits;
    }

    /// Whether there is an objection to the type.
    bool judge_numbers(std::size_t i, const std::string& layer) {
        const numerics_row& r = rows_[i];
        const std::string type = name(r.format);
        if (r.is_weight()) {
            const bool is_zero =
                static_cast<double>(r.underflowed) > threshold_ * static_cast<double>(r.counts.elements());
            if (r.overflowed <= 0 && !is_zero) return false;
            add_reason(layer, of_all(r, r.overflowed > 0 ? r.overflowed : r.underflowed) + " of " + r.parameter +
                                  " are " + (r.overflowed > 0 ? beyond_text(r.format) : "zeros") + " in " + type +
                                  " and not in the master");
            return true;
        }
        if (is_value(r)) {
            if (!r.format->is_short() || not_finite(r) > 0 || r.doublings() != 0) return false;
            const std::string reason = "the values of " + (layer.empty() ? place_of(r.by, " ") : r.by.operation) +
                                       " reach " + number_text(static_cast<double>(r.counts.largest)) + " in " + type +
                                       ", which ends at " + number_text(r.format->max);
            layer.empty() ? propose_region(r, reason) : add_reason(layer, reason);
            return true;
        }
        return is_zeros_alone(r) ? judge_zeros(i, layer) : judge_small(r, layer);
    }
    /// For types of short range only: in others a whole gradient does not underflow.
    bool judge_zeros(std::size_t i, const std::string& layer) {
        const numerics_row& r = rows_[i];
        const numerics_row* before = gradient_before(i);
        const bool is_new = before != nullptr && !is_zeros_alone(*before);
        // A weight of zeros passes no gradient.
        const bool is_so = is_of_layer(r) && has_weight(r.by.layer, is_zeros_alone);
        if (!r.format->is_short() || !is_new || is_so) return false;
        const std::string what = "all " + std::to_string(r.counts.elements()) + " values of the gradient that " +
                                 text_of(r, layer) +
                                 " passes on are zeros in " + name(r.format) +
                                 ", though the gradient that it received is not: it seems to underflow at a loss scale of " +
                                 scale_text();
        if (spare_ == 0 && !layer.empty()) {
            add_reason(layer, what + "; with a larger scale a gradient overflows");
            return true;
        }
        if (vanished_++ == 0) {
            vanished_text_ = what;
            vanished_rule_ = layer.empty() ? "" : ", or " + rule_text(layer, "ht::amp_bf16") + ", which needs none";
        }
        return false;
    }
    /// Not for fixed-point numbers, whose error is the same for all magnitudes.
    bool judge_small(const numerics_row& r, const std::string& layer) {
        if (r.format->is_fixed_point()) return false;
        const auto share_below = [&](int exponent) { return r.counts.share(tensor_statistics::least_exponent, exponent); };
        const int below_normal = r.format->min_exponent - 2;
        const double now = share_below(below_normal);
        if (now <= threshold_) return false;
        for (int d = 1; d <= spare_; ++d) {
            if (share_below(below_normal - d) > threshold_) continue;
            doublings_ = std::max(doublings_, d);
            small_zeros_ += r.counts.zeros;
            ++small_;
            return false;
        }
        if (layer.empty()) return false;
        add_reason(layer,
                   percent_text(now) + " of the values of the gradient that " + text_of(r, layer) + " passes on are below " +
                       number_text(r.format->min_normal) + ", " + name(r.format) +
                       "'s least normal number, at a loss scale of " + scale_text() + " (and " +
                       of_all(r, r.counts.zeros) + " are zeros); " +
                       (spare_ == 0 ? "with a larger scale a gradient overflows"
                                    : "still " + percent_text(share_below(below_normal - spare_)) + " with the scale doubled " +
                                          std::to_string(spare_) + " times, beyond which a gradient overflows"));
        return true;
    }

    // ---- conclusions

    void add_rules(std::vector<numerics_proposal>& all) const {
        for (const auto& [layer, f] : layers_) {
            if (f.reasons.empty()) continue;
            const std::string policy = f.fits_bf16 ? "ht::amp_bf16" : "ht::full_fp32";
            all.push_back({layer, policy, layer + ": " + f.reasons + ": " + rule_text(layer, policy), ""});
        }
    }
    void add_operands(std::vector<numerics_proposal>& all) const {
        std::vector<std::pair<std::string, operand_findings>> scaled;
        for (const numerics_row& r : rows_) {
            if (!r.is_operand() || r.by.layer.empty()) continue;
            auto at = std::find_if(scaled.begin(), scaled.end(), [&](const auto& l) { return l.first == r.by.layer; });
            if (at == scaled.end()) at = scaled.insert(scaled.end(), {r.by.layer, {}});
            judge_operand(r.format, r.operand, r.counts, operand_text(r.operand, r.parameter, r.by.layer), threshold_,
                          at->second);
        }
        for (const auto& [layer, f] : scaled) {
            if (f.reasons.empty()) continue;
            const std::string policy =
                f.scaling_helps ? "ht::with_scaling<ht::fp8_hybrid, ht::current_scaling<>>" : "ht::amp_bf16";
            all.push_back({layer, policy, layer + ": " + f.reasons + ": " + rule_text(layer, policy), ""});
        }
    }
    /// Weights are examined last, after an update.
    void judge_weights(std::vector<numerics_proposal>& all) const {
        for (const numerics_row& r : rows_) {
            if (!r.is_weight() || not_finite(r) == 0) continue;
            all.push_back({r.by.layer, "",
                           r.by.layer + ": " + of_all(r, not_finite(r)) + " of " + r.parameter +
                               " are not finite, though no operation gave such a value: the optimizer's update produced them",
                           ""});
            return;
        }
    }
    void add_scale(std::vector<numerics_proposal>& all) const {
        if (vanished_ > 0) {
            all.push_back({"", "",
                           "the loss scale: " + vanished_text_ +
                               (vanished_ > 1
                                    ? " (and likewise in " + std::to_string(vanished_ - 1) + " more operations)"
                                    : "") +
                               ": take a larger one, such as ht::grad_scaler finds starting from 65536 (no gradient of "
                               "this step overflows before " +
                               std::to_string(spare_ + 1) + " doublings)" + vanished_rule_,
                           ""});
        }
        if (small_ == 0) return;
        all.push_back(
            {"", "",
             "the loss scale: more than " + percent_text(threshold_) +
                 " of the gradient is below its type's least normal number in " + std::to_string(small_) +
                 (small_ == 1 ? " operation" : " operations") + "; with " + std::to_string(doublings_) +
                 " doublings of " + scale_text() + " in none of these, and no gradient of the step overflows before " +
                 std::to_string(spare_ + 1) +
                 (small_zeros_ > 0 ? "; " + std::to_string(small_zeros_) + " more values are zeros, and may have underflowed"
                                   : ""),
             ""});
    }

    const numerics_view& view_;
    const std::vector<numerics_row>& rows_;
    double threshold_;
    int spare_ = 0;  // number of doublings of the loss scale before a gradient overflows
    std::size_t origin_ = none;
    std::vector<numerics_proposal> first_;
    std::vector<std::pair<std::string, findings>> layers_;
    int small_ = 0, doublings_ = 0;  // gradients that a larger scale would help, and how many doublings
    extent small_zeros_ = 0;
    int vanished_ = 0;  // gradients that are all zeros
    std::string vanished_text_, vanished_rule_;
};

}  // namespace detail

inline std::vector<numerics_proposal> numerics_view::proposals(double threshold) const {
    return detail::numerics_judge(*this, threshold).take();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
