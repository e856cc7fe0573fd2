// SPDX-License-Identifier: MIT
/// \file
/// What the CPU's body is told of a turn: what all tokens share.
#pragma once

#include <halftone/kernel/rotary/rotary.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The heads of one token, and how they are turned.
struct rotary_token {
    extent heads, turned, head_size, pairs;
    extent x_stride, y_stride;  ///< from head to head
    rotary_layout layout;
    float sign;  ///< of the sines
    write_mode mode;
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
