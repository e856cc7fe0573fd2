// SPDX-License-Identifier: MIT
/// \file
/// Copies to the host and back, on any device.
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <halftone/tensor/host_tensor.hpp>

namespace host_tensor_checks {

namespace ht = halftone;

template <class Device>
void round_trips(Device& device) {
    std::vector<int> numbers;
    for (int i = 0; i < 2 * 3 * 5; ++i) numbers.push_back(i);
    const auto x = ht::to_device(device, ht::const_view<int, 3>(numbers.data(), {2, 3, 5}));
    numbers.assign(numbers.size(), -1);  // the caller's again
    const auto at = [](ht::extent i, ht::extent j, ht::extent k) { return static_cast<int>((i * 3 + j) * 5 + k); };

    const ht::host_tensor<int, 3> all = ht::to_host(device, x);  // of a tensor
    CHECK(all.shape() == x.shape());
    for (int i = 0; i < 30; ++i) CHECK(all.data()[i] == i);

    // Views with gaps: a transposed one; every second row, without its last two columns; one value for all elements.
    const auto turned = ht::to_host(device, ht::transpose(x.const_view()));
    CHECK(turned.shape() == ht::shape<3>{2, 5, 3});
    for (ht::extent i = 0; i < 2; ++i) {
        for (ht::extent j = 0; j < 3; ++j) {
            for (ht::extent k = 0; k < 5; ++k) CHECK(turned(i, k, j) == at(i, j, k));
        }
    }
    const auto part = ht::to_host(device, ht::const_view<int, 2>(x.data() + 1, {3, 3}, {10, 1}));
    for (ht::extent i = 0; i < 3; ++i) {
        for (ht::extent j = 0; j < 3; ++j) CHECK(part(i, j) == 10 * i + j + 1);
    }
    const auto same = ht::to_host(device, ht::const_view<int, 2>(x.data() + 7, {2, 3}, {0, 0}));
    for (const int each : same) CHECK(each == 7);

    // Negative strides: on both axes, of an array of exactly that size; on rows; on columns, of rows with a stride; and
    // overlapping elements: five windows of three.
    const auto back = ht::to_host(device, ht::const_view<int, 2>(x.data() + 29, {6, 5}, {-5, -1}));
    for (int i = 0; i < 30; ++i) CHECK(back.data()[i] == 29 - i);
    const auto rows_back = ht::to_host(device, ht::const_view<int, 2>(x.data() + 25, {6, 5}, {-5, 1}));
    const auto columns_back = ht::to_host(device, ht::const_view<int, 2>(x.data() + 4, {3, 5}, {10, -1}));
    for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 5; ++j) {
            CHECK(rows_back(i, j) == 5 * (5 - i) + j);
            CHECK(columns_back(i, j) == 10 * i + 4 - j);
        }
    }
    const auto windows = ht::to_host(device, ht::const_view<int, 2>(x.data() + 6, {5, 3}, {-1, 1}));
    for (int i = 0; i < 5; ++i) {
        for (int j = 0; j < 3; ++j) CHECK(windows(i, j) == 6 - i + j);
    }
    CHECK(ht::to_host(device, ht::const_view<int, 2>(x.data(), {0, 5}, {-5, -1})).size() == 0);

    CHECK(ht::to_host(device, ht::const_view<int, 0>(x.data() + 4, {}))() == 4);
    CHECK(ht::to_host(device, ht::const_view<int, 2>(nullptr, {0, 3})).size() == 0);
    CHECK(ht::to_device(device, ht::const_view<int, 2>(nullptr, {0, 3})).size() == 0);

    ht::host_tensor<int, 3> changed = all;
    changed(1, 2, 4) = 100;
    const auto again = ht::to_host(device, ht::to_device(device, changed));
    CHECK(again(1, 2, 4) == 100);
    CHECK(again(1, 2, 3) == 28);
    CHECK_THROWS_WITH_AS(ht::to_device(device, ht::transpose(changed.view())),
                         "to_device: the view (2, 5, 3) is not contiguous; its strides are (15, 1, 5)",
                         ht::shape_error);

    // Into existing memory: of a tensor, and of a part of one.
    const auto same_memory = ht::to_device(device, all);
    ht::to_device(device, changed, same_memory);
    CHECK(ht::to_host(device, same_memory)(1, 2, 4) == 100);
    ht::to_device(device, ht::const_view<int, 1>(all.data(), {5}), ht::view<int, 1>(same_memory.data() + 25, {5}));
    const auto mixed = ht::to_host(device, same_memory);
    for (int i = 0; i < 30; ++i) CHECK(mixed.data()[i] == (i < 25 ? i : i - 25));
    CHECK_THROWS_WITH_AS(ht::to_device(device, ht::const_view<int, 1>(all.data(), {5}), ht::view<int, 1>(same_memory.data(), {4})),
                         "to_device: values are (5), the memory that they go to (4)", ht::shape_error);
    CHECK_THROWS_AS(ht::to_device(device, changed, ht::view<int, 3>(same_memory.data(), {2, 3, 5}, {15, 1, 3})), ht::shape_error);
    CHECK_THROWS_AS(ht::to_device(device, ht::view<int, 3>(changed.data(), {2, 3, 5}, {15, 1, 3}), same_memory), ht::shape_error);
}

}  // namespace host_tensor_checks
