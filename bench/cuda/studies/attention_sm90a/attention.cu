// SPDX-License-Identifier: MIT
/// \file
/// Checks variants of forward.cuh and backward.cuh against plain kernels, then times them. A parent without CUDA starts
/// a child that runs the cases; where the child dies (a watchdog's trap, a hang), another goes on with the next case.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backward.cuh"
#include "forward.cuh"

namespace study {
namespace {

using bf16 = __nv_bfloat16;

constexpr std::size_t guard_bytes = 65536;  // behind each result, which must stay as they are
constexpr int timed_runs = 16, plain_rows = 8000;
constexpr std::size_t scratch_floats = 2 * 8000 * 1000;

unsigned *hang_of_host = nullptr, *hang = nullptr, *counter = nullptr;
int multiprocessors = 132;
cudaStream_t stream;
float *scratch, *errors;
long* rows_on_device;

#define CHECK(x)                                                                                                  \
    do {                                                                                                          \
        if (const cudaError_t error = (x); error != cudaSuccess) {                                                \
            std::printf("%s:%d %s: %s (watchdog's code %u)\n", __FILE__, __LINE__, #x, cudaGetErrorString(error), \
                        hang_of_host ? *static_cast<volatile unsigned*>(hang_of_host) : 0u);                      \
            std::fflush(stdout);                                                                                  \
            _exit(3);                                                                                             \
        }                                                                                                         \
    } while (0)

// ---- Plain kernels: a block of 256 threads a row, in float.

__device__ __host__ inline unsigned mix(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}
/// Uniform in [-1, 1).
__global__ void fill(bf16* p, std::size_t n, unsigned seed) {
    for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < n;
         i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
        p[i] = __float2bfloat16(mix(static_cast<unsigned>(i) * 2654435761u + seed) * (2.f / 4294967296.f) - 1.f);
    }
}
template <bool IsMaximum>
__device__ float over_block(float v, float* shared) {
    __syncthreads();
    shared[threadIdx.x] = v;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) {
            const float a = shared[threadIdx.x], b = shared[threadIdx.x + s];
            shared[threadIdx.x] = IsMaximum ? fmaxf(a, b) : a + b;
        }
        __syncthreads();
    }
    const float r = shared[0];
    __syncthreads();
    return r;
}
struct plain_shape {
    int length, heads, head_size, is_causal;
};
/// Row (a head's number * length + row) of the output and its logsumexp in float; thread d < head_size has channel d,
/// and the sum of magnitudes that it is made of.
__device__ void plain_row(const bf16* q, const bf16* k, const bf16* v, long id, float* scores, const plain_shape& p,
                          float& output, float& magnitude, float& logsumexp) {
    __shared__ float query[128], shared[256], part[256], magnitudes[256];
    const int D = p.head_size, row = id % p.length, head = id / p.length, tid = threadIdx.x;
    const std::size_t step = static_cast<std::size_t>(p.heads) * D,
                      at = (static_cast<std::size_t>(head / p.heads) * p.length * p.heads + head % p.heads) * D;
    if (tid < D) query[tid] = __bfloat162float(q[at + row * step + tid]);
    __syncthreads();
    const int n = p.is_causal ? row + 1 : p.length;
    float maximum = -INFINITY, sum = 0, a = 0, m = 0;
    for (int j = tid; j < n; j += 256) {
        float x = 0;
        for (int d = 0; d < D; ++d) x += query[d] * __bfloat162float(k[at + j * step + d]);
        scores[j] = x *= rsqrtf(static_cast<float>(D));
        maximum = fmaxf(maximum, x);
    }
    maximum = over_block<true>(maximum, shared);
    for (int j = tid; j < n; j += 256) sum += scores[j] = expf(scores[j] - maximum);
    sum = over_block<false>(sum, shared);
    for (int j = tid / D; j < n; j += 256 / D) {
        const float x = scores[j] * __bfloat162float(v[at + j * step + tid % D]);
        a += x, m += fabsf(x);
    }
    part[tid] = a, magnitudes[tid] = m;
    __syncthreads();
    output = magnitude = 0;
    if (tid < D) {
        for (int i = tid; i < 256; i += D) output += part[i], magnitude += magnitudes[i];
        output /= sum, magnitude /= sum;
    }
    logsumexp = maximum + logf(sum);
}
__global__ void plain_forward(const bf16* q, const bf16* k, const bf16* v, bf16* o, float* logsumexp, float* scratch,
                              plain_shape p) {
    const long id = blockIdx.x;
    const int D = p.head_size, row = id % p.length, head = id / p.length;
    float output, magnitude, l;
    plain_row(q, k, v, id, scratch + id * p.length, p, output, magnitude, l);
    if (threadIdx.x < D) {
        o[((static_cast<std::size_t>(head / p.heads) * p.length + row) * p.heads + head % p.heads) * D + threadIdx.x] =
            __float2bfloat16(output);
    }
    if (threadIdx.x == 0) logsumexp[id] = l;
}
/// Of each listed row: sums of squares of errors and of what is right, the largest error of a sum's magnitudes, and
/// that of the logsumexp.
__global__ void check_forward(const bf16* q, const bf16* k, const bf16* v, const bf16* o, const float* logsumexp,
                              const long* rows, float* scratch, float* errors, plain_shape p) {
    __shared__ float shared[256];
    const long id = rows[blockIdx.x];
    const int D = p.head_size, row = id % p.length, head = id / p.length;
    float output, magnitude, l, e = 0;
    plain_row(q, k, v, id, scratch + static_cast<std::size_t>(blockIdx.x) * p.length, p, output, magnitude, l);
    if (threadIdx.x < D) {
        e = __bfloat162float(
                o[((static_cast<std::size_t>(head / p.heads) * p.length + row) * p.heads + head % p.heads) * D +
                  threadIdx.x]) -
            output;
    }
    const bool is_bad = !(fabsf(e) < 1e30f);
    const float error = over_block<false>(is_bad ? 1e30f : e * e, shared),
                right = over_block<false>(output * output, shared),
                worst = over_block<true>(is_bad ? 1e30f : fabsf(e) / (magnitude + 1e-30f), shared);
    if (threadIdx.x == 0) {
        const float of_logsumexp = fabsf(logsumexp[id] - l);
        float* to = errors + blockIdx.x * 6;
        to[0] = error, to[1] = right, to[2] = worst;
        to[3] = of_logsumexp < 1e30f ? of_logsumexp / fmaxf(1.f, fabsf(l)) : 1e30f;
    }
}
/// Of each listed row (of keys: dk and then dv; of queries: dq), from the output and the logsumexp of the forward pass:
/// sums of squares of errors and of what is right, and the largest error of a sum's magnitudes.
template <bool IsOfKeys>
__global__ void check_backward(const bf16* q, const bf16* k, const bf16* v, const bf16* o, const bf16* d_o,
                               const float* logsumexp, const bf16* dq, const bf16* dk, const bf16* dv, const long* rows,
                               float* scratch, float* errors, plain_shape p) {
    __shared__ float xs[128], ys[128], shared[256], parts[4][256];
    const long id = rows[blockIdx.x];
    const int D = p.head_size, T = p.length, row = id % T, head = id / T, tid = threadIdx.x;
    const std::size_t step = static_cast<std::size_t>(p.heads) * D,
                      at = (static_cast<std::size_t>(head / p.heads) * T * p.heads + head % p.heads) * D;
    float *probabilities = scratch + static_cast<std::size_t>(blockIdx.x) * 2 * T, *ds = probabilities + T;
    if (tid < D) {
        xs[tid] = __bfloat162float((IsOfKeys ? k : q)[at + row * step + tid]);
        ys[tid] = __bfloat162float((IsOfKeys ? v : d_o)[at + row * step + tid]);
    }
    __syncthreads();
    const int from = p.is_causal && IsOfKeys ? row : 0, to = p.is_causal && !IsOfKeys ? row + 1 : T;
    const float scale = rsqrtf(static_cast<float>(D));
    float own_delta = 0;
    if (!IsOfKeys) {
        for (int d = 0; d < D; ++d) own_delta += ys[d] * __bfloat162float(o[at + row * step + d]);
    }
    for (int j = from + tid; j < to; j += 256) {
        float s = 0, dp = 0, delta = own_delta;
        for (int d = 0; d < D; ++d) {
            s += xs[d] * __bfloat162float((IsOfKeys ? q : k)[at + j * step + d]);
            const float y = __bfloat162float((IsOfKeys ? d_o : v)[at + j * step + d]);
            dp += ys[d] * y;
            if (IsOfKeys) delta += y * __bfloat162float(o[at + j * step + d]);
        }
        const float x = expf(s * scale - logsumexp[static_cast<std::size_t>(head) * T + (IsOfKeys ? j : row)]);
        probabilities[j] = x, ds[j] = x * (dp - delta) * scale;
    }
    __syncthreads();
    float sums[4] = {0, 0, 0, 0};  // dk or dq and its magnitudes, dv and its magnitudes
    for (int j = from + tid / D; j < to; j += 256 / D) {
        const float x = ds[j] * __bfloat162float((IsOfKeys ? q : k)[at + j * step + tid % D]);
        sums[0] += x, sums[1] += fabsf(x);
        if (IsOfKeys) {
            const float y = probabilities[j] * __bfloat162float(d_o[at + j * step + tid % D]);
            sums[2] += y, sums[3] += fabsf(y);
        }
    }
    for (int i = 0; i < 4; ++i) parts[i][tid] = sums[i];
    __syncthreads();
    for (int z = 0; z <= IsOfKeys; ++z) {
        float right = 0, magnitude = 0, e = 0;
        if (tid < D) {
            for (int i = tid; i < 256; i += D) right += parts[2 * z][i], magnitude += parts[2 * z + 1][i];
            e = __bfloat162float((z ? dv : IsOfKeys ? dk : dq)[at + row * step + tid]) - right;
        }
        const bool is_bad = !(fabsf(e) < 1e30f);
        const float error = over_block<false>(is_bad ? 1e30f : e * e, shared),
                    square = over_block<false>(right * right, shared),
                    worst = over_block<true>(is_bad ? 1e30f : fabsf(e) / (magnitude + 1e-4f), shared);
        if (tid == 0) {
            float* result = errors + blockIdx.x * 6 + 3 * z;
            result[0] = error, result[1] = square, result[2] = worst;
        }
    }
}

