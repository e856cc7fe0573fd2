// SPDX-License-Identifier: MIT
/// \file
/// Hopper's instructions (sm_90a) behind exec/simt/simt.hpp: mbarriers in shared memory, which count arrivals and
/// bytes; bulk tensor copies by the tensor memory accelerator; and wgmma, matrix instructions of four warps that read
/// shared memory. PTX ISA: "mbarrier", "cp.async.bulk.tensor", "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include <halftone/exec/cuda/tensor_map.cuh>
#include <halftone/exec/simt/simt.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

// The registers of a lane's part of 64 x 64, 64 x 128, 64 x 192 and 64 x 256 sums, listed as inline assembly demands.
#define HALFTONE_32_REGISTERS \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HALFTONE_64_REGISTERS \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
    "%59, %60, %61, %62, %63"
#define HALFTONE_96_REGISTERS \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
    "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
    "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define HALFTONE_128_REGISTERS \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
    "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
    "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, " \
    "%101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, " \
    "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define HALFTONE_4_SUMS(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define HALFTONE_16_SUMS(j) \
    HALFTONE_4_SUMS(j), HALFTONE_4_SUMS(j + 1), HALFTONE_4_SUMS(j + 2), HALFTONE_4_SUMS(j + 3)
#define HALFTONE_32_SUMS HALFTONE_16_SUMS(0), HALFTONE_16_SUMS(4)
#define HALFTONE_64_SUMS HALFTONE_32_SUMS, HALFTONE_16_SUMS(8), HALFTONE_16_SUMS(12)
#define HALFTONE_96_SUMS HALFTONE_64_SUMS, HALFTONE_16_SUMS(16), HALFTONE_16_SUMS(20)
#define HALFTONE_128_SUMS HALFTONE_96_SUMS, HALFTONE_16_SUMS(24), HALFTONE_16_SUMS(28)
// A, B, KEEP, TA, TB: the numbers of the asm operands after the sums.
#define HALFTONE_WGMMA(N, TYPE, REGISTERS, SUMS, A, B, KEEP, TA, TB)                                    \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP                                         \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" REGISTERS    \
                 "}, " A ", " B ", keep, 1, 1, " TA ", " TB ";\n}"                                      \
                 : SUMS                                                                                 \
                 : "l"(a), "l"(b), "r"(keep), "n"(TransA), "n"(TransB)                                  \
                 : "memory")

// A product as HALFTONE_WGMMA's, with a in registers. A0 to A3: the numbers of its words' asm operands.
#define HALFTONE_WGMMA_OF_WORDS(N, TYPE, REGISTERS, SUMS, A0, A1, A2, A3, B, KEEP, TB)                  \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP                                         \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" REGISTERS    \
                 "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B ", keep, 1, 1, " TB ";\n}"                   \
                 : SUMS                                                                                 \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(TransB)           \
                 : "memory")

