// SPDX-License-Identifier: MIT
/// \file
/// x^3 as a custom operation, which overflows fp16 from 41 on.
///
///     auto y = ht::apply<support::cube>(ctx, x);
#pragma once

#include <halftone/autodiff/op/apply.hpp>

namespace support {

namespace ht = halftone;

struct cube {
    static constexpr const char* name = "cube";
    static auto forward(auto& ctx, const auto& x) {
        return ht::keep(ht::map(
                            ctx, [](auto a) { return a * a * a; }, x),
                        x);
    }
    static auto backward(auto& ctx, const auto& dy, const auto& x) {
        return ht::map(
            ctx, [](auto g, auto a) { return 3.0f * a * a * g; }, dy, x);
    }
};

}  // namespace support