// ---- Variants and how they are launched.

struct shape {
    int batch, length, heads, head_size, is_causal;

    std::size_t elements() const { return static_cast<std::size_t>(batch) * length * heads * head_size; }
    long rows() const { return static_cast<long>(batch) * heads * length; }
    plain_shape plain() const { return {length, heads, head_size, is_causal}; }
    /// Of a product of all queries and keys by a head's channels.
    double operations() const {
        return 2.0 * batch * heads * static_cast<double>(length) * length * head_size * (is_causal ? 0.5 : 1);
    }
};
/// (batch, length, heads, head size), contiguous. The vectors are (batch, heads, length).
struct tensors {
    bf16 *q, *k, *v, *d_o, *o, *dq, *dk, *dv;
    float *logsumexp, *logsumexp2, *delta;
};
/// As many heads at once as have `most` times 16,384 keys; 0: all.
int heads_at_once(const shape& s, int most) {
    if (most == 0) return s.batch * s.heads;
    return std::min(s.batch * s.heads, s.length < 8192 ? most * (16384 / s.length) : most);
}

struct forward_variant {
    const char* name;
    bool is_persistent;  ///< a block a multiprocessor takes tiles by a counter; else a block a tile
    void* kernel;
    int head_size, queries, keys, threads, shared_bytes;
};
template <class C>
forward_variant forward_of(const char* name, bool is_persistent) {
    return {name,       is_persistent,  reinterpret_cast<void*>(&forward<C>), C::head_size, C::queries, C::keys,
            C::threads, C::shared_bytes};
}
// forward_config: head size, keys, warpgroups, stages, taking turns, output apart, lazy maximum.
const std::vector<forward_variant> forward_variants = {
    forward_of<forward_config<128, 128, 2, 2, true, true, false>>("128 keys, persistent", true),
    forward_of<forward_config<128, 128, 2, 2, true, true, true>>("128 keys, persistent, lazy maximum", true),
    forward_of<forward_config<128, 128, 2, 2, true, false, false>>("128 keys, a block a tile", false),
    forward_of<forward_config<128, 176, 2, 2, true, false, true>>("176 keys, persistent, lazy maximum", true),
    forward_of<forward_config<64, 128, 3, 4, false, true, false>>("3 warpgroups, persistent", true),
    forward_of<forward_config<64, 128, 2, 4, true, true, false>>("2 warpgroups, turns, persistent", true),
};
struct backward_variant {
    const char* name;
    int most_heads;
    void *keys_kernel, *queries_kernel;
    int head_size, query_rows, key_rows, keys_shared_bytes, queries_shared_bytes;
};
template <class ByKeys, class ByQueries>
backward_variant backward_of(const char* name, int most_heads) {
    return {name,
            most_heads,
            reinterpret_cast<void*>(&by_keys<ByKeys>),
            reinterpret_cast<void*>(&by_queries<ByQueries>),
            ByKeys::head_size,
            ByKeys::rows,
            ByQueries::rows,
            ByKeys::shared_bytes,
            ByQueries::shared_bytes};
}
// backward_config: head size, rows, stages, shared registers. First by keys, then by queries.
const std::vector<backward_variant> backward_variants = {
    backward_of<backward_config<128, 64, 3, true>, backward_config<128, 64, 3>>("64 queries, 64 keys", 4),
    backward_of<backward_config<128, 64, 3, true>, backward_config<128, 64, 3>>("64 queries, 64 keys, all heads", 0),
    backward_of<backward_config<64, 64, 4>, backward_config<64, 64, 4>>("64 queries, 64 keys", 4),
    backward_of<backward_config<64, 64, 4, true>, backward_config<64, 128, 4>>("64 queries shared, 128 keys", 4),
    backward_of<backward_config<64, 64, 4>, backward_config<64, 128, 4>>("64 queries, 128 keys", 4),
};

