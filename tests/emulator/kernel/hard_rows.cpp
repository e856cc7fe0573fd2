// SPDX-License-Identifier: MIT
/// \file
/// Layer and RMS normalisation's GPU kernels on the emulated GPU, for rows that float arithmetic does not resolve.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/norm/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/norm/hard_rows.hpp"
#include "support/guarded.hpp"

namespace emulator_kernel_hard_rows_tests {

using namespace hard_rows;
using ht::bfloat16;
namespace emulator = ht::emulator;

// Rows that are processed by a warp, by a block, and by a wide block, in registers or from memory; of whole vectors or not.
constexpr extent widths[] = {1, 5, 64, 67, 1048, 1049, 4104};

TEST_CASE("layer_norm on a GPU: the result of a constant row is the bias") {
    emulator::device device;
    for (const extent width : widths) {
        check_constants<float>(device, width);
        check_constants<double>(device, width);
    }
    check_constants<float>(device, 65537);
}

template <class X_, class Y_>
struct types {
    using X = X_;
    using Y = Y_;
};
TEST_CASE_TEMPLATE("layer_norm, rms_norm on a GPU: rows that float does not resolve", M, types<float, float>,
                   types<bfloat16, bfloat16>, types<double, double>) {
    emulator::device device;
    for (const extent width : widths) {
        check_layer_norm<typename M::X, typename M::Y>(device, width);
        check_rms_norm<typename M::X, typename M::Y>(device, width);
    }
    for (const extent gap : {1, 8}) {
        check_layer_norm<typename M::X, typename M::Y>(device, 67, gap);
        check_rms_norm<typename M::X, typename M::Y>(device, 64, gap);
        check_layer_norm<typename M::X, typename M::Y>(device, 1048, gap);
    }
}

TEST_CASE_TEMPLATE("layer_norm, rms_norm on a GPU: a row's bits do not depend on other rows, its index, or the stride", X,
                   float, bfloat16) {
    emulator::device device;
    for (const extent width : {64, 1048}) {
        check_bits<X, true>(device, width);
        check_bits<X, false>(device, width);
    }
}

/// Whether rows of large integers, with a different sum in every lane, have the right results.
template <bool Centred>
bool is_right(emulator::device& device, extent rows, extent width) {
    const ht::shape<2> shape{rows, width};
    support::random data(5);
    const support::guarded<float> x(data.integers<float>(rows * width, 6), 0), y(rows * width, 0),
        gain(std::vector<float>(static_cast<std::size_t>(width), 1.0f), 0);
    for (extent i = 0; i < rows * width; ++i) x[i] *= 0x1p100f;
    typename norm_of<Centred>::template forward_arguments<float, float, float> a{};
    a.x = x.const_view(shape), a.gain = gain.const_view(), a.y = y.view(shape);
    norm_of<Centred>::template kernel<emulator::device>::forward(device, a);
    for (extent i = 0; i < rows; ++i) {
        double sum = 0, squares = 0;
        for (extent j = 0; j < width; ++j) sum += static_cast<double>(x[i * width + j]) / static_cast<double>(width);
        const double average = Centred ? sum : 0;
        for (extent j = 0; j < width; ++j) {
            const double d = static_cast<double>(x[i * width + j]) - average;
            squares += d * d / static_cast<double>(width);
        }
        for (extent j = 0; j < width; ++j) {
            const double want = (static_cast<double>(x[i * width + j]) - average) / std::sqrt(squares);
            if (std::fabs(static_cast<double>(y[i * width + j]) - want) >
                support::rounded<float>(want, 1e-12 * (1 + std::fabs(want))))
                return false;
        }
    }
    return true;
}

TEST_CASE(
    "layer_norm, rms_norm on a GPU: rows taken with care are right in every schedule, and every damage is found") {
    for (const extent width : {72, 1032, 4097}) {
        CAPTURE(width);
        emulator::check_kernels(
            [&](emulator::device& device) { return is_right<true>(device, width < 100 ? 5 : 1, width); });
        emulator::check_kernels(
            [&](emulator::device& device) { return is_right<false>(device, width < 100 ? 5 : 1, width); });
    }
}

}  // namespace emulator_kernel_hard_rows_tests
