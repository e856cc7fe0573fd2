// SPDX-License-Identifier: MIT
/// \file
/// What follows the gradients of an accumulator while backward passes compute them, such as the ranks of a run, which
/// exchange a gradient as soon as it is complete (ranks/gradient_progress.hpp).
///
///     acc.receive(loss)        -> begin_pass(3, ...)       // the third micro-batch of a window
///     slabs.claim(entry)       -> claim(0, entry)          // an operation is about to write this gradient, or to add to it
///     ...                      -> end_operation()          // and now it has done so
///     end of tape.backward()   -> end_pass()
///     acc.take()               -> end_window()             // gradients that no pass claimed are zero now
///
/// A gradient is complete when the operation that claimed it last has ended; a parameter that several operations read,
/// such as a tied table, is claimed by each of them.
#pragma once

#include <cstddef>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class gradient_listener {
  public:
    gradient_listener() = default;
    gradient_listener(const gradient_listener&) = delete;
    gradient_listener& operator=(const gradient_listener&) = delete;
    virtual ~gradient_listener() = default;

    /// The backward pass of micro-batch `number` of the window, from 1, will begin; its loss is a part of that of the
    /// rows of `ranks` ranks (autodiff/engine/rank_loss.hpp). May throw; nothing has changed then.
    virtual void begin_pass(int number, int ranks) = 0;
    /// An operation writes the gradient of an entry of the accumulator's model number `part`, or adds to it.
    virtual void claim(std::size_t part, std::size_t entry) = 0;
    /// An operation's backward function has ended, with those that it called.
    virtual void end_operation() = 0;
    virtual void end_pass() = 0;
    /// take() has ended the window: its gradients are to be what the optimizer reads when this returns.
    virtual void end_window() = 0;
    /// The window's gradients are dropped.
    virtual void discard() noexcept = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
