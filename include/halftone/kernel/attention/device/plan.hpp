// SPDX-License-Identifier: MIT
/// \file
/// How a GPU computes attention: a pure function from the shape, the types, the layout and the architecture to a family of kernels,
/// with what speaks against each family before it. This header needs no GPU and no CUDA.
///
///     const attention_plan plan = plan_attention({.e = {1, 1024, 1024, 12, 12, 64}, .gpu = simt::architecture_of(80)});
///     plan.best().name;        // "mma_sync"
///
/// Families, in the order in which they are tried (the first one that applies is taken):
///
///     wgmma             flash, by Hopper's warpgroups               device/warpgroup_forward.hpp, warpgroup_backward.hpp
///     mma_sync          flash, by matrix units                      device/forward.hpp, backward.hpp, wide.hpp
///     plain             flash, without matrix units                 device/plain.hpp; with functions of the scores modified.hpp
///     stored_scores     products and softmax, any head size         math/math.hpp
///
/// There is no cost: where a family applies it is taken to be faster than those after it. In bfloat16, with heads of 64 and 128, an
/// H200 has 1.6 to 1.9 times the rate forward by wgmma, and 1.3 to 2.0 times backward, of an H100 by mma.sync, while packed sequences,
/// by mma.sync on both, have the same rate (bench/results/gpu_h200 and gpu_h100_first). Plain kernels were not compared: they
/// use no matrix units.
///
/// `bench_attention --plan 1x1024x12x64 --device sm_90a` prints the choice for a shape, and why.
#pragma once

#include <halftone/exec/simt/architecture.hpp>
#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/common/plan/families.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

enum class attention_family { wgmma, mma_sync, plain, stored_scores };

/// What is multiplied: 16-bit operands in the type that they have, floats in tfloat32, or anything else.
enum class attention_arithmetic { sixteen_bits, tfloat32, others };
enum class attention_pass { forward, backward };

/// What decides how a GPU computes attention.
struct attention_case {
    detail::attention_extents e;
    attention_pass pass = attention_pass::forward;
    attention_strategy requested = attention_strategy::automatic;
    attention_arithmetic arithmetic = attention_arithmetic::sixteen_bits;
    bool is_packed = false;      ///< sequences of various lengths, one after the other
    bool has_functions = false;  ///< of the scores
    bool are_chunks = true;      ///< every head's vectors begin at multiples of 16 bytes
    bool have_maps = true;       ///< tensor maps can describe all tensors
    simt::architecture gpu;
    bool has_wgmma = false;  ///< the code was compiled for sm_90a, and is on such a GPU
};

/// How a family computes a problem.
struct attention_way {
    int head = 0;                  ///< the head size that its kernels have, to which heads are padded; 0: any
    int query_rows = 0;            ///< of wgmma's forward pass: queries of a tile
    bool has_large_tiles = false;  ///< of mma.sync, with heads of 256
};
using planned_attention = planned<attention_family, attention_way>;
using attention_plan = family_plan<attention_family, attention_way, 4>;

