// SPDX-License-Identifier: MIT
/// \file
/// The instructions of sm_90a that the kernels in this folder use: barriers that count arrivals and bytes, copies of tiles by
/// the copy engine (TMA), matrix instructions of four warps (wgmma). Addresses of shared memory are bytes of its
/// window.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>

namespace study {

#define STUDY_INLINE __device__ __forceinline__

// The sums of a wgmma, as the assembler and the compiler want them listed: 32, 64 or 88 registers a thread.
#define STUDY_32_REGISTERS                                                                                           \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define STUDY_64_REGISTERS                                                                         \
    STUDY_32_REGISTERS                                                                             \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define STUDY_88_REGISTERS                                                                         \
    STUDY_64_REGISTERS                                                                             \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87"
#define STUDY_4_SUMS(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define STUDY_8_SUMS(i) STUDY_4_SUMS(i), STUDY_4_SUMS(i + 4)
#define STUDY_32_SUMS(i) STUDY_8_SUMS(i), STUDY_8_SUMS(i + 8), STUDY_8_SUMS(i + 16), STUDY_8_SUMS(i + 24)
#define STUDY_64_SUMS STUDY_32_SUMS(0), STUDY_32_SUMS(32)
#define STUDY_88_SUMS STUDY_64_SUMS, STUDY_8_SUMS(64), STUDY_8_SUMS(72), STUDY_8_SUMS(80)

// d = a b^T (IsFirst) or d += a b^T over 16 channels: a (64 rows) and b (N rows) in shared memory, channels contiguous.
// A, B, KEEP: the numbers of the operands that follow the sums.
#define STUDY_MULTIPLY(N, REGISTERS, SUMS, A, B, KEEP)                                                      \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\nwgmma.mma_async.sync.aligned.m64n" N \
                 "k16.f32.bf16.bf16 {" REGISTERS "}, " A ", " B ", keep, 1, 1, 0, 0;\n}"                    \
                 : SUMS                                                                                     \
                 : "l"(a), "l"(b), "n"(IsFirst ? 0 : 1))
template <bool IsFirst>
STUDY_INLINE void multiply(float (&d)[32], std::uint64_t a, std::uint64_t b) {
    STUDY_MULTIPLY("64", STUDY_32_REGISTERS, STUDY_32_SUMS(0), "%32", "%33", "%34");
}
template <bool IsFirst>
STUDY_INLINE void multiply(float (&d)[64], std::uint64_t a, std::uint64_t b) {
    STUDY_MULTIPLY("128", STUDY_64_REGISTERS, STUDY_64_SUMS, "%64", "%65", "%66");
}
template <bool IsFirst>
STUDY_INLINE void multiply(float (&d)[88], std::uint64_t a, std::uint64_t b) {
    STUDY_MULTIPLY("176", STUDY_88_REGISTERS, STUDY_88_SUMS, "%88", "%89", "%90");
}

// d += a b over 16 rows of b: a in registers, b in shared memory, its N columns contiguous.
#define STUDY_ADD_PRODUCT(N, REGISTERS, SUMS, A0, A1, A2, A3, B)                                                 \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, 1, 0;\nwgmma.mma_async.sync.aligned.m64n" N             \
                 "k16.f32.bf16.bf16 {" REGISTERS "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", keep, 1, 1, 1;\n}" \
                 : SUMS                                                                                          \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))
STUDY_INLINE void add_product(float (&d)[32], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                              std::uint64_t b) {
    STUDY_ADD_PRODUCT("64", STUDY_32_REGISTERS, STUDY_32_SUMS(0), "%32", "%33", "%34", "%35", "%36");
}
STUDY_INLINE void add_product(float (&d)[64], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                              std::uint64_t b) {
    STUDY_ADD_PRODUCT("128", STUDY_64_REGISTERS, STUDY_64_SUMS, "%64", "%65", "%66", "%67", "%68");
}
#undef STUDY_ADD_PRODUCT
#undef STUDY_MULTIPLY
#undef STUDY_88_SUMS
#undef STUDY_64_SUMS
#undef STUDY_32_SUMS
#undef STUDY_8_SUMS
#undef STUDY_4_SUMS
#undef STUDY_88_REGISTERS
#undef STUDY_64_REGISTERS
#undef STUDY_32_REGISTERS

