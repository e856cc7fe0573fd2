// SPDX-License-Identifier: MIT
/// \file
/// Softmax's GPU kernels on the emulated GPU.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/softmax/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/softmax/checks.hpp"

namespace emulator_kernel_softmax_tests {

using namespace softmax_checks;
namespace emulator = ht::emulator;
using softmax = ht::kernel::softmax<emulator::device>;
using log_softmax = ht::kernel::log_softmax<emulator::device>;

TEST_CASE_TEMPLATE("softmax on a GPU: forward within its bound of the definition", M, all_float, mixed, widening) {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 257, 768, 1021})
            forward_within_bounds<M>(device, 6, width, 1.0f, 2.0, apart);
        forward_within_bounds<M>(device, 3, 136, 0.3f, 4.0, apart);
        forward_within_bounds<M>(device, 3, 136, -0.3f, 4.0, apart);
        forward_within_bounds<M>(device, 2, 1048, 1.0f, 1.0, apart);
        forward_within_bounds<M>(device, 2, 5003, 1.0f, 1.0, apart);
        forward_within_bounds<M>(device, 2, 4104, 1.0f, 1.0, apart);  // by a wide block
    }
}

TEST_CASE_TEMPLATE("softmax on a GPU: backward within its bound of the definition", M, all_float, mixed, widening) {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 768, 1021, 1048, 4104}) {
            for (const write_mode mode : {write_mode::overwrite, write_mode::add})
                backward_within_bounds<M>(device, 2, width, mode, apart);
        }
    }
}

TEST_CASE_TEMPLATE("softmax on a GPU: a constant added to a row's elements changes nothing", M, all_float, mixed,
                   widening) {
    emulator::device device;
    for (const extent width : {2, 37, 128, 1100, 4104}) no_constant_matters<M>(device, width);
}

TEST_CASE("softmax on a GPU: exact results") {
    emulator::device device;
    for (const extent width : {2, 8, 37, 64, 130, 260, 1028, 4100}) what_is_exact(device, width);
}

TEST_CASE("softmax on a GPU: in place, and of empty rows") {
    emulator::device device;
    for (const extent width : {72, 67, 1032, 4104}) {
        const ht::shape<2> shape{2, width};
        support::random data(7);
        const guarded<bfloat16> x(data.normals<bfloat16>(2 * width), 0), dy(data.normals<bfloat16>(2 * width), 0),
            y(2 * width, 0), dx(2 * width, 0);
        softmax::forward<bfloat16, bfloat16>(device, {.x = x.const_view(shape), .y = y.view(shape)});
        softmax::backward<bfloat16, bfloat16>(
            device, {.y = y.const_view(shape), .dy = dy.const_view(shape), .dx = dx.view(shape)});
        softmax::forward<bfloat16, bfloat16>(device, {.x = x.const_view(shape), .y = x.view(shape)});
        softmax::backward<bfloat16, bfloat16>(
            device, {.y = x.const_view(shape), .dy = dy.const_view(shape), .dx = dy.view(shape)});
        CHECK(x.same_bits(y));
        CHECK(dy.same_bits(dx));
    }
    const long launches = device.launches();
    softmax::forward<float, float>(device, {.x = {nullptr, {0, 4}}, .y = {nullptr, {0, 4}}});
    CHECK(device.launches() == launches);
    softmax::forward<float, float>(device, {.x = {nullptr, {4, 0}}, .y = {nullptr, {4, 0}}});
}

/// Rows with one element that is much larger than the others, at several indices, so that y is exact.
bool forward_and_backward(emulator::device& device, extent rows, extent width, extent apart) {
    const ht::shape<2> shape{rows, width};
    support::random data(3);
    const guarded<float> x(rows * width, apart), y(rows * width, apart), log_y(rows * width, apart),
        dx(rows * width, apart), log_dx(rows * width, apart);
    const guarded<float> dy(data.integers<float>(rows * width, 8), apart);
    bool right = true;
    for (extent place = 0; place < 3; ++place) {
        const extent at = place * (width - 1) / 2;
        for (extent k = 0; k < rows * width; ++k)
            x[k] = k % width == at ? 9e4f : static_cast<float>(-1e4 * static_cast<double>(k % 3));
        softmax::forward<float, float>(device, {.x = x.const_view(shape), .y = y.view(shape)});
        log_softmax::forward<float, float>(device, {.x = x.const_view(shape), .y = log_y.view(shape)});
        for (extent k = 0; k < rows * width; ++k)
            right = right && y[k] == (k % width == at ? 1.0f : 0.0f) && log_y[k] == x[k] - 9e4f;
    }
    // Equal numbers: the sum is the width.
    for (extent k = 0; k < rows * width; ++k) x[k] = static_cast<float>(k / width);
    softmax::forward<float, float>(device, {.x = x.const_view(shape), .y = y.view(shape)});
    for (extent k = 0; k < rows * width; ++k) right = right && y[k] == 1.0f / static_cast<float>(width);

    for (extent k = 0; k < rows * width; ++k) y[k] = 0.5f, log_y[k] = 0;
    softmax::backward<float, float>(device,
                                    {.y = y.const_view(shape), .dy = dy.const_view(shape), .dx = dx.view(shape)});
    log_softmax::backward<float, float>(
        device, {.y = log_y.const_view(shape), .dy = dy.const_view(shape), .dx = log_dx.view(shape)});
    for (extent i = 0; i < rows; ++i) {
        double sum = 0;
        for (extent j = 0; j < width; ++j) sum += static_cast<double>(dy[i * width + j]);
        for (extent k = i * width; k < (i + 1) * width; ++k) {
            right = right && static_cast<double>(dx[k]) == (static_cast<double>(dy[k]) - sum / 2) / 2 &&
                    static_cast<double>(log_dx[k]) == static_cast<double>(dy[k]) - sum;
        }
    }
    return right;
}

TEST_CASE("softmax on a GPU: right in every schedule, and every damage is found") {
    struct trial {
        extent rows, width, apart;
    };
    for (const trial t : {trial{5, 68, 0}, {2, 67, 1}, {1, 1028, 0}, {1, 4100, 0}, {1, 4097, 1}}) {
        CAPTURE(t.width);
        emulator::check_kernels(
            [&](emulator::device& device) { return forward_and_backward(device, t.rows, t.width, t.apart); });
    }
}

}  // namespace emulator_kernel_softmax_tests
