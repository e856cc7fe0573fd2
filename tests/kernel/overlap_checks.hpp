// SPDX-License-Identifier: MIT
/// \file
/// Views with several elements at one address: they may be inputs; as outputs they throw an exception that names them.
#pragma once

#include <string>

#include <doctest/doctest.h>

#include <halftone/kernel/convert/convert.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/tensor/host_tensor.hpp>

namespace overlap_checks {

namespace ht = halftone;

/// The message of the shape_error that is thrown; empty if none is.
template <class F>
std::string refusal(const F& f) {
    try {
        f();
    } catch (const ht::shape_error& e) {
        return e.what();
    }
    return {};
}

template <class T, class Device>
void maps(Device& device, const T* x, T* y) {
    const auto twice = [](auto a) { return a + a; };
    const ht::const_view<T, 2> in(x, {3, 4});
    using two = ht::view<T, 2>;
    CHECK(refusal([&] {
              ht::map(device, twice, in, two(y, {3, 4}, {0, 1}));
          }) == "map: output 0 (3, 4) is written to and overlaps itself; its strides are (0, 1)");
    CHECK(refusal([&] {
              ht::map(device, twice, in, two(y, {3, 4}, {3, 1}));
          }) == "map: output 0 (3, 4) is written to and overlaps itself; its strides are (3, 1)");
    CHECK(!refusal([&] { ht::map(device, twice, ht::const_view<T, 1>(x, {4}), ht::view<T, 1>(y, {4}, {0})); }).empty());
    CHECK(refusal([&] { ht::map(device, twice, in, two(y, {3, 4}, {4, 1})); }).empty());
    CHECK(refusal([&] { ht::map(device, twice, in, two(y, {3, 4}, {8, 1})); }).empty());
    // One row that is read for all rows; and a single row, whose stride does not matter.
    CHECK(refusal([&] { ht::map(device, twice, ht::const_view<T, 2>(x, {3, 4}, {0, 1}), two(y, {3, 4})); }).empty());
    CHECK(refusal([&] { ht::map(device, twice, ht::const_view<T, 2>(x, {1, 4}), two(y, {1, 4}, {0, 1})); }).empty());
    const auto e = ht::make_pack(twice(ht::symbolic::argument<0>{}));
    CHECK(refusal([&] {
              ht::kernel::map<Device>::backward(device, e, ht::make_pack(in), ht::make_pack(in),
                                                ht::make_pack(ht::kernel::gradient<T, 2>{two(y, {3, 4}, {0, 1})}));
          }) == "map: gradient of input 0 (3, 4) is written to and overlaps itself; its strides are (0, 1)");
}

template <class Device>
void conversions(Device& device, const float* x, float* y) {
    using two = ht::view<float, 2>;
    CHECK(refusal([&] {
              ht::kernel::convert<Device>::run(device, ht::const_view<float, 2>(x, {3, 4}), two(y, {3, 4}, {0, 1}));
          }) == "convert: to (3, 4) is written to and overlaps itself; its strides are (0, 1)");
    CHECK(refusal([&] {
              ht::kernel::convert<Device>::run(device, ht::const_view<float, 2>(x, {3, 4}, {0, 1}),
                                               two(y, {3, 4}, {5, 1}));
          }).empty());
}

template <class Device>
void all(Device& device) {
    ht::host_tensor<float, 1> ones({64});
    for (float& v : ones) v = 1;
    const auto x = ht::to_device(device, ones), y = ht::to_device(device, ones);
    maps<float>(device, x.data(), y.data());
    conversions(device, x.data(), y.data());
    ht::host_tensor<double, 1> wide({64});
    const auto z = ht::to_device(device, wide), w = ht::to_device(device, wide);
    maps<double>(device, z.data(), w.data());
}

}  // namespace overlap_checks
