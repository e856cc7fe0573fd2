// SPDX-License-Identifier: MIT
/// \file
/// halftone's own backward pass by warpgroups (kernel/attention/device/warpgroup_backward.hpp) on a Hopper GPU: checked
/// against the kernels for all GPUs, and timed beside them. Within 25 seconds:
///
///     nvcc -std=c++20 -O2 -I../../../../include -gencode arch=compute_90a,code=sm_90a -o library_backward library_backward.cu
///     ./library_backward
///
/// A check has four parts: the root mean square of the difference to the other kernels' gradients, relative to that of
/// the gradients, is below 4e-3 (both round to bfloat16, 2^-9); nothing is written beyond the gradients; a second run has
/// the same bits; and NaNs and infinities that the causal mask hides change no bit.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/kernel/attention/device.hpp>

namespace {

namespace ht = halftone;
using namespace ht::kernel::on_device;
using ht::bfloat16;
using ht::extent;

constexpr double largest_difference = 4e-3;
constexpr extent guard = 2048, most = extent{16384} * 2048;  // elements

void check(cudaError_t code) {
    if (code == cudaSuccess) return;
    std::printf("CUDA: %s\n", cudaGetErrorString(code));
    std::exit(1);
}
template <class U>
U* allocate(extent n) {
    void* p = nullptr;
    check(cudaMalloc(&p, static_cast<std::size_t>(n) * sizeof(U)));
    return static_cast<U*>(p);
}

/// Sums of four uniform numbers: a variance of 1.
__global__ void fill(bfloat16* to, extent n, unsigned seed) {
    for (extent i = blockIdx.x * extent{256} + threadIdx.x; i < n; i += gridDim.x * extent{256}) {
        unsigned x = seed + static_cast<unsigned>(i) * 2654435761u;
        float sum = 0;
        for (int k = 0; k < 4; ++k) {
            x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
            sum += static_cast<float>(x >> 8) * 0x1p-23f - 1.0f;
        }
        to[i] = bfloat16(sum * 0.866f);
    }
}
__global__ void poison(bfloat16* to, int n) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < n) to[i] = bfloat16::from_bits(i % 2 == 0 ? 0x7f80 : 0x7fc0);
}
/// Adds up the squares of a, those of a - b, and the number of numbers that are not finite.
__global__ void compare(const bfloat16* a, const bfloat16* b, extent n, double* sums) {
    double square = 0, difference = 0, not_finite = 0;
    for (extent i = blockIdx.x * extent{256} + threadIdx.x; i < n; i += gridDim.x * extent{256}) {
        const float x = static_cast<float>(a[i]), y = static_cast<float>(b[i]);
        const bool is_finite = isfinite(x) && isfinite(y);
        not_finite += is_finite ? 0 : 1;
        square += is_finite ? static_cast<double>(x) * x : 0;
        difference += is_finite ? static_cast<double>(x - y) * (x - y) : 0;
    }
    atomicAdd(sums, square), atomicAdd(sums + 1, difference), atomicAdd(sums + 2, not_finite);
}

struct sizes {
    extent batch, queries, keys, heads, groups, head_size;
    bool is_causal, is_fused;  ///< fused: q, k and v are slices of one (batch, time, 3, heads, head_size) tensor

    extent of_queries() const { return batch * queries * heads * head_size; }
    extent of_keys() const { return batch * keys * groups * head_size; }
    extent all() const { return of_queries() + 2 * of_keys(); }
    double operations() const {
        return 10.0 * static_cast<double>(batch * heads * head_size) * static_cast<double>(queries) *
               static_cast<double>(keys) * (is_causal ? 0.5 : 1);
    }
};

/// Memory for the largest problem: q, k and v, their gradients by either kernels, and the rest.
struct buffers {
    bfloat16 *in = allocate<bfloat16>(3 * most), *d = allocate<bfloat16>(3 * most + guard),
             *other_d = allocate<bfloat16>(3 * most + guard), *o = allocate<bfloat16>(most),
             *d_o = allocate<bfloat16>(most);
    float* logsumexp = allocate<float>(most / 16);
    query_term* terms = allocate<query_term>(most / 16);
};
double* sums;

