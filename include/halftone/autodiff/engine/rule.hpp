// SPDX-License-Identifier: MIT
/// \file
/// What a tape for second derivatives (double_backward/tape.hpp) stores with a record: its rule, and the parameters
/// that gradients read.
#pragma once

#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/kernel/convert/convert.hpp>
#include <halftone/kernel/map/map.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// `run(tape, record, dy)`: sets the gradient of each input that takes one, computed by operations on tape.inner() from dy,
/// the gradient of the record's result. Without dy for a record that does not have one result (graph.hpp): it calls
/// tape.take(). Specialised for each record that has a rule; a record may have a member `differentiate(tape, dy)` instead.
template <class Record>
struct rule {
    template <class Tape, class... Dy>
    static void run(Tape& tape, const Record& r, const Dy&... dy) {
        if constexpr (requires { r.differentiate(tape, dy...); }) {
            r.differentiate(tape, dy...);
        } else {
            static_assert(sizeof(Record) == 0,
                          "halftone: tape: this operation cannot be differentiated twice, since its backward pass is "
                          "not made of operations on the tape: write it as ht::map or out of halftone's other "
                          "operations, give its record a differentiate(tape), or record it on ht::tape tape{device}");
        }
    }
};

struct parameter_operation {
    static constexpr const char* name = "parameter";
};

/// A parameter that a gradient reads: its own gradient, in float, is passed on to the accumulator.
template <class Storage>
struct parameter_record {
    using operation = parameter_operation;
    parameter<Storage, 1> p;
    gradient_of<float, 1> dy;

    template <class Tape>
    void propagate(Tape& tape) {
        using accumulate = typename Storage::accumulate;
        if (const auto to = tape.gradient_target(p)) {
            const view<accumulate, 1> out(to.data, dy.shape());
            const auto from = as_const(dy.view());
            if (to.mode == write_mode::overwrite) {
                kernel::convert<typename Tape::device_type>::run(tape.device(), from, out);
            } else {
                halftone::map(
                    tape.device(), [](auto a, auto b) { return a + b; }, as_const(out), from, out);
            }
        }
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
