// SPDX-License-Identifier: MIT
/// \file
/// Simt, the machine that GPU kernels are written for: a set of functions on a thread handle. On a GPU each is an
/// instruction; on the emulated machine of the tests each is checked.
///
/// A kernel is a small struct with its arguments as members, whose call operator is a template over the thread handle:
///
///     struct scale_kernel {
///         static constexpr int threads = 128;                     // of a block; a multiple of 32
///         static constexpr simt::word shared_bytes = 0;           // of a block
///         static constexpr int min_blocks = 4;                    // optional: blocks a multiprocessor, limits registers
///         simt::global_span<float> x;
///
///         simt::grid_shape grid() const { return simt::blocks_for(x.count, threads); }
///
///         HALFTONE_KERNEL template <class Simt>
///         HALFTONE_HD void operator()(Simt simt) const {
///             const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
///             if (i < x.count) simt.store(x, i, 2 * simt.load(x, i));
///         }
///     };
///     device.launch(scale_kernel{simt::span_of(x)});
///
/// A device that launches kernels has `launch`; the operations of kernel/*/device.hpp run on all such devices
/// (simt_device). The functions of the thread handle:
///
///     thread() warp() lane() block()    this thread's number in the block, its warp's, its lane, its block's indices
///     load(span, i)  store(span, i, value)
///                                       global or shared memory; a span of vectors gives vector accesses
///     barrier()                         for all threads of the block; orders shared memory. The ONLY order between
///                                       warps
///     warp_barrier()                    for the 32 lanes of a warp; orders shared memory among them
///     shuffle_xor(value, mask)          exchange among all 32 lanes; shuffle(value, lane) reads one lane's value
///     any(value)                        whether the value is true in one of the 32 lanes
///     async_copy16(to, from, valid)     copies 16 bytes from global to shared memory; elements from `valid` on become
///                                       zero
///     async_commit() async_wait(constant<N>)
///                                       close a group of copies; wait until at most N of THIS THREAD'S groups are in
///                                       flight. What other threads copied may be read only after their wait AND a
///                                       barrier
///     ldmatrix_x4(row) ldmatrix_x4_trans(row)
///                                       four 8x8 matrices of 16-bit elements; lane i names row i % 8 of matrix i / 8
///     mma_16816(element<T>, d, a, b)    d += a b on one warp, 16x16 by 16x8, T float16 or bfloat16, sums in float;
///                                       lane layouts as PTX has them for m16n8k16
///     mma_1688(element<tfloat32>, d, a, b)
///                                       the same, 16x8 by 8x8, operands floats whose low 13 bits are ignored
///     mma_16832(element<A>, element<B>, d, a, b)
///                                       the same, 16x32 by 32x8, A and B float8_e4m3 or float8_e5m2, in the byte
///                                       layout of mma_16816. Only inside `if constexpr` on has_eight_bit_units
///     select_bytes(low, high, selector)
///                                       a word of four of these eight bytes; each hexadecimal digit of the selector is
///                                       the number of a byte, the lowest digit that of the lowest byte
///     warpgroup()                       the number of the thread's group of four warps, known to be uniform in a warp
///     mbarrier_init(at, arrivals)       initialises a counting barrier in shared memory: one thread calls it, then
///                                       mbarrier_init_fence(), before a barrier() of all threads
///     mbarrier_arrive(at)               arrives, after the thread's earlier accesses; mbarrier_expect(at, bytes)
///                                       arrives and makes the phase wait for that many copied bytes, too
///     mbarrier_wait(at, parity)         waits until the phase of that parity is complete. The first phase has parity
///                                       0; before it a phase of parity 1 counts as complete
///     bulk_copy(to, map, x, y, at)      copies a box of 128 bytes by the rows of the tensor map, from (x, y) on, to
///                                       shared memory in swizzled rows of 128 bytes, zeros out of bounds; `at` counts
///                                       the bytes. From a map of four axes: bulk_copy(to, map, x, y, z, w, at)
///     wgmma(element<T>, sums, a, b, keep)
///                                       the warps of a warpgroup multiply 64 x 16 by 16 x (8 Blocks), both in shared
///                                       memory; a lane's sums[j] are those of mma_16816, 16 rows a warp. Asynchronous
///                                       until a wait; keep: adds to the sums instead of overwriting them. a may also
///                                       be in registers, a lane's four words of mma_16816, which nothing may change
///                                       before the wait
///     wgmma_fence() wgmma_commit() wgmma_wait(constant<N>, sums)
///                                       before the first of a group; closes a group; waits until at most N groups are
///                                       in flight
///     hold(values)                      no use of these registers, an array, is moved over this place by the compiler:
///                                       for what products in flight read or write
///     fewer_registers(constant<N>) more_registers(constant<N>)
///                                       a warpgroup releases registers, or acquires released ones
///     bulk_store(map, x, y, from)       copies a box from shared to global memory, except out of bounds; of four axes:
///                                       bulk_store(map, x, y, z, w, from); bulk_commit()
///                                       closes a group, bulk_wait_read(constant<N>) waits until at most N of THIS
///                                       THREAD'S groups are unread
///     stmatrix_x4(row, values)          stores what ldmatrix_x4 loads
///     proxy_fence()                     makes the thread's stores to shared memory visible to such copies, also after
///                                       a barrier (from warpgroup on: only inside `if constexpr` on has_wgmma)
///     round_tf32(bits)                  a float's bits, rounded as tfloat32 rounds, for mma_1688
///
/// Types are deduced, so that kernels never need `simt.template word<...>()`. Members declare their return types
/// explicitly, because nvcc's host pass drops device bodies, and a deduced type would become void there.
#pragma once

