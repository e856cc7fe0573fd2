// SPDX-License-Identifier: MIT
/// \file
/// What a numerics collector (numerics.hpp) has counted, and its printed table. Included by numerics.hpp only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <halftone/kernel/exponent_counts/exponent_counts.hpp>
#include <halftone/observe/numerics/operand_counts.hpp>
#include <halftone/observe/numerics/operand_proposals.hpp>
#include <halftone/observe/report/table.hpp>
#include <halftone/observe/watch/watched_tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The values of one tensor, over all steps that were counted.
struct numerics_row {
    watched_operation by;                 ///< for weights only `layer`
    halftone::pass pass = pass::forward;  ///< for weights: update
    tensor_role role = tensor_role::value;
    std::string parameter;                ///< for weights and their gradients: the path
    value_format format = value_format::float32;
    tensor_statistics counts{};
    extent underflowed = -1;              ///< zeros that rounding has made of nonzero numbers; -1: unknown
    /// Infinities that rounding has made of finite numbers or, in a type that has none, NaNs or its largest number; -1: unknown.
    extent overflowed = -1;
    operand_counts operand{};             ///< for operands only

    /// Whether it is a weight, and not a value or a gradient of an operation.
    bool is_weight() const { return pass == pass::update; }
    bool is_operand() const { return role == tensor_role::operand; }
    const char* tensor() const { return is_weight() ? "weight" : name(role); }
    /// The fraction of the finite nonzero values that is below the type's least normal number; 0 for fixed-point numbers, whose error
    /// is the same for all magnitudes.
    double subnormal() const {
        if (format->is_fixed_point()) return 0;
        return counts.share(tensor_statistics::least_exponent, format->min_exponent - 2);
    }
    /// The fraction of the values whose magnitude is half the type's largest number or more.
    double saturation() const {
        return counts.share(format->max_exponent - 1, tensor_statistics::most_exponent);
    }
    /// How often the tensor can be doubled before its largest value overflows.
    int doublings() const {
        for (int e = 127; e >= -149; --e) {
            if (counts.count(e, e) > 0) return format->max_exponent - 1 - e;
        }
        return format->max_exponent;
    }
};

/// A change of a policy or of the loss scale, and why.
struct numerics_proposal {
    std::string layer;      ///< empty for the loss scale, and for a free operation outside of lists' layers
    std::string policy;     ///< "ht::amp_bf16", "ht::full_fp32"; empty if no type helps
    std::string text;       ///< the reason, with numbers, and the rule
    std::string operation;  ///< a free operation, for which `policy` is that of a region; otherwise empty
};

/// The counts of a numerics_collector.
struct numerics_view {
    std::vector<numerics_row> rows;  ///< in the order of the operations; then weights
    float loss_scale = 1;
    std::int64_t step = 0;           ///< set by the caller, if known

    /// Prints a line for each tensor, and the meaning of the columns.
    void print(std::ostream& out) const;
    /// The changes that the counts suggest, if more than this fraction of a tensor's values is affected.
    std::vector<numerics_proposal> proposals(double threshold = 0.01) const;
};

namespace detail {

inline extent not_finite(const numerics_row& r) { return r.counts.infinities + r.counts.nans; }
inline bool is_gradient(const numerics_row& r) { return !r.is_weight() && r.role == tensor_role::gradient; }
inline bool is_value(const numerics_row& r) { return !r.is_weight() && r.role == tensor_role::value; }
inline bool is_zeros_alone(const numerics_row& r) {
    return r.counts.zeros > 0 && r.counts.zeros == r.counts.elements();
}
inline bool is_of_layer(const numerics_row& r) { return !r.by.layer.empty() && r.by.after.empty(); }
inline bool same_operation(const watched_operation& a, const watched_operation& b) { return !(a < b) && !(b < a); }

/// "5 of 100 (5%)": n of the row's values.
inline std::string of_all(const numerics_row& r, extent n) {
    const extent elements = r.counts.elements();
    return std::to_string(n) + " of " + std::to_string(elements) + " (" +
           percent_text(static_cast<double>(n) / static_cast<double>(elements)) + ")";
}
inline std::string rule_text(const std::string& layer, const std::string& policy) {
    return "ht::rule<\"" + layer + "\", " + policy + ">";
}

inline std::string row_text(const numerics_row& r) { return r.is_weight() ? r.parameter : place_of(r.by, " "); }
inline std::string row_tensor_text(const numerics_row& r) {
    if (r.is_operand()) return operand_text(r.operand, r.parameter, r.by.layer) + " (operand)";
    if (r.role != tensor_role::parameter_gradient || r.is_weight()) return r.tensor();
    return gradient_text(r.parameter, r.by.layer);
}

}  // namespace detail

inline void numerics_view::print(std::ostream& out) const {
    using detail::number_text, detail::percent_text;
    detail::table lines{{{"layer, operation", -34},
                         {"pass", -8},
                         {"tensor", -24},
                         {"type", -11},
                         {"values", 9},
                         {"zeros", 7},
                         {"subnormal", 9},
                         {"underflow", 9},
                         {"saturation", 10},
                         {"infinite", 8},
                         {"NaN", 5},
                         {"largest", 9},
                         {"doublings", 9}}};
    if (std::any_of(rows.begin(), rows.end(), [](const numerics_row& r) { return r.is_operand(); }))
        lines.columns.insert(lines.columns.end(), {{"saturated", 9}, {"amax", 9}, {"scale", 9}});
    for (const numerics_row& r : rows) {
        const double all = static_cast<double>(std::max<extent>(r.counts.elements(), 1));
        const auto share = [all](extent n) { return percent_text(static_cast<double>(n) / all); };
        lines.rows.push_back({detail::row_text(r), r.is_weight() ? "" : name(r.pass), detail::row_tensor_text(r),
                              name(r.format), std::to_string(r.counts.elements()), share(r.counts.zeros),
                              percent_text(r.subnormal()), r.underflowed < 0 ? "" : share(r.underflowed),
                              percent_text(r.saturation()), std::to_string(r.counts.infinities),
                              std::to_string(r.counts.nans), number_text(static_cast<double>(r.counts.largest)),
                              std::to_string(r.doublings())});
        if (!r.is_operand()) continue;
        for (const std::string& t : {share(r.operand.saturated), number_text(static_cast<double>(r.operand.amax)),
                                     number_text(static_cast<double>(r.operand.scale))})
            lines.rows.back().push_back(t);
    }
    out << lines.text()
        << "subnormal: below the type's least normal number. saturation: half its largest number or more. underflow: "
           "zeros that\nrounding made, known only where the same numbers are there in a wider type; else blank, as "
           "for all results of operations.\n";
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