template <int Head>
struct problem {
    ht::cuda& device;
    sizes s;
    buffers m;
    attention_problem described;
    ht::view<bfloat16, 4> o;
    ht::view<float, 4> logsumexp;
    ht::kernel::attention_backward<bfloat16> mine, other;
    global_span<query_term> terms;

    problem(ht::cuda& on, const sizes& of, const buffers& in)
        : device(on),
          s(of),
          m(in),
          o(m.o, {s.batch, s.queries, s.heads, s.head_size}),
          logsumexp(m.logsumexp, {s.batch, s.heads, s.queries, 2}) {
        const ht::attention_options options{.mask =
                                                s.is_causal ? ht::attention_mask::causal : ht::attention_mask::full};
        const ht::view<bfloat16, 4> d_o(m.d_o, o.shape());
        mine = {view_of(m.in, 0), view_of(m.in, 1), view_of(m.in, 2), o,      logsumexp, d_o,
                view_of(m.d, 0),  view_of(m.d, 1),  view_of(m.d, 2),  options};
        other = mine;
        other.dq = view_of(m.other_d, 0), other.dk = view_of(m.other_d, 1), other.dv = view_of(m.other_d, 2);
        described = describe_attention(ht::detail::check_attention(mine), options, {});
        terms = {m.terms, query_term_count(described)};
    }
    ht::view<bfloat16, 4> view_of(bfloat16* base, int which) const {
        const extent times = which == 0 ? s.queries : s.keys, heads = which == 0 ? s.heads : s.groups,
                     row = s.heads * s.head_size;
        if (s.is_fused)
            return {
                base + which * row, {s.batch, times, heads, s.head_size}, {times * 3 * row, 3 * row, s.head_size, 1}};
        return {base + (which == 0 ? 0 : s.of_queries() + (which - 1) * s.of_keys()),
                {s.batch, times, heads, s.head_size}};
    }
    void set_inputs(unsigned seed) const {
        fill<<<1056, 256, 0, device.stream()>>>(m.in, s.all(), seed);
        fill<<<1056, 256, 0, device.stream()>>>(m.d_o, s.of_queries(), seed + 99991);
    }
    void run_forward() const {
        device.launch(typename attention_tiles<bfloat16, Head>::forward{vectors_of(mine.q, {}), vectors_of(mine.k, {}),
                                                                        vectors_of(mine.v, {}), vectors_of(o, {}),
                                                                        ht::simt::span_of(logsumexp), described});
    }
    /// Whole, as ht::attention runs it.
    void run() const { gradients_by_warpgroups(device, mine, described); }
    void run_terms() const {
        device.launch(query_terms_kernel<bfloat16, 8>{vectors_of(mine.o, {}), vectors_of(mine.d_o, {}),
                                                      ht::simt::span_of(mine.logsumexp), terms, described});
    }
    attention_score_gradients<bfloat16> arguments(const ht::kernel::attention_backward<bfloat16>& a) const {
        return {vectors_of(a.q, {}),  vectors_of(a.d_o, {}),     vectors_of(a.k, {}),
                vectors_of(a.v, {}),  {terms.data, terms.count}, vectors_of(a.dq, {}),
                vectors_of(a.dk, {}), vectors_of(a.dv, {}),      described};
    }
    void run_other() const {
        run_terms();
        device.launch(typename attention_tiles<bfloat16, Head>::by_queries{arguments(other)});
        device.launch(typename attention_tiles<bfloat16, Head>::by_keys{arguments(other)});
    }
    template <attention_side Side>
    void run_one() const {
        const auto q = head_map(device, mine.q, 64), d_o = head_map(device, mine.d_o, 64),
                   k = head_map(device, mine.k, 64), v = head_map(device, mine.v, 64),
                   t = device.tile_map(reinterpret_cast<const bfloat16*>(terms.data), 64, terms.count / 8, 64, 8);
        using map = std::remove_const_t<decltype(q)>;
        device.launch(warpgroup_attention_backward_kernel<bfloat16, Head, Side, map>{q, d_o, k, v, t, arguments(mine)});
    }
    /// All gradients and the memory behind them.
    std::vector<unsigned short> results() const {
        std::vector<unsigned short> bits(static_cast<std::size_t>(s.all() + guard));
        check(cudaMemcpyAsync(bits.data(), m.d, bits.size() * 2, cudaMemcpyDeviceToHost, device.stream()));
        check(cudaStreamSynchronize(device.stream()));
        return bits;
    }
    /// The numbers of a gradient whose bits differ, of the rows for which counts(entry, time, head).
    template <class Counts>
    long differences(const ht::view<bfloat16, 4>& of, const std::vector<unsigned short>& a,
                     const std::vector<unsigned short>& b, const Counts& counts) const {
        long found = 0;
        for (extent entry = 0; entry < of.extent_of(0); ++entry) {
            for (extent t = 0; t < of.extent_of(1); ++t) {
                for (extent h = 0; h < of.extent_of(2); ++h) {
                    if (!counts(entry, t, h)) continue;
                    const auto at = static_cast<std::size_t>(&of(entry, t, h, 0) - m.d);
                    found += std::equal(a.begin() + at, a.begin() + at + s.head_size, b.begin() + at) ? 0 : 1;
                }
            }
        }
        return found;
    }
    /// What the mask hides changes nothing, what it shows does: query 0 of head 0 sees the keys up to keys - queries, and the
    /// last key is seen by the last query alone.
    bool hides(const std::vector<unsigned short>& clean) const {
        const int width = static_cast<int>(s.head_size);
        poison<<<1, 256, 0, device.stream()>>>(const_cast<bfloat16*>(mine.q.data()), width);
        poison<<<1, 256, 0, device.stream()>>>(m.d_o, width);
        run();
        std::vector<unsigned short> now = results();
        const auto is_hidden_key = [&](extent b, extent j, extent g) {
            return b > 0 || g > 0 || j > s.keys - s.queries;
        };
        bool right =
            differences(mine.dk, clean, now, is_hidden_key) + differences(mine.dv, clean, now, is_hidden_key) == 0 &&
            differences(mine.dv, clean, now, [&](auto... at) { return !is_hidden_key(at...); }) > 0 &&
            differences(mine.dq, clean, now, [](extent b, extent i, extent h) { return b + i + h > 0; }) == 0;
        set_inputs(7);
        poison<<<1, 256, 0, device.stream()>>>(const_cast<bfloat16*>(&mine.k(0, s.keys - 1, 0, 0)), width);
        poison<<<1, 256, 0, device.stream()>>>(const_cast<bfloat16*>(&mine.v(0, s.keys - 1, 0, 0)), width);
        run();
        now = results();
        const auto is_hidden_query = [&](extent b, extent i, extent h) {
            return b > 0 || i < s.queries - 1 || h >= s.heads / s.groups;
        };
        return right && differences(mine.dq, clean, now, is_hidden_query) == 0 &&
               differences(mine.dq, clean, now, [&](auto... at) { return !is_hidden_query(at...); }) > 0;
    }
};

