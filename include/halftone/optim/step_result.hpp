// SPDX-License-Identifier: MIT
/// \file
/// The result of an optimizer's step: taken, or skipped for a reason that the device has found.
///
///     const ht::step_result r = optimizer.step(grads).result();          // asks the device
///     if (r != ht::step_result::taken) std::cout << "skipped: " << ht::name(r) << '\n';
///     optimizer.skips().infinity;                                        // the number of such steps so far
#pragma once

#include <cstdint>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Whether a step was taken, or the reason why it was skipped.
enum class step_result : std::int32_t {
    taken,
    infinity,      ///< a gradient of this optimizer was infinite, before or after unscaling, or so large that
                   ///< a moment would become infinite; none was NaN
    not_a_number,  ///< a gradient of this optimizer was NaN
    outlier,       ///< an outlier_guard judged the loss or the norm an outlier
    nothing,       ///< no parameter to update: all are frozen, or no backward pass of the window reached them
};

/// The result in words, such as "taken".
constexpr const char* name(step_result r) {
    switch (r) {
        case step_result::taken: return "taken";
        case step_result::infinity: return "infinity";
        case step_result::not_a_number: return "not a number";
        case step_result::outlier: return "outlier";
        case step_result::nothing: return "nothing to do";
    }
    return "?";
}

/// Skipped steps by reason.
struct skip_counts {
    std::int64_t infinity = 0;
    std::int64_t not_a_number = 0;
    std::int64_t outlier = 0;
    std::int64_t nothing = 0;

    HALFTONE_HD constexpr std::int64_t total() const { return infinity + not_a_number + outlier + nothing; }
    /// Counts a step with this result, if it was skipped.
    HALFTONE_HD constexpr void count(step_result r) {
        if (r == step_result::infinity) ++infinity;
        if (r == step_result::not_a_number) ++not_a_number;
        if (r == step_result::outlier) ++outlier;
        if (r == step_result::nothing) ++nothing;
    }
    friend constexpr bool operator==(const skip_counts&, const skip_counts&) = default;

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("infinity", self.infinity), f("not_a_number", self.not_a_number), f("outlier", self.outlier);
        f("nothing", self.nothing);
    }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
