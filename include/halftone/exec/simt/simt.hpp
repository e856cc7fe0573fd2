// SPDX-License-Identifier: MIT
/// \file
/// The words a GPU kernel is written in, once: for a GPU, where each is an instruction, and for tests on a host, where
/// each is checked.
///
/// A kernel is a small struct that carries its arguments and whose call operator is a template over the thread handle:
///
///     struct scale_kernel {
///         static constexpr int threads = 128;                     // of a block; a multiple of 32
///         static constexpr simt::word shared_bytes = 0;           // of a block
///         static constexpr int min_blocks = 4;                    // or none: so many a multiprocessor, at the cost of registers
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
/// A device that launches kernels has `launch`; the operations of kernel/*/device.hpp are for all such devices
/// (simt_device). The words:
///
///     thread() warp() lane() block()         where am I; threads and warps within the block
///     load(span, i)  store(span, i, value)   global or shared memory; a span of vectors gives vector accesses
///     barrier()                              all threads of the block; orders shared memory. The ONLY order between warps
///     warp_barrier()                         the 32 lanes; orders shared memory among them
///     shuffle_xor(value, mask)               all 32 lanes exchange; shuffle(value, lane) reads one lane's
///     any(value)                             whether one of the 32 lanes says so
///     async_copy16(to, from, valid)          global to shared, one chunk; elements from `valid` on become zero
///     async_commit() async_wait(constant<N>) close a group; wait until at most N of MY groups are in flight. What others
///                                            copied is mine to read only after their wait AND a barrier
///     ldmatrix_x4(row) ldmatrix_x4_trans(row)   four 8x8 matrices of 16-bit elements; lane i names row i % 8 of matrix i / 8
///     mma_16816(element<T>, d, a, b)         d += a b on one warp, 16x16 by 16x8, T float16 or bfloat16, sums in float; lane
///                                            layouts as PTX has them for m16n8k16
///     mma_1688(element<tfloat32>, d, a, b)   the same, 16x8 by 8x8, operands floats whose low 13 bits are ignored
///     mma_16832(element<A>, element<B>, d, a, b)   the same, 16x32 by 32x8, A and B float8_e4m3 or float8_e5m2: the lane
///                                            layouts of mma_16816, byte by byte. Only under `if constexpr` on
///                                            has_eight_bit_units
///     select_bytes(low, high, selector)      a word of four of these eight bytes, which the selector's hexadecimal digits
///                                            number, the lowest byte's being the lowest
///     warpgroup()                            of four warps which; a compiler takes it for one number of all lanes
///     mbarrier_init(at, arrivals)            a barrier in shared memory that counts: by one thread, which mbarrier_init_fence()s
///                                            then, before a barrier() of all
///     mbarrier_arrive(at)                    one arrival, after what the thread did; mbarrier_expect(at, bytes) another, whose
///                                            phase is not over before so many bytes have been copied, either
///     mbarrier_wait(at, parity)              until the phase of that parity is over, the first of which is 0. Before it, that
///                                            of parity 1 counts as over
///     bulk_copy(to, map, x, y, at)           128 bytes by so many lines as the device's tile_map says, from (x, y) on, into
///                                            swizzled rows of 128 bytes, zeros beyond the end; their bytes count at `at`
///     wgmma(element<T>, sums, a, b, keep)    four warps from a fourth one on multiply 64 x 16 by 16 x 8 Blocks out of shared
///                                            memory; a lane's sums[j] are those of mma_16816, 16 rows a warp. Under way
///                                            until a wait; keep: added to what the sums are
///     wgmma_fence() wgmma_commit() wgmma_wait(constant<N>, sums)   before the first of a group; close a group; wait until at
///                                            most N are under way
///     fewer_registers(constant<N>) more_registers(constant<N>)   four warps give registers back, or take what others gave
///     bulk_store(map, x, y, from)            the way back, what lies beyond the end left out; bulk_commit() closes a group of
///                                            mine, bulk_wait_read(constant<N>): at most N of MY groups are still to be read
///     stmatrix_x4(row, values)               the way back of ldmatrix_x4
///     proxy_fence()                          what I stored to shared memory is there for such copies, after a barrier too
///                                            (from warpgroup on: only under `if constexpr` on has_wgmma)
///     round_tf32(bits)                       a float's bits, rounded to what mma_1688 reads of them, as tfloat32 rounds
///
/// Types are deduced, so a kernel never has to write `simt.template word<...>()`. Return types of members are written
/// out: nvcc's host pass drops device bodies, and a deduced type would become void there.
#pragma once

#include <halftone/error.hpp>
#include <halftone/exec/simt/memory.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/tfloat32.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A device that runs kernels written in these words. The CPU is none: its kernels are written on vectors.
template <class Device>
concept simt_device = Device::runs_simt_kernels;

namespace simt {

struct grid_shape {
    int x = 1, y = 1, z = 1;
};

/// What CUDA takes of a grid along x, and along y and z: what can be long goes along x, or is folded.
inline constexpr extent most_blocks = 2147483647, most_folds = 65535;

/// So many blocks along x. Throws shape_error for more than a grid has.
inline grid_shape blocks_along_x(extent count) {
    if (count > most_blocks) {
        fail<shape_error>("a kernel's launch: ", count, " blocks; a GPU's grid has at most ", most_blocks,
                                  ", so take less at a time");
    }
    return {static_cast<int>(count), 1, 1};
}
/// Enough blocks of `each` for `count`, along x.
inline grid_shape blocks_for(extent count, extent each) {
    return blocks_along_x(count / each + (count % each != 0 ? 1 : 0));
}
/// Rows of blocks along x, and as many of them as are wanted: along y, and beyond what that takes along z. Of the last
/// fold some rows may be too many; folded_row tells a block its row.
inline grid_shape folded(grid_shape row, extent rows) {
    if (rows > most_folds * most_folds) {
        fail<shape_error>("a kernel's launch: ", rows, " rows of blocks; a GPU's grid has at most ",
                                  most_folds * most_folds, ", so take less at a time");
    }
    const extent folds = (rows + most_folds - 1) / most_folds;
    return {row.x, static_cast<int>(rows < most_folds ? rows : most_folds), static_cast<int>(folds)};
}
HALFTONE_HD constexpr extent folded_row(const grid_shape& block) {
    return static_cast<extent>(block.z) * most_folds + block.y;
}

/// part(simt), for what many kernels have in common. On a GPU it is inlined, as everything is; a host's thread handle
/// has an overload beside it that is compiled once for all of them.
HALFTONE_KERNEL template <class Simt, class Part>
HALFTONE_HD HALFTONE_INLINE auto run_part(Simt simt, const Part& part) -> decltype(part(simt)) {
    return part(simt);
}

/// Two numbers rounded to T, the first in the low half.
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

/// Names an element type to a word.
template <class T>
struct element {};

/// Lies in shared memory.
struct mbarrier {
    std::uint64_t state;
};

/// 16-bit elements in shared memory that wgmma reads, in panels that are 128 bytes wide and swizzled (chunk c of row r lies
/// at c ^ r % 8), from a multiple of 1024 on. Of an operand whose depth is contiguous a panel is 64 deep, row after row of
/// the outer axis; 16 further in depth is 32 bytes on. Else it has 64 of the outer axis, row after row of the depth, the
/// next 64 lie 8192 bytes further on, and 16 further in depth is 2048 bytes on.
template <bool IsOuter>
struct wgmma_operand {
    word offset;
    static constexpr word step = IsOuter ? 2048 : 32;  ///< bytes, of 16 in depth
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
