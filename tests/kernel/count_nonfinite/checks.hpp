// SPDX-License-Identifier: MIT
/// \file
/// Tests of count_nonfinite, for every device.
#pragma once

#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/count_nonfinite/reference.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace count_nonfinite_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;

inline constexpr ht::extent sizes[] = {0, 1, 3, 7, 9, 17, 67, 16383, 16385, 2 * 16384 + 11};
inline constexpr float infinity = std::numeric_limits<float>::infinity(),
                       not_a_number = std::numeric_limits<float>::quiet_NaN();

inline bool same(const kernel::nonfinite_counts& a, const kernel::nonfinite_counts& b) {
    return a.positive_infinities == b.positive_infinities && a.negative_infinities == b.negative_infinities &&
           a.nans == b.nans && a.largest == b.largest;
}

template <class Device, class T>
kernel::nonfinite_counts run(Device& device, const support::guarded<T>& values) {
    kernel::nonfinite_counts found{7, 7, 7, 7.0f};
    ht::count_nonfinite(device, values.const_view(), &found);
    return found;
}

/// Counts and magnitude are exact, at all lengths and alignments.
template <class T, class Device>
void equals_definition(Device& device) {
    support::random data{1};
    for (const ht::extent n : sizes) {
        for (const ht::extent offset : {ht::extent{0}, 1 + n % 3}) {
            CAPTURE(n);
            const support::guarded<T> values(data.normals<T>(static_cast<std::size_t>(n), 3), offset);
            const kernel::nonfinite_counts clean = run(device, values);
            CHECK(same(clean, ht::reference::count_nonfinite(values.const_view())));
            CHECK(clean.is_finite());
            if (n < 3) continue;
            for (const float odd : {infinity, -infinity, not_a_number, -not_a_number}) {
                const ht::extent at = (n * 5 / 7 + (odd < 0 ? 1 : 0)) % n;
                const T before = values[at];
                values[at] = T(odd), values[n - 1] = T(odd), values[0] = T(-odd);
                CHECK(same(run(device, values), ht::reference::count_nonfinite(values.const_view())));
                CHECK_FALSE(run(device, values).is_finite());
                values[at] = values[n - 1] = values[0] = before;
            }
            CHECK(values.intact());
        }
    }
}

/// Counts known by hand, so that the definition is tested as well.
template <class Device>
void counts(Device& device) {
    const support::guarded<ht::float16> values(
        std::vector<ht::float16>{ht::float16(1.0f), ht::float16(-65504.0f), ht::float16(infinity),
                                 ht::float16(-infinity), ht::float16(-infinity), ht::float16(not_a_number),
                                 ht::float16(-0.0f)},
        1);
    CHECK(same(run(device, values), {1, 2, 1, 65504.0f}));
    const support::guarded<ht::float16> zeros(std::vector<ht::float16>(5, ht::float16(0.0f)), 0);
    CHECK(same(run(device, zeros), {}));
}

template <class Device>
void refuses(Device& device) {
    const std::vector<float> x(8);
    kernel::nonfinite_counts found;
    CHECK_THROWS_AS(kernel::count_nonfinite<Device>::run(device, ht::const_view<float, 1>(x.data(), {4}, {2}), &found),
                    ht::shape_error);
}

}  // namespace count_nonfinite_checks
