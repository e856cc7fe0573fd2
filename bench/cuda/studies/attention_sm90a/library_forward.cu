// SPDX-License-Identifier: MIT
/// \file
/// halftone's own forward pass by warpgroups (kernel/attention/device/warpgroup_forward.hpp) on a Hopper GPU: checked
/// against the definition in double or the kernel for all GPUs, and timed beside that. Within 25 seconds:
///
///     nvcc -std=c++20 -O2 -I../../../../include -gencode arch=compute_90a,code=sm_90a -o library_forward library_forward.cu
///     ./library_forward
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/kernel/attention/device/forward.hpp>
#include <halftone/kernel/attention/device/warpgroup_forward.hpp>
#include <halftone/kernel/attention/reference.hpp>

namespace {

namespace ht = halftone;
using namespace ht::kernel::on_device;
using ht::bfloat16;
using ht::extent;
using ht::float16;

void check(cudaError_t code) {
    if (code == cudaSuccess) return;
    std::printf("CUDA: %s\n", cudaGetErrorString(code));
    std::exit(1);
}

/// Numbers of a normal distribution (Marsaglia's xorshift, and Box and Muller).
class random_numbers {
  public:
    double normal() { return std::sqrt(-2 * std::log(uniform() + 1e-300)) * std::cos(6.283185307179586 * uniform()); }

  private:
    double uniform() {
        state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
        return static_cast<double>(state_ >> 11) * 0x1p-53;
    }
    std::uint64_t state_ = 88172645463325252u;
};

struct sizes {
    int batch, queries, keys, heads, groups, head_size;
    bool is_causal, is_fused;  ///< fused: q, k and v are slices of one (batch, time, 3, heads, head_size) tensor

    double operations() const {
        return 4.0 * batch * heads * static_cast<double>(queries) * keys * head_size * (is_causal ? 0.5 : 1);
    }
};

/// A problem in the GPU's memory.
template <class T>
struct problem {
    sizes s;
    T *in = nullptr, *o = nullptr;  // q, k and v
    float* logsumexp = nullptr;
    std::vector<T> host;  // as `in`
    ht::view<T, 4> q, k, v, out;