using encode_function = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                     const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                     CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
encode_function encode = nullptr;

CUtensorMap map_of(const bf16* p, const shape& s, int rows) {
    CUtensorMap map;
    const auto wide = [](auto x) { return static_cast<cuuint64_t>(x); };
    const cuuint64_t row = wide(s.heads) * s.head_size * 2;
    const cuuint64_t extents[5] = {64, wide(s.length), wide(s.head_size / 64), wide(s.heads), wide(s.batch)};
    const cuuint64_t strides[4] = {row, 128, wide(s.head_size) * 2, row * s.length};
    const cuuint32_t box[5] = {64, static_cast<cuuint32_t>(rows), static_cast<cuuint32_t>(s.head_size / 64), 1, 1},
                     ones[5] = {1, 1, 1, 1, 1};
    const CUresult r = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, const_cast<bf16*>(p), extents, strides, box,
                              ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS) {
        std::printf("cuTensorMapEncodeTiled: %d\n", static_cast<int>(r));
        std::fflush(stdout);
        _exit(4);
    }
    return map;
}

/// \p blocks of the grid; 0: as the variant has it.
void launch_forward(const forward_variant& x, const shape& s, const tensors& t, int blocks = 0) {
    CUtensorMap q = map_of(t.q, s, 64), k = map_of(t.k, s, x.keys), v = map_of(t.v, s, x.keys), o = map_of(t.o, s, 64);
    forward_arguments p{};
    p.logsumexp = t.logsumexp, p.length = s.length, p.heads = s.heads, p.all_heads = s.batch * s.heads;
    p.blocks = (s.length + x.queries - 1) / x.queries, p.heads_at_once = heads_at_once(s, 4);
    p.tiles = p.all_heads * p.blocks, p.is_causal = s.is_causal, p.is_by_counter = x.is_persistent;
    p.scale = 1.44269504089f / std::sqrt(static_cast<float>(s.head_size)), p.counter = counter, p.hang = hang;
    const int most = blocks ? blocks : x.is_persistent ? multiprocessors : p.tiles;
    CHECK(cudaFuncSetAttribute(x.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, x.shared_bytes));
    void* arguments[] = {&q, &k, &v, &o, &p};
    CHECK(cudaLaunchKernel(x.kernel, dim3(std::min(p.tiles, most)), dim3(x.threads), arguments,
                           static_cast<std::size_t>(x.shared_bytes), stream));
}

