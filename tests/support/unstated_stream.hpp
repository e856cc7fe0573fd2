// SPDX-License-Identifier: MIT
/// \file
/// A policy that is ht::amp_bf16 but for the role `stream`, which it does not have: what checkpoints state that were saved
/// before presets had that role.
#pragma once

#include <halftone/policy/presets.hpp>

namespace support {

struct amp_bf16_without_stream {
    using param = float;
    using compute = halftone::bfloat16;
    using output = halftone::bfloat16;
    using accum = float;
    using grad = halftone::bfloat16;
    using accumulate = float;
    using reduce = float;
    using state = float;
    static constexpr auto param_rounding = halftone::rounding::nearest_even;
};

}  // namespace support
