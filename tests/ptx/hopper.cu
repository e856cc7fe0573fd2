// SPDX-License-Identifier: MIT
/// \file
/// The PTX machine as an sm_90: products by bulk copies of tensors, mbarriers and warpgroups, compared exactly; bulk copies from
/// shared memory; and mistakes in these that it must report.
#include <cmath>
#include <cstdint>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <halftone/number.hpp>

#include "ptx/hopper.cuh"

namespace {

using halftone::bfloat16, halftone::float16;
using namespace halftone::test::hopper;

struct sizes {
    int m, n, k;
};
constexpr int slots = 3, threads = 384;
template <int Columns>
constexpr unsigned slot_bytes = 128 * (128 + Columns);

/// Tiles of 128 rows, one after the other: two warpgroups of consumers, and a thread that issues the copies.
template <class T, int Columns, bool A, bool B>
__global__ void __launch_bounds__(threads)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* out, sizes s) {
    extern __shared__ __align__(1024) unsigned char ring[];
    __shared__ std::uint64_t mbarriers[2 * slots];
    const unsigned base = shared_address(ring), full = shared_address(mbarriers), empty = full + 8 * slots;
    if (threadIdx.x == 0) {
        for (int i = 0; i < slots; ++i) mbarrier_init(full + 8 * i, 1), mbarrier_init(empty + 8 * i, 8);
        mbarrier_init_fence();
    }
    __syncthreads();
    const int columns = (s.n + Columns - 1) / Columns, tiles = (s.m + 127) / 128 * columns, panels = (s.k + 63) / 64;
    int slot = 0;
    unsigned parity = 0;
    const auto step = [&] {
        if (++slot == slots) slot = 0, parity ^= 1;
    };
    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 256) return;
        for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
            const int row = tile / columns * 128, column = tile % columns * Columns;
            for (int i = 0; i < panels; ++i, step()) {
                const unsigned to = base + slot * slot_bytes<Columns>, done = full + 8 * slot;
                mbarrier_wait(empty + 8 * slot, parity ^ 1);
                mbarrier_expect(done, slot_bytes<Columns>);
                if (A) {
                    for (int p = 0; p < 128; p += 64) bulk_copy(to + 128 * p, &a, row + p, 64 * i, done);
                } else {
                    bulk_copy(to, &a, 64 * i, row, done);
                }
                if (B) {
                    for (int p = 0; p < Columns; p += 64) bulk_copy(to + 16384 + 128 * p, &b, column + p, 64 * i, done);
                } else {
                    bulk_copy(to + 16384, &b, 64 * i, column, done);
                }
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int group = static_cast<int>(threadIdx.x) / 128, lane = static_cast<int>(threadIdx.x) % 32;
    float sums[Columns / 2];
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
        int before = -1;
        for (int i = 0; i < panels; ++i, step()) {
            mbarrier_wait(full + 8 * slot, parity);
            const unsigned at = base + slot * slot_bytes<Columns>;
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; ++k)
                wgmma<T, A, B>(sums, descriptor(at + 8192 * group + k * (A ? 2048 : 32), A),
                               descriptor(at + 16384 + k * (B ? 2048 : 32), B), i + k);
            wgmma_commit();
            wgmma_wait<1>();
            if (before >= 0 && lane == 0) mbarrier_arrive(empty + 8 * before);
            before = slot;
        }
        wgmma_wait<0>();
        if (lane == 0) mbarrier_arrive(empty + 8 * before);
        const int row = tile / columns * 128 + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
        const int column = tile % columns * Columns + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < Columns / 2; ++j) {
            const int r = row + j % 4 / 2 * 8, c = column + j / 4 * 8 + j % 2;
            if (r < s.m && c < s.n) out[r * s.n + c] = sums[j];
        }
    }
}

decltype(&cuTensorMapEncodeTiled) encoder() {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status{};
    REQUIRE(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status) ==
            cudaSuccess);
    REQUIRE(status == cudaDriverEntryPointSuccess);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}