enum backward_part { preparation = 1, keys_part = 2, queries_part = 4, all_parts = 7 };

void launch_backward(const backward_variant& x, const shape& s, const tensors& t, int parts) {
    const auto tile = [&](const bf16* p, int rows) { return map_of(p, s, rows); };
    CUtensorMap k = tile(t.k, 64), v = tile(t.v, 64), q = tile(t.q, 64), d_o = tile(t.d_o, 64), dk = tile(t.dk, 64),
                dv = tile(t.dv, 64), dq = tile(t.dq, 64), q_rows = tile(t.q, x.query_rows),
                d_o_rows = tile(t.d_o, x.query_rows), k_rows = tile(t.k, x.key_rows), v_rows = tile(t.v, x.key_rows);
    backward_arguments p{};
    p.logsumexp2 = t.logsumexp2, p.delta = t.delta, p.length = s.length, p.padded = (s.length + 127) / 128 * 128;
    p.heads = s.heads, p.all_heads = s.batch * s.heads, p.blocks = (s.length + 127) / 128;
    p.heads_at_once = heads_at_once(s, x.most_heads), p.tiles = p.all_heads * p.blocks, p.is_causal = s.is_causal;
    p.scale = 1.f / std::sqrt(static_cast<float>(s.head_size)), p.scale2 = p.scale * 1.44269504089f, p.hang = hang;
    CHECK(cudaFuncSetAttribute(x.keys_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, x.keys_shared_bytes));
    CHECK(cudaFuncSetAttribute(x.queries_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, x.queries_shared_bytes));
    if (parts & preparation) {
        prepare_backward<<<(p.all_heads * p.padded + 7) / 8, 256, 0, stream>>>(
            t.o, t.d_o, t.logsumexp, t.logsumexp2, t.delta, p.length, p.padded, p.heads, p.all_heads, s.head_size);
        CHECK(cudaGetLastError());
    }
    if (parts & keys_part) {
        void* arguments[] = {&k, &v, &q_rows, &d_o_rows, &dk, &dv, &p};
        CHECK(cudaLaunchKernel(x.keys_kernel, dim3(p.tiles), dim3(384), arguments,
                               static_cast<std::size_t>(x.keys_shared_bytes), stream));
    }
    if (parts & queries_part) {
        void* arguments[] = {&q, &d_o, &k_rows, &v_rows, &dq, &p};
        CHECK(cudaLaunchKernel(x.queries_kernel, dim3(p.tiles), dim3(384), arguments,
                               static_cast<std::size_t>(x.queries_shared_bytes), stream));
    }
}

