// SPDX-License-Identifier: MIT
/// \file
/// Views with several elements at one address: they may be inputs; as outputs they throw an exception that names them. So do
/// inputs in the memory of an output, except in place.
#pragma once

#include <string>

#include <doctest/doctest.h>

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/convert/convert.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/kernel/strided_copy/strided_copy.hpp>
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
    // In place, for numbers of the same size.
    CHECK(refusal([&] { ht::convert(device, two(y, {3, 4}), two(y, {3, 4}), 2); }).empty());
    const ht::view<ht::bfloat16, 2> halves(reinterpret_cast<ht::bfloat16*>(y), {3, 4});
    CHECK(refusal([&] {
              ht::convert(device, two(y, {3, 4}), halves);
          }) ==
          "convert: from (3, 4) is in the memory of to (3, 4), which is written to while it is read; copy it first");
    CHECK_FALSE(refusal([&] { ht::convert(device, two(y, {3, 4}), two(y + 4, {3, 4})); }).empty());
}

/// Inputs in the memory of what is written: refused, unless each element is read where it is written.
template <class T, class Device>
void inputs_in_outputs(Device& device, T* y) {
    const auto difference = [](auto a, auto b) { return a - b; };
    const auto twice = [](auto a) { return a + a; };
    using one = ht::view<T, 1>;
    using two = ht::view<T, 2>;
    const two m(y, {3, 4});
    const auto in_the_way = [](const char* what, const char* shape, const char* where) {
        return std::string("map: ") + what + ' ' + shape + " is in the memory of output 0 " + where +
               ", which is written to while it is read; copy it first";
    };
    // A matrix less one of its own rows, or one of its numbers, or its first column.
    CHECK(refusal([&] { ht::map(device, difference, m, one(y, {4}), m); }) == in_the_way("input 1", "(4)", "(3, 4)"));
    CHECK(refusal([&] { ht::map(device, difference, m, one(y + 8, {4}), m); }) ==
          in_the_way("input 1", "(4)", "(3, 4)"));
    CHECK(refusal([&] { ht::map(device, difference, m, ht::view<T, 0>(y + 5, {}), m); }) ==
          in_the_way("input 1", "()", "(3, 4)"));
    CHECK(refusal([&] {
              ht::map(device, difference, m, two(y, {3, 4}, {0, 1}), m);
          }) == in_the_way("input 1", "(3, 4)", "(3, 4)"));
    CHECK(refusal([&] {
              ht::map(device, difference, m, two(y, {3, 4}, {4, 0}), m);
          }) == in_the_way("input 1", "(3, 4)", "(3, 4)"));
    // The same memory one element further, backwards, and transposed.
    CHECK(refusal([&] { ht::map(device, twice, one(y, {11}), one(y + 1, {11})); }) ==
          in_the_way("input 0", "(11)", "(11)"));
    CHECK(refusal([&] { ht::map(device, twice, one(y + 3, {4}, {-1}), one(y, {4})); }) ==
          in_the_way("input 0", "(4)", "(4)"));
    CHECK(refusal([&] {
              ht::map(device, twice, two(y, {3, 3}, {1, 3}), two(y, {3, 3}));
          }) == in_the_way("input 0", "(3, 3)", "(3, 3)"));
    const auto both = [](auto a) { return ht::results(a + a, a * a); };
    CHECK(refusal([&] { ht::map(device, both, one(y, {4}), one(y + 8, {4}), one(y + 11, {4})); }) ==
          "map: output 0 (4) is in the memory of output 1 (4), which is written to while it is read; copy it first");
    // Rows with gaps: one of them, one number of one, and what is in a gap.
    const two apart(y, {3, 4}, {8, 1});
    for (const int first : {0, 8, 16}) {
        CHECK(refusal([&] { ht::map(device, difference, apart, one(y + first, {4}), apart); }) ==
              in_the_way("input 1", "(4)", "(3, 4)"));
        CHECK(refusal([&] { ht::map(device, difference, apart, ht::view<T, 0>(y + first + 3, {}), apart); }) ==
              in_the_way("input 1", "()", "(3, 4)"));
        CHECK(refusal([&] { ht::map(device, difference, apart, one(y + first + 4, {4}), apart); }).empty());
    }
    CHECK_FALSE(refusal([&] { ht::map(device, difference, apart, one(y + 10, {4}), apart); }).empty());
    // Every other number; and windows that overlap each other.
    CHECK(refusal([&] { ht::map(device, twice, one(y, {3}, {2}), one(y + 5, {3})); }).empty());
    CHECK_FALSE(refusal([&] { ht::map(device, twice, one(y, {3}, {2}), one(y + 4, {3})); }).empty());
    CHECK_FALSE(refusal([&] { ht::map(device, twice, two(y, {3, 2}, {1, 1}), two(y + 3, {3, 2})); }).empty());
    // Of rows with gaps a column, a row further, transposed, backwards; beside each other, and between each other's rows.
    for (const two& moved : {two(y + 1, {3, 4}, {8, 1}), two(y + 8, {3, 4}, {8, 1}), two(y + 3, {3, 4}, {8, -1}),
                             two(y + 16, {3, 4}, {-8, 1}), two(y - 1 + 8, {2, 4}, {8, 1})})
        CHECK_FALSE(refusal([&] { ht::map(device, twice, moved, two(y, moved.shape(), {8, 1})); }).empty());
    CHECK_FALSE(refusal([&] { ht::map(device, twice, two(y, {4, 4}, {1, 8}), two(y, {4, 4}, {8, 1})); }).empty());
    CHECK(refusal([&] { ht::map(device, twice, two(y + 4, {3, 4}, {8, 1}), apart); }).empty());
    CHECK(refusal([&] { ht::map(device, twice, two(y + 28, {3, 4}, {8, 1}), apart); }).empty());
    CHECK(refusal([&] { ht::map(device, twice, two(y + 4, {3, 2}, {16, 1}), two(y, {3, 2}, {8, 1})); }).empty());
    CHECK_FALSE(refusal([&] { ht::map(device, twice, two(y + 8, {2, 2}, {16, 1}), two(y, {2, 2}, {8, 1})); }).empty());
    // In place; a single row of its own; what is beside it; columns of one matrix.
    CHECK(refusal([&] { ht::map(device, twice, m, m); }).empty());
    CHECK(refusal([&] { ht::map(device, difference, m, m, m); }).empty());
    CHECK(refusal([&] { ht::map(device, difference, two(y, {1, 4}), one(y, {4}), two(y, {1, 4}, {0, 1})); }).empty());
    CHECK(refusal([&] { ht::map(device, twice, ht::view<T, 0>(y, {}), ht::view<T, 0>(y, {})); }).empty());
    CHECK(refusal([&] { ht::map(device, difference, two(y + 4, {2, 4}), one(y, {4}), two(y + 4, {2, 4})); }).empty());
    CHECK(refusal([&] { ht::map(device, twice, one(y, {3}, {4}), one(y + 1, {3}, {4})); }).empty());
    CHECK(refusal([&] { ht::map(device, twice, one(y, {0}), one(y, {0})); }).empty());
    CHECK(refusal([&] {
              ht::contiguous(device, two(y, {3, 3}, {1, 3}), two(y, {3, 3}));
          }) ==
          "contiguous: x (3, 3) is in the memory of y (3, 3), which is written to while it is read; copy it first");
    // Calls that are measured have no memory: their addresses say nothing.
    CHECK(ht::workspace_bytes(device, [&](auto& twin) { ht::map(twin, difference, m, one(y, {4}), m); }) == 0);
}

template <class Device>
void all(Device& device) {
    ht::host_tensor<float, 1> ones({64});
    for (float& v : ones) v = 1;
    const auto x = ht::to_device(device, ones), y = ht::to_device(device, ones);
    maps<float>(device, x.data(), y.data());
    inputs_in_outputs<float>(device, y.data());
    conversions(device, x.data(), y.data());
    ht::host_tensor<double, 1> wide({64});
    const auto z = ht::to_device(device, wide), w = ht::to_device(device, wide);
    maps<double>(device, z.data(), w.data());
    inputs_in_outputs<double>(device, w.data());
}

}  // namespace overlap_checks