    explicit problem(const sizes& x) : s(x) {
        const extent row = extent{s.heads} * s.head_size, key_row = extent{s.groups} * s.head_size,
                     of_q = s.batch * s.queries * row, of_k = s.batch * s.keys * key_row;
        host.resize(static_cast<std::size_t>(of_q + 2 * of_k));
        const std::size_t period = std::min<std::size_t>(host.size(), 1000003);  // repeated, for speed
        random_numbers data;
        for (std::size_t i = 0; i < host.size(); ++i)
            host[i] = i < period ? T(static_cast<float>(data.normal())) : host[i - period];
        check(cudaMalloc(&in, host.size() * sizeof(T)));
        check(cudaMalloc(&o, static_cast<std::size_t>(of_q) * sizeof(T)));
        check(cudaMalloc(&logsumexp, sums() * sizeof(float)));
        check(cudaMemcpy(in, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
        const ht::shape<4> of_queries{s.batch, s.queries, s.heads, s.head_size},
            of_keys{s.batch, s.keys, s.groups, s.head_size};
        const extent q_row = s.is_fused ? 3 * row : row, k_row = s.is_fused ? 3 * row : key_row;
        q = {in, of_queries, {s.queries * q_row, q_row, s.head_size, 1}};
        k = {in + (s.is_fused ? row : of_q), of_keys, {s.keys * k_row, k_row, s.head_size, 1}};
        v = {in + (s.is_fused ? 2 * row : of_q + of_k), of_keys, k.strides()};
        out = {o, of_queries};
    }
    problem(const problem&) = delete;
    problem& operator=(const problem&) = delete;
    ~problem() { cudaFree(in), cudaFree(o), cudaFree(logsumexp); }

    std::size_t sums() const { return std::size_t{2} * static_cast<std::size_t>(s.batch * s.heads * s.queries); }
    ht::kernel::attention_forward<T> arguments() const {
        ht::kernel::attention_forward<T> a{q, k, v, out, {logsumexp, {s.batch, s.heads, s.queries, 2}}};
        a.options.mask = s.is_causal ? ht::attention_mask::causal : ht::attention_mask::full;
        return a;
    }
    ht::view<const T, 4> on_host(const ht::view<T, 4>& x) const {
        return {host.data() + (x.data() - in), x.shape(), x.strides()};
    }
};

template <class T>
attention_problem described(const ht::kernel::attention_forward<T>& a) {
    return describe_attention(ht::detail::check_attention(a), a.options, a.sequences);
}
template <class T, int Head>
void by_warps(ht::cuda& d, const ht::kernel::attention_forward<T>& a) {
    d.launch(flash_attention_kernel<T, Head, 2, 4, (Head > 96 ? 48 : 64)>{
        vectors_of(a.q, {}), vectors_of(a.k, {}), vectors_of(a.v, {}), vectors_of(a.o, {}),
        ht::simt::span_of(a.logsumexp), described(a)});
}
template <class T, int Head, int Warpgroups, int Stages, bool TakesTurns>
void by_warpgroups(ht::cuda& d, const ht::kernel::attention_forward<T>& a) {
    attend_by_warpgroups<ht::cuda, T, warpgroup_attention_tiling<Head, Warpgroups, Stages, TakesTurns>>(d, a,
                                                                                                        described(a));
}
template <class T>
struct variant {
    const char* name;
    int head;
    bool is_new;
    void (*run)(ht::cuda&, const ht::kernel::attention_forward<T>&);

    bool is_for(const sizes& s) const { return (s.head_size <= 64 ? 64 : 128) == head; }
};
template <class T>
std::vector<variant<T>> variants() {
    std::vector<variant<T>> all{{"mma.sync", 64, false, by_warps<T, 64>},
                                {"2 warpgroups, turns", 64, true, by_warpgroups<T, 64, 2, 4, true>},
                                {"mma.sync", 128, false, by_warps<T, 128>},
                                {"2 warpgroups, turns", 128, true, by_warpgroups<T, 128, 2, 2, true>}};
    if constexpr (std::is_same_v<T, bfloat16>) {
        all.push_back({"2 warpgroups", 64, true, by_warpgroups<T, 64, 2, 4, false>});
        all.push_back({"3 warpgroups", 64, true, by_warpgroups<T, 64, 3, 4, false>});
        all.push_back({"3 warpgroups, turns", 64, true, by_warpgroups<T, 64, 3, 4, true>});
        all.push_back({"2 warpgroups", 128, true, by_warpgroups<T, 128, 2, 2, false>});
    }
    return all;
}

template <class T>
struct results {
    std::vector<T> o;
    std::vector<float> pairs;

    bool operator==(const results& other) const {
        return std::memcmp(o.data(), other.o.data(), o.size() * sizeof(T)) == 0 &&
               std::memcmp(pairs.data(), other.pairs.data(), pairs.size() * sizeof(float)) == 0;
    }
    double logsumexp(std::size_t i, double scale) const {
        return scale * static_cast<double>(pairs[2 * i]) + static_cast<double>(pairs[2 * i + 1]);
    }
};
template <class T>
results<T> results_of(ht::cuda& d, const problem<T>& p, const variant<T>& v) {
    results<T> r{std::vector<T>(static_cast<std::size_t>(p.out.size())), std::vector<float>(p.sums())};
    check(cudaMemset(p.o, 0xff, r.o.size() * sizeof(T)));
    check(cudaMemset(p.logsumexp, 0xff, r.pairs.size() * sizeof(float)));
    v.run(d, p.arguments());
    d.synchronize();
    check(cudaMemcpy(r.o.data(), p.o, r.o.size() * sizeof(T), cudaMemcpyDeviceToHost));
    check(cudaMemcpy(r.pairs.data(), p.logsumexp, r.pairs.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return r;
}

/// The definition in double, or for large problems the kernel for all GPUs.
template <class T>
void find_wanted(ht::cuda& d, const problem<T>& p, bool by_definition, std::vector<double>& o,
                 std::vector<double>& logsumexp) {
    const double scale = 1 / std::sqrt(static_cast<double>(p.s.head_size));
    o.resize(static_cast<std::size_t>(p.out.size())), logsumexp.resize(p.sums() / 2);
    if (by_definition) {
        return ht::reference::attention(
            p.on_host(p.q), p.on_host(p.k), p.on_host(p.v), ht::view<double, 4>(o.data(), p.out.shape()),
            ht::view<double, 3>(logsumexp.data(), {p.s.batch, p.s.heads, p.s.queries}), p.arguments().options);
    }
    for (const variant<T>& v : variants<T>()) {
        if (v.is_new || !v.is_for(p.s)) continue;
        const results<T> r = results_of(d, p, v);
        for (std::size_t i = 0; i < o.size(); ++i) o[i] = static_cast<double>(static_cast<float>(r.o[i]));
        for (std::size_t i = 0; i < logsumexp.size(); ++i) logsumexp[i] = r.logsumexp(i, scale);
    }
}

/// All variants, twice: whether the results are near what is wanted (o by root mean squares, logsumexp each), and the
/// same in all bits the second time and among variants by warpgroups.
template <class T>
bool check_values(ht::cuda& d, const sizes& s, const char* type) {
    const problem<T> p(s);
    const bool by_definition = s.operations() < 1e8;
    const double scale = 1 / std::sqrt(static_cast<double>(s.head_size));
    std::vector<double> want, want_logsumexp;
    find_wanted(d, p, by_definition, want, want_logsumexp);
    bool all_right = true;
    std::vector<results<T>> first;
    for (const variant<T>& v : variants<T>()) {
        if (!v.is_new || !v.is_for(s)) continue;
        const results<T> r = results_of(d, p, v);
        if (first.empty()) first.push_back(r);
        double difference = 0, square = 0, largest = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
            const double error = static_cast<double>(static_cast<float>(r.o[i])) - want[i];
            difference += error * error, square += want[i] * want[i];
        }
        for (std::size_t i = 0; i < want_logsumexp.size(); ++i) {
            const double error = std::fabs(r.logsumexp(i, scale) - want_logsumexp[i]);
            if (!(error <= largest)) largest = error;
        }
        const double relative = std::sqrt(difference / square);
        const bool same = r == results_of(d, p, v), alike = r == first[0],
                   right = relative < 6e-3 && largest < 1e-4 && same && alike;
        all_right = all_right && right;
        std::printf("%s %s %dx%d,%d heads %d/%d of %d%s%s %s: o %.1e logsumexp %.1e of %s%s%s\n",
                    right ? "ok   " : "WRONG", type, s.batch, s.queries, s.keys, s.heads, s.groups, s.head_size,
                    s.is_causal ? " causal" : "", s.is_fused ? " fused" : "", v.name, relative, largest,
                    by_definition ? "the definition" : "mma.sync", same ? "" : ", OTHER BITS THE SECOND TIME",
                    alike ? "" : ", OTHER BITS THAN THE FIRST VARIANT");
    }
    return all_right;
}

/// NaNs and infinities in keys and values change no bit of rows that do not see them.
template <class T>
bool check_hidden(ht::cuda& d, int head, const char* type) {
    constexpr int length = 700;
    problem<T> p({1, length, length, 2, 2, head, true, false});
    bool all_right = true;
    for (const variant<T>& v : variants<T>()) {
        if (!v.is_new || v.head != head) continue;
        const results<T> clean = results_of(d, p, v);
        int leaks = 0, lost = 0;
        for (const int key : {5, 63, 64, 100, 300, 699}) {
            for (const float poison : {NAN, INFINITY, -INFINITY}) {
                for (const bool of_values : {true, false}) {
                    T* const at = &(of_values ? p.v : p.k)(0, key, 1, 7);
                    const T bad(poison);
                    check(cudaMemcpy(at, &bad, sizeof(T), cudaMemcpyHostToDevice));
                    const results<T> got = results_of(d, p, v);
                    check(cudaMemcpy(at, &p.host[static_cast<std::size_t>(at - p.in)], sizeof(T),
                                     cudaMemcpyHostToDevice));
                    for (int i = 0; i < length; ++i) {
                        for (int h = 0; h < 2; ++h) {
                            const auto row = static_cast<std::size_t>((i * 2 + h) * head),
                                       sum = static_cast<std::size_t>(2 * (h * length + i));
                            if (h == 1 && i >= key) {
                                lost += of_values && std::isfinite(static_cast<float>(got.o[row + 7])) ? 1 : 0;
                                continue;
                            }
                            leaks += std::memcmp(&got.o[row], &clean.o[row],
                                                 static_cast<std::size_t>(head) * sizeof(T)) != 0;
                            leaks += std::memcmp(&got.pairs[sum], &clean.pairs[sum], 2 * sizeof(float)) != 0;
                        }
                    }
                }
            }
        }
        all_right = all_right && leaks == 0 && lost == 0;
        std::printf("%s %s hidden, heads of %d %s: %d rows leak, %d rows lose\n", leaks + lost == 0 ? "ok   " : "WRONG",
                    type, head, v.name, leaks, lost);
    }
    return all_right;
}

/// The median of some launches, each between two events.
template <class T>
void time(ht::cuda& d, const problem<T>& p, const variant<T>& v) {
    constexpr int most = 31;
    static cudaEvent_t events[most + 1] = {};
    for (cudaEvent_t& e : events) {
        if (e == nullptr) check(cudaEventCreate(&e));
    }
    const auto a = p.arguments();
    const int runs = p.s.operations() > 1e12 ? 15 : most;
    for (int i = 0; i < 3; ++i) v.run(d, a);
    d.synchronize();
    check(cudaEventRecord(events[0], d.stream()));
    for (int i = 0; i < runs; ++i) {
        v.run(d, a);
        check(cudaEventRecord(events[i + 1], d.stream()));
    }
    d.synchronize();
    std::vector<float> times(static_cast<std::size_t>(runs));
    for (int i = 0; i < runs; ++i)
        check(cudaEventElapsedTime(&times[static_cast<std::size_t>(i)], events[i], events[i + 1]));
    std::sort(times.begin(), times.end());
    const double seconds = 1e-3 * static_cast<double>(times[times.size() / 2]);
    std::printf("heads of %3d %s %2dx%-5d %-20s %8.1f us, least %8.1f us, %6.1f TFLOP/s\n", p.s.head_size,
                p.s.is_causal ? "causal" : "full  ", p.s.batch, p.s.queries, v.name, 1e6 * seconds,
                1e3 * static_cast<double>(times[0]), 1e-12 * p.s.operations() / seconds);
    std::fflush(stdout);
}

}  // namespace

int main() {
    ht::cuda d{cudaStream_t{}};
    std::printf("%s, %d multiprocessors\n", d.description().c_str(), d.architecture().multiprocessors);
    if (!d.has_wgmma_code()) return std::printf("no Hopper, or not compiled for sm_90a\n"), 1;
    const sizes all[] = {{1, 130, 130, 2, 2, 64, true, true},     {1, 130, 130, 2, 2, 128, true, true},
                         {2, 65, 300, 4, 2, 40, true, false},     {2, 300, 300, 2, 1, 80, true, false},
                         {1, 33, 265, 3, 1, 128, false, false},   {3, 1, 1, 2, 2, 64, true, true},
                         {2, 1, 700, 4, 2, 128, true, false},     {1, 257, 257, 2, 2, 64, false, true},
                         {2, 1000, 1000, 8, 8, 64, true, true},   {2, 1000, 1000, 8, 2, 128, true, false},
                         {3, 500, 1500, 16, 4, 64, true, false},  {1, 5000, 5000, 8, 2, 128, false, false},
                         {1, 5001, 5001, 16, 16, 64, true, true}, {4, 2048, 2048, 16, 16, 96, true, true}};
    bool right = true;
    for (const sizes& s : all) right = check_values<bfloat16>(d, s, "bf16") && right;
    for (const sizes& s : {all[0], all[3], all[8], all[9]}) right = check_values<float16>(d, s, "fp16") && right;
    for (const int head : {64, 128}) {
        right = check_hidden<bfloat16>(d, head, "bf16") && right;
        right = check_hidden<float16>(d, head, "fp16") && right;
    }
    std::printf(right ? "all is right\n" : "SOMETHING IS WRONG\n");
    for (const int head : {64, 128}) {
        for (const int batch : {16, 4, 1}) {
            const int length = 16384 / batch;
            problem<bfloat16> p({batch, length, length, 2048 / head, 2048 / head, head, true, true});
            for (const bool is_causal : {true, false}) {
                p.s.is_causal = is_causal;
                for (const variant<bfloat16>& v : variants<bfloat16>()) {
                    if (v.head == head) time(d, p, v);
                }
            }
        }
    }
    return right ? 0 : 1;
}
