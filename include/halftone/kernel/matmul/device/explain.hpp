// SPDX-License-Identifier: MIT
/// \file
/// A GPU's plan of a product in words, and problems for GPUs that are not there.
///
///     const auto p = on_device::dense_problem(256, 2304, 768, on_device::named_types[0], *simt::target_named("sm_90a"));
///     std::puts(on_device::explain_plan(p).c_str());      // which family, its tiles, its cost, and what spoke against the others
#pragma once

#include <string>

#include <halftone/exec/simt/target.hpp>
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

/// The problem of matrices whose lines follow one another without gaps, from addresses on that are multiples of 16 bytes. a and b
/// are row-major, or stored transposed.
constexpr matmul_problem dense_problem(extent m, extent n, extent k, const matmul_types& types, const simt::target& on,
                                       bool a_transposed = false, bool b_transposed = false) {
    // Of a single row or column both axes are contiguous: depth, unless it is 1.
    const auto operand = [&types, k](bool is_along_depth, extent outer) -> matmul_problem::operand {
        const along axis = k == 1 || (!is_along_depth && outer > 1) ? along::outer : along::depth;
        const extent lines = axis == along::depth ? outer : k, length = axis == along::depth ? k : outer;
        return {axis, lines <= 1 || length * types.bytes % 16 == 0 ? row_access::chunks : row_access::elements};
    };
    return {.m = m,
            .n = n,
            .k = k,
            .arithmetic = types.arithmetic,
            .elements = types.elements,
            .a = operand(!a_transposed, m),
            .b = operand(b_transposed, n),
            .c = {.bytes = types.result_bytes, .has_odd_rows = n * types.result_bytes % 16 != 0},
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

/// Several lines, each indented by two blanks.
inline std::string explain_plan(const matmul_problem& p) {
    const matmul_plan plan = plan_matmul(p);
    const planned_family& best = plan.best();
    const auto number = [](double n) { return std::to_string(static_cast<extent>(n + 0.5)); };
    const tile_pace& tile = tile_paces[static_cast<int>(best.cut.tile)];
    const bool by_warpgroups = best.family == matmul_family::wgmma || best.family == matmul_family::wgmma_widened;

    std::string text = "  family    " + std::string(best.name) + "\n";
    text += "  tiles     " + std::to_string(tile.rows) + " x " + std::to_string(tile.columns) + " of c, " +
            std::to_string(best.panel_bytes / multiplied_bytes(p, best.family)) + " of k at a time\n";
    text += "  k         ";
    text += best.cut.parts == 1 ? "in one part\n"
                                : "in up to " + std::to_string(best.cut.parts) + " parts, which are added in order\n";
    text += "  copies    " + std::string(copies_of(p, best.family)) + "\n";
    if (by_warpgroups && best.cut.parts == 1) {
        text += "  results   ";
        text += !best.storing.in_bulk    ? "one by one\n"
                : best.storing.sets == 1 ? "by bulk copies\n"
                                         : "by bulk copies, of every eighth row\n";
    }
    text += "  cost      " + number(best.cost) + "; 128 x 128 x 1 in 16 bits by mma.sync costs 1\n";
    const char* before = "  why       ";
    for (const planned_family& f : plan.families) {
        text += before;
        before = "            ";
        if (f.why_not != nullptr) {
            text += std::string("not ") + f.name + ": " + f.why_not + "\n";
        } else {
            text += std::string(f.name) + ": " + number(f.cost) + (f.family == best.family ? ", taken\n" : "\n");
        }
    }
    return text;
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
