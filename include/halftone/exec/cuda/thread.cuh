// SPDX-License-Identifier: MIT
/// \file
/// The thread handle of exec/simt/simt.hpp on a GPU (sm_80 and later). Each member is one instruction; it has no state.
///
/// Kernels keep their error bounds only under IEEE 754 float arithmetic. nvcc's --use_fast_math, and each of the
/// options that it implies, flushes subnormal floats (and so bfloat16's) to zero or approximates division and roots. No
/// macro shows these options to device code; therefore inline assembly makes the assembler reject such code.
#pragma once

#include <halftone/exec/cuda/warpgroup.cuh>
#include <halftone/exec/simt/architecture.hpp>
#include <halftone/exec/simt/simt.hpp>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "halftone: kernels need an sm_80; compile with -arch=sm_80 or newer, or -arch=native"
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Declared once with one name and type for all kernels, as nvcc demands of dynamic shared memory.
extern __shared__ __align__(1024) unsigned char halftone_shared_memory[];

class cuda_thread {
    template <class T>
    using global_span = simt::global_span<T>;
    template <class T>
    using shared_span = simt::shared_span<T>;
    template <class T>
    using chunk = simt::chunk<T>;
    using word = simt::word;

  public:
    __device__ static int thread() { return static_cast<int>(threadIdx.x); }
    __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
    __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
    __device__ static simt::grid_shape block() {
        return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)};
    }

    template <class T>
    __device__ static std::remove_const_t<T> load(global_span<T> s, extent i) {
        return s.data[i];
    }
    template <class T>
    __device__ static T load(shared_span<T> s, extent i) {
        return pointer(s)[i];
    }
    template <class T>
    __device__ static void store(global_span<T> s, extent i, std::type_identity_t<T> value) {
        s.data[i] = value;
    }
    template <class T>
    __device__ static void store(shared_span<T> s, extent i, std::type_identity_t<T> value) {
        pointer(s)[i] = value;
    }

    __device__ static void barrier() { __syncthreads(); }
    __device__ static void warp_barrier() { __syncwarp(); }
    template <class T>
    __device__ static T shuffle_xor(T value, int mask) {
        return __shfl_xor_sync(~0u, value, mask);
    }
    template <class T>
    __device__ static T shuffle(T value, int lane) {
        return __shfl_sync(~0u, value, lane);
    }
    __device__ static bool any(bool value) { return __any_sync(~0u, value) != 0; }

    // The "memory" clobber orders these after ordinary loads and stores before them; volatile orders them among
    // themselves.
    template <class T>
    __device__ static void async_copy16(shared_span<chunk<T>> to, global_span<const T> from, int valid) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from.data),
                     "r"(valid * static_cast<int>(sizeof(T)))
                     : "memory");
    }
    __device__ static void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
    template <int N>
    __device__ static void async_wait(simt::constant<N>) {
        asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
    }

    template <class T>
    __device__ static simt::vec<word, 4> ldmatrix_x4(shared_span<chunk<T>> row) {
        simt::vec<word, 4> r;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address(row))
                     : "memory");
        return r;
    }
    template <class T>
    __device__ static simt::vec<word, 4> ldmatrix_x4_trans(shared_span<chunk<T>> row) {
        simt::vec<word, 4> r;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address(row))
                     : "memory");
        return r;
    }

    // Neither volatile nor a "memory" clobber: these use registers only, and the assembler should be free to move them.
    __device__ static void mma_16816(simt::element<bfloat16>, simt::vec<float, 4>& d, simt::vec<word, 4> a,
                                     simt::vec<word, 2> b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    __device__ static void mma_16816(simt::element<float16>, simt::vec<float, 4>& d, simt::vec<word, 4> a,
                                     simt::vec<word, 2> b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    __device__ static void mma_1688(simt::element<tfloat32>, simt::vec<float, 4>& d, simt::vec<word, 4> a,
                                    simt::vec<word, 2> b) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    /// About the code, not the GPU: simt::architecture describes the GPU.
#if defined(__CUDA_ARCH__)
    static constexpr bool has_eight_bit_units = simt::architecture_of(__CUDA_ARCH__ / 10).has_eight_bit_units();
#else
    static constexpr bool has_eight_bit_units = false;
#endif
    __device__ static void mma_16832(simt::element<float8_e4m3>, simt::element<float8_e4m3>, simt::vec<float, 4>& d,
                                     simt::vec<word, 4> a, simt::vec<word, 2> b) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    __device__ static void mma_16832(simt::element<float8_e4m3>, simt::element<float8_e5m2>, simt::vec<float, 4>& d,
                                     simt::vec<word, 4> a, simt::vec<word, 2> b) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    __device__ static void mma_16832(simt::element<float8_e5m2>, simt::element<float8_e4m3>, simt::vec<float, 4>& d,
                                     simt::vec<word, 4> a, simt::vec<word, 2> b) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    __device__ static void mma_16832(simt::element<float8_e5m2>, simt::element<float8_e5m2>, simt::vec<float, 4>& d,
                                     simt::vec<word, 4> a, simt::vec<word, 2> b) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    __device__ static word select_bytes(word low, word high, word selector) {
        return __byte_perm(low, high, selector);
    }
    __device__ static word round_tf32(word bits) {
        word r;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(bits)));
        return r;
    }

    // Instructions of Hopper alone: those of warpgroup.cuh.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    static constexpr bool has_wgmma = true;