// ---- Cases.

struct test_case {
    bool is_backward, is_timed;
    shape s;
    int variant;  ///< of all, forward and then backward
    std::string title;
};
/// Without arguments all checks, and times of 1,024 and 16,384 tokens; with "all" everything; else what has one of the
/// arguments in its title.
std::vector<test_case> cases_of(int argc, char** argv) {
    const shape small[] = {{2, 1000, 4, 64, 1}, {2, 1000, 4, 64, 0}, {2, 1000, 4, 128, 1}, {2, 1000, 4, 128, 0},
                           {3, 1, 2, 64, 1},    {3, 1, 2, 128, 0},   {3, 130, 2, 64, 0},   {3, 130, 2, 128, 1},
                           {1, 257, 3, 64, 1},  {1, 257, 3, 128, 1}};
    const int sizes[3][2] = {{16, 1024}, {4, 4096}, {1, 16384}};
    std::vector<shape> timed;
    for (const int head_size : {64, 128}) {
        for (const auto& size : sizes) {
            for (const int is_causal : {1, 0})
                timed.push_back({size[0], size[1], 2048 / head_size, head_size, is_causal});
        }
    }
    std::vector<test_case> cases;
    const int forwards = static_cast<int>(forward_variants.size()),
              backwards = static_cast<int>(backward_variants.size());
    const auto add = [&](bool is_timed, const shape& s) {
        for (int i = 0; i < forwards + backwards; ++i) {
            const bool is_backward = i >= forwards;
            const auto& name = is_backward ? backward_variants[i - forwards].name : forward_variants[i].name;
            const int head_size =
                is_backward ? backward_variants[i - forwards].head_size : forward_variants[i].head_size;
            if (head_size != s.head_size) continue;
            char title[200];
            std::snprintf(title, sizeof title, "%s %3d %s %2dx%-5d %-35s", is_backward ? "backward" : "forward ",
                          s.head_size, s.is_causal ? "causal" : "full  ", s.batch, s.length, name);
            bool is_wanted = argc < 2 && !(is_timed && s.length == 4096);
            for (int a = 1; a < argc; ++a) {
                is_wanted |= std::strcmp(argv[a], "all") == 0 || std::strstr(title, argv[a]) != nullptr;
            }
            if (is_wanted) cases.push_back({is_backward, is_timed, s, i, title});
        }
    };
    for (const shape& s : small) add(false, s);
    for (const shape& s : timed) add(true, s);
    return cases;
}

/// What outlives a child that dies.
struct shared_state {
    volatile int next, beat;
    volatile int failures[64];  ///< of each variant; one that failed is not timed
    volatile double us[1024];   ///< of each case
};