template <int Head>
bool is_right(ht::cuda& device, const sizes& s, const buffers& m) {
    const problem<Head> p(device, s, m);
    p.set_inputs(7);
    p.run_forward();
    for (bfloat16* d : {m.d, m.other_d})
        check(cudaMemsetAsync(d, 0xff, static_cast<std::size_t>(s.all() + guard) * 2, device.stream()));
    p.run_other();
    p.run();
    check(cudaMemsetAsync(sums, 0, 3 * sizeof(double), device.stream()));
    compare<<<132, 256, 0, device.stream()>>>(m.other_d, m.d, s.all(), sums);
    double got[3];
    check(cudaMemcpyAsync(got, sums, sizeof got, cudaMemcpyDeviceToHost, device.stream()));
    const std::vector<unsigned short> first = p.results();
    p.run();
    const bool is_same = p.results() == first;
    const bool is_whole = std::all_of(first.end() - guard, first.end(), [](unsigned short x) { return x == 0xffff; });
    const bool hides = !s.is_causal || s.queries == 1 || p.hides(first);
    const double difference = std::sqrt(got[1] / got[0]);
    const bool right = difference < largest_difference && got[2] == 0 && is_same && is_whole && hides;
    std::printf("check %d x %4d queries, %4d keys, %2d/%d heads of %3d, %s: difference %.1e%s%s%s%s %s\n",
                static_cast<int>(s.batch), static_cast<int>(s.queries), static_cast<int>(s.keys),
                static_cast<int>(s.heads), static_cast<int>(s.groups), static_cast<int>(s.head_size),
                s.is_causal ? "causal" : "full", difference, got[2] == 0 ? "" : ", not finite",
                is_same ? "" : ", not the same twice", is_whole ? "" : ", writes beyond the end",
                hides ? "" : ", shows what is hidden", right ? "right" : "WRONG");
    return right;
}