template <class T, int TransA, int TransB>
__device__ HALFTONE_INLINE void wgmma_of(simt::vec<float, 4> (&d)[8], std::uint64_t a, std::uint64_t b, int keep) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        HALFTONE_WGMMA("64", "bf16", HALFTONE_32_REGISTERS, HALFTONE_32_SUMS, "%32", "%33", "%34", "%35", "%36");
    } else {
        HALFTONE_WGMMA("64", "f16", HALFTONE_32_REGISTERS, HALFTONE_32_SUMS, "%32", "%33", "%34", "%35", "%36");
    }
}
template <class T, int TransA, int TransB>
__device__ HALFTONE_INLINE void wgmma_of(simt::vec<float, 4> (&d)[16], std::uint64_t a, std::uint64_t b, int keep) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        HALFTONE_WGMMA("128", "bf16", HALFTONE_64_REGISTERS, HALFTONE_64_SUMS, "%64", "%65", "%66", "%67", "%68");
    } else {
        HALFTONE_WGMMA("128", "f16", HALFTONE_64_REGISTERS, HALFTONE_64_SUMS, "%64", "%65", "%66", "%67", "%68");
    }
}
template <class T, int TransB>
__device__ HALFTONE_INLINE void wgmma_of(simt::vec<float, 4> (&d)[8], const simt::vec<simt::word, 4>& a, std::uint64_t b,
                                         int keep) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        HALFTONE_WGMMA_OF_WORDS("64", "bf16", HALFTONE_32_REGISTERS, HALFTONE_32_SUMS, "%32", "%33", "%34", "%35", "%36",
                                "%37", "%38");
    } else {
        HALFTONE_WGMMA_OF_WORDS("64", "f16", HALFTONE_32_REGISTERS, HALFTONE_32_SUMS, "%32", "%33", "%34", "%35", "%36",
                                "%37", "%38");
    }
}
template <class T, int TransB>
__device__ HALFTONE_INLINE void wgmma_of(simt::vec<float, 4> (&d)[16], const simt::vec<simt::word, 4>& a, std::uint64_t b,
                                         int keep) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        HALFTONE_WGMMA_OF_WORDS("128", "bf16", HALFTONE_64_REGISTERS, HALFTONE_64_SUMS, "%64", "%65", "%66", "%67", "%68",
                                "%69", "%70");
    } else {
        HALFTONE_WGMMA_OF_WORDS("128", "f16", HALFTONE_64_REGISTERS, HALFTONE_64_SUMS, "%64", "%65", "%66", "%67", "%68",
                                "%69", "%70");
    }
}
template <class T, int TransA, int TransB>
__device__ HALFTONE_INLINE void wgmma_of(simt::vec<float, 4> (&d)[24], std::uint64_t a, std::uint64_t b, int keep) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        HALFTONE_WGMMA("192", "bf16", HALFTONE_96_REGISTERS, HALFTONE_96_SUMS, "%96", "%97", "%98", "%99", "%100");
    } else {
        HALFTONE_WGMMA("192", "f16", HALFTONE_96_REGISTERS, HALFTONE_96_SUMS, "%96", "%97", "%98", "%99", "%100");
    }
}
template <class T, int TransA, int TransB>
__device__ HALFTONE_INLINE void wgmma_of(simt::vec<float, 4> (&d)[32], std::uint64_t a, std::uint64_t b, int keep) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        HALFTONE_WGMMA("256", "bf16", HALFTONE_128_REGISTERS, HALFTONE_128_SUMS, "%128", "%129", "%130", "%131", "%132");
    } else {
        HALFTONE_WGMMA("256", "f16", HALFTONE_128_REGISTERS, HALFTONE_128_SUMS, "%128", "%129", "%130", "%131", "%132");
    }
}
#undef HALFTONE_WGMMA_OF_WORDS
#undef HALFTONE_WGMMA
#undef HALFTONE_128_SUMS
#undef HALFTONE_96_SUMS
#undef HALFTONE_64_SUMS
#undef HALFTONE_32_SUMS
#undef HALFTONE_16_SUMS
#undef HALFTONE_4_SUMS
#undef HALFTONE_128_REGISTERS
#undef HALFTONE_96_REGISTERS
#undef HALFTONE_64_REGISTERS
#undef HALFTONE_32_REGISTERS

/// Shared-memory addresses are 32-bit byte offsets in the shared window, as PTX defines them.
class warpgroup_instructions {
    using word = simt::word;

  public:
    static __device__ void init(word barrier, int arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
    }
    static __device__ void fence_of_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
    static __device__ void arrive(word barrier) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    }
    static __device__ void expect(word barrier, word bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    }
    /// Each try may suspend the warp for a while.
    static __device__ void wait(word barrier, word parity) {
        word is_over = 0;
        while (is_over == 0) {
            asm volatile("{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
                         "selp.b32 %0, 1, 0, over;\n}"
                         : "=r"(is_over)
                         : "r"(barrier), "r"(parity)
                         : "memory");
        }
    }
    static __device__ void copy(word to, const tensor_map& map, int x, int y, word barrier) {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(barrier)
                     : "memory");
    }
    static __device__ void copy(word to, const tensor_map& map, int x, int y, int z, int w, word barrier) {
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
                     "[%6];" ::"r"(to),
                     "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
                     : "memory");
    }
    static __device__ void store(const tensor_map& map, int x, int y, int z, int w, word from) {
        asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map), "r"(x),
                     "r"(y), "r"(z), "r"(w), "r"(from)
                     : "memory");
    }
    static __device__ void store(const tensor_map& map, int x, int y, word from) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y),
                     "r"(from)
                     : "memory");
    }
    static __device__ void store_matrices(word row, const simt::vec<word, 4>& r) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(r[0]), "r"(r[1]),
                     "r"(r[2]), "r"(r[3])
                     : "memory");
    }
    static __device__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
    template <int N>
    static __device__ void wait_for_reads() {
        asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
    }
    static __device__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
    template <int N>
    static __device__ void fewer_registers() {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
    }
    template <int N>
    static __device__ void more_registers() {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
    }

    static __device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
    static __device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
    template <int N>
    static __device__ void wait_for_all_but() {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
    }
    /// A wgmma matrix descriptor: the operand's address, the distance of panels of 64 outer elements if the outer axis
    /// is contiguous (8192 bytes; unused otherwise), the distance of groups of eight rows (1024 bytes), and 128-byte
    /// swizzle; in units of 16 bytes.
    template <bool IsOuter>
    static __device__ std::uint64_t descriptor(word address) {
        constexpr std::uint64_t panels_apart = IsOuter ? 8192 / 16 : 1, row_step_bytes = 1024 / 16, swizzle = 1;
        return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) | panels_apart << 16 | row_step_bytes << 32 | swizzle << 62;
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
