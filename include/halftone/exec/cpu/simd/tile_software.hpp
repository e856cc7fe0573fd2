// SPDX-License-Identifier: MIT
/// \file
/// The tiles of tile_amx.hpp emulated in plain memory, with AMX's arithmetic: products of even and of odd k are summed
/// separately by fused multiply-adds, then both sums and c are added; subnormal inputs and results of every step become
/// zero.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <halftone/exec/cpu/body_names.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/tensor/shape.hpp>

#if HALFTONE_PORTABLE
#include <halftone/number/precise/begin.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace portable {

inline void enter_tiles() {}
inline void leave_tiles() {}

inline float flush_subnormal(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : x;
}

/// x y + z, rounded once, of numbers that are zero or normal; zero for a subnormal result. By double-precision arithmetic with a sum
/// that is rounded to odd (Boldo and Melquiond 2008): libm's fmaf is a call for each number, and processors of Intel take 150
/// cycles for each subnormal result.
inline float flushed_fma(float x, float y, float z) {
    const double product = static_cast<double>(x) * y, sum = product + z;
    const double of_z = sum - product, error = (product - (sum - of_z)) + (z - of_z);
    auto bits = std::bit_cast<std::uint64_t>(sum);
    const bool is_finite = (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u;
    if (is_finite && error != 0 && (bits & 1) == 0)
        bits += (error > 0) == (sum > 0) ? std::uint64_t{1} : ~std::uint64_t{0};
    const auto odd = std::bit_cast<double>(bits);
    // Half a unit of subnormal numbers below the least normal one rounds to that.
    if (std::abs(odd) < 0x1p-126 - 0x1p-150) return std::signbit(odd) ? -0.0f : 0.0f;
    return static_cast<float>(odd);
}

enum class tile_reuse { both, columns, neither };

struct tile_block {
    float sums[32][32];
    const bfloat16 *rows = nullptr, *columns = nullptr;
    extent rows_stride = 0;

    void zero() { std::memset(sums, 0, sizeof sums); }
    void load(const float* c, extent stride) {
        for (int i = 0; i < 32; ++i) std::memcpy(sums[i], c + i * stride, sizeof sums[i]);
    }
    void store(float* c, extent stride) const {
        for (int i = 0; i < 32; ++i) std::memcpy(c + i * stride, sums[i], sizeof sums[i]);
    }
    template <tile_reuse = tile_reuse::both>
    void multiply(const bfloat16* a, extent stride, const bfloat16* b) {
        for (int i = 0; i < 32; ++i) {
            for (int j = 0; j < 32; ++j) {
                float part[2] = {0.0f, 0.0f};
                for (int p = 0; p < 32; ++p) {
                    const float x = flush_subnormal(a[i * stride + p]),
                                y = flush_subnormal(b[(p / 2 * 32 + j) * 2 + p % 2]);
                    part[p % 2] = flushed_fma(x, y, part[p % 2]);
                }
                sums[i][j] = flush_subnormal(flush_subnormal(sums[i][j]) + flush_subnormal(part[0] + part[1]));
            }
        }
    }
    static void stay_ready_to_store() {}
    void load_rows(const bfloat16* a, extent stride) { rows = a, rows_stride = stride; }
    void load_columns(const bfloat16* b) { columns = b; }
    void multiply() { multiply(rows, rows_stride, columns); }
};

}  // namespace portable
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/number/precise/end.hpp>
#endif
