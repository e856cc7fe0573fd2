// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation's GPU kernels on the emulated GPU.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/norm/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/norm/rms_norm_checks.hpp"

namespace emulator_kernel_rms_norm_tests {

using namespace rms_norm_checks;
namespace emulator = ht::emulator;
using rms_norm = ht::kernel::rms_norm<emulator::device>;

TEST_CASE_TEMPLATE("rms_norm on a GPU: forward within its bound of the definition", M, all_float, mixed, widening) {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 129, 768, 1021, 1024})
            forward_within_bounds<M>(device, 6, width, 1e-6f, apart);
        forward_within_bounds<M>(device, 2, 1048, 0.0f, apart);  // by a block, in registers
        forward_within_bounds<M>(device, 2, 4104, 0.0f, apart);  // by a wide block, in registers or from memory
    }
}

TEST_CASE_TEMPLATE("rms_norm on a GPU: backward within its bound of the definition", M, all_float, mixed, widening) {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 129, 768, 1021})
            backward_within_bounds<M>(device, 3, width, write_mode::overwrite, apart);
        backward_within_bounds<M>(device, 69, 72, write_mode::add, apart);  // several pieces
        backward_within_bounds<M>(device, 2, 1048, write_mode::overwrite, apart);
        backward_within_bounds<M>(device, 2, 4104, write_mode::add, apart);
    }
}

TEST_CASE("rms_norm on a GPU: exact results") {
    emulator::device device;
    what_is_exact(device);
}

/// Rows with different numbers in each lane, whose mean square and other sums are known exactly.
bool forward_and_backward(emulator::device& device, extent rows, extent width, extent apart) {
    const ht::shape<2> shape{rows, width};
    support::random data(5);
    const guarded<bfloat16> x(data.integers<bfloat16>(rows * width, 6), apart),
        dy(data.integers<bfloat16>(rows * width, 4), apart), y(rows * width, apart), dx(rows * width, apart);
    const guarded<float> gain(data.integers<float>(width, 3), apart), rstd(rows), dgain(width);
    rms_norm::forward<bfloat16, float, bfloat16>(
        device,
        {.x = x.const_view(shape), .gain = gain.const_view(), .y = y.view(shape), .rstd = rstd.view(), .epsilon = 0});
    bool right = true;
    for (extent i = 0; i < rows; ++i) {
        double squares = 0;
        for (extent j = 0; j < width; ++j)
            squares += static_cast<double>(x[i * width + j]) * static_cast<double>(x[i * width + j]);
        // A division, a root, a reciprocal.
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width));
        right = right && std::fabs(static_cast<double>(rstd[i]) / scale - 1) < support::gamma(3);
        for (extent j = 0; j < width; ++j) {
            const double want = static_cast<double>(x[i * width + j]) * scale * static_cast<double>(gain[j]);
            right = right && std::fabs(static_cast<double>(y[i * width + j]) - want) <=
                                 support::rounded<bfloat16>(want, support::gamma(5) * std::fabs(want));
        }
        rstd[i] = 0.5f;
    }
    rms_norm::backward<bfloat16, float, bfloat16, float>(device, {.x = x.const_view(shape),
                                                                  .gain = gain.const_view(),
                                                                  .dy = dy.const_view(shape),
                                                                  .rstd = rstd.const_view(),
                                                                  .dx = dx.view(shape),
                                                                  .dgain = dgain.view(),
                                                                  .parameter_mode = write_mode::overwrite});
    for (extent i = 0; i < rows; ++i) {
        double along = 0;
        const auto weighted = [&](extent j) {
            return static_cast<double>(dy[i * width + j]) * static_cast<double>(gain[j]);
        };
        for (extent j = 0; j < width; ++j) along += weighted(j) * static_cast<double>(x[i * width + j]) / 2;
        along /= static_cast<double>(width);
        for (extent j = 0; j < width; ++j) {
            // The mean's division, a product, a difference.
            const double correction = static_cast<double>(x[i * width + j]) / 2 * along,
                         want = (weighted(j) - correction) / 2;
            const double error = support::gamma(3) * (std::fabs(weighted(j)) + std::fabs(correction));
            right = right &&
                    std::fabs(static_cast<double>(dx[i * width + j]) - want) <= support::rounded<bfloat16>(want, error);
        }
    }
    for (extent j = 0; j < width; ++j) {
        double sum = 0;
        for (extent i = 0; i < rows; ++i)
            sum += static_cast<double>(dy[i * width + j]) * static_cast<double>(x[i * width + j]) / 2;
        right = right && dgain[j] == static_cast<float>(sum);
    }
    return right;
}

TEST_CASE("rms_norm on a GPU: right in every schedule, and every damage is found") {
    struct trial {
        extent rows, width, apart;
    };
    for (const trial t : {trial{5, 72, 0}, {18, 67, 1}, {1, 1032, 0}, {1, 4104, 0}, {1, 4097, 1}}) {
        CAPTURE(t.width);
        emulator::check_kernels(
            [&](emulator::device& device) { return forward_and_backward(device, t.rows, t.width, t.apart); });
    }
}

}  // namespace emulator_kernel_rms_norm_tests