/// Median of microseconds; run(i) is given turns, so that it can take other data each time.
template <class Run>
double time_of(cudaStream_t stream, const Run& run) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
    run(0), run(1);
    std::vector<float> times;
    float total = 0;
    for (int i = 0; i < 21 && (total < 90 || i < 5); ++i) {
        check(cudaEventRecord(begin, stream));
        run(i);
        check(cudaEventRecord(end, stream));
        check(cudaEventSynchronize(end));
        float ms = 0;
        check(cudaEventElapsedTime(&ms, begin, end));
        times.push_back(ms), total += ms;
    }
    check(cudaEventDestroy(begin));
    check(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return 1e3 * static_cast<double>(times[times.size() / 2]);
}
template <int Head>
void print_times(ht::cuda& device, extent length, bool is_causal, const buffers& a, const buffers& b) {
    const sizes s{16384 / length, length, length, 2048 / Head, 2048 / Head, Head, is_causal, true};
    const problem<Head> one(device, s, a), two(device, s, b);
    one.set_inputs(3), two.set_inputs(5);
    one.run_forward(), two.run_forward();
    one.run_terms(), two.run_terms();
    const auto time = [&](const auto& run) {
        return time_of(device.stream(), [&](int i) { run(i % 2 == 0 ? one : two); });
    };
    const double all = time([](const auto&p) { p.run(); }), other = time([](const auto&p) { p.run_other(); }),
                 terms = time([](const auto&p) { p.run_terms(); }),
                 queries = time([](const auto&p) { p.template run_one<attention_side::queries>(); }),
                 keys = time([](const auto&p) { p.template run_one<attention_side::keys>(); });
    std::printf(
        "heads of %3d, %-6s %2d x %5d: %8.1f us %6.1f TFLOP/s (terms %5.1f, dq %7.1f, dk and dv %7.1f us); for all "
        "GPUs "
        "%8.1f us %6.1f TFLOP/s\n",
        Head, is_causal ? "causal" : "full", static_cast<int>(s.batch), static_cast<int>(length), all,
        s.operations() / all * 1e-6, terms, queries, keys, other, s.operations() / other * 1e-6);
}

}  // namespace

int main() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0));
    std::printf("%s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);
    ht::cuda device(ht::own_stream);
    if (!device.has_wgmma_code()) return std::printf("no Hopper GPU, or not compiled for sm_90a\n"), 1;
    const buffers a, b;
    sums = allocate<double>(3);
    const sizes checked[] = {{2, 1000, 1000, 4, 4, 64, true, true},  {2, 1000, 1000, 4, 4, 128, true, true},
                             {1, 1024, 1024, 5, 5, 64, false, true}, {1, 1024, 1024, 5, 5, 128, false, true},
                             {3, 1, 1, 2, 2, 64, true, true},        {2, 130, 700, 4, 2, 64, true, false},
                             {2, 130, 700, 4, 2, 128, true, false},  {1, 777, 333, 8, 2, 64, false, false},
                             {1, 333, 777, 8, 1, 128, false, false}, {1, 500, 500, 3, 3, 96, true, true},
                             {2, 257, 257, 6, 6, 40, true, true},    {1, 4096, 4096, 8, 2, 128, true, false},
                             {1, 4000, 4000, 16, 4, 64, true, false}};
    bool all_right = true;
    for (const sizes& s : checked)
        all_right = (s.head_size <= 64 ? is_right<64>(device, s, a) : is_right<128>(device, s, a)) && all_right;
    for (const bool is_causal : {true, false}) {
        for (const extent length : {1024, 4096, 16384}) {
            print_times<64>(device, length, is_causal, a, b);
            print_times<128>(device, length, is_causal, a, b);
        }
    }
    std::printf(all_right ? "all right\n" : "WRONG\n");
    return all_right ? 0 : 1;
}
