// SPDX-License-Identifier: MIT
/// \file
/// A GPU's choice for a product in a few letters, as tests compare it:
///
///     b   8-bit matrix units                       s128.64/3   tiles of 128 x 128, panels 64 deep, k in 3 parts
///     s   mma.sync by asynchronous copies          w192        wgmma, tiles of 128 x 192
///     w   wgmma                                    cw64e       unaligned operands are copied first; every eighth row of c
///     v   wgmma of widened 8-bit operands              e       in a map of its own
///     r   mma.sync through registers               w256o       rows of c begin at an offset, in one map
///     f   multiply-adds                            w256i       elements of c stored one by one
#pragma once

#include <string>

#include <halftone/kernel/matmul/device/explain.hpp>

namespace matmul_test {

/// The parts that k really has: panels may not divide evenly.
inline std::string parts_text(halftone::extent k, int depth, int most_parts) {
    const halftone::extent panels = (k + depth - 1) / depth, each = (panels + most_parts - 1) / most_parts,
                           parts = each == 0 ? 1 : (panels + each - 1) / each;
    return parts <= 1 ? std::string() : "/" + std::to_string(parts);
}
inline const char* storing_text(const halftone::kernel::on_device::result_storing& s) {
    return !s.in_bulk ? "i" : s.sets > 1 ? "e" : s.most_offset > 0 ? "o" : "";
}
inline std::string choice_of(const halftone::kernel::on_device::matmul_problem& p) {
    using namespace halftone::kernel::on_device;
    const matmul_plan plan = plan_matmul(p);
    const planned_matmul& best = plan.best();
    constexpr char letters[] = {'b', 's', 'w', 'v', 'r', 'f'};
    static_assert(sizeof letters == matmul_plan::count);
    const char letter = letters[static_cast<int>(best.family)];
    const int depth = best.panel_bytes / multiplied_bytes(p, best.family);
    const tile_pace& tile = tile_paces[static_cast<int>(best.cut.tile)];
    const bool copies = (letter == 's' || letter == 'w') && (p.a.access & p.b.access) != row_access::chunks;
    std::string text = (copies ? "c" : "") + std::string(1, letter) + std::to_string(tile.columns);
    if (letter == 's' || letter == 'r' || letter == 'b') text += "." + std::to_string(depth);
    text += parts_text(p.k, depth, best.cut.parts);
    if ((letter == 'w' || letter == 'v') && best.cut.parts == 1) text += storing_text(best.storing);
    return text;
}

}  // namespace matmul_test
