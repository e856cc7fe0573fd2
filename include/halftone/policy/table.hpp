// SPDX-License-Identifier: MIT
/// \file
/// The policy of every operation of a model, as a table for people.
///
///     ht::print_policies<ht::nn::gpt<recipe>>(std::cout);
///
///     path        op          in        accumulate  out
///     h.*.norm    layer_norm  float     float       bfloat16
///     h.*.fc      linear      bfloat16  float       bfloat16
///     h.0.norm    layer_norm  float     float       float
///
/// The layers at "h.*" are those that no rule names by index. A layer that is called with a residual gives the residual's
/// type in place of `out`.
#pragma once

#include <array>
#include <cstddef>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include <halftone/config.hpp>
#include <halftone/policy/category.hpp>
#include <halftone/policy/model.hpp>

namespace halftone::inline HALFTONE_ABI {

/// One line of the table.
struct policy_row {
    std::string path;        ///< "-" for a layer outside any path
    std::string op;          ///< the operation's name
    std::string in;          ///< the type its operands are read in
    std::string accumulate;  ///< the type it sums in
    std::string out;         ///< the type the layer gives
};

namespace detail {

template <class L>
void append_row(std::vector<policy_row>& rows) {
    using policy = typename L::policy;
    using op = operation_of<L>;
    if constexpr (!std::is_void_v<op>) {
        policy_row row{path_of<policy>.text().data, op::name, "inherit", "inherit", "inherit"};
        if (row.path.empty()) row.path = "-";
        if constexpr (!policy_marker<resolve<policy>>) {
            row.in = number_traits<compute_type<policy, op>>::name;
            row.accumulate = number_traits<accum_type<policy, op>>::name;
            row.out = number_traits<layer_output<policy>>::name;
        }
        rows.push_back(row);
    }
}

template <class... Ls>
std::vector<policy_row> rows_of(types<Ls...>) {
    std::vector<policy_row> rows;
    (append_row<Ls>(rows), ...);
    return rows;
}

}  // namespace detail

/// A row for each layer of the Model that names an operation, parents before children.
template <class Model>
std::vector<policy_row> policies_of() {
    return detail::rows_of(layers_of<Model>{});
}

/// Prints the rows under their headings, in aligned columns, and each with its end of line.
template <class Model>
void print_policies(std::ostream& out) {
    std::vector<policy_row> rows{{"path", "op", "in", "accumulate", "out"}};
    for (policy_row& row : policies_of<Model>()) rows.push_back(row);

    const std::array<std::string policy_row::*, 4> padded{&policy_row::path, &policy_row::op, &policy_row::in,
                                                          &policy_row::accumulate};
    std::array<std::size_t, 4> widths{};
    for (const policy_row& row : rows)
        for (std::size_t i = 0; i < padded.size(); ++i)
            if ((row.*padded[i]).size() > widths[i]) widths[i] = (row.*padded[i]).size();

    for (const policy_row& row : rows) {
        for (std::size_t i = 0; i < padded.size(); ++i) {
            const std::string& cell = row.*padded[i];
            out << cell << std::string(widths[i] + 2 - cell.size(), ' ');
        }
        out << row.out << '\n';
    }
}

}  // namespace halftone::inline HALFTONE_ABI
