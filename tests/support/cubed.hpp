// SPDX-License-Identifier: MIT
/// \file
/// A custom operation: x^3, which keeps its input. Tests that need a cast rule derive from it.
#pragma once

#include <halftone/autodiff/op/apply.hpp>
#include <halftone/autodiff/op/pointwise.hpp>

namespace support {

struct cubed {
    static constexpr const char* name = "cubed";
    static auto forward(auto& ctx, const auto& x) {
        const auto power = [](auto a) { return a * a * a; };
        return halftone::keep(halftone::map(ctx, power, x), x);
    }
    static auto backward(auto& ctx, const auto& dy, const auto& x) {
        const auto slope = [](auto g, auto a) { return 3 * a * a * g; };
        return halftone::map(ctx, slope, dy, x);
    }
};

}  // namespace support