#include <halftone/error.hpp>
#include <halftone/exec/simt/memory.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/number/tfloat32.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A device that runs kernels written for Simt. The CPU is none: its kernels are written with vectors.
template <class Device>
concept simt_device = Device::runs_simt_kernels;

namespace simt {

struct grid_shape {
    int x = 1, y = 1, z = 1;
};

/// CUDA's limits of a grid along x, and along y and z: what can be long goes along x, or is folded over y and z.
inline constexpr extent most_blocks = 2147483647, most_folds = 65535;

/// A grid of `count` blocks along x. Throws shape_error if a grid cannot have that many.
inline grid_shape blocks_along_x(extent count) {
    if (count > most_blocks) {
        fail<shape_error>("a kernel's launch: ", count, " blocks; a GPU's grid has at most ", most_blocks,
                                  ", so take less at a time");
    }
    return {static_cast<int>(count), 1, 1};
}
/// A grid of enough blocks for `count` items of `each` a block, along x; any count, to which `each` may not be added.
inline grid_shape blocks_for(extent count, extent each) {
    return blocks_along_x(count / each + (count % each != 0 ? 1 : 0));
}
/// A grid of `rows` rows of blocks: each row along x, the rows along y, and where these exceed the limit also along z.
/// The last fold may have more rows than needed; folded_row gives a block its row.
inline grid_shape folded(grid_shape row, extent rows) {
    if (rows > most_folds * most_folds) {
        fail<shape_error>("a kernel's launch: ", rows, " rows of blocks; a GPU's grid has at most ",
                                  most_folds * most_folds, ", so take less at a time");
    }
    const extent folds = detail::ceil_div(rows, most_folds);
    return {row.x, static_cast<int>(rows < most_folds ? rows : most_folds), static_cast<int>(folds)};
}
HALFTONE_HD constexpr extent folded_row(const grid_shape& block) {
    return static_cast<extent>(block.z) * most_folds + block.y;
}

/// Calls part(simt), a piece of code that many kernels share. On a GPU it is inlined; the emulated machine's thread
/// handle has an overload that compiles the part once for all kernels.
HALFTONE_KERNEL template <class Simt, class Part>
HALFTONE_HD HALFTONE_INLINE auto run_part(Simt simt, const Part& part) -> decltype(part(simt)) {
    return part(simt);
}

/// Two numbers rounded to T and packed into a word, the first in the low half.
template <class T>
HALFTONE_HD HALFTONE_INLINE word packed(float low, float high) {
#if defined(__CUDA_ARCH__)
    word both;
    if constexpr (std::is_same_v<T, bfloat16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    }
    return both;
#else
    return T(low).bits() | static_cast<word>(T(high).bits()) << 16;
#endif
}

/// Passes an element type to a function of the thread handle.
template <class T>
struct element {};

/// A tensor of four axes for bulk copies, whose boxes have 128 bytes of the first axis, some of the second and one of
/// the others.
struct tile_axes {
    extent inner;        ///< contiguous elements
    extent extents[3];   ///< of the other axes
    extent distances[3]; ///< from one to the next, in elements; of an axis of one element any number
};

/// A counting barrier, in shared memory.
struct mbarrier {
    std::uint64_t state;
};

/// A wgmma operand: 16-bit elements in shared memory, in panels 128 bytes wide, swizzled (chunk c of row r is at c ^ r
/// % 8), from a multiple of 1024 bytes on. If depth (k) is contiguous, a panel has 64 of depth in each row, one row for
/// each outer index; 16 steps along depth are 32 bytes. If the outer axis is contiguous, a panel has 64 of it in each
/// row, one row for each depth; the next 64 are in a panel 8192 bytes further on, and 16 steps along depth are 2048
/// bytes.
template <bool IsOuter>
struct wgmma_operand {
    word offset;
    static constexpr word step = IsOuter ? 2048 : 32;  ///< distance of 16 steps along depth, in bytes
};

template <class S>
concept thread_handle = requires(S simt, shared_span<float> shared, shared_span<chunk<bfloat16>> row,
                                 global_span<float> out, global_span<const bfloat16> in, vec<float, 4>& d,
                                 vec<word, 4> a, vec<word, 2> b) {
    { simt.thread() + simt.warp() + simt.lane() + simt.block().x } -> std::same_as<int>;
    { simt.load(shared, 0) } -> std::same_as<float>;
    { simt.load(in, 0) } -> std::same_as<bfloat16>;
    { simt.shuffle_xor(1.0f, 16) } -> std::same_as<float>;
    { simt.shuffle(1.0f, 0) } -> std::same_as<float>;
    { simt.ldmatrix_x4(row) } -> std::same_as<vec<word, 4>>;
    { simt.ldmatrix_x4_trans(row) } -> std::same_as<vec<word, 4>>;
    simt.store(shared, 0, 1.0f), simt.store(out, 0, 1.0f), simt.barrier(), simt.warp_barrier();
    simt.mma_16816(element<bfloat16>{}, d, a, b), simt.mma_16816(element<float16>{}, d, a, b);
    simt.mma_1688(element<tfloat32>{}, d, a, b);
    { simt.round_tf32(word{}) } -> std::same_as<word>;
    { simt.select_bytes(word{}, word{}, word{}) } -> std::same_as<word>;
    simt.mma_16832(element<float8_e4m3>{}, element<float8_e5m2>{}, d, a, b);
    requires std::same_as<decltype(S::has_eight_bit_units), const bool>;
    simt.async_copy16(row, in, 8), simt.async_commit(), simt.async_wait(constant<1>{});
};

}  // namespace simt

}  // namespace HALFTONE_ABI
}  // namespace halftone
