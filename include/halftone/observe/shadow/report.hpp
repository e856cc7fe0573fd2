// SPDX-License-Identifier: MIT
/// \file
/// The result of a shadow run (shadow.hpp): for each operation, the difference of a policy's results from those of
/// fp32, and the bound that rounding allows.
///
///     const ht::shadow_report report = ht::shadow_run(...);
///     report.print(std::cout);
///     if (const ht::shadow_row* r = report.first()) std::cout << r->text() << '\n';
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <halftone/number/classify.hpp>
#include <halftone/observe/report/table.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// One tensor of a shadow run: the difference of the policy's values from those of fp32, and the bound that the types
/// allow.
struct shadow_row {
    watched_operation by;                 ///< for a weight's copy only `layer`
    halftone::pass pass = pass::forward;  ///< for a weight's copy: update
    tensor_role role = tensor_role::value;
    std::string parameter{};  ///< for weights and their gradients: the path
    value_format format = value_format::float32;
    extent elements = 0;
    extent beyond = 0;               ///< number of elements that differ by more than their bound
    double ratio = 0;                ///< the largest difference / bound; infinite if only one value is finite
    extent at = 0;                   ///< the index of that element
    double value = 0, expected = 0;  ///< the policy's value, and fp32's for the same inputs (for a weight: the master)
    double bound = 0;                ///< the bound of their difference

    bool is_weight() const { return pass == pass::update; }
    bool diverges() const { return beyond > 0; }
    /// "h.1.mlp, mlp, backward: 5 of 64 values of gradient in float16 beyond the bound; ..."
    std::string text() const;
};

/// The result of a shadow run.
struct shadow_report {
    std::vector<shadow_row> rows;  ///< weights first, then the tensors in the order of the operations

    /// The first row beyond its bound; nullptr if there is none.
    const shadow_row* first() const {
        for (const shadow_row& r : rows) {
            if (r.diverges()) return &r;
        }
        return nullptr;
    }
    /// Prints a line for each tensor.
    void print(std::ostream& out) const;
};

namespace detail {

inline std::string shadow_place(const shadow_row& r) {
    return r.is_weight() ? r.parameter : place_of(r.by, " ");
}
inline std::string shadow_tensor_text(const shadow_row& r) {
    if (r.is_weight()) return "weight";
    if (r.role != tensor_role::parameter_gradient) return name(r.role);
    return gradient_text(r.parameter, r.by.layer);
}

/// The table of a shadow run's rows, without them.
inline table shadow_table() {
    return {{{"layer, operation", -34},
             {"pass", -8, "wide"},
             {"tensor", -24},
             {"type", -8, "wide"},
             {"values", 9, "n wide"},
             {"beyond", 9, "n"},
             {"of its bound", 12, "limit"},
             {"value", 13, nullptr},
             {"in fp32", 13, nullptr},
             {"bound", 10, nullptr},
             {"", -2, nullptr}}};
}
/// The cells of one row; a printed one that diverges ends with "<".
inline std::vector<table_cell> shadow_cells(const shadow_row& r) {
    const bool has_ratio = is_finite(r.ratio);
    return {shadow_place(r),
            r.is_weight() ? "" : name(r.pass),
            shadow_tensor_text(r),
            name(r.format),
            std::to_string(r.elements),
            std::to_string(r.beyond),
            {has_ratio ? formatted("%.3g", r.ratio) : "infinite", share_bar(has_ratio ? r.ratio : 1)},
            formatted("%.6g", r.value),
            formatted("%.6g", r.expected),
            formatted("%.3g", r.bound),
            r.diverges() ? " <" : ""};
}

}  // namespace detail

inline std::string shadow_row::text() const {
    const std::string tensor = is_weight() ? "the copy that kernels read" : detail::shadow_tensor_text(*this);
    return detail::shadow_place(*this) + ", " + (is_weight() ? "" : std::string(name(pass)) + ", ") + tensor +
           detail::formatted(
               ": %lld of %lld values beyond the bound in %s; element %lld is %.7g, in fp32 %.7g, where rounding "
               "explains a difference of %.3g",
               static_cast<long long>(beyond), static_cast<long long>(elements), name(format),
               static_cast<long long>(at), value, expected, bound);
}

inline void shadow_report::print(std::ostream& out) const {
    detail::table lines = detail::shadow_table();
    for (const shadow_row& r : rows) lines.rows.push_back(detail::shadow_cells(r));
    out << lines.text();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
