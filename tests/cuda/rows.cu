// SPDX-License-Identifier: MIT
/// \file
/// Layer norm, RMS norm and softmax on a GPU: the tests of tests/kernel, at the sizes where kernels change and at
/// larger ones than an emulated machine takes.
// compile: read, at most 200 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/norm/checks.hpp"
#include "kernel/softmax/checks.hpp"

namespace {

using device_type = support::waiting_cuda;

namespace norm {
using namespace norm_checks;

TEST_CASE_TEMPLATE("layer_norm, rms_norm on cuda: forward within its bound of the definition", M, all_float<layer_norm>,
                   mixed<layer_norm>, layer_widening, layer_narrow, all_float<rms_norm>, mixed<rms_norm>,
                   rms_widening) {
    device_type device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 129, 768, 1021, 1024, 1048, 4104, 16392})
            forward_within_bounds<M>(device, 6, width, M::N::epsilon, apart);
        forward_within_bounds<M>(device, 5, 64, 1e-2f, apart, false);
        forward_within_bounds<M>(device, 1000, 768, 0.0f, apart);
    }
}

TEST_CASE_TEMPLATE("layer_norm, rms_norm on cuda: backward within its bound of the definition", M,
                   all_float<layer_norm>, mixed<layer_norm>, layer_widening, all_float<rms_norm>, mixed<rms_norm>,
                   rms_widening) {
    device_type device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 129, 768, 1021, 1048, 4104})
            backward_within_bounds<M>(device, 3, width, write_mode::overwrite, apart);
        backward_within_bounds<M>(device, 69, 72, write_mode::add, apart);
        backward_within_bounds<M>(device, 5000, 64, write_mode::add, apart);
        // Enough pieces of 16 rows that a block of four warps takes one piece, and reads its rows once.
        const extent pieces = device.architecture().multiprocessors * extent{3} / 2 + 1;
        backward_within_bounds<M>(device, 16 * pieces, 1048, write_mode::overwrite, apart);
    }
}

TEST_CASE_TEMPLATE("layer_norm, rms_norm on cuda: exact results, and no rows", N, layer_norm, rms_norm) {
    device_type device;
    what_is_exact<N>(device);
    no_rows_at_all<N>(device);
}
}  // namespace norm

namespace softmax {
using namespace softmax_checks;

TEST_CASE_TEMPLATE("softmax on cuda: forward within its bound of the definition", M, all_float, mixed, widening) {
    device_type device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 257, 768, 1021, 1048, 5003})
            forward_within_bounds<M>(device, 6, width, 1.0f, 2.0, apart);
        forward_within_bounds<M>(device, 300, 136, -0.3f, 4.0, apart);
    }
}

TEST_CASE_TEMPLATE("softmax on cuda: backward within its bound of the definition", M, all_float, mixed, widening) {
    device_type device;
    for (const extent apart : {0, 1}) {
        for (const extent width : {1, 7, 8, 17, 32, 67, 768, 1021, 1048, 4104}) {
            for (const write_mode mode : {write_mode::overwrite, write_mode::add})
                backward_within_bounds<M>(device, 5, width, mode, apart);
        }
    }
}

TEST_CASE("softmax on cuda: exact results") {
    device_type device;
    for (const extent width : {2, 8, 37, 64, 130, 260, 1028, 4100}) what_is_exact(device, width);
}
}  // namespace softmax

}  // namespace
