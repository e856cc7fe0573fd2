// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of layer and root mean square normalisation that reads rows once, on the emulated GPU: it has one
/// multiprocessor, so that small tensors have enough rows for this pass.
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/norm/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/norm/layer_norm_checks.hpp"
#include "kernel/norm/rms_norm_checks.hpp"

namespace emulator_kernel_norm_pieces_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
namespace simt = ht::simt;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using support::guarded;

simt::architecture of_multiprocessors(int count) {
    simt::architecture gpu = simt::architecture_of(80);
    gpu.multiprocessors = count;
    return gpu;
}

/// All operands of a backward pass.
template <class X, class Y, class G>
struct rows_of {
    ht::shape<2> shape;
    guarded<X> x, dx;
    guarded<float> gain, mean, rstd;
    guarded<Y> dy;
    guarded<G> dgain, dbias;

    rows_of(extent rows, extent width) : rows_of({rows, width}, support::random(static_cast<std::uint64_t>(width))) {}

    template <class Device>
    void layer_norm(Device& device, write_mode mode, bool with_gain = true, bool with_bias = true) const {
        ht::kernel::layer_norm<Device>::template backward<X, float, Y, G>(
            device, {.x = x.const_view(shape),
                     .gain = gain.const_view(),
                     .dy = dy.const_view(shape),
                     .mean = mean.const_view(),
                     .rstd = rstd.const_view(),
                     .dx = dx.view(shape),
                     .dgain = with_gain ? dgain.view() : ht::view<G, 1>{},
                     .dbias = with_bias ? dbias.view() : ht::view<G, 1>{},
                     .dx_mode = mode,
                     .parameter_mode = mode});
    }
    template <class Device>
    void rms_norm(Device& device, write_mode mode) const {
        ht::kernel::rms_norm<Device>::template backward<X, float, Y, G>(device, {.x = x.const_view(shape),
                                                                                 .gain = gain.const_view(),
                                                                                 .dy = dy.const_view(shape),
                                                                                 .rstd = rstd.const_view(),
                                                                                 .dx = dx.view(shape),
                                                                                 .dgain = dgain.view(),
                                                                                 .dx_mode = mode,
                                                                                 .parameter_mode = mode});
    }
    bool same_bits(const rows_of& other) const {
        return dx.same_bits(other.dx) && dgain.same_bits(other.dgain) && dbias.same_bits(other.dbias) && dx.intact() &&
               dgain.intact() && dbias.intact();
    }

  private:
    rows_of(const ht::shape<2>& s, support::random data)
        : shape(s),
          x(data.normals<X>(s.size(), 1, 0.5), 0),
          dx(data.normals<X>(s.size()), 0),
          gain(data.normals<float>(s[1], 0.5, 1), 0),
          mean(data.normals<float>(s[0], 0.1, 0.5)),
          rstd(data.normals<float>(s[0], 0.1, 1)),
          dy(data.normals<Y>(s.size()), 0),
          dgain(data.normals<G>(s[1])),
          dbias(data.normals<G>(s[1])) {}
};

template <class X, class Y, class G>
void both_ways(extent rows, extent width) {
    CAPTURE(rows);
    CAPTURE(width);
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        emulator::device few{{}, of_multiprocessors(1)}, many{{}, of_multiprocessors(1 << 20)};
        const rows_of<X, Y, G> once(rows, width), twice(rows, width);
        once.layer_norm(few, mode);
        twice.layer_norm(many, mode);
        CHECK(once.same_bits(twice));
        CHECK(few.launches() == 2);   // the rows; then the sums of pieces, for gain and bias together
        CHECK(many.launches() == 3);  // dx; the sums of columns in pieces; their sums
        const rows_of<X, Y, G> r_once(rows, width), r_twice(rows, width);
        r_once.rms_norm(few, mode);
        r_twice.rms_norm(many, mode);
        CHECK(r_once.same_bits(r_twice));
        CHECK(few.launches() == 2 + 2);
        CHECK(many.launches() == 3 + 3);
    }
}

TEST_CASE("norms on a GPU backward: rows read once have the bits of rows read twice") {
    for (const extent width : {8, 72, 768, 1024, 1032, 4096}) {
        // One piece, which is too little for a block of four warps, and three pieces.
        if (width <= 1024) both_ways<bfloat16, bfloat16, float>(5, width);
        both_ways<bfloat16, bfloat16, float>(39, width);
        both_ways<float16, float, bfloat16>(18, width);
        both_ways<float, float, float>(21, width);
    }
}

