// SPDX-License-Identifier: MIT
/// \file
/// The read pass over gradients on a GPU; gradient_norm.hpp has its contract and an example.
///
/// Each block reads a chunk and stores its sum of squares and the worst value found; one more block adds the chunks in
/// double, and updates the record.
#pragma once

#include <cmath>

#include <halftone/kernel/common/update/device.hpp>
#include <halftone/kernel/gradient_norm/gradient_norm.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The result of a chunk.
struct chunk_result {
    double squares;
    word found;  // the worst: found_infinity, found_nan
};

template <class G, run_access Access>
struct chunk_squares_kernel {
    static constexpr int threads = 256;
    static constexpr int n = widest<G>;
    static constexpr extent chunk = 16384;
    static constexpr word shared_bytes = threads / 32 * sizeof(double);

    global_span<const G> gradients;
    global_span<const gradient_factors> factors;
    global_span<chunk_result> results;  // one for each chunk
    global_span<const std::int32_t> rows;  // the number of valid rows of `width`; empty: all
    extent width;

    grid_shape grid() const { return simt::blocks_along_x(results.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const gradient_factors f = simt.load(factors, 0);
        const extent index = simt.block().x, first = index * chunk;
        const extent there = (rows.is_there() ? simt.load(rows, 0) * width : gradients.count) - first;
        if (there <= 0) {
            if (simt.thread() == 0) simt.store(results, index, chunk_result{});
            return;
        }
        const extent count = there < chunk ? there : chunk;
        const auto here = gradients.part(first, count);

        // Magnitudes are compared as bits: infinity is above all finite ones, NaNs are above infinity.
        float squares = 0;
        word largest = 0;
        for (extent i = simt.thread(); i * n < count; i += threads) {
            const vec<float, n> g = load_run<n, Access>(simt, here, i, elements_of(i, count));
            HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
                const float v = read_gradient(g[e], f);
                const word magnitude = bit_cast<word>(is_finite(g[e]) ? v : g[e]) & 0x7fffffffu;
                largest = magnitude < largest ? largest : magnitude;
                squares = std::fma(v, v, squares);
            }
        }
        squares = simt::block_sum<threads>(simt, squares, shared_span<float>{0, threads / 32});
        largest = simt::block_max<threads>(simt, largest, shared_span<word>{0, threads / 32});

        double sum = static_cast<double>(squares);
        if (largest >= infinity || largest == 0) {
            sum = 0;
        } else if (largest < least_in_range || largest > most_in_range) {
            sum = 0;
            for (extent i = simt.thread(); i * n < count; i += threads) {
                const vec<float, n> g = load_run<n, Access>(simt, here, i, elements_of(i, count));
                HALFTONE_UNROLL for (int e = 0; e < n; ++e) {
                    const double v = read_gradient_in_double(g[e], f);
                    sum += v * v;
                }
            }
            sum = simt::block_sum<threads>(simt, sum, shared_span<double>{0, threads / 32});
        }
        const std::int32_t found = largest > infinity    ? found_nan
                                   : largest == infinity ? found_infinity
                                                         : found_nothing;
        if (simt.thread() == 0) simt.store(results, index, chunk_result{sum, static_cast<word>(found)});
    }

  private:
    static constexpr word infinity = 0x7f800000u;
    // The bits of 2^-40 and 2^55. Between them no square overflows, and squares that underflow are together below 2^-32
    // of the largest one.
    static constexpr word least_in_range = word{127 - 40} << 23, most_in_range = word{127 + 55} << 23;

    HALFTONE_HD HALFTONE_INLINE static int elements_of(extent i, extent count) {
        return count - i * n < n ? static_cast<int>(count - i * n) : n;
    }
};

/// One block: each thread adds chunks with a stride of the block's size, then a tree adds the threads' sums.
struct add_chunks_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(double);

    global_span<const chunk_result> results;
    global_span<gradient_record> record;
    global_span<std::int32_t> found_inf;

    grid_shape grid() const { return {}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        double squares = 0;
        word found = 0;
        for (extent i = simt.thread(); i < results.count; i += threads) {
            const chunk_result r = simt.load(results, i);
            squares += r.squares;
            found = found < r.found ? r.found : found;
        }
        squares = simt::block_sum<threads>(simt, squares, shared_span<double>{0, threads / 32});
        found = simt::block_max<threads>(simt, found, shared_span<word>{0, threads / 32});
        if (simt.thread() != 0) return;
        gradient_record r = simt.load(record, 0);
        std::int32_t of_slabs = simt.load(found_inf, 0);
        add_slab(r, of_slabs, squares, static_cast<std::int32_t>(found));
        simt.store(found_inf, 0, of_slabs);
        simt.store(record, 0, r);
    }
};

}  // namespace on_device

template <simt_device Device>
struct gradient_norm<Device> {
    static constexpr extent chunk = 16384;
    /// The largest number of additions that a square passes through within a chunk: in a thread, in a warp, over the
    /// warps.
    static constexpr extent depth = chunk / 256 + 5 + 8;

    template <class G>
    static void add(Device& device, const const_view<G, 1>& gradients, gradient_record* record, std::int32_t* found_inf,
                    const row_limit& limit = {}) {
        expect("gradient_norm", "gradients", gradients, gradients.shape());
        using namespace on_device;
        const extent chunks = detail::ceil_div(gradients.size(), chunk);
        if (chunks == 0) return;
        const workspace::lease memory(device.scratch(), static_cast<std::size_t>(chunks) * sizeof(chunk_result));
        const global_span<chunk_result> results{memory.as<chunk_result>(), chunks};
        const auto launch = [&]<run_access Access>(std::integral_constant<run_access, Access>) {
            device.launch(chunk_squares_kernel<G, Access>{
                simt::span_of(gradients), {&record->factors, 1}, results, {limit.count, 1}, limit.width});
        };
        launch_with_access<widest<G>>(launch, gradients.data());
        device.launch(add_chunks_kernel{{results.data, chunks}, {record, 1}, {found_inf, 1}});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
