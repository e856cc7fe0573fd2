// SPDX-License-Identifier: MIT
/// \file
/// Draws random indices for each row, with probabilities proportional to the row's weights, as in sampling the next token.
///
///     ht::multinomial(device, probabilities, samples, {.seed = 42, .step = t});       // samples: (rows, draws)
///
/// A draw is a function of (seed, step, row, number of the draw) and the row's weights: Philox4x32-10 gives a u in [0,
/// 1) with 53 random bits, and the result is the first index at which the cumulative sum of the weights, computed in
/// double, exceeds u times the total. So every device gives the same indices, they do not depend on other rows, and
/// draws are reproducible.
///
/// One thread computes a row: time grows with the row's length and the number of draws.
#pragma once

#include <cstdint>

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/number/philox.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The values that determine the draws, and whether an index may be drawn more than once.
struct multinomial_options {
    std::uint64_t seed = 0;
    std::uint32_t step = 0;    ///< each step gives different draws; the number of the token, for instance
    bool replacement = false;  ///< whether an index may be drawn more than once
    extent first_row = 0;      ///< the number of the first row, if these rows are a part of a batch
};

namespace kernel {

/// The tensor number (number/philox.hpp) from which the random numbers of draws are derived.
inline constexpr std::uint32_t multinomial_stream = 0x6d6e6f6d;

template <class X>
struct multinomial_row {
    fp64::rows_of<const X> weights;
    simt::global_span<std::int32_t> samples;
    extent classes, draws;
    multinomial_options options;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent row) const {
        for (extent draw = 0; draw < draws; ++draw) thread.store(samples, row * draws + draw, one(thread, row, draw));
    }

  private:
    /// The weight of a class in this draw; -1 for an invalid weight.
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD double weight(Thread thread, extent row, extent draw, extent j) const {
        const double w = weights.load(thread, row, j);
        if (!(w >= 0 && w <= fp64::largest_number)) return -1;
        for (extent before = 0; !options.replacement && before < draw; ++before)
            if (thread.load(samples, row * draws + before) == j) return 0;
        return w;
    }
    HALFTONE_HD double uniform_of(extent row, extent draw) const {
        const auto number = static_cast<std::uint64_t>((options.first_row + row) * draws + draw);
        const philox::block bits = random_block(options.seed, options.step, multinomial_stream, number);
        return static_cast<double>((static_cast<std::uint64_t>(bits[0]) << 21) ^ (bits[1] >> 11)) * 0x1p-53;
    }
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD std::int32_t one(Thread thread, extent row, extent draw) const {
        double sum = 0;
        for (extent j = 0; j < classes; ++j) {
            const double w = weight(thread, row, draw, j);
            if (w < 0) return -1;
            sum += w;
        }
        const double sought = uniform_of(row, draw) * sum;
        double up_to = 0;
        std::int32_t last = -1;
        for (extent j = 0; j < classes; ++j) {
            const double w = weight(thread, row, draw, j);
            up_to += w;
            if (w > 0) last = static_cast<std::int32_t>(j);
            if (up_to > sought) return last;
        }
        return last;  // if rounding leaves no sum above u times the total; -1 if no weight is positive
    }
};

}  // namespace kernel

namespace detail {

/// Throws argument_error for a row from which nothing can be drawn, if the host can read the samples.
inline void check_samples(const const_view<std::int32_t, 2>& samples) {
    for (extent i = 0; i < samples.extent_of(0); ++i) {
        for (extent draw = 0; draw < samples.extent_of(1); ++draw) {
            if (samples(i, draw) < 0)
                fail<argument_error>("multinomial: draw ", draw, " of row ", i,
                                     " finds no positive weight, or one that is negative or not finite");
        }
    }
}

}  // namespace detail

/// samples[i][s]: an index of row i, drawn with probability weights[i][index] / (sum of the row's weights). weights:
/// (rows, classes) of any number type, with any row stride; not negative. samples: (rows, draws) of std::int32_t.
/// Throws shape_error. If the host can read the memory, throws argument_error for a row with a weight that is negative
/// or not finite, without positive weights, or, without replacement, with fewer positive weights than draws; otherwise
/// the index of such a row is -1.
template <class Device, class X>
    requires(detail::kernel_device<Device> && detail::viewables<X>)
void multinomial(Device& device, const X& weights, const view<std::int32_t, 2>& samples,
                 const multinomial_options& options = {}) {
    using T = detail::element_in<X>;
    const const_view<T, 2> from = as_view(weights);
    kernel::expect_rows("multinomial", "weights", from, from.shape());
    kernel::expect("multinomial", "samples", samples, {from.extent_of(0), samples.extent_of(1)});
    if (samples.size() == 0) return;
    kernel::fp64::for_each(device, from.extent_of(0), from.extent_of(1) * samples.extent_of(1),
                           kernel::multinomial_row<T>{kernel::fp64::rows_of<const T>(from), simt::span_of(samples),
                                                      from.extent_of(1), samples.extent_of(1), options});
    if constexpr (requires { device.instruction_set(); }) device.run([&] { detail::check_samples(samples); });
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
