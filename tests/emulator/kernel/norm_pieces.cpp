// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of layer and root mean square normalisation that reads rows once, on the emulated GPU: it has one
/// multiprocessor, so that small tensors have enough rows for this pass.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/norm/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/norm/checks.hpp"

namespace emulator_kernel_norm_pieces_tests {

using namespace norm_checks;
namespace emulator = ht::emulator;
namespace simt = ht::simt;

simt::architecture of_multiprocessors(int count) {
    simt::architecture gpu = simt::architecture_of(80);
    gpu.multiprocessors = count;
    return gpu;
}

template <class M>
void both_ways(extent rows, extent width) {
    CAPTURE(rows);
    CAPTURE(width);
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        emulator::device few{{}, of_multiprocessors(1)}, many{{}, of_multiprocessors(1 << 20)};
        const operands<M> once(rows, width, 0), twice(rows, width, 0);
        once.backward(few, mode);
        twice.backward(many, mode);
        CHECK(once.has_gradients_of(twice));
        CHECK(once.has_intact_gradients());
        CHECK(few.launches() == 2);   // the rows; then the sums of pieces, for gain and bias together
        CHECK(many.launches() == 3);  // dx; the sums of columns in pieces; their sums
    }
}

TEST_CASE_TEMPLATE("norms on a GPU backward: rows read once have the bits of rows read twice", N, layer_norm,
                   rms_norm) {
    for (const extent width : {8, 72, 768, 1024, 1032, 4096}) {
        // One piece, which is too little for a block of four warps, and three pieces.
        if (width <= 1024) both_ways<mixed<N>>(5, width);
        both_ways<mixed<N>>(39, width);
        both_ways<types<N, float16, float, float, bfloat16>>(18, width);
        both_ways<all_float<N>>(21, width);
    }
}

TEST_CASE("norms on a GPU backward: rows read once, within the bound of the definition") {
    emulator::device device{{}, of_multiprocessors(1)};
    for (const extent width : {8, 32, 768, 1024, 1048, 4096}) {
        for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
            backward_within_bounds<mixed<layer_norm>>(device, 19, width, mode, 0);
            backward_within_bounds<all_float<layer_norm>>(device, 3, width, mode, 0);
            backward_within_bounds<mixed<rms_norm>>(device, 19, width, mode, 0);
            backward_within_bounds<rms_widening>(device, 3, width, mode, 0);
        }
    }
}

TEST_CASE_TEMPLATE(
    "norms on a GPU backward: rows read once, with one of the gradients, with none, with dx in place of dy", N,
    layer_norm, rms_norm) {
    for (const extent width : {96, 2048}) {
        emulator::device few{{}, of_multiprocessors(1)}, many{{}, of_multiprocessors(1 << 20)};
        for (const bool with_gain : {false, true}) {
            for (const bool with_bias : {false, N::centred}) {
                const operands<mixed<N>> once(20, width, 0), twice(20, width, 0);
                once.backward(few, write_mode::add, with_gain, with_bias);
                twice.backward(many, write_mode::add, with_gain, with_bias);
                CHECK(once.has_gradients_of(twice));
                CHECK(once.has_intact_gradients());
            }
        }
        const operands<mixed<N>> apart(20, width, 0), in_place(20, width, 0);
        apart.backward(few, write_mode::overwrite);
        auto arguments = in_place.backward_arguments(write_mode::overwrite);
        arguments.dx = in_place.dy.view(in_place.shape);
        N::template kernel<emulator::device>::backward(few, arguments);
        CHECK(apart.dx.same_bits(in_place.dy));
        CHECK(apart.dgain.same_bits(in_place.dgain));
        CHECK(apart.dbias.same_bits(in_place.dbias));
    }
}

/// Rows whose differences from their mean exceed float's range, and rows that are almost constant
/// (kernel/norm/care/device.hpp).
TEST_CASE("norms on a GPU backward: careful rows read once have the bits of rows read twice") {
    for (const extent width : {72, 1032}) {
        const operands<all_float<layer_norm>> once(18, width, 0), twice(18, width, 0);
        for (const auto* r : {&once, &twice}) {
            for (extent i = 0; i < r->shape.size(); ++i)
                r->x[i] = i / width % 3 != 0 ? r->x[i] * 0x1p-60f : r->x[i] < 0 ? -0x1.8p127f : 0x1.8p127f;
            for (extent i = 0; i < r->shape[0]; ++i) {
                r->mean[i] *= i % 3 == 0 ? -0x1p127f : 0x1p-60f;
                r->rstd[i] *= i % 3 == 0 ? 0x1p-127f : 0x1p60f;
            }
        }
        emulator::device few{{}, of_multiprocessors(1)}, many{{}, of_multiprocessors(1 << 20)};
        once.backward(few, write_mode::overwrite);
        twice.backward(many, write_mode::overwrite);
        CHECK(once.has_gradients_of(twice));
        CHECK(once.has_intact_gradients());
        bool are_finite = true;
        for (extent i = 0; i < once.shape.size(); ++i) are_finite = are_finite && std::isfinite(once.dx[i]);
        for (extent j = 0; j < width; ++j) are_finite = are_finite && std::isfinite(once.dgain[j]);
        CHECK(are_finite);
    }
}

/// Small integers, whose sums over rows are exact, and whose dx has the same bits on a machine with many multiprocessors.
TEST_CASE_TEMPLATE("norms on a GPU backward: rows read once, right in every schedule, and every damage is found", N,
                   layer_norm, rms_norm) {
    struct trial {
        extent rows, width;
    };
    for (const trial t : {trial{18, 72}, {3, 264}, {18, 1032}}) {
        CAPTURE(t.width);
        emulator::device many{{}, of_multiprocessors(1 << 20)};
        const operands<mixed<N>> want(t.rows, t.width, 0);
        want.backward(many, write_mode::overwrite);
        emulator::check_kernels(
            [&](emulator::device& device) {
                const operands<mixed<N>> mine(t.rows, t.width, 0);
                mine.backward(device, write_mode::overwrite);
                return mine.has_gradients_of(want) && mine.has_intact_gradients();
            },
            of_multiprocessors(1));
    }
}

}  // namespace emulator_kernel_norm_pieces_tests
