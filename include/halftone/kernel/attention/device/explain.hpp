// SPDX-License-Identifier: MIT
/// \file
/// A GPU's plan of attention in words, and cases for GPUs that are not there.
///
///     const auto c = on_device::dense_case(1, 1024, 12, 64, on_device::named_attention_types[0], *simt::target_named("sm_90a"));
///     std::puts(on_device::explain_plan(c).c_str());      // which family, its tiles, and what spoke against those before it
#pragma once

#include <string>

#include <halftone/exec/simt/target.hpp>
#include <halftone/kernel/attention/device/plan.hpp>
#include <halftone/kernel/common/plan/explain.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Types of attention by a name.
struct attention_types {
    const char* name;
    attention_arithmetic arithmetic;
    int bytes;  ///< of an element
};
inline constexpr attention_types named_attention_types[] = {{"bf16", attention_arithmetic::sixteen_bits, 2},
                                                            {"fp16", attention_arithmetic::sixteen_bits, 2},
                                                            {"tf32", attention_arithmetic::tfloat32, 4},
                                                            {"fp32", attention_arithmetic::others, 4}};

/// Self-attention over tensors (batch, time, heads, head_size) without gaps.
constexpr attention_case dense_case(extent batch, extent time, extent heads, extent head_size,
                                    const attention_types& types, const simt::target& on,
                                    attention_pass pass = attention_pass::forward) {
    const bool are_aligned = head_size * types.bytes % 16 == 0;
    return {.e = {batch, time, time, heads, heads, head_size},
            .pass = pass,
            .arithmetic = types.arithmetic,
            .are_chunks = are_aligned,
            .have_maps = are_aligned,
            .gpu = on.gpu(),
            .has_wgmma = on.has_wgmma};
}

/// Several lines, each indented by two blanks.
inline std::string explain_plan(const attention_case& c) {
    const attention_plan plan = plan_attention(c);
    if (plan.chosen < 0) return line_of("family", "none") + why(plan);
    const planned_attention& best = plan.best();
    std::string kernels =
        best.head == 0 ? "products and softmax, one head at a time" : "heads of up to " + std::to_string(best.head);
    if (best.query_rows > 0) kernels += ", tiles of " + std::to_string(best.query_rows) + " queries";
    if (best.has_large_tiles) kernels += ", large tiles";
    return line_of("family", best.name) + line_of("kernels", kernels) + why(plan);
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
