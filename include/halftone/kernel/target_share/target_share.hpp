// SPDX-License-Identifier: MIT
/// \file
/// What a loss is a mean over, and the fraction of it that one micro-batch of a batch has. Computed on the device that holds the
/// targets, so that the host does not wait.
///
///     kernel::target_share<cpu>::run(device, targets_of_micro, targets_of_batch, &counts);     // counts.share, ...
///     kernel::target_share<cpu>::run(device, {micro.labels, 7, class_weights}, {batch.labels, 7, class_weights}, &counts);
///
/// Numeric contract: numbers of targets are exact. Sums of weights are in double, of n floats within n 2^-53 of their sum. The
/// share is their quotient in double, rounded once: for one of k micro-batches with equal counts it is the double 1 / k. It is 0
/// if nothing of the micro-batch counts, even if nothing of the batch does.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a loss is a mean over: the number by which the sum of its terms is divided. It is
///
///     loss_divisor{batch.labels}                  // how many are not -100, as in cross_entropy
///     loss_divisor{batch.labels, 7, weights}      // the sum of their classes' weights, of those that are not 7
///     loss_divisor{batch.labels, options}         // the same, of a cross-entropy with these options
///     loss_divisor{batch.mask}                    // the sum of a view of floats
///     loss_divisor{12.5}                          // a number; in a captured step it stays that of the capture
///
/// Views are of any shape, and contiguous; those that a device can read are read when it computes.
struct loss_divisor {
    const_view<std::int32_t, 1> targets{};
    std::int32_t ignore_index = -100;  ///< targets that do not count
    const_view<float, 1> weight{};     ///< (classes), not negative; without data: 1 for each class
    const_view<float, 1> terms{};      ///< floats to be added up
    double number = 0;

    /// Throws shape_error for views that are not contiguous.
    template <class T, int Rank>
        requires(std::same_as<std::remove_const_t<T>, std::int32_t>)
    loss_divisor(const view<T, Rank>& classes, std::int32_t ignored = -100,  // NOLINT(google-explicit-constructor)
                 const const_view<float, 1>& of_classes = {})
        : targets(flatten(const_view<std::int32_t, Rank>(classes))),
          ignore_index(ignored),
          weight(flatten(of_classes)) {}
    template <class T, int Rank, class Options>
        requires requires(const Options& o) { o.ignore_index, o.weight; }
    loss_divisor(const view<T, Rank>& classes, const Options& options)
        : loss_divisor(classes, options.ignore_index, options.weight) {}
    template <class T, int Rank>
        requires(std::same_as<std::remove_const_t<T>, float>)
    loss_divisor(const view<T, Rank>& floats)  // NOLINT(google-explicit-constructor)
        : terms(flatten(const_view<float, Rank>(floats))) {}
    /// Throws argument_error for a number that is negative or NaN.
    template <class Number>
        requires(std::is_arithmetic_v<Number> && !std::same_as<Number, bool>)
    loss_divisor(Number n) : number(static_cast<double>(n)) {  // NOLINT(google-explicit-constructor)
        if (!(number >= 0)) fail<argument_error>("loss_divisor: a loss is divided by ", number, "; expected 0 or more");
    }
};

namespace kernel {

/// The results of counting, in the device's memory.
struct target_counts {
    double share = 0;    ///< counted / of
    double counted = 0;  ///< what counts in the micro-batch: targets, or their weights
    double of = 0;       ///< what counts in the batch
};

/// The record for these two counts.
HALFTONE_HD inline target_counts target_counts_of(double counted, double of) {
    return {counted == 0 ? 0 : counted / of, counted, of};
}

/// What a target that counts and is no class adds, where classes have weights.
inline constexpr double weight_of_no_class = std::numeric_limits<double>::quiet_NaN();

/// The value of a divisor whose views are in host memory.
inline double value_on_host(const loss_divisor& d) {
    double sum = d.number;
    if (d.weight.data() == nullptr) {
        extent counted = 0;
        for (extent i = 0; i < d.targets.size(); ++i) counted += d.targets.data()[i] != d.ignore_index ? 1 : 0;
        sum += static_cast<double>(counted);
    } else {
        for (extent i = 0; i < d.targets.size(); ++i) {
            const std::int32_t target = d.targets.data()[i];
            if (target == d.ignore_index) continue;
            const bool is_class = target >= 0 && target < d.weight.size();
            sum += is_class ? static_cast<double>(d.weight.data()[target]) : weight_of_no_class;
        }
    }
    for (extent i = 0; i < d.terms.size(); ++i) sum += static_cast<double>(d.terms.data()[i]);
    return sum;
}

/// run(device, micro, of, counts): computes both divisors and writes the result; `of` may be the same.
template <class Device>
struct target_share {
    static_assert(sizeof(Device) == 0,
                  "halftone: target_share: the kernels of this device are not included: include <halftone/kernel.hpp> "
                  "for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

}  // namespace kernel

/// Computes the divisors of the losses of a micro-batch and of its batch, and writes both numbers and their quotient to *counts in
/// the device's memory: the micro-batch's share of the batch's loss. The host does not wait. A target that counts, is no class
/// and should have a class's weight makes a divisor NaN.
template <class Device>
    requires(detail::kernel_device<Device>)
void target_share(Device& device, const loss_divisor& micro, const loss_divisor& of, kernel::target_counts* counts) {
    kernel::target_share<Device>::run(device, micro, of, counts);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
