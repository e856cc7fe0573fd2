// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation's GPU kernels on the emulated GPU.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/norm/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/norm/layer_norm_checks.hpp"

namespace emulator_kernel_layer_norm_tests {

using namespace layer_norm_checks;
namespace emulator = ht::emulator;
using layer_norm = ht::kernel::layer_norm<emulator::device>;

TEST_CASE_TEMPLATE("layer_norm on a GPU: forward within its bound of the definition", M, all_float, mixed, widening,
                   narrow) {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 129, 768, 1021, 1024})
            forward_within_bounds<M>(device, 6, width, 1e-5f, true, apart);
        forward_within_bounds<M>(device, 5, 64, 1e-2f, false, apart);
        forward_within_bounds<M>(device, 2, 1048, 0.0f, true, apart);  // by a block, in registers
        forward_within_bounds<M>(device, 2, 4104, 0.0f, true, apart);  // by a wide block, in registers or from memory
    }
}

TEST_CASE_TEMPLATE("layer_norm on a GPU: backward within its bound of the definition", M, all_float, mixed, widening) {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 129, 768, 1021})
            backward_within_bounds<M>(device, 3, width, write_mode::overwrite, apart);
        backward_within_bounds<M>(device, 5, 64, write_mode::add, apart);
        backward_within_bounds<M>(device, 69, 72, write_mode::add, apart);  // several pieces
        backward_within_bounds<M>(device, 2, 1048, write_mode::overwrite, apart);
        backward_within_bounds<M>(device, 2, 4104, write_mode::add, apart);
    }
}

TEST_CASE("layer_norm on a GPU: exact results, and no rows") {
    emulator::device device;
    what_is_exact(device);
    no_rows_at_all(device);
}

/// Whether rows of small integers with mean r % 8, whose deviations cancel in pairs, have the right results.
bool forward_and_backward(emulator::device& device, extent rows, extent width, extent apart) {
    using support::gamma;
    const ht::shape<2> shape{rows, width};
    support::random data(5);
    const guarded<bfloat16> x(rows * width, apart), dy(data.integers<bfloat16>(rows * width, 4), apart),
        y(rows * width, apart), dx(rows * width, apart);
    const guarded<float> gain(data.integers<float>(width, 3), apart), bias(data.integers<float>(width, 3), apart),
        mean(rows), rstd(rows), dgain(width), dbias(width);
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < width; ++j) {
            const extent k = std::min(j, width - 1 - j);
            x[i * width + j] =
                bfloat16(static_cast<float>(i % 8 + (j == k ? 1 : -1) * (2 * j + 1 == width ? 0 : 1 + k * 7 % 5)));
        }
    }
    layer_norm::forward<bfloat16, float, bfloat16>(device, {.x = x.const_view(shape),
                                                            .gain = gain.const_view(),
                                                            .bias = bias.const_view(),
                                                            .y = y.view(shape),
                                                            .mean = mean.view(),
                                                            .rstd = rstd.view()});
    const std::vector<float> was(rstd.data(), rstd.data() + rows);
    for (extent i = 0; i < rows; ++i) rstd[i] = 0.5f;
    layer_norm::backward<bfloat16, float, bfloat16, float>(device, {.x = x.const_view(shape), .gain = gain.const_view(), .dy = dy.const_view(shape),
                                                                    .mean = mean.const_view(), .rstd = rstd.const_view(), .dx = dx.view(shape),
                                                                    .dgain = dgain.view(), .dbias = dbias.view(), .parameter_mode = write_mode::overwrite});
    bool right = true;
    for (extent i = 0; i < rows; ++i) {
        double squares = 0, sum = 0, along = 0;
        const auto normalised = [&](extent j) {
            return (static_cast<double>(x[i * width + j]) - static_cast<double>(i % 8)) / 2;
        };
        const auto weighted = [&](extent j) {
            return static_cast<double>(dy[i * width + j]) * static_cast<double>(gain[j]);
        };
        for (extent j = 0; j < width; ++j) {
            squares += 4 * normalised(j) * normalised(j);
            sum += weighted(j) / static_cast<double>(width);
            along += weighted(j) * normalised(j) / static_cast<double>(width);
        }
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
        // A division, epsilon's addition, a root, a reciprocal; the sums are exact.
        const double of_scale = static_cast<double>(was[static_cast<std::size_t>(i)]) / scale - 1;
        right = right && mean[i] == static_cast<float>(i % 8) && std::fabs(of_scale) < gamma(4);
        for (extent j = 0; j < width; ++j) {
            const double scaled = 2 * normalised(j) * scale * static_cast<double>(gain[j]),
                         want = scaled + static_cast<double>(bias[j]);
            const double error = gamma(7) * (std::fabs(scaled) + std::fabs(want));
            right = right &&
                    std::fabs(static_cast<double>(y[i * width + j]) - want) <= support::rounded<bfloat16>(want, error);
            // The means' divisions, a product, two differences.
            const double correction = normalised(j) * along, slope = (weighted(j) - sum - correction) / 2;
            const double slope_error = gamma(4) * (std::fabs(weighted(j)) + std::fabs(sum) + std::fabs(correction));
            right = right && std::fabs(static_cast<double>(dx[i * width + j]) - slope) <=
                                 support::rounded<bfloat16>(slope, slope_error);
        }
    }
    for (extent j = 0; j < width; ++j) {  // multiples of a half, exact in any order
        double gain_sum = 0, bias_sum = 0;
        for (extent i = 0; i < rows; ++i) {
            const double d = static_cast<double>(dy[i * width + j]);
            gain_sum += d * (static_cast<double>(x[i * width + j]) - static_cast<double>(i % 8)) / 2;
            bias_sum += d;
        }
        right = right && dgain[j] == static_cast<float>(gain_sum) && dbias[j] == static_cast<float>(bias_sum);
    }
    return right;
}

TEST_CASE("layer_norm on a GPU: right in every schedule, and every damage is found") {
    struct trial {
        extent rows, width, apart;
    };
    for (const trial t : {trial{5, 72, 0}, {18, 67, 1}, {1, 1032, 0}, {1, 4104, 0}, {1, 4097, 1}}) {
        CAPTURE(t.width);
        emulator::check_kernels(
            [&](emulator::device& device) { return forward_and_backward(device, t.rows, t.width, t.apart); });
    }
}

}  // namespace emulator_kernel_layer_norm_tests