/// Every row of a check; some of a timed case, among them the first and the last.
std::vector<long> rows_of(const test_case& c) {
    std::vector<long> rows;
    const shape& s = c.s;
    if (!c.is_timed) {
        for (long r = 0; r < s.rows(); ++r) rows.push_back(r);
        return rows;
    }
    for (int r = 0; r < 64; ++r) {
        const long head = mix(r * 977u + 5u) % static_cast<unsigned>(s.batch * s.heads);
        const long row = r < 8    ? s.length - 1 - r
                         : r < 12 ? r - 8
                                  : mix(r * 31u + 1u) % static_cast<unsigned>(s.length);
        rows.push_back(head * s.length + row);
    }
    return rows;
}
std::vector<float> errors_of(std::size_t rows) {
    CHECK(cudaGetLastError());
    std::vector<float> r(rows * 6);
    CHECK(cudaMemcpyAsync(r.data(), errors, r.size() * 4, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return r;
}
struct deviation {
    double of_norm = 0, worst = 0;  ///< of the norm of what is right; of a sum's magnitudes
};
deviation deviation_of(const std::vector<float>& errors, int at) {
    double error = 0, right = 1e-6;
    deviation d;
    for (std::size_t i = at; i < errors.size(); i += 6) {
        error += errors[i], right += errors[i + 1], d.worst = std::max(d.worst, static_cast<double>(errors[i + 2]));
    }
    d.of_norm = std::sqrt(error / right);
    return d;
}
void send_rows(const std::vector<long>& rows, const shape& s) {
    if (rows.size() * static_cast<std::size_t>(s.length) * 2 > scratch_floats || rows.size() > plain_rows) {
        std::printf("scratch is too small\n");
        _exit(5);
    }
    CHECK(cudaMemcpyAsync(rows_on_device, rows.data(), rows.size() * sizeof(long), cudaMemcpyHostToDevice, stream));
}
bool is_forward_right(const shape& s, const tensors& t, const std::vector<long>& rows, std::string& text) {
    send_rows(rows, s);
    check_forward<<<static_cast<int>(rows.size()), 256, 0, stream>>>(t.q, t.k, t.v, t.o, t.logsumexp, rows_on_device,
                                                                     scratch, errors, s.plain());
    const std::vector<float> e = errors_of(rows.size());
    const deviation d = deviation_of(e, 0);
    double of_logsumexp = 0;
    for (std::size_t i = 3; i < e.size(); i += 6) of_logsumexp = std::max(of_logsumexp, static_cast<double>(e[i]));
    char line[200];
    std::snprintf(line, sizeof line, " o %.1e worst %.1e logsumexp %.1e", d.of_norm, d.worst, of_logsumexp);
    text = line;
    return d.of_norm < 0.01 && d.worst < 0.006 && of_logsumexp < 3e-5;
}
bool is_backward_right(const shape& s, const tensors& t, const std::vector<long>& rows, std::string& text) {
    send_rows(rows, s);
    const int blocks = static_cast<int>(rows.size());
    check_backward<false><<<blocks, 256, 0, stream>>>(t.q, t.k, t.v, t.o, t.d_o, t.logsumexp, t.dq, t.dk, t.dv,
                                                      rows_on_device, scratch, errors, s.plain());
    const deviation dq = deviation_of(errors_of(rows.size()), 0);
    check_backward<true><<<blocks, 256, 0, stream>>>(t.q, t.k, t.v, t.o, t.d_o, t.logsumexp, t.dq, t.dk, t.dv,
                                                     rows_on_device, scratch, errors, s.plain());
    const std::vector<float> e = errors_of(rows.size());
    const deviation dk = deviation_of(e, 0), dv = deviation_of(e, 3);
    char line[200];
    std::snprintf(line, sizeof line, " dq %.1e dk %.1e dv %.1e worst %.1e %.1e %.1e", dq.of_norm, dk.of_norm,
                  dv.of_norm, dq.worst, dk.worst, dv.worst);
    text = line;
    for (const deviation& d : {dq, dk, dv}) {
        if (!(d.of_norm < 0.015 && d.worst < 0.02)) return false;
    }
    return true;
}
void poison(void* p, std::size_t bytes) { CHECK(cudaMemsetAsync(p, 0xff, bytes + guard_bytes, stream)); }
bool is_guard_whole(const void* p, std::size_t bytes) {
    std::vector<unsigned char> guard(guard_bytes);
    CHECK(cudaMemcpy(guard.data(), static_cast<const char*>(p) + bytes, guard_bytes, cudaMemcpyDeviceToHost));
    return std::all_of(guard.begin(), guard.end(), [](unsigned char c) { return c == 0xff; });
}
std::vector<char> bytes_of(const bf16* p, const shape& s) {
    std::vector<char> r(s.elements() * 2);
    CHECK(cudaMemcpy(r.data(), p, r.size(), cudaMemcpyDeviceToHost));
    return r;
}

/// The median of timed_runs in a captured graph, in microseconds.
template <class F>
double time_of(F launch) {
    static std::vector<cudaEvent_t> events;
    while (events.size() < timed_runs + 1) CHECK(cudaEventCreate(&events.emplace_back()));
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int r = 0; r < 3; ++r) launch();
    for (int r = 0; r < timed_runs; ++r) {
        CHECK(cudaEventRecordWithFlags(events[r], stream, cudaEventRecordExternal));
        launch();
    }
    CHECK(cudaEventRecordWithFlags(events[timed_runs], stream, cudaEventRecordExternal));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> ms(timed_runs);
    for (int r = 0; r < timed_runs; ++r) CHECK(cudaEventElapsedTime(&ms[r], events[r], events[r + 1]));
    std::sort(ms.begin(), ms.end());
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    return 0.5e3 * (ms[timed_runs / 2 - 1] + ms[timed_runs / 2]);
}

/// Returns whether results are right; \p us is the time of a timed case.
bool run_forward(const test_case& c, const tensors& t, double& us) {
    const shape& s = c.s;
    const forward_variant& x = forward_variants[c.variant];
    const std::vector<long> rows = rows_of(c);
    bool is_right = true, is_same = true;
    std::string text;
    std::vector<char> first;
    for (int turn = 0; turn < (c.is_timed ? 1 : 2); ++turn) {  // the second with few blocks, which have many tiles each
        poison(t.o, s.elements() * 2), poison(t.logsumexp, s.rows() * 4);
        launch_forward(x, s, t, turn ? 7 : 0);
        is_right &= is_forward_right(s, t, rows, text);
        is_right &= is_guard_whole(t.o, s.elements() * 2) && is_guard_whole(t.logsumexp, s.rows() * 4);
        if (c.is_timed) continue;
        if (turn == 0) {
            first = bytes_of(t.o, s);
        } else {
            is_same = first == bytes_of(t.o, s);
        }
    }
    std::printf("%s%s%s%s", c.title.c_str(), text.c_str(), is_same ? "" : " NOT THE SAME TWICE",
                is_right ? "" : " WRONG");
    if (c.is_timed) {
        us = time_of([&] { launch_forward(x, s, t); });
        std::printf(" %8.1f us %6.1f TFLOP/s", us, 2 * s.operations() / us * 1e-6);
    }
    std::printf("\n");
    return is_right && is_same;
}
bool run_backward(const test_case& c, const tensors& t, bool times_parts, double& us) {
    const shape& s = c.s;
    const backward_variant& x = backward_variants[c.variant - forward_variants.size()];
    const std::vector<long> rows = rows_of(c);
    if (c.is_timed) {
        for (const forward_variant& f : forward_variants) {
            if (f.head_size != s.head_size) continue;
            launch_forward(f, s, t);
            break;
        }
    } else {
        plain_forward<<<static_cast<int>(s.rows()), 256, 0, stream>>>(t.q, t.k, t.v, t.o, t.logsumexp, scratch,
                                                                      s.plain());
        CHECK(cudaGetLastError());
    }
    bf16* const results[3] = {t.dq, t.dk, t.dv};
    for (bf16* r : results) poison(r, s.elements() * 2);
    launch_backward(x, s, t, all_parts);
    std::string text;
    bool is_right = is_backward_right(s, t, rows, text), is_same = true;
    for (const bf16* r : results) is_right &= is_guard_whole(r, s.elements() * 2);
    if (!c.is_timed) {
        std::vector<char> first[3];
        for (int i = 0; i < 3; ++i) first[i] = bytes_of(results[i], s);
        launch_backward(x, s, t, keys_part | queries_part);
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < 3; ++i) is_same &= first[i] == bytes_of(results[i], s);
    }
    std::printf("%s%s%s%s", c.title.c_str(), text.c_str(), is_same ? "" : " NOT THE SAME TWICE",
                is_right ? "" : " WRONG");
    if (c.is_timed) {
        us = time_of([&] { launch_backward(x, s, t, all_parts); });
        std::printf(" %8.1f us %6.1f TFLOP/s", us, 5 * s.operations() / us * 1e-6);
        if (times_parts) {
            const double keys = time_of([&] { launch_backward(x, s, t, keys_part); }),
                         queries = time_of([&] { launch_backward(x, s, t, queries_part); });
            std::printf(" (keys %.1f, queries %.1f us)", keys, queries);
        }
    }
    std::printf("\n");
    return is_right && is_same;
}