namespace planning {

// ---- Tiles -------------------------------------------------------------------------------------------------------------

/// Fewer head sizes for floats, to save compile time: sizes between are padded.
constexpr int head_of_mma_sync(const attention_case& c) {
    const extent size = c.e.head_size;
    if (c.arithmetic == attention_arithmetic::sixteen_bits) {
        if (size <= 32) return 32;
        if (size > 64 && size <= 96) return 96;
    }
    return size <= 64 ? 64 : size <= 128 ? 128 : 256;
}
constexpr int head_of_plain(const attention_case& c) {
    return c.e.head_size <= 64 ? 64 : c.e.head_size <= 128 ? 128 : 256;
}

/// Shared memory of a block of large tiles for heads of 256.
constexpr int large_tile_bytes(attention_arithmetic arithmetic, attention_pass pass) {
    return arithmetic == attention_arithmetic::tfloat32 && pass == attention_pass::forward ? 114720 : 163872;
}
/// Queries of a tile of wgmma's forward pass. Heads of 64 have 192 if there are at least four such tiles for each multiprocessor,
/// otherwise 128; the bits are the same. On an H200 192 queries by three warpgroups took 348 us and 128 by two 394 us at 16 x 1,024
/// tokens (2,048 channels, full), and 671 us compared with 797 us at 4 x 4,096 (causal).
constexpr int query_rows_of_wgmma(const attention_case& c) {
    const extent tiles = c.e.batch * c.e.heads * detail::ceil_div(c.e.queries, 192);
    return c.e.head_size <= 64 && tiles >= extent{4} * c.gpu.multiprocessors ? 192 : 128;
}

// ---- Families: what speaks against each (nullptr: it applies), and how it computes a problem ---------------------------

/// Against all kernels that store no scores.
constexpr const char* against_flash(const attention_case& c) {
    if (c.requested == attention_strategy::math) return "stored scores were requested";
    return detail::why_not_flash(c.e);
}
/// Against products of this kind by mma.sync: of the types, and the layout.
constexpr const char* against_matrix_units(const attention_case& c) {
    if (c.arithmetic == attention_arithmetic::others)
        return "they multiply 16-bit operands of the type that they have, and floats in tfloat32";
    if (c.e.head_size % 8 != 0) return "head_size is not a multiple of 8";
    return c.are_chunks ? nullptr : "some head's vectors do not begin on a multiple of 16 bytes";
}
/// Against warpgroups; depends on the device, the layout and the head size, not on how many rows there are.
constexpr const char* against_warpgroups(const attention_case& c) {
    if (c.arithmetic != attention_arithmetic::sixteen_bits)
        return "they multiply 16-bit operands of the type that they have, in code for sm_90a";
    if (!c.has_wgmma) return "the GPU or the code for it is none of sm_90a";
    if (c.is_packed) return "the sequences are packed";
    // The other kernels add up the keys of a query in other blocks, and compute packed sequences and caches.
    if (c.gpu.batch_invariant) return "the context is batch-invariant";
    if (c.e.head_size % 8 != 0) return "head_size is not a multiple of 8";
    if (c.e.head_size > 128) return "head_size is above 128";
    if (!c.have_maps) return "some tensor's distances are not positive multiples of 16 bytes";
    const extent heads = c.e.batch * c.e.heads, tiles = heads * (c.e.queries / 64 + 1),
                 others = heads * (c.e.keys / 64 + 1);
    return tiles > 1 << 30 || others > 1 << 30 ? "there are more than 2^30 tiles" : nullptr;
}

constexpr const char* against_wgmma(const attention_case& c) {
    if (const char* const why = against_flash(c)) return why;
    if (c.has_functions) return "functions of the scores are computed by plain kernels";
    if (c.pass == attention_pass::backward) {
        if (c.e.heads * c.e.queries * c.e.keys == 0) return "there are no queries or no keys";
        if (c.e.head_size <= 32) return "head_size is at most 32: most of the products would be of zeros";
    }
    return against_warpgroups(c);
}
constexpr attention_way plan_wgmma(const attention_case& c) {
    return {.head = c.e.head_size <= 64 ? 64 : 128,
            .query_rows = c.pass == attention_pass::forward ? query_rows_of_wgmma(c) : 0};
}

constexpr const char* against_mma_sync(const attention_case& c) {
    if (const char* const why = against_flash(c)) return why;
    if (c.has_functions) return "functions of the scores are computed by plain kernels";
    if (c.pass == attention_pass::backward && c.e.heads == 0) return "there are no query heads";
    return against_matrix_units(c);
}
/// Large tiles take 163 KB of shared memory, the others 99 KB: two blocks of these fit into a multiprocessor, or one with twice the
/// rows in a tile and half the memory traffic for them.
constexpr attention_way plan_mma_sync(const attention_case& c) {
    const int head = head_of_mma_sync(c);
    return {.head = head,
            .has_large_tiles = head == 256 && large_tile_bytes(c.arithmetic, c.pass) <= c.gpu.shared_bytes};
}

constexpr attention_way plan_plain(const attention_case& c) { return {.head = head_of_plain(c)}; }

constexpr const char* against_stored_scores(const attention_case& c) {
    return c.requested == attention_strategy::flash ? "flash was requested" : nullptr;
}
constexpr attention_way plan_stored_scores(const attention_case&) { return {}; }

inline constexpr family_rule<attention_family, attention_way, attention_case> attention_rules[] = {
    {attention_family::wgmma, "wgmma", &against_wgmma, &plan_wgmma},
    {attention_family::mma_sync, "mma_sync", &against_mma_sync, &plan_mma_sync},
    {attention_family::plain, "plain", &against_flash, &plan_plain},
    {attention_family::stored_scores, "stored_scores", &against_stored_scores, &plan_stored_scores}};

}  // namespace planning

/// The plan of a case; nothing is chosen if flash is requested for heads that no flash kernel takes.
constexpr attention_plan plan_attention(const attention_case& c) { return plan_by(planning::attention_rules, c); }

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