struct map_of {
    CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    void* address = nullptr;
    cuuint64_t extents[2] = {64, 64}, pitch = 128;
    cuuint32_t box[2] = {64, 64}, steps[2] = {1, 1};
    CUresult encode(CUtensorMap* to) const {
        return encoder()(to, type, 2, address, extents, &pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                         CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    }
};

/// A matrix in device memory whose row stride is a multiple of 8 elements; the elements between rows are NaN.
template <class T>
struct matrix {
    T* data = nullptr;
    int rows, columns, pitch;
    matrix(int rows_, int columns_) : rows(rows_), columns(columns_), pitch((columns_ + 7) / 8 * 8) {
        REQUIRE(cudaMalloc(&data, sizeof(T) * static_cast<std::size_t>(rows * pitch)) == cudaSuccess);
    }
    ~matrix() { cudaFree(data); }
    matrix(const matrix&) = delete;
    matrix& operator=(const matrix&) = delete;
    template <class F>
    void fill(const F& f) {
        std::vector<T> row(static_cast<std::size_t>(columns));
        for (int r = 0; r < rows; ++r) {
            for (int c = 0; c < columns; ++c) row[static_cast<std::size_t>(c)] = T(static_cast<float>(f(r, c)));
            REQUIRE(cudaMemcpy(data + r * pitch, row.data(), sizeof(T) * row.size(), cudaMemcpyHostToDevice) ==
                    cudaSuccess);
        }
    }
    map_of map(cuuint32_t box_outer) const {
        return {std::is_same_v<T, bfloat16>  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                : std::is_same_v<T, float16> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                             : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                data,
                {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)},
                sizeof(T) * static_cast<cuuint64_t>(pitch),
                {128 / sizeof(T), box_outer}};
    }
};

/// Small whole numbers, whose sums are exact in any order.
int left(int m, int k) { return (m * 5 + k * 3) % 7 - 3; }
int right(int k, int n) { return (k * 2 + n * 11) % 9 - 4; }

