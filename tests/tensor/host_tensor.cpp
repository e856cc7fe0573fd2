// SPDX-License-Identifier: MIT
/// \file
/// Copies on the host: of contiguous and strided views, of objects with a view; back to a device; as spans.
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/number/bfloat16.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "tensor/host_tensor_checks.hpp"

namespace tensor_host_tensor_tests {

namespace ht = halftone;

/// As much of a device as copies need.
struct host {
    ht::host_memory& memory() { return memory_; }
    ht::host_memory memory_{};
};

TEST_CASE("host_tensor: as_view is its elements, writable where the tensor is") {
    ht::host_tensor<float, 2> x({2, 3});
    ht::as_view(x)(1, 2) = 1.5f;
    CHECK(std::as_const(x)(1, 2) == 1.5f);
    static_assert(std::is_same_v<decltype(ht::as_view(x)), ht::view<float, 2>>);
    static_assert(std::is_same_v<decltype(ht::as_view(std::as_const(x))), ht::const_view<float, 2>>);
    static_assert(ht::detail::viewable<ht::host_tensor<float, 2>>);
    CHECK(ht::as_view(std::as_const(x)).data() == x.data());
    CHECK(ht::as_view(std::as_const(x)).shape() == x.shape());
}

TEST_CASE("host_tensor: copies its values, and is a range") {
    ht::host_tensor<ht::bfloat16, 2> x({2, 3});
    CHECK(x.shape() == ht::shape<2>{2, 3});
    CHECK(x.size() == 6);
    for (const ht::bfloat16 each : x) CHECK(each == 0.0f);
    x(1, 2) = ht::bfloat16(1.5f);
    const ht::host_tensor<ht::bfloat16, 2> y = x;
    x(1, 2) = ht::bfloat16(2);
    CHECK(y(1, 2) == 1.5f);
    CHECK(y.view()(1, 2) == 1.5f);
    CHECK(y.data()[5] == 1.5f);
    const std::span<const ht::bfloat16> all = y;
    CHECK(all.size() == 6);
    CHECK(all.data() == y.data());
    const ht::host_tensor<ht::bfloat16, 2> z = std::move(x);
    CHECK(z(1, 2) == 2.0f);
    CHECK(x.size() == 0);
    CHECK(x.shape() == ht::shape<2>{});
    CHECK(ht::host_tensor<float, 0>(ht::shape<0>{}).size() == 1);
    CHECK(ht::host_tensor<float, 2>{}.size() == 0);
    CHECK_THROWS_WITH_AS((ht::host_tensor<float, 2>({4, -1})), "host_tensor: shape (4, -1) has a negative extent",
                         ht::shape_error);
}

TEST_CASE("to_host and to_device: copies, out of the device's memory and into it") {
    host device;
    host_tensor_checks::round_trips(device);
    CHECK(device.memory().usage().live() == 0);
}

}  // namespace tensor_host_tensor_tests