#else
    static constexpr bool has_wgmma = false;
#endif
    __device__ static int warpgroup() { return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0); }
    using mbarrier_span = shared_span<simt::mbarrier>;
    using hopper = warpgroup_instructions;
    __device__ static void mbarrier_init(mbarrier_span at, int arrivals) { hopper::init(address(at), arrivals); }
    __device__ static void mbarrier_init_fence() { hopper::fence_of_init(); }
    __device__ static void mbarrier_arrive(mbarrier_span at) { hopper::arrive(address(at)); }
    __device__ static void mbarrier_expect(mbarrier_span at, word bytes) { hopper::expect(address(at), bytes); }
    __device__ static void mbarrier_wait(mbarrier_span at, word parity) { hopper::wait(address(at), parity); }
    __device__ static void bulk_copy(word to, const tensor_map& map, int x, int y, mbarrier_span done) {
        hopper::copy(window() + to, map, x, y, address(done));
    }
    __device__ static void bulk_copy(word to, const tensor_map& map, int x, int y, int z, int w, mbarrier_span done) {
        hopper::copy(window() + to, map, x, y, z, w, address(done));
    }
    __device__ static void bulk_store(const tensor_map& map, int x, int y, word from) {
        hopper::store(map, x, y, window() + from);
    }
    __device__ static void bulk_store(const tensor_map& map, int x, int y, int z, int w, word from) {
        hopper::store(map, x, y, z, w, window() + from);
    }
    template <class T>
    __device__ static void stmatrix_x4(shared_span<chunk<T>> row, simt::vec<word, 4> values) {
        hopper::store_matrices(address(row), values);
    }
    __device__ static void bulk_commit() { hopper::commit_stores(); }
    template <int N>
    __device__ static void bulk_wait_read(simt::constant<N>) {
        hopper::wait_for_reads<N>();
    }
    __device__ static void proxy_fence() { hopper::proxy_fence(); }
    template <int N>
    __device__ static void fewer_registers(simt::constant<N>) {
        hopper::fewer_registers<N>();
    }
    template <int N>
    __device__ static void more_registers(simt::constant<N>) {
        hopper::more_registers<N>();
    }
    __device__ static void wgmma_fence() { hopper::fence(); }
    template <class T, bool A, bool B, int Blocks>
    __device__ static void wgmma(simt::element<T>, simt::vec<float, 4> (&sums)[Blocks], simt::wgmma_operand<A> a,
                                 simt::wgmma_operand<B> b, bool keep) {
        wgmma_of<T, A, B>(sums, hopper::descriptor<A>(window() + a.offset), hopper::descriptor<B>(window() + b.offset), keep);
    }
    template <class T, bool B, int Blocks>
    __device__ static void wgmma(simt::element<T>, simt::vec<float, 4> (&sums)[Blocks], const simt::vec<word, 4>& a,
                                 simt::wgmma_operand<B> b, bool keep) {
        wgmma_of<T, B>(sums, a, hopper::descriptor<B>(window() + b.offset), keep);
    }
    __device__ static void wgmma_commit() { hopper::commit(); }
    template <int Blocks>
    __device__ static void hold(simt::vec<float, 4> (&values)[Blocks]) {
        HALFTONE_UNROLL for (int j = 0; j < Blocks; ++j) {
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(values[j][e])::"memory");
        }
    }
    template <int Blocks>
    __device__ static void hold(simt::vec<word, 4> (&values)[Blocks]) {
        HALFTONE_UNROLL for (int j = 0; j < Blocks; ++j) {
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) asm volatile("" : "+r"(values[j][e])::"memory");
        }
    }
    template <int N, int Blocks>
    __device__ static void wgmma_wait(simt::constant<N>, simt::vec<float, 4> (&sums)[Blocks]) {
        hopper::wait_for_all_but<N>();
        if constexpr (N == 0) hold(sums);
    }

  private:
    __device__ static word window() { return static_cast<word>(__cvta_generic_to_shared(halftone_shared_memory)); }
    template <class T>
    __device__ static T* pointer(shared_span<T> s) {
        return reinterpret_cast<T*>(halftone_shared_memory + s.offset);
    }
    template <class T>
    __device__ static word address(shared_span<T> s) {
        return window() + s.offset;
    }
};
static_assert(simt::thread_handle<cuda_thread>);

