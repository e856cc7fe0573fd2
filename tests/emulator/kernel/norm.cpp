// SPDX-License-Identifier: MIT
/// \file
/// The GPU kernels of layer and root mean square normalisation on the emulated GPU.
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/norm/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/norm/checks.hpp"

namespace emulator_kernel_norm_tests {

using namespace norm_checks;
namespace emulator = ht::emulator;

TEST_CASE_TEMPLATE("layer_norm, rms_norm on a GPU: forward within its bound of the definition", M,
                   all_float<layer_norm>, mixed<layer_norm>, layer_widening, layer_narrow, all_float<rms_norm>,
                   mixed<rms_norm>, rms_widening) {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 129, 768, 1021, 1024})
            forward_within_bounds<M>(device, 6, width, M::N::epsilon, apart);
        forward_within_bounds<M>(device, 5, 64, 1e-2f, apart, false);
        forward_within_bounds<M>(device, 2, 1048, 0.0f, apart);  // by a block, in registers
        forward_within_bounds<M>(device, 2, 4104, 0.0f, apart);  // by a wide block, in registers or from memory
    }
}

TEST_CASE_TEMPLATE("layer_norm, rms_norm on a GPU: backward within its bound of the definition", M,
                   all_float<layer_norm>, mixed<layer_norm>, layer_widening, all_float<rms_norm>, mixed<rms_norm>,
                   rms_widening) {
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

TEST_CASE_TEMPLATE("layer_norm, rms_norm on a GPU: exact results, and no rows", N, layer_norm, rms_norm) {
    emulator::device device;
    what_is_exact<N>(device);
    no_rows_at_all<N>(device);
}

/// Whether rows of small integers with mean r % 8, whose deviations cancel in pairs, have the right results: every lane
/// has another number, and all sums are exact.
template <class N>
bool forward_and_backward(emulator::device& device, extent rows, extent width, extent apart) {
    using support::gamma;
    constexpr double roundings = N::centred ? 4 : 3;  // a division, epsilon's addition, a root, a reciprocal
    support::random data(5);
    const operands<mixed<N>> o(rows, width, apart);
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < width; ++j) {
            const extent k = std::min(j, width - 1 - j);
            o.x[i * width + j] =
                bfloat16(static_cast<float>(i % 8 + (j == k ? 1 : -1) * (2 * j + 1 == width ? 0 : 1 + k * 7 % 5)));
            o.dy[i * width + j] = bfloat16(data.integers<float>(1, 4)[0]);
        }
    }
    for (extent j = 0; j < width; ++j)
        o.gain[j] = data.integers<float>(1, 3)[0], o.bias[j] = data.integers<float>(1, 3)[0];
    auto forward = o.forward_arguments();
    forward.epsilon = N::centred ? N::epsilon : 0;
    N::template kernel<emulator::device>::forward(device, forward);
    const std::vector<float> was(o.rstd.data(), o.rstd.data() + rows);
    for (extent i = 0; i < rows; ++i) o.rstd[i] = 0.5f;
    o.backward(device, write_mode::overwrite);
    bool right = true;
    for (extent i = 0; i < rows; ++i) {
        double squares = 0, sum = 0, along = 0;
        const auto normalised = [&](extent j) { return o.deviation(i, j, static_cast<double>(i % 8)) / 2; };
        const auto weighted = [&](extent j) {
            return static_cast<double>(o.dy[i * width + j]) * static_cast<double>(o.gain[j]);
        };
        for (extent j = 0; j < width; ++j) {
            squares += 4 * normalised(j) * normalised(j);
            if (N::centred) sum += weighted(j) / static_cast<double>(width);
            along += weighted(j) * normalised(j) / static_cast<double>(width);
        }
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(forward.epsilon));
        const double of_scale = static_cast<double>(was[static_cast<std::size_t>(i)]) / scale - 1;
        right = right && std::fabs(of_scale) < gamma(roundings);
        if (N::centred) right = right && o.mean[i] == static_cast<float>(i % 8);
        for (extent j = 0; j < width; ++j) {
            const double scaled = 2 * normalised(j) * scale * static_cast<double>(o.gain[j]),
                         want = scaled + (N::centred ? static_cast<double>(o.bias[j]) : 0);
            const double error =
                N::centred ? gamma(7) * (std::fabs(scaled) + std::fabs(want)) : gamma(5) * std::fabs(want);
            right = right && std::fabs(static_cast<double>(o.y[i * width + j]) - want) <=
                                 support::rounded<bfloat16>(want, error);
            // The means' divisions, a product, and a difference or two.
            const double correction = normalised(j) * along, slope = (weighted(j) - sum - correction) / 2;
            const double slope_error =
                gamma(roundings) * (std::fabs(weighted(j)) + std::fabs(sum) + std::fabs(correction));
            right = right && std::fabs(static_cast<double>(o.dx[i * width + j]) - slope) <=
                                 support::rounded<bfloat16>(slope, slope_error);
        }
    }
    for (extent j = 0; j < width; ++j) {  // multiples of a half, exact in any order
        double gain_sum = 0, bias_sum = 0;
        for (extent i = 0; i < rows; ++i) {
            const double d = static_cast<double>(o.dy[i * width + j]);
            gain_sum += d * o.deviation(i, j, static_cast<double>(i % 8)) / 2;
            bias_sum += d;
        }
        right = right && o.dgain[j] == static_cast<float>(gain_sum);
        if (N::centred) right = right && o.dbias[j] == static_cast<float>(bias_sum);
    }
    return right;
}

TEST_CASE_TEMPLATE("layer_norm, rms_norm on a GPU: right in every schedule, and every damage is found", N, layer_norm,
                   rms_norm) {
    struct trial {
        extent rows, width, apart;
    };
    for (const trial t : {trial{5, 72, 0}, {18, 67, 1}, {1, 1032, 0}, {1, 4104, 0}, {1, 4097, 1}}) {
        CAPTURE(t.width);
        emulator::check_kernels(
            [&](emulator::device& device) { return forward_and_backward<N>(device, t.rows, t.width, t.apart); });
    }
}

}  // namespace emulator_kernel_norm_tests