template <class T, int Columns, bool A, bool B>
void check_product(sizes s) {
    matrix<T> a(A ? s.k : s.m, A ? s.m : s.k), b(B ? s.k : s.n, B ? s.n : s.k);
    a.fill([](int r, int c) { return A ? left(c, r) : left(r, c); });
    b.fill([](int r, int c) { return B ? right(r, c) : right(c, r); });
    CUtensorMap map_a, map_b;
    REQUIRE(a.map(A ? 64 : 128).encode(&map_a) == CUDA_SUCCESS);
    REQUIRE(b.map(B ? 64 : Columns).encode(&map_b) == CUDA_SUCCESS);
    const std::size_t count = static_cast<std::size_t>(s.m) * static_cast<std::size_t>(s.n);
    float* out = nullptr;
    REQUIRE(cudaMalloc(&out, count * sizeof(float)) == cudaSuccess);
    const auto kernel = product<T, Columns, A, B>;
    const unsigned bytes = slots * slot_bytes<Columns>;
    REQUIRE(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) ==
            cudaSuccess);
    kernel<<<2, threads, bytes>>>(map_a, map_b, out, s);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<float> result(count);
    REQUIRE(cudaMemcpy(result.data(), out, count * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess);
    cudaFree(out);
    int wrong = 0;
    for (int m = 0; m < s.m; ++m) {
        for (int n = 0; n < s.n; ++n) {
            int sum = 0;
            for (int k = 0; k < s.k; ++k) sum += left(m, k) * right(k, n);
            wrong += result[static_cast<std::size_t>(m * s.n + n)] != static_cast<float>(sum);
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("the machine for PTX as an sm_90: products of warpgroups") {
    cudaDeviceProp p;
    REQUIRE(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
    CHECK(p.major == 9);
    SUBCASE("nt") { check_product<bfloat16, 128, false, false>({256, 256, 512}); }
    SUBCASE("nn") { check_product<bfloat16, 128, false, true>({256, 256, 128}); }
    SUBCASE("tn") { check_product<bfloat16, 128, true, true>({256, 256, 128}); }
    SUBCASE("tt") { check_product<bfloat16, 128, true, false>({128, 128, 64}); }
    SUBCASE("nt, with edges") { check_product<bfloat16, 128, false, false>({190, 133, 201}); }
    SUBCASE("nn, with edges") { check_product<float16, 128, false, true>({190, 133, 201}); }
    SUBCASE("tn, with edges") { check_product<float16, 128, true, true>({190, 133, 201}); }
    SUBCASE("192 columns") { check_product<bfloat16, 192, false, true>({130, 200, 100}); }
    SUBCASE("256 columns") { check_product<bfloat16, 256, true, false>({130, 300, 100}); }
}

enum class mistake {
    none,
    unmade_map,
    misaligned_map,
    other_axes,
    swizzle,
    leading,
    stride,
    base_offset,
    start,
    column,
    no_init_fence,
    no_barrier,
    no_wait_for_the_copy,
    no_expectation,
    too_few_bytes,
    too_many_bytes,
    no_wait_for_the_product,
    no_fence,
    overwritten,
    a_warp_less
};

/// A product by one warpgroup, with a mistake: 64 rows, 128 columns, depth 64.
template <mistake M>
__global__ void __launch_bounds__(128)
    one_tile(const __grid_constant__ CUtensorMap a, const CUtensorMap* elsewhere, float* out) {
    extern __shared__ __align__(1024) unsigned char tiles[];
    __shared__ std::uint64_t mbarrier;
    const unsigned at = shared_address(tiles), done = shared_address(&mbarrier);
    if (threadIdx.x == 0) {
        mbarrier_init(done, 1);
        if (M != mistake::no_init_fence) mbarrier_init_fence();
    }
    if (M != mistake::no_barrier) __syncthreads();
    const CUtensorMap* map = M == mistake::unmade_map ? elsewhere : &a;
    if (M == mistake::misaligned_map)
        map = reinterpret_cast<const CUtensorMap*>(reinterpret_cast<const char*>(elsewhere) + 32);
    const auto copy = [&] {
        if (M == mistake::no_expectation) {
            mbarrier_arrive(done);
        } else {
            mbarrier_expect(done, M == mistake::too_few_bytes ? 16384 : M == mistake::too_many_bytes ? 32768 : 24576);
        }
        bulk_copy(at, map, M == mistake::column ? 4 : 0, 0, done);
        bulk_copy(at + 8192, map, 0, 0, done);
        if (M == mistake::other_axes) {
            bulk_copy(at + 16384, map, 0, 64, 0, 0, done);
        } else {
            bulk_copy(at + 16384, map, 0, 64, done);
        }
    };
    if (threadIdx.x == 0) copy();
    if (M != mistake::no_wait_for_the_copy || threadIdx.x < 32) mbarrier_wait(done, 0);
    float sums[64] = {};
    std::uint64_t change = 0;
    if (M == mistake::swizzle) change = std::uint64_t{3} << 62;
    if (M == mistake::leading) change = 513 << 16;
    if (M == mistake::stride) change = std::uint64_t{96} << 32;
    if (M == mistake::base_offset) change = std::uint64_t{1} << 49;
    if (M == mistake::start) change = 1;
    if (M != mistake::no_fence) wgmma_fence();
    if (M != mistake::a_warp_less || threadIdx.x < 96)
        for (int k = 0; k < 4; ++k)
            wgmma<bfloat16, false, false>(sums, descriptor(at + 32 * k, false) ^ change,
                                          descriptor(at + 8192 + 32 * k, false), k);
    wgmma_commit();
    if (M == mistake::overwritten) {
        if (threadIdx.x == 0) copy();
        mbarrier_wait(done, 1);
    }
    if (M == mistake::no_wait_for_the_product) {
        wgmma_wait<1>();
    } else {
        wgmma_wait<0>();
    }
    for (int j = 0; j < 64; ++j) out[threadIdx.x * 64 + j] = sums[j];
}

/// Whether the kernel completes with the right results.
template <mistake M>
bool ends_well() {
    matrix<bfloat16> a(128, M == mistake::column ? 72 : 64);
    a.fill([](int, int) { return 1; });
    CUtensorMap map;
    REQUIRE(a.map(64).encode(&map) == CUDA_SUCCESS);
    float* out = nullptr;
    REQUIRE(cudaMalloc(&out, 128 * 64 * sizeof(float)) == cudaSuccess);
    one_tile<M><<<1, 128, 24 * 1024>>>(map, reinterpret_cast<const CUtensorMap*>(out), out);
    bool is_well = cudaDeviceSynchronize() == cudaSuccess;
    cudaDeviceReset();
    std::vector<float> result(128 * 64);
    REQUIRE(cudaMemcpy(result.data(), out, result.size() * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess);
    for (const float x : result) is_well = is_well && x == 64;
    cudaFree(out);
    return is_well;
}

TEST_CASE("the machine for PTX as an sm_90 finds each deliberate mistake") {
    CHECK(ends_well<mistake::none>());
    CHECK_FALSE(ends_well<mistake::unmade_map>());
    CHECK_FALSE(ends_well<mistake::misaligned_map>());
    CHECK_FALSE(ends_well<mistake::other_axes>());
    CHECK_FALSE(ends_well<mistake::swizzle>());
    CHECK_FALSE(ends_well<mistake::leading>());
    CHECK_FALSE(ends_well<mistake::stride>());
    CHECK_FALSE(ends_well<mistake::base_offset>());
    CHECK_FALSE(ends_well<mistake::start>());
    CHECK_FALSE(ends_well<mistake::column>());
    CHECK_FALSE(ends_well<mistake::no_init_fence>());
    CHECK_FALSE(ends_well<mistake::no_barrier>());
    CHECK_FALSE(ends_well<mistake::no_wait_for_the_copy>());
    CHECK_FALSE(ends_well<mistake::no_expectation>());
    CHECK_FALSE(ends_well<mistake::too_few_bytes>());
    CHECK_FALSE(ends_well<mistake::too_many_bytes>());
    CHECK_FALSE(ends_well<mistake::no_wait_for_the_product>());
    CHECK_FALSE(ends_well<mistake::no_fence>());
    CHECK_FALSE(ends_well<mistake::overwritten>());
    CHECK_FALSE(ends_well<mistake::a_warp_less>());
}

constexpr unsigned box_bytes = 16 * 128;
__device__ unsigned in_box(unsigned row, unsigned chunk) { return row * 128 + (chunk ^ row % 8) * 16; }
/// Small numbers, which are exact in all types.
__host__ __device__ int in_matrix(int row, int column) { return (row * 7 + column * 3) % 101 + 1; }

/// Writes a whole matrix by one warp, beginning before its first element: boxes of 128 bytes by 16 rows, in two alternating
/// buffers.
template <class T>
__global__ void __launch_bounds__(32) write_back(const __grid_constant__ CUtensorMap to, int rows, int columns) {
    extern __shared__ __align__(1024) unsigned char boxes[];
    constexpr int across = 128 / static_cast<int>(sizeof(T));
    const unsigned lane = threadIdx.x;
    unsigned buffer = 0;
    for (int y = -3; y < rows; y += 16) {
        for (int x = -8; x < columns; x += across) {
            const unsigned box = shared_address(boxes) + buffer;
            bulk_wait_read<1>();
            __syncwarp();
            const auto value = [&](unsigned row, unsigned column) {
                return T(static_cast<float>(in_matrix(y + static_cast<int>(row), x + static_cast<int>(column))));
            };
            if constexpr (sizeof(T) == 2) {
                for (unsigned i = 0; i < 8; i += 2) {
                    unsigned words[4];
                    for (unsigned p = 0; p < 4; ++p) {
                        const unsigned row = lane / 4 + p % 2 * 8, column = (i + p / 2) * 8 + lane % 4 * 2;
                        words[p] = value(row, column).bits() | unsigned{value(row, column + 1).bits()} << 16;
                    }
                    store_matrices(box + in_box(lane % 16, i + lane / 16), words);
                }
            } else {
                for (unsigned row = 0; row < 16; ++row)
                    *reinterpret_cast<float*>(boxes + buffer + in_box(row, lane / 4) + lane % 4 * 4) = value(row, lane);
            }
            proxy_fence();
            __syncwarp();
            if (lane == 0) bulk_store(&to, x, y, box);
            bulk_commit();
            buffer ^= box_bytes;
        }
    }
    bulk_wait_read<0>();
}
/// Copies a whole matrix by one thread.
__global__ void pass_on(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, int rows,
                        int columns, int across) {
    extern __shared__ __align__(1024) unsigned char box[];
    __shared__ std::uint64_t mbarrier;
    const unsigned at = shared_address(box), done = shared_address(&mbarrier);
    mbarrier_init(done, 1);
    mbarrier_init_fence();
    unsigned parity = 0;
    for (int y = 0; y < rows; y += 16) {
        for (int x = 0; x < columns; x += across) {
            mbarrier_expect(done, box_bytes);
            bulk_copy(at, &from, x, y, done);
            mbarrier_wait(done, parity);
            parity ^= 1;
            bulk_store(&to, x, y, at);
            bulk_commit();
            bulk_wait_read<0>();
        }
    }
}

template <class T>
void check_write_back(int rows, int columns) {
    const matrix<T> one(rows, columns), two(rows, columns), *const both[] = {&one, &two};
    const auto count = static_cast<std::size_t>(rows * one.pitch);
    CUtensorMap map_one, map_two;
    REQUIRE(one.map(16).encode(&map_one) == CUDA_SUCCESS);
    REQUIRE(two.map(16).encode(&map_two) == CUDA_SUCCESS);
    const std::vector<T> before(count, T(-1.0f));
    for (const matrix<T>* to : both)
        REQUIRE(cudaMemcpy(to->data, before.data(), count * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    write_back<T><<<1, 32, 2 * box_bytes>>>(map_one, rows, columns);
    pass_on<<<1, 1, box_bytes>>>(map_one, map_two, rows, columns, 128 / static_cast<int>(sizeof(T)));
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<T> after(count);
    for (const matrix<T>* from : both) {
        REQUIRE(cudaMemcpy(after.data(), from->data, count * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
        int wrong = 0;
        for (int i = 0; i < rows * one.pitch; ++i) {
            const int row = i / one.pitch, column = i % one.pitch;
            // Stores write whole chunks of 16 bytes. A copy reads zeros beyond a row's end.
            constexpr int chunk = 16 / static_cast<int>(sizeof(T));
            const int written = (columns + chunk - 1) / chunk * chunk;
            const int beyond = from == &one ? in_matrix(row, column) : 0;
            const int want = column < columns ? in_matrix(row, column) : column < written ? beyond : -1;
            wrong += static_cast<float>(after[static_cast<std::size_t>(i)]) != static_cast<float>(want);
        }
        CHECK(wrong == 0);
    }
}
TEST_CASE("the machine for PTX as an sm_90: bulk copies from shared memory") {
    check_write_back<bfloat16>(37, 200);
    check_write_back<float16>(16, 59);
    check_write_back<float>(50, 91);
    check_write_back<float>(1, 1);
}

enum class lapse {
    none,
    misaligned,
    column,
    beyond_shared_memory,
    no_fence,
    fence_of_another,
    fence_too_early,
    no_barrier,
    overwritten,
    overwritten_by_matrices,
    overwritten_by_a_copy,
    no_barrier_before_others_write,
    no_commit,
    no_wait,
    too_weak_a_wait,
    wait_of_another
};

/// A bulk store of a box of 64 by 16 by one warp, with a mistake.
template <lapse M>
__global__ void __launch_bounds__(32) one_box(const __grid_constant__ CUtensorMap to) {
    extern __shared__ __align__(1024) unsigned char boxes[];
    __shared__ std::uint64_t mbarrier;
    const unsigned lane = threadIdx.x, begin = shared_address(boxes), done = shared_address(&mbarrier);
    const auto fill = [&] {
        const unsigned ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
        for (unsigned i = 0; i < 8; i += 2) store_matrices(begin + in_box(lane % 16, i + lane / 16), ones);
    };
    if (M == lapse::fence_too_early) proxy_fence();
    fill();
    if (M == lapse::fence_of_another) __syncwarp();
    if (M == lapse::fence_of_another ? lane == 0 : M != lapse::no_fence && M != lapse::fence_too_early) proxy_fence();
    if (M != lapse::no_barrier) __syncwarp();
    const unsigned skipped = M == lapse::misaligned ? 512 : M == lapse::beyond_shared_memory ? box_bytes : 0;
    if (lane == 0) bulk_store(&to, 0, 0, begin + skipped);
    if (M == lapse::column && lane == 0) bulk_store(&to, 4, 0, begin);
    if (M != lapse::no_commit) bulk_commit();
    if (M == lapse::overwritten && lane == 0) boxes[40] = 0;
    if (M == lapse::overwritten_by_matrices) fill();
    if (M == lapse::overwritten_by_a_copy && lane == 0) {
        mbarrier_init(done, 1);
        mbarrier_init_fence();
        mbarrier_expect(done, box_bytes);
        bulk_copy(begin, &to, 0, 0, done);
        mbarrier_wait(done, 0);
    }
    if (M == lapse::too_weak_a_wait) {
        bulk_wait_read<1>();
    } else if (M == lapse::wait_of_another ? lane != 0 : M != lapse::no_wait) {
        bulk_wait_read<0>();
    }
    if (M != lapse::no_barrier_before_others_write) __syncwarp();
    if (lane == 5 && M != lapse::no_commit && M != lapse::no_wait) boxes[40] = 0;
}

/// Whether the kernel completes with the right results.
template <lapse M>
bool stores_well() {
    matrix<bfloat16> to(16, 64);
    to.fill([](int, int) { return 2; });
    CUtensorMap map;
    REQUIRE(to.map(16).encode(&map) == CUDA_SUCCESS);
    one_box<M><<<1, 32, box_bytes + 512>>>(map);
    bool is_well = cudaDeviceSynchronize() == cudaSuccess;
    cudaDeviceReset();
    std::vector<bfloat16> result(16 * 64);
    REQUIRE(cudaMemcpy(result.data(), to.data, result.size() * 2, cudaMemcpyDeviceToHost) == cudaSuccess);
    for (const bfloat16 x : result) is_well = is_well && static_cast<float>(x) == 1;
    return is_well;
}

TEST_CASE("the machine for PTX as an sm_90 finds each mistake about bulk copies from shared memory") {
    CHECK(stores_well<lapse::none>());
    CHECK_FALSE(stores_well<lapse::misaligned>());
    CHECK_FALSE(stores_well<lapse::column>());
    CHECK_FALSE(stores_well<lapse::beyond_shared_memory>());
    CHECK_FALSE(stores_well<lapse::no_fence>());
    CHECK_FALSE(stores_well<lapse::fence_of_another>());
    CHECK_FALSE(stores_well<lapse::fence_too_early>());
    CHECK_FALSE(stores_well<lapse::no_barrier>());
    CHECK_FALSE(stores_well<lapse::overwritten>());
    CHECK_FALSE(stores_well<lapse::overwritten_by_matrices>());
    CHECK_FALSE(stores_well<lapse::overwritten_by_a_copy>());
    CHECK_FALSE(stores_well<lapse::no_barrier_before_others_write>());
    CHECK_FALSE(stores_well<lapse::no_commit>());
    CHECK_FALSE(stores_well<lapse::no_wait>());
    CHECK_FALSE(stores_well<lapse::too_weak_a_wait>());
    CHECK_FALSE(stores_well<lapse::wait_of_another>());
}

TEST_CASE("the machine for PTX as an sm_90 refuses the tensor maps that the driver refuses") {
    matrix<bfloat16> a(128, 64);
    CUtensorMap map[2];
    CHECK(a.map(256).encode(map) == CUDA_SUCCESS);
    CHECK(a.map(257).encode(map) == CUDA_ERROR_INVALID_VALUE);
    CHECK(a.map(0).encode(map) == CUDA_ERROR_INVALID_VALUE);
    CHECK(a.map(64).encode(reinterpret_cast<CUtensorMap*>(reinterpret_cast<char*>(map) + 32)) ==
          CUDA_ERROR_INVALID_VALUE);
    const auto refuses = [&](const auto& change) {
        map_of other = a.map(64);
        change(other);
        return other.encode(map) != CUDA_SUCCESS;
    };
    CHECK_FALSE(refuses([](map_of&) {}));
    CHECK(refuses([](map_of& m) { m.address = static_cast<char*>(m.address) + 2; }));
    CHECK(refuses([](map_of& m) { m.address = nullptr; }));
    CHECK(refuses([](map_of& m) { m.pitch += 2; }));
    CHECK(refuses([](map_of& m) { m.extents[1] = 0; }));
    CHECK(refuses([](map_of& m) { m.box[0] = 128; }));
    CHECK(refuses([](map_of& m) { m.box[0] = 32; }));
    CHECK(refuses([](map_of& m) { m.steps[1] = 2; }));
    CHECK(refuses([](map_of& m) { m.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32; }));
    CHECK_FALSE(refuses([](map_of& m) { m.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32, m.box[0] = 32; }));
    CHECK(refuses([](map_of& m) { m.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT64, m.box[0] = 16; }));
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status{};
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeSquare", &found, 12000, cudaEnableDefault, &status) ==
          cudaSuccess);
    CHECK((status == cudaDriverEntryPointSymbolNotFound && found == nullptr));
}

__global__ void elect_one(unsigned* out) {
    unsigned is_elected = 0, mine = shared_address(out), same = 0;
    asm volatile(
        "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\nmapa.shared::cluster.u32 %1, %2, 0;\n}"
        : "=r"(is_elected), "=r"(same)
        : "r"(mine));
    out[threadIdx.x] = is_elected + (same == mine ? 2 : 0);
}
TEST_CASE("the machine for PTX as an sm_90 elects a lane") {
    unsigned *out = nullptr, result[64] = {};
    REQUIRE(cudaMalloc(&out, sizeof result) == cudaSuccess);
    elect_one<<<1, 64>>>(out);
    REQUIRE(cudaMemcpy(result, out, sizeof result, cudaMemcpyDeviceToHost) == cudaSuccess);
    for (int i = 0; i < 64; ++i) CHECK(result[i] == (i % 32 == 0 ? 3 : 2));
    cudaFree(out);
}

__global__ void probe(int* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ volatile int line[16];
    line[threadIdx.x % 16] = 1;
    __syncthreads();
    if (out != nullptr) *out = line[0];
#endif
}
TEST_CASE("the machine for PTX reports the shared memory of a kernel's source") {
    cudaFuncAttributes attributes{};
    REQUIRE(cudaFuncGetAttributes(&attributes, probe) == cudaSuccess);
    CHECK(attributes.sharedSizeBytes == 64);
    CHECK(attributes.ptxVersion == 90);
    REQUIRE(cudaFuncGetAttributes(&attributes, one_tile<mistake::none>) == cudaSuccess);
    CHECK(attributes.maxThreadsPerBlock == 128);
}

}  // namespace
