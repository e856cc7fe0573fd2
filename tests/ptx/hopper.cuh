// SPDX-License-Identifier: MIT
/// \file
/// The instructions of sm_90a that tests/ptx/hopper.cu uses.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda.h>

#include <halftone/number.hpp>

namespace halftone::test::hopper {

__device__ inline unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ inline void mbarrier_init(unsigned at, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
__device__ inline void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void mbarrier_arrive(unsigned at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ inline void mbarrier_expect(unsigned at, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
// If a function contains this twice, its PTX has two labels of the same name.
__device__ inline void mbarrier_wait(unsigned at, unsigned parity) {
    asm volatile(
        "{\n.reg .pred over;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@over bra done;\n"
        "bra again;\ndone:\n}" ::"r"(at),
        "r"(parity)
        : "memory");
}
__device__ inline void bulk_copy(unsigned to, const CUtensorMap* map, int x, int y, unsigned done) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            to),
        "l"(map), "r"(x), "r"(y), "r"(done)
        : "memory");
}
__device__ inline void bulk_copy(unsigned to, const CUtensorMap* map, int x, int y, int z, int w, unsigned done) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(
            to),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(done)
        : "memory");
}
__device__ inline void bulk_store(const CUtensorMap* map, int x, int y, unsigned from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}
__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N>
__device__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
__device__ inline void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void store_matrices(unsigned row, const unsigned (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/// The descriptor of a tile in 128-byte swizzle; is_outer: in panels of 64 outer elements, 8192 bytes apart.
__device__ inline std::uint64_t descriptor(unsigned at, bool is_outer) {
    return std::uint64_t{at >> 4 & 0x3fff} | std::uint64_t{is_outer ? 512u : 1u} << 16 | std::uint64_t{64} << 32 |
           std::uint64_t{1} << 62;
}

#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define SUMS_8(d, j)                                                                                            \
    "+f"(d[j]), "+f"(d[j + 1]), "+f"(d[j + 2]), "+f"(d[j + 3]), "+f"(d[j + 4]), "+f"(d[j + 5]), "+f"(d[j + 6]), \
        "+f"(d[j + 7])
#define SUMS_32(d, j) SUMS_8(d, j), SUMS_8(d, j + 8), SUMS_8(d, j + 16), SUMS_8(d, j + 24)
#define WGMMA(columns, type, list, a_at, b_at, keep_at, a_layout, b_layout, ...)                                    \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #keep_at                                                \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" list "}, %" #a_at \
                 ", %" #b_at ", keep, 1, 1, %" #a_layout ", %" #b_layout ";\n}"                                     \
                 : __VA_ARGS__                                                                                      \
                 : "l"(a), "l"(b), "r"(keep), "n"(int{A}), "n"(int{B}))
#define WGMMA_128(type)                                                                                                \
    WGMMA(128, type, TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60, %61, %62, %63", 64, 65, 66, 67, 68, SUMS_32(d, 0), \
          SUMS_32(d, 32))
template <class T, bool A, bool B>
__device__ void wgmma(float (&d)[64], std::uint64_t a, std::uint64_t b, int keep) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        WGMMA_128("bf16");
    } else {
        WGMMA_128("f16");
    }
}
template <class T, bool A, bool B>
__device__ void wgmma(float (&d)[96], std::uint64_t a, std::uint64_t b, int keep) {
    WGMMA(192, "bf16", TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) "%90, %91, %92, %93, %94, %95", 96,
          97, 98, 99, 100, SUMS_32(d, 0), SUMS_32(d, 32), SUMS_32(d, 64));
}
template <class T, bool A, bool B>
__device__ void wgmma(float (&d)[128], std::uint64_t a, std::uint64_t b, int keep) {
    WGMMA(256, "bf16",
          TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10)
              TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127",
          128, 129, 130, 131, 132, SUMS_32(d, 0), SUMS_32(d, 32), SUMS_32(d, 64), SUMS_32(d, 96));
}

#undef WGMMA_128
#undef WGMMA
#undef SUMS_32
#undef SUMS_8
#undef TEN

}  // namespace halftone::test::hopper
