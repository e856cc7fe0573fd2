// SPDX-License-Identifier: MIT
/// \file
/// What a backward pass must be for its gradients to be added over ranks: of a loss of all ranks, and of a micro-batch that the
/// window still waits for.
///
///     detail::check_pass({"shard", "sharded", comm.size(), options.micro_batches}, number, of);
#pragma once

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Who adds gradients, and what it expects of backward passes.
struct pass_expectation {
    const char* caller;    ///< with which messages begin
    const char* variable;  ///< by which programs divide their loss, in examples
    int ranks;             ///< over which gradients are added
    int micro_batches;     ///< of a window; 0: not known
};

/// Throws state_error unless micro-batch `number` of a window, from 1, may begin, whose loss is a part of that of `of` ranks.
inline void check_pass(const pass_expectation& expected, int number, int of) {
    const auto& [caller, variable, ranks, micro_batches] = expected;
    if (of != ranks) {
        fail<state_error>(caller, ": its gradients are added over ", ranks, " ranks, and this loss is that of ", of,
                          "; make it a part of the loss of all ranks: loss / ", variable, ", or loss * ", variable,
                          ".share_of(tape, micro, batch) where targets are counted");
    }
    if (micro_batches != 0 && number > micro_batches) {
        fail<state_error>(caller, ": micro-batch ", number, " of a window of ", micro_batches,
                          " (micro_batches), whose gradients have been sent; call take() after ", micro_batches,
                          ", or let micro_batches be right");
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
