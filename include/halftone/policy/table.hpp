// SPDX-License-Identifier: MIT
/// \file
/// The types of every layer of a model, as a printed table.
///
///     ht::print_policies<ht::nn::gpt<recipe>>(std::cout);
///
///     path        op          in        accumulate  out
///     h.*.norm    layer_norm  float     float       bfloat16
///     h.*.fc      linear      bfloat16  float       bfloat16
///     h.0.norm    layer_norm  float     float       float
///
/// The layers at "h.*" are those that no rule names by index. A layer that is called with a residual gives a result of
/// the residual's type instead of `out`.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include <halftone/config.hpp>
#include <halftone/policy/category.hpp>
#include <halftone/policy/model.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// One line of the table.
struct policy_row {
    std::string path;        ///< "-" for a layer outside any path
    std::string op;          ///< the operation's name
    std::string in;          ///< the type its operands are read in
    std::string accumulate;  ///< the type it sums in: `accum`, or float where that is narrower
    std::string out;         ///< the type the layer gives
    /// The operand types of the products that compute the gradients of the layer's input and of its weights; "-" if it
    /// has no such product.
    std::string input_grad = "-", weight_grad = "-";
    bool states_grads = false;  ///< its policy has the roles `input_grad` or `weight_grad`
};

namespace detail {

/// Whether an operation has weights whose gradient is a product, as its tag says.
template <class Op>
inline constexpr bool has_weights = requires { Op::has_weights; };

/// The type of a layer's result: its `output`, or its `stream` if it gives the residual stream.
template <class L>
using result_of_layer =
    std::conditional_t<stream_giving<L>, layer_stream<typename L::policy>, layer_output<typename L::policy>>;

template <class L>
void append_row(std::vector<policy_row>& rows) {
    using policy = typename L::policy;
    using op = typename computed_by<L>::type;
    if constexpr (!std::is_void_v<op>) {
        policy_row row{path_of<policy>.text().data, op::name, "inherit", "inherit", "inherit"};
        if constexpr (has_weights<op>) row.input_grad = row.weight_grad = "inherit";
        if (row.path.empty()) row.path = "-";
        if constexpr (requires { requires L::is_adapter; }) row.op = "lora";
        if constexpr (!policy_marker<resolve<policy>>) {
            row.in = number_traits<compute_type<policy, op>>::name;
            row.accumulate = number_traits<promote<float, accum_type<policy, op>>>::name;  // as kernels sum
            row.out = number_traits<result_of_layer<L>>::name;
            if constexpr (has_weights<op>) {
                using resolved = resolve<policy>;
                row.input_grad = number_traits<input_grad_type<resolved, op>>::name;
                row.weight_grad = number_traits<weight_grad_type<resolved, op>>::name;
                row.states_grads = !std::is_void_v<typename stated_input_grad<resolved>::type> ||
                                   !std::is_void_v<typename stated_weight_grad<resolved>::type>;
            }
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

/// Prints the rows below their headings, in aligned columns. Two more columns, for the operands of backward products,
/// appear if a policy has the roles `input_grad` or `weight_grad`.
template <class Model>
void print_policies(std::ostream& out) {
    std::vector<policy_row> rows{{"path", "op", "in", "accumulate", "out", "input_grad", "weight_grad"}};
    std::vector<std::string policy_row::*> columns{&policy_row::path, &policy_row::op, &policy_row::in,
                                                   &policy_row::accumulate, &policy_row::out};
    bool states_grads = false;
    for (policy_row& row : policies_of<Model>()) {
        states_grads = states_grads || row.states_grads;
        rows.push_back(row);
    }
    if (states_grads) columns.insert(columns.end(), {&policy_row::input_grad, &policy_row::weight_grad});

    std::vector<std::size_t> widths(columns.size());
    for (const policy_row& row : rows)
        for (std::size_t i = 0; i < columns.size(); ++i)
            if ((row.*columns[i]).size() > widths[i]) widths[i] = (row.*columns[i]).size();

    for (const policy_row& row : rows) {
        for (std::size_t i = 0; i + 1 < columns.size(); ++i) {
            const std::string& cell = row.*columns[i];
            out << cell << std::string(widths[i] + 2 - cell.size(), ' ');
        }
        out << row.*columns.back() << '\n';
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
