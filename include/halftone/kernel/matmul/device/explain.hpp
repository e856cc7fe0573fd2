// SPDX-License-Identifier: MIT
/// \file
/// A GPU's plan of a product in words, and problems for GPUs that are not there.
///
///     const auto p = on_device::dense_problem(256, 2304, 768, on_device::named_types[0], *simt::target_named("sm_90a"));
///     std::puts(on_device::explain_plan(p).c_str());      // which family, its tiles, its cost, and what spoke against the others
#pragma once

#include <string>

#include <halftone/exec/simt/target.hpp>
#include <halftone/kernel/common/plan/explain.hpp>
#include <halftone/kernel/matmul/device/plan.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Types of a product by a name: operands of `bytes` an element, results of `result_bytes`.
struct matmul_types {
    const char* name;
    matmul_arithmetic arithmetic;
    matmul_elements elements;
    int bytes, result_bytes;
};
inline constexpr matmul_types named_types[] = {
    {"bf16", matmul_arithmetic::sixteen_bits, matmul_elements::as_multiplied, 2, 2},
    {"fp16", matmul_arithmetic::sixteen_bits, matmul_elements::as_multiplied, 2, 2},
    {"tf32", matmul_arithmetic::tfloat32, matmul_elements::as_multiplied, 4, 4},
    {"fp32", matmul_arithmetic::floats, matmul_elements::others, 4, 4},
    {"fp8", matmul_arithmetic::sixteen_bits, matmul_elements::eight_bits, 1, 2}};

/// How the matrices of a product lie in memory: a and b are row-major, or stored transposed, c is row-major. Elements from one line to
/// the next; 0: lines follow one another without gaps.
struct product_layout {
    bool a_transposed = false, b_transposed = false;
    extent a_leading = 0, b_leading = 0, c_leading = 0;

    constexpr operand_lines lines_of_a(extent m, extent k) const { return lines(!a_transposed, m, k, a_leading); }
    constexpr operand_lines lines_of_b(extent n, extent k) const { return lines(b_transposed, n, k, b_leading); }
    constexpr extent leading_of_c(extent n) const { return c_leading == 0 ? n : c_leading; }

  private:
    static constexpr operand_lines lines(bool is_along_depth, extent outer, extent depth, extent leading) {
        if (leading == 0) leading = is_along_depth ? depth : outer;
        return lines_of({outer, depth}, is_along_depth ? shape<2>{leading, 1} : shape<2>{1, leading});
    }
};

/// The problem of matrices from addresses on that are multiples of 16 bytes: what launch.hpp's describe_product gives for views of
/// them.
constexpr matmul_problem dense_problem(extent m, extent n, extent k, const matmul_types& types, const simt::target& on,
                                       const product_layout& layout = {}) {
    const auto operand = [&types](const operand_lines& lines) -> matmul_problem::operand {
        return {lines.axis, access_of(lines.leading * types.bytes, true)};
    };
    return {.m = m,
            .n = n,
            .k = k,
            .arithmetic = types.arithmetic,
            .elements = types.elements,
            .a = operand(layout.lines_of_a(m, k)),
            .b = operand(layout.lines_of_b(n, k)),
            .c = {.bytes = types.result_bytes, .has_odd_rows = layout.leading_of_c(n) * types.result_bytes % 16 != 0},
            .gpu = on.gpu(),
            .with = {on.has_wgmma, on.gpu().has_eight_bit_units(), on.code()}};
}

/// Bytes of an element as a family multiplies it.
constexpr int multiplied_bytes(const matmul_problem& p, matmul_family family) {
    if (family == matmul_family::mma_sync_8bit) return 1;
    return p.arithmetic == matmul_arithmetic::sixteen_bits ? 2 : 4;
}

/// What is copied before the product, in words.
constexpr const char* copies_of(const matmul_problem& p, matmul_family family) {
    if (family == matmul_family::wgmma_widened) return "both, to 16 bits";
    const bool are_aligned = (p.a.access & p.b.access) == row_access::chunks;
    const bool copies = family == matmul_family::mma_sync || family == matmul_family::wgmma;
    return copies && !are_aligned ? "unaligned operands, to aligned rows" : "nothing";
}

/// The tiles in which a family computes a product, in words.
inline std::string tiles_of(const matmul_problem& p, const planned_matmul& f) {
    const tile_pace& tile = tile_paces[static_cast<int>(f.cut.tile)];
    return std::to_string(tile.rows) + " x " + std::to_string(tile.columns) + " of c, " +
           std::to_string(f.panel_bytes / multiplied_bytes(p, f.family)) + " of k at a time";
}

/// Several lines, each indented by two blanks.
inline std::string explain_plan(const matmul_problem& p) {
    const matmul_plan plan = plan_matmul(p);
    const planned_matmul& best = plan.best();
    const bool by_warpgroups = best.family == matmul_family::wgmma || best.family == matmul_family::wgmma_widened;

    std::string text = line_of("family", best.name) + line_of("tiles", tiles_of(p, best));
    text += line_of("k", best.cut.parts == 1
                             ? "in one part"
                             : "in up to " + std::to_string(best.cut.parts) + " parts, which are added in order");
    text += line_of("copies", copies_of(p, best.family));
    if (by_warpgroups && best.cut.parts == 1) {
        text += line_of("results", !best.storing.in_bulk    ? "one by one"
                                   : best.storing.sets == 1 ? "by bulk copies"
                                                            : "by bulk copies, of every eighth row");
    }
    return text + line_of("cost", rounded_text(best.cost) + "; 128 x 128 x 1 in 16 bits by mma.sync costs 1") +
           why(plan);
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
