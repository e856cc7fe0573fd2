// SPDX-License-Identifier: MIT
/// \file
/// What diagnostics know of operations, by their kind (policy/operation_table.hpp): the error bounds of shadow runs, and the lines of the
/// ledger. Operations themselves do not depend on either.
///
/// A kind without an entry here gets the default for its record's form (`usual_bounds` in shadow/rows.hpp, `usual_lines` in
/// ledger/ledger.hpp), which suffices for maps, reductions, joins and custom operations. A record of another form may have
/// the same members. Without these, its results are expected to be one rounding from what floats give, and the ledger
/// shows "?" for its types.
///
///     template <class A, class B, class Y>
///     struct outer_record : detail::kept_operands<Y, 2, variable<A, 1>, variable<B, 1>> {
///         using operation = op::outer;
///         using reads = detail::reads_others;                 // the gradient of a reads b, that of b reads a; both read dy
///         static constexpr int roundings = 1;                 // roundings of each result
///         extent sum_length() const { return longest; }       // number of terms of its longest sum
///
/// If that does not bound its errors well, or is not what it reads, the operation gets a kind of its own, the kind an entry in the
/// list below, and the templates that the entry names are specialised for the operation's record.
#pragma once

#include <halftone/policy/operations.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

// Bounds of shadow runs. forward(notes, record) is called when the record is made; backward(notes, record) before it
// runs, and returns a function to be called afterwards. The comment of each names the header that
// specialises it for the operation's records; for all other records it is the default.
template <class Record> struct usual_bounds;                                           // shadow/rows.hpp
template <class Record> struct matmul_bounds : usual_bounds<Record> {};                // shadow/products.hpp
template <class Record> struct linear_bounds : usual_bounds<Record> {};                // shadow/linear.hpp
template <class Record> struct conv2d_bounds : usual_bounds<Record> {};                // shadow/conv2d.hpp
template <class Record> struct mlp_bounds : usual_bounds<Record> {};                   // shadow/linear.hpp
template <class Record> struct attention_bounds : usual_bounds<Record> {};             // shadow/attention.hpp
template <class Record> struct cross_entropy_bounds : usual_bounds<Record> {};         // shadow/losses.hpp
template <class Record> struct linear_cross_entropy_bounds : usual_bounds<Record> {};  // shadow/losses.hpp
template <class Record> struct norm_bounds : usual_bounds<Record> {};                  // shadow/rows.hpp
template <class Record> struct embedding_bounds : usual_bounds<Record> {};             // shadow/rows.hpp
template <class Record> struct parameter_bounds : usual_bounds<Record> {};             // shadow/rows.hpp

// lines(record): the lines of the ledger; see ledger/ledger.hpp.
namespace ledger {
template <class Record> struct usual_lines;
template <class Record> struct matmul_lines : usual_lines<Record> {};
template <class Record> struct linear_lines : usual_lines<Record> {};
template <class Record> struct mlp_lines : usual_lines<Record> {};
template <class Record> struct attention_lines : usual_lines<Record> {};
template <class Record> struct cross_entropy_lines : usual_lines<Record> {};
template <class Record> struct linear_cross_entropy_lines : usual_lines<Record> {};
template <class Record> struct norm_lines : usual_lines<Record> {};
template <class Record> struct softmax_lines : usual_lines<Record> {};
template <class Record> struct embedding_lines : usual_lines<Record> {};
template <class Record> struct dropout_lines : usual_lines<Record> {};
template <class Record> struct parameter_lines : usual_lines<Record> {};
}  // namespace ledger

template <template <class> class Bounds, template <class> class Lines>
struct known {
    template <class Record> using bounds = Bounds<Record>;
    template <class Record> using lines = Lines<Record>;
};

// The list.
template <class Kind> struct known_of : known<usual_bounds, ledger::usual_lines> {};
template <> struct known_of<operation_kind::product> : known<matmul_bounds, ledger::matmul_lines> {};
template <> struct known_of<operation_kind::linear> : known<linear_bounds, ledger::linear_lines> {};
template <> struct known_of<operation_kind::conv2d> : known<conv2d_bounds, ledger::linear_lines> {};
template <> struct known_of<operation_kind::mlp> : known<mlp_bounds, ledger::mlp_lines> {};
template <> struct known_of<operation_kind::attention> : known<attention_bounds, ledger::attention_lines> {};
template <> struct known_of<operation_kind::cross_entropy> : known<cross_entropy_bounds, ledger::cross_entropy_lines> {};
template <> struct known_of<operation_kind::linear_cross_entropy>
    : known<linear_cross_entropy_bounds, ledger::linear_cross_entropy_lines> {};
template <> struct known_of<operation_kind::layer_norm> : known<norm_bounds, ledger::norm_lines> {};
template <> struct known_of<operation_kind::rms_norm> : known<norm_bounds, ledger::norm_lines> {};
template <> struct known_of<operation_kind::channel_norm> : known<norm_bounds, ledger::norm_lines> {};
template <> struct known_of<operation_kind::softmax> : known<usual_bounds, ledger::softmax_lines> {};
template <> struct known_of<operation_kind::embedding> : known<embedding_bounds, ledger::embedding_lines> {};
template <> struct known_of<operation_kind::dropout> : known<usual_bounds, ledger::dropout_lines> {};
template <> struct known_of<operation_kind::parameter_read> : known<parameter_bounds, ledger::parameter_lines> {};

template <class Record>
using bounds_of = typename known_of<kind_of<typename Record::operation>>::template bounds<Record>;
template <class Record>
using lines_of = typename known_of<kind_of<typename Record::operation>>::template lines<Record>;

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