// Not in debug code (-G), in which dead code may remain.
#if defined(__CUDA_ARCH__) && !defined(__clang__) && !defined(__CUDACC_DEBUG__)
extern "C" __device__ int __nvvm_reflect(const void* option);  // a compile-time constant: the value of an option of nvcc's
#endif

/// Part of every kernel: nothing under IEEE 754 arithmetic, otherwise an assembly error that contains the message.
__device__ HALFTONE_INLINE void expect_exact_arithmetic() {
#if defined(__CUDA_ARCH__) && !defined(__clang__) && !defined(__CUDACC_DEBUG__)
    constexpr bool knows_all = __CUDACC_VER_MAJOR__ >= 13;  // older ones return 0 for names that they do not know
    if (__nvvm_reflect("__CUDA_FTZ") != 0 ||
        (knows_all && (__nvvm_reflect("__CUDA_PREC_DIV") == 0 || __nvvm_reflect("__CUDA_PREC_SQRT") == 0)))
        asm volatile(
            "\"halftone: kernels keep their stated errors in IEEE 754's arithmetic alone: compile this file without "
            "--use_fast_math, -ftz=true, -prec-div=false and -prec-sqrt=false\";");
#endif
}

// Hidden visibility: if several libraries in one program use halftone, each launches the kernels that it registered
// itself.
#pragma GCC visibility push(hidden)

/// The minimum number of blocks of a kernel that a multiprocessor should hold at a time: a kernel may set it by
/// `static constexpr int min_blocks`; the compiler then limits its registers accordingly.
template <class Kernel>
consteval int min_blocks_of() {
    if constexpr (requires { Kernel::min_blocks; }) {
        return Kernel::min_blocks;
    } else {
        return 0;
    }
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, min_blocks_of<Kernel>())
    kernel_entry(const __grid_constant__ Kernel kernel) {
    expect_exact_arithmetic();
    kernel(cuda_thread{});
}

/// Calls a function by one thread, in order with the stream's other work.
// local memory of `void function_entry<*`: at most 40 bytes of stack. The arguments of a cosine, in what one thread does once a step.
template <class Function>
__global__ void function_entry(const __grid_constant__ Function function) {
    expect_exact_arithmetic();
    function();
}

/// A kernel whose code uses static shared memory exactly if it was compiled for sm_90a: the host reads the size to find
/// out. A template, as kernels in headers must be.
template <int Words>
__global__ void wgmma_probe(int* to) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ volatile int here[Words];
    here[threadIdx.x % Words] = static_cast<int>(threadIdx.x);
    *to = here[0];
#else
    static_cast<void>(to);
#endif
}

template <class T>
__global__ void fill_entry(T* to, extent n, T value) {
    for (extent i = static_cast<extent>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += static_cast<extent>(gridDim.x) * blockDim.x)
        to[i] = value;
}

#pragma GCC visibility pop

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
