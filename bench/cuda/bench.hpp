// SPDX-License-Identifier: MIT
/// \file
/// What the GPU benchmarks share: the contents of a row, and which rows are measured.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <halftone/exec/matmul_table.hpp>

namespace bench {

struct row {
    std::string kernel{}, shape{}, policy{}, engine{};
    double seconds = 0, p10 = 0, p90 = 0;  ///< the median of many runs, and the 10th and 90th percentiles
    double rate = 0;
    std::string unit{};                    ///< "TFLOP/s" or "GB/s", bytes read and written
    double percent_of_peak = 0;            ///< of the rate of cuBLASLt or a copy in this run
    std::vector<std::pair<std::string, double>> ratio_to{};
};

/// All shapes; the most informative ones; one large shape of each kind, run once, for a profiler; few and small ones;
/// or a tiny one of each kind without a peer, which only shows that it runs.
enum class amount { all, thin, once, few, tiny };

struct settings {
    std::vector<std::string> filters{};  ///< only kernels whose name contains one of these; empty: all
    double seconds_each = 0.15;          ///< seconds for which a case is measured
    amount how_much = amount::all;

    template <class T>
    T pick(T large, T few, T tiny) const {
        return how_much == amount::few ? few : how_much == amount::tiny ? tiny : large;
    }
    bool is_all() const { return how_much == amount::all; }
    bool is_thin() const { return how_much == amount::thin; }
    bool is_once() const { return how_much == amount::once; }
    bool is_tiny() const { return how_much == amount::tiny; }
    bool has_peers() const { return !is_once() && !is_tiny(); }
};

/// Receives rows as they are measured.
class listener {
  public:
    virtual ~listener() = default;
    virtual void on_row(const row& r) = 0;
    /// A product was timed by halftone's kernels and by an engine.
    virtual void on_product(const halftone::measured_product& p) = 0;
};

/// The results of one kernel on integers.
struct smoke_row {
    std::string kernel{};
    std::int64_t wrong = 0, of = 0;  ///< number of wrong elements, and of all
    std::string what{};              ///< empty if all are right
    double seconds = 0;              ///< on the host, including making and comparing the numbers
};
class smoke_listener {
  public:
    virtual ~smoke_listener() = default;
    virtual void on_kernel(const smoke_row& r) = 0;
};

/// Rates of the machine, to which others are compared.
struct peaks {
    double copy_bytes = 0;     ///< bytes a second, read and written
    double bf16_flops = 0;     ///< operations a second, cuBLASLt's best at 8192 cubed; 0 without cuBLASLt
};

struct gpu_description {
    std::string name{}, cuda{}, driver{};
    int architecture = 0;  ///< 10 times the compute capability
};
/// Throws if there is no usable GPU.
gpu_description describe_gpu();

/// Throws if the GPU does not work: allocates memory, runs a kernel, and checks what it wrote.
void check_gpu();

peaks measure_peaks(const settings& s);
/// Runs each kernel on integers; the largest product has `large` rows and columns.
void run_smoke_test(std::int64_t large, smoke_listener& to);
void bench_matmul(const settings& s, const peaks& p, listener& to);
void bench_matmul_bytes(const settings& s, const peaks& p, listener& to);
void bench_attention(const settings& s, const peaks& p, listener& to);
void bench_rows(const settings& s, const peaks& p, listener& to);
void bench_own_models(const settings& s, const peaks& p, listener& to);
void bench_step(const settings& s, listener& to);

}  // namespace bench
