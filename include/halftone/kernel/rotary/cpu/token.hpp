// SPDX-License-Identifier: MIT
/// \file
/// The arguments of the CPU's body that all tokens share.
#pragma once

#include <halftone/kernel/rotary/rotary.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The heads of one token, and how they are rotated.
struct rotary_token {
    extent heads, turned, head_size, pairs;
    extent x_stride, y_stride;  ///< between heads
    rotary_layout layout;
    float sign;  ///< the factor of the sines: 1, or -1 for the inverse
    write_mode mode;
    bool non_temporal;  ///< results are not read again soon
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
