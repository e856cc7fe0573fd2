// SPDX-License-Identifier: MIT
/// \file
/// What the benchmarks of a GPU share: what a row says, and which rows are wanted.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <halftone/exec/matmul_table.hpp>

namespace bench {

struct row {
    std::string kernel{}, shape{}, policy{}, engine{};
    double seconds = 0, p10 = 0, p90 = 0;  ///< the median of many, and where a tenth lies below and above
    double rate = 0;
    std::string unit{};                    ///< "TFLOP/s" or "GB/s", bytes read and written
    double percent_of_peak = 0;            ///< of what cuBLASLt or a copy reached in this run
    std::vector<std::pair<std::string, double>> ratio_to{};
};

/// All shapes; few; or a tiny one of each kind, without a peer: whether it runs, not how fast.
enum class amount { all, few, tiny };

struct settings {
    std::string filter{};       ///< only kernels whose name contains it
    double seconds_each = 0.15; ///< that a case is measured for
    amount how_much = amount::all;

    template <class T>
    T pick(T all, T few, T tiny) const {
        return how_much == amount::all ? all : how_much == amount::few ? few : tiny;
    }
    bool is_all() const { return how_much == amount::all; }
    bool is_tiny() const { return how_much == amount::tiny; }
};

/// Where rows go as they are measured.
class listener {
  public:
    virtual ~listener() = default;
    virtual void on_row(const row& r) = 0;
    /// A product by halftone's kernels and by an engine.
    virtual void on_product(const halftone::measured_product& p) = 0;
};

/// What the machine reaches: rates that others are compared with.
struct peaks {
    double copy_bytes = 0;     ///< a second, read and written
    double bf16_flops = 0;     ///< a second, cuBLASLt's best at 8192 cubed; 0 where it is not there
};

struct gpu_description {
    std::string name{}, cuda{}, driver{};
    int architecture = 0;  ///< 10 times the compute capability
};
/// Throws where there is no usable GPU.
gpu_description describe_gpu();

peaks measure_peaks(const settings& s);
void bench_matmul(const settings& s, const peaks& p, listener& to);
void bench_matmul_bytes(const settings& s, const peaks& p, listener& to);
void bench_attention(const settings& s, const peaks& p, listener& to);
void bench_rows(const settings& s, const peaks& p, listener& to);
void bench_step(const settings& s, listener& to);

}  // namespace bench
