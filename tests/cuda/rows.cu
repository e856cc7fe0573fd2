// SPDX-License-Identifier: MIT
/// \file
/// Norms, softmax, conversions and embedding on a GPU: the checks of tests/kernel, at the sizes where kernels change and at
/// larger ones than an emulated machine takes.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/convert/checks.hpp"
#include "kernel/embedding/checks.hpp"
#include "kernel/layer_norm/checks.hpp"
#include "kernel/softmax/checks.hpp"

namespace {

using device_type = support::waiting_cuda;

namespace layer_norm {
using namespace layer_norm_checks;

TEST_CASE_TEMPLATE("layer_norm on cuda: forward within its bound of the definition", M, all_float, mixed, widening, narrow) {
    device_type device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 129, 768, 1021, 1024, 1048, 4104, 16392}) forward_within_bounds<M>(device, 6, width, 1e-5f, true, apart);
        forward_within_bounds<M>(device, 5, 64, 1e-2f, false, apart);
        forward_within_bounds<M>(device, 1000, 768, 0.0f, true, apart);
    }
}

TEST_CASE_TEMPLATE("layer_norm on cuda: backward within its bound of the definition", M, all_float, mixed, widening) {
    device_type device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 129, 768, 1021, 1048, 4104}) backward_within_bounds<M>(device, 3, width, write_mode::overwrite, apart);
        backward_within_bounds<M>(device, 69, 72, write_mode::add, apart);
        backward_within_bounds<M>(device, 5000, 64, write_mode::add, apart);
    }
}

TEST_CASE("layer_norm on cuda: what is exact, and no rows") {
    device_type device;
    what_is_exact(device);
    no_rows_at_all(device);
}
}  // namespace layer_norm

namespace softmax {
using namespace softmax_checks;

TEST_CASE_TEMPLATE("softmax on cuda: forward within its bound of the definition", M, all_float, mixed, widening) {
    device_type device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 17, 32, 67, 257, 768, 1021, 1048, 5003}) forward_within_bounds<M>(device, 6, width, 1.0f, 2.0, apart);
        forward_within_bounds<M>(device, 300, 136, -0.3f, 4.0, apart);
    }
}

TEST_CASE_TEMPLATE("softmax on cuda: backward within its bound of the definition", M, all_float, mixed, widening) {
    device_type device;
    for (const extent apart : {0, 1}) {
        for (const extent width : {1, 7, 8, 17, 32, 67, 768, 1021, 1048, 4104}) {
            for (const write_mode mode : {write_mode::overwrite, write_mode::add}) backward_within_bounds<M>(device, 5, width, mode, apart);
        }
    }
}

TEST_CASE("softmax on cuda: what is exact") {
    device_type device;
    for (const extent width : {2, 8, 37, 64, 130, 260, 1028, 4100}) what_is_exact(device, width);
}
}  // namespace softmax

namespace convert {
using namespace convert_checks;

TEST_CASE_TEMPLATE("convert on cuda: every element as its own conversion", M, down_bf16, down_f16, up_bf16, up_f16, across, back, copy) {
    device_type device;
    for (const extent count : {1, 3, 7, 8, 9, 63, 64, 1023}) {
        converts_each<typename M::X, typename M::Y>(device, count);
        converts_each<typename M::X, typename M::Y>(device, count, 0, 0);
        converts_each<typename M::X, typename M::Y>(device, count, 8, 1);
    }
    converts_each<typename M::X, typename M::Y>(device, 65536 + 257, 0, 0);  // all 16-bit patterns
}

TEST_CASE("convert on cuda: in place with a factor, wrong arguments, and none") {
    device_type device;
    scales_in_place(device);
    refuses(device);
}
}  // namespace convert

namespace embedding {
using namespace embedding_checks;

TEST_CASE_TEMPLATE("embedding on cuda: forward is the rounded sum of its two rows", M, all_float, rounding_down, narrow, widening) {
    device_type device;
    for (const extent width : {1, 3, 4, 7, 8, 64, 257, 1024}) {
        forward_within_bounds<M>(device, width);
        forward_within_bounds<M>(device, width, alignment::vectors);
    }
}

TEST_CASE_TEMPLATE("embedding on cuda: backward within its bound of the definition", M, accumulated, accumulated_narrow, accumulated_float) {
    device_type device;
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        for (const extent width : {1, 3, 8, 67, 1024}) {
            backward_within_bounds<M>(device, 11, 4, 14, width, mode);
            backward_within_bounds<M>(device, 11, 4, 40, width, mode, alignment::vectors);
        }
        backward_within_bounds<M>(device, 7, 100, 1000, 33, mode);
        backward_within_bounds<M>(device, 3000, 50, 20, 32, mode, alignment::vectors);
        backward_within_bounds<M>(device, 50257, 1024, 8192, 64, mode, alignment::vectors);
    }
}

TEST_CASE("embedding on cuda: integers exactly, the same bits every time") {
    device_type device;
    const exact_sums one(device), two(device);
    CHECK(one.same_bits(two));
    refuses(device);
}
}  // namespace embedding

}  // namespace