template <class T>
T* allocate(std::size_t n) {
    T* p = nullptr;
    CHECK(cudaMalloc(&p, n * sizeof(T) + guard_bytes));
    return p;
}
/// The child: cases from shared->next on.
int run(const std::vector<test_case>& cases, bool times_parts, shared_state* shared) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
        std::printf("no device: %s\n", cudaGetErrorString(error));
        return 9;
    }
    multiprocessors = properties.multiProcessorCount;
    if (shared->next == 0) std::printf("%s, %d multiprocessors\n", properties.name, multiprocessors);
    if (properties.major != 9) {
        std::printf("not a Hopper GPU\n");
        return 9;
    }
    CHECK(cudaHostAlloc(&hang_of_host, 64, cudaHostAllocMapped));
    *hang_of_host = 0;
    CHECK(cudaHostGetDevicePointer(&hang, hang_of_host, 0));
    counter = allocate<unsigned>(2);
    CHECK(cudaMemset(counter, 0, 2 * sizeof(unsigned)));
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess || !function) {
        std::printf("no cuTensorMapEncodeTiled\n");
        return 9;
    }
    encode = reinterpret_cast<encode_function>(function);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    constexpr std::size_t most = std::size_t{16384} * 2048, vectors = std::size_t{16384} * 32;
    tensors t;
    for (bf16** p : {&t.q, &t.k, &t.v, &t.d_o, &t.o, &t.dq, &t.dk, &t.dv}) *p = allocate<bf16>(most);
    for (float** p : {&t.logsumexp, &t.logsumexp2, &t.delta}) *p = allocate<float>(vectors);
    scratch = allocate<float>(scratch_floats), errors = allocate<float>(plain_rows * 6);
    rows_on_device = allocate<long>(plain_rows);
    while (shared->next < static_cast<int>(cases.size())) {
        const int i = shared->next;
        const test_case& c = cases[i];
        if (c.is_timed && shared->failures[c.variant] > 0) {
            shared->next = i + 1;
            continue;
        }
        shared->beat = shared->beat + 1;
        shared->failures[c.variant] = shared->failures[c.variant] + 1;  // taken back where all is well
        unsigned seed = 77;
        for (bf16* p : {t.q, t.k, t.v, t.d_o}) {
            fill<<<multiprocessors * 8, 256, 0, stream>>>(p, c.s.elements(), seed);
            CHECK(cudaGetLastError());
            seed += 1000003u;
        }
        double us = 0;
        if (c.is_backward ? run_backward(c, t, times_parts, us) : run_forward(c, t, us)) {
            shared->us[i] = us;
            shared->failures[c.variant] = shared->failures[c.variant] - 1;
        }
        shared->next = i + 1;
    }
    return 0;
}

