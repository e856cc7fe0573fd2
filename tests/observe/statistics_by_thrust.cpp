// SPDX-License-Identifier: MIT
/// \file
/// The counts that a GPU computes with Thrust's algorithms and a histogram, computed with these algorithms and a simple histogram
/// on the host. Without Thrust this file is empty.
#if __has_include(<thrust/version.h>)

#include <algorithm>

#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <thrust/execution_policy.h>

#include <halftone/kernel/exponent_counts/histogram_bin.cuh>

#include "observe/statistics_checks.hpp"

namespace halftone {
inline namespace HALFTONE_ABI {

struct thrust_on_the_host {};

template <class T, int Rank>
tensor_statistics statistics_of(thrust_on_the_host&, const view<T, Rank>& values) {
    const auto all = flatten(values);
    const auto histogram = [](const auto& bins, extent count, int n, std::uint32_t* to) {
        for (extent i = 0; i < count; ++i) {
            if (bins[i] < n) ++to[bins[i]];
        }
    };
    extent counts[detail::magnitude_class::count] = {};
    const std::uint32_t largest =
        detail::count_classes<std::remove_const_t<T>>(thrust::host, histogram, all.data(), all.size(), counts);
    return detail::statistics_from(counts, largest);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

namespace {

using namespace statistics_checks;

TEST_CASE("statistics by Thrust: as on the CPU") {
    ht::thrust_on_the_host device;
    check(device);
}

}  // namespace

#endif