STUDY_INLINE std::uint32_t shared_address(const void* p) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
/// The descriptor of a wgmma's operand: its address, the distance of its panels of 64 columns if those are
/// contiguous (otherwise 1), the size of eight rows (1024 bytes), and swizzle by 128 bytes; distances in units of 16 bytes.
STUDY_INLINE std::uint64_t descriptor(std::uint32_t address, std::uint32_t panels_apart) {
    return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) | static_cast<std::uint64_t>(panels_apart) << 16 |
           std::uint64_t{1024 / 16} << 32 | std::uint64_t{1} << 62;
}
STUDY_INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
STUDY_INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until all but the youngest N groups are done.
template <int N>
STUDY_INLINE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/// Keeps the compiler from moving uses of these registers over this place.
template <int N>
STUDY_INLINE void pin(float (&r)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int N>
STUDY_INLINE void pin(std::uint32_t (&r)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

STUDY_INLINE void barrier_init(std::uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
STUDY_INLINE void barrier_fence_of_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
STUDY_INLINE void barrier_expect(std::uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
STUDY_INLINE void barrier_arrive(std::uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
STUDY_INLINE bool barrier_try(std::uint32_t barrier, std::uint32_t parity) {
    std::uint32_t is_over;
    asm volatile(
        "{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\nselp.u32 %0, 1, 0, over;\n}"
        : "=r"(is_over)
        : "r"(barrier), "r"(parity)
        : "memory");
    return is_over;
}
/// The consumers' wait. It has no watchdog: a trap on their path makes ptxas serialize the wgmma. The producer's serves
/// for all, since it waits for them in turn.
STUDY_INLINE void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
    while (!barrier_try(barrier, parity)) {
    }
}
STUDY_INLINE std::uint32_t clock_ticks() {
    std::uint32_t t;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
    return t;
}
/// The producer's wait: after some 2^31 ticks (a second) it leaves \p code in the host's memory and ends the launch.
STUDY_INLINE void barrier_wait_watched(std::uint32_t barrier, std::uint32_t parity, unsigned* hang, unsigned code) {
    if (barrier_try(barrier, parity)) return;
    const std::uint32_t begin = clock_ticks();
    while (!barrier_try(barrier, parity)) {
        if (clock_ticks() - begin > 0x80000000u) {
            *static_cast<volatile unsigned*>(hang) = code;
            __threadfence_system();
            __trap();
        }
    }
}

/// A tile of rows from \p row of a head, all its channels, by a map of 64 channels, rows, panels of 64, heads, batch.
STUDY_INLINE void copy_tile(std::uint32_t to, const CUtensorMap* map, int row, int head, int batch,
                            std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], "
        "[%7];" ::"r"(to),
        "l"(map), "r"(0), "r"(row), "r"(0), "r"(head), "r"(batch), "r"(barrier)
        : "memory");
}
/// Rows beyond the tensor's end are not written.
STUDY_INLINE void store_tile(const CUtensorMap* map, int row, int head, int batch, std::uint32_t from) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(map),
                 "r"(0), "r"(row), "r"(0), "r"(head), "r"(batch), "r"(from)
                 : "memory");
}
STUDY_INLINE void copy_bytes(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
STUDY_INLINE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until this thread's stores have read shared memory.
STUDY_INLINE void wait_for_stores() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
STUDY_INLINE void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

STUDY_INLINE void named_barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
STUDY_INLINE void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
template <int N>
STUDY_INLINE void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
STUDY_INLINE void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
STUDY_INLINE float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
STUDY_INLINE std::uint32_t pack(float low, float high) {
    std::uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
STUDY_INLINE void store_shared(std::uint32_t address, std::uint32_t value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
STUDY_INLINE int load_shared(std::uint32_t address) {
    int value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}
STUDY_INLINE float2 load_shared_pair(std::uint32_t address) {
    float2 value;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address) : "memory");
    return value;
}

/// Which batch and head, and which block of rows, a tile is. Tiles go through `heads_at_once` heads together, so that
/// what they read stays in the L2 cache, and within them from block to block.
struct tile_place {
    int head, block;  ///< the head's number counts through the batch
};
STUDY_INLINE tile_place place_of(int tile, int heads_at_once, int all_heads, int blocks, bool is_reversed) {
    const int of_group = heads_at_once * blocks, group = tile / of_group, rest = tile - group * of_group,
              size = min(heads_at_once, all_heads - group * heads_at_once);
    const int block = rest / size, head = group * heads_at_once + rest - block * size;
    return {head, is_reversed ? blocks - 1 - block : block};
}

}  // namespace study