/// The best of every shape.
void print_best(const std::vector<test_case>& cases, const shared_state& shared) {
    const auto is_alike = [&](const test_case& a, const test_case& b) {
        return a.is_backward == b.is_backward && a.s.length == b.s.length && a.s.head_size == b.s.head_size &&
               a.s.is_causal == b.s.is_causal;
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
        bool is_best = shared.us[i] > 0;
        for (std::size_t j = 0; j < cases.size(); ++j) {
            if (j != i && shared.us[j] > 0 && is_alike(cases[i], cases[j])) is_best &= shared.us[i] <= shared.us[j];
        }
        if (!is_best) continue;
        std::printf("best %s %8.1f us %6.1f TFLOP/s\n", cases[i].title.c_str(), shared.us[i],
                    (cases[i].is_backward ? 5 : 2) * cases[i].s.operations() / shared.us[i] * 1e-6);
    }
}

}  // namespace
}  // namespace study

int main(int argc, char** argv) {
    using namespace study;
    void* const memory = mmap(nullptr, sizeof(shared_state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return std::perror("mmap"), 1;
    auto* shared = static_cast<shared_state*>(memory);  // the system has zeroed it
    const std::vector<test_case> cases = cases_of(argc, argv);
    if (cases.size() > std::size(shared->us)) return std::printf("too many cases\n"), 1;
    const int end = static_cast<int>(cases.size()), limit = argc < 2 ? 12 : 45;  // seconds
    const time_t begin = time(nullptr);
    bool is_crashed = false;
    for (int children = 0; shared->next < end && children < 12; ++children) {
        std::fflush(stdout);
        const pid_t child = fork();
        if (child < 0) return std::perror("fork"), 1;
        if (child == 0) {
            const int code = run(cases, argc > 1, shared);
            std::fflush(stdout);
            _exit(code);
        }
        int status = 0, beat = -1;
        time_t since = time(nullptr);
        while (waitpid(child, &status, WNOHANG) == 0) {
            usleep(20000);
            const time_t now = time(nullptr);
            if (shared->beat != beat) beat = shared->beat, since = now;
            if (now - since > 8 || now - begin > limit) {
                std::printf("case %d of %d: no progress or out of time, stopped\n", shared->next, end);
                kill(child, SIGKILL);
                waitpid(child, &status, 0);
                break;
            }
        }
        if (shared->next >= end || time(nullptr) - begin > limit) break;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 9) return 9;
        std::printf("case %d (%s) WRONG: ended by %s %d; going on with the next\n", shared->next,
                    cases[shared->next].title.c_str(), WIFSIGNALED(status) ? "signal" : "code",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        is_crashed = true;
        shared->next = shared->next + 1;
    }
    print_best(cases, *shared);
    bool is_right = !is_crashed && shared->next >= end;
    for (const volatile int& failures : shared->failures) is_right &= failures == 0;
    std::printf(is_right ? "all right\n" : "WRONG, or not all was run\n");
    return is_right ? 0 : 1;
}
