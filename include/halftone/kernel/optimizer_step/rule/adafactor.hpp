// SPDX-License-Identifier: MIT
/// \file
/// The last of Adafactor's passes over a parameter (Shazeer and Stern 2018, "Adafactor: Adaptive Learning Rates with
/// Sublinear Memory Cost"), as in torch.optim.Adafactor: w becomes w (1 - lr weight_decay) - step g / sqrt(variance).
/// The variance of an element is the product of a value of its row and one of its column; step follows from sums over
/// the whole parameter, which earlier passes store in a record (kernel/optimizer_step/adafactor/adafactor.hpp).
///
///     kernel::adafactor_rule rule{.beta2_decay = -0.8, .epsilon1 = 0x1p-23};     // moment: the columns' variance, only read
///
/// optimizer_step.hpp has the contract, updates.simd.hpp the update of one parameter.
#pragma once

#include <cmath>

#include <halftone/kernel/common/update/records.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The results of the first passes over a parameter that the last one reads, in the device's memory.
struct adafactor_record {
    float row_mean = 1;           ///< the mean of the rows' variances, at least epsilon1
    double update_squares = 0;    ///< the sum of squares of g / sqrt(variance)
    double parameter_squares = 0; ///< the sum of squares of the parameter before the step
};

struct adafactor_rule {
    static constexpr const char* name = "adafactor";
    static constexpr int moments = 1;  // read by the last pass; written by earlier passes
    static constexpr const char* moment_names[moments] = {"columns"};
    static constexpr bool always_keeps = true;
    static constexpr bool only_reads_moments = true;

    double beta2_decay = -0.8;   ///< the weight of the new squares in the variance is t^beta2_decay in step t
    double epsilon1 = 0x1p-23;   ///< the lower limit of the root of a variance
    double epsilon2 = 1e-3;      ///< the lower limit of the root mean square of a parameter
    double d = 1;                ///< the upper limit of the root mean square of an update

    /// Adafactor has no moments in the layout of gradients.
    static constexpr bool keeps() { return false; }
    /// The variances are means of squares of gradients, so these must be finite.
    static constexpr float largest_gradient() { return largest_with_square; }

    /// The weight of the new mean of squares in the variance.
    HALFTONE_HD double variance_weight(const step_record& step) const {
        return std::pow(static_cast<double>(step.steps), beta2_decay);
    }
    HALFTONE_HD float least_variance() const { return static_cast<float>(epsilon1 * epsilon1); }

    struct scalars {
        float row;    // the variance of an element is this times that of its column
        float least;  // the lower limit of the variance
        float step, decay;
    };
    /// The scalars of a step for a parameter of `count` elements; the caller sets `row` for each row.
    HALFTONE_HD scalars scalars_of(const group_rates& rates, const step_record& step, const adafactor_record& found,
                                   double count) const {
        const double lr = rates.lr(step), relative = 1 / std::sqrt(static_cast<double>(step.steps));
        const double size = std::sqrt(found.parameter_squares / count), update = std::sqrt(found.update_squares / count) / d;
        const double rate = (size > epsilon2 ? size : epsilon2) * (lr < relative ? lr : relative);
        return {1, least_variance(), static_cast<float>(update > 1 ? rate / update : rate),
                static_cast<float>(1 - lr * rates.weight_decay)};
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
