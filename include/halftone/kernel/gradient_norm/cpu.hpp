// SPDX-License-Identifier: MIT
/// \file
/// The read pass over gradients on the CPU; gradient_norm.hpp has its contract and an example.
#pragma once

#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/gradient_norm/gradient_norm.hpp>
#include <halftone/memory/square_sum.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/integer.hpp>

#define HALFTONE_BODY <halftone/kernel/gradient_norm/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class G>
double squares_in_double(extent count, const G* g, const kernel::gradient_factors& f) {
    double squares = 0;
    for (extent i = 0; i < count; ++i) {
        const double v = kernel::read_gradient_in_double(static_cast<float>(g[i]), f);
        squares += v * v;
    }
    return squares;
}

/// The worst value among gradients that are not all finite.
template <class G>
std::int32_t worst_of(extent count, const G* g) {
    for (extent i = 0; i < count; ++i) {
        if (is_nan(g[i])) return kernel::found_nan;
    }
    return kernel::found_infinity;
}

/// A pairwise sum, in place.
double tree_sum(double* terms, extent count);

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct gradient_norm<cpu> {
    static constexpr extent chunk = 16384;
    /// The largest number of additions that a square passes through within a chunk.
    static constexpr extent depth = sum_depth(chunk);

    template <class G>
    static void add(cpu& device, const const_view<G, 1>& gradients, gradient_record* record, std::int32_t* found_inf,
                    const row_limit& limit = {}) {
        expect("gradient_norm", "gradients", gradients, gradients.shape());
        const auto body = device.select(HALFTONE_EACH_SET(gradient_squares<G>));
        const extent count = gradients.size(), chunks = detail::ceil_div(count, chunk);
        const workspace::lease sums(device.scratch(), static_cast<std::size_t>(chunks) * sizeof(double));
        double* const squares = sums.as<double>();
        std::atomic<std::int32_t> found{0};

        const auto take = [&](extent index) {
            const extent first = index * chunk, there = limit.elements(count) - first,
                         n = there < chunk ? there : chunk;
            if (n <= 0) {
                squares[index] = 0;
                return;
            }
            const gradient_factors factors = record->factors;
            detail::chunk_squares here{};
            body(n, gradients.data() + first, factors, here);
            if (here.found_inf != 0) {
                const std::int32_t worst = detail::worst_of(n, gradients.data() + first);
                std::int32_t so_far = found.load(std::memory_order_relaxed);
                while (so_far < worst && !found.compare_exchange_weak(so_far, worst, std::memory_order_relaxed)) {
                }
            }
            // Between these bounds no square overflows, and squares that underflow are together below 2^-32 of the
            // largest one.
            const bool in_range = here.largest >= 0x1p-40f && here.largest <= 0x1p55f;
            squares[index] = here.found_inf != 0 || here.largest == 0.0f ? 0.0
                             : in_range                                  ? static_cast<double>(here.squares)
                                        : detail::squares_in_double(n, gradients.data() + first, factors);
        };
        const extent each = update_part(count) / chunk;
        device.parallel_for(detail::ceil_div(chunks, each), [&](extent run) {
            for (extent index = run * each; index < std::min(chunks, (run + 1) * each); ++index) take(index);
        });

        device.run([&] {
            add_slab(*record, *found_inf, detail::tree_sum(squares, chunks), found.load(std::memory_order_relaxed));
        });
    }
    /// Adds finite gradients whose sum of squares, as stored, is known; for factors without a limit.
    static void add(cpu& device, const square_sum& squares, gradient_record* record, std::int32_t* found_inf);
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/gradient_norm/cpu.body.hpp>
#endif