TEST_CASE("norms on a GPU backward: rows read once, within the bound of the definition") {
    emulator::device device{{}, of_multiprocessors(1)};
    for (const extent width : {8, 32, 768, 1024, 1048, 4096}) {
        for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
            layer_norm_checks::backward_within_bounds<layer_norm_checks::mixed>(device, 19, width, mode, 0);
            layer_norm_checks::backward_within_bounds<layer_norm_checks::all_float>(device, 3, width, mode, 0);
            rms_norm_checks::backward_within_bounds<rms_norm_checks::mixed>(device, 19, width, mode, 0);
            rms_norm_checks::backward_within_bounds<rms_norm_checks::widening>(device, 3, width, mode, 0);
        }
    }
}

TEST_CASE("norms on a GPU backward: rows read once, with one of the gradients, with none, with dx in place of dy") {
    for (const extent width : {96, 2048}) {
        emulator::device few{{}, of_multiprocessors(1)}, many{{}, of_multiprocessors(1 << 20)};
        for (const bool with_gain : {false, true}) {
            for (const bool with_bias : {false, true}) {
                const rows_of<bfloat16, bfloat16, float> once(20, width), twice(20, width);
                once.layer_norm(few, write_mode::add, with_gain, with_bias);
                twice.layer_norm(many, write_mode::add, with_gain, with_bias);
                CHECK(once.same_bits(twice));
            }
        }
        const rows_of<bfloat16, bfloat16, float> apart(20, width), in_place(20, width);
        apart.layer_norm(few, write_mode::overwrite);
        ht::kernel::layer_norm<emulator::device>::backward<bfloat16, float, bfloat16, float>(
            few, {.x = in_place.x.const_view(in_place.shape),
                  .gain = in_place.gain.const_view(),
                  .dy = in_place.dy.const_view(in_place.shape),
                  .mean = in_place.mean.const_view(),
                  .rstd = in_place.rstd.const_view(),
                  .dx = in_place.dy.view(in_place.shape),
                  .dgain = in_place.dgain.view(),
                  .dbias = in_place.dbias.view(),
                  .parameter_mode = write_mode::overwrite});
        CHECK(apart.dx.same_bits(in_place.dy));
        CHECK(apart.dgain.same_bits(in_place.dgain));
        CHECK(apart.dbias.same_bits(in_place.dbias));
    }
}

/// Rows whose differences from their mean exceed float's range, and rows that are almost constant
/// (kernel/norm/care/device.hpp).
TEST_CASE("norms on a GPU backward: careful rows read once have the bits of rows read twice") {
    for (const extent width : {72, 1032}) {
        const rows_of<float, float, float> once(18, width), twice(18, width);
        for (const auto* r : {&once, &twice}) {
            for (extent i = 0; i < r->shape.size(); ++i)
                r->x[i] = i / width % 3 != 0 ? r->x[i] * 0x1p-60f : r->x[i] < 0 ? -0x1.8p127f : 0x1.8p127f;
            for (extent i = 0; i < r->shape[0]; ++i) {
                r->mean[i] *= i % 3 == 0 ? -0x1p127f : 0x1p-60f;
                r->rstd[i] *= i % 3 == 0 ? 0x1p-127f : 0x1p60f;
            }
        }
        emulator::device few{{}, of_multiprocessors(1)}, many{{}, of_multiprocessors(1 << 20)};
        once.layer_norm(few, write_mode::overwrite);
        twice.layer_norm(many, write_mode::overwrite);
        CHECK(once.same_bits(twice));
        bool are_finite = true;
        for (extent i = 0; i < once.shape.size(); ++i) are_finite = are_finite && std::isfinite(once.dx[i]);
        for (extent j = 0; j < width; ++j) are_finite = are_finite && std::isfinite(once.dgain[j]);
        CHECK(are_finite);
    }
}

/// Small integers, whose sums over rows are exact, and whose dx has the same bits on a machine with many multiprocessors.
TEST_CASE("norms on a GPU backward: rows read once, right in every schedule, and every damage is found") {
    struct trial {
        extent rows, width;
    };
    for (const trial t : {trial{18, 72}, {3, 264}, {18, 1032}}) {
        CAPTURE(t.width);
        emulator::device many{{}, of_multiprocessors(1 << 20)};
        const rows_of<bfloat16, bfloat16, float> layer(t.rows, t.width), root(t.rows, t.width);
        layer.layer_norm(many, write_mode::overwrite);
        root.rms_norm(many, write_mode::overwrite);
        emulator::check_kernels(
            [&](emulator::device& device) {
                const rows_of<bfloat16, bfloat16, float> mine(t.rows, t.width), other(t.rows, t.width);
                mine.layer_norm(device, write_mode::overwrite);
                other.rms_norm(device, write_mode::overwrite);
                return mine.same_bits(layer) && other.same_bits(root);
            },
            of_multiprocessors(1));
    }
}

}  // namespace emulator_kernel_norm_pieces_tests
