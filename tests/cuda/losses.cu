// SPDX-License-Identifier: MIT
/// \file
/// Losses and sums on a GPU: the tests of tests/kernel.
// compile: read, at most 120 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/column_sum/checks.hpp"
#include "kernel/cross_entropy/checks.hpp"
#include "kernel/linear_cross_entropy/checks.hpp"
#include "kernel/sum/checks.hpp"

namespace {

using device_type = support::waiting_cuda;

namespace cross_entropy {
using namespace cross_entropy_checks;

TEST_CASE_TEMPLATE("cross_entropy on cuda: within its bound of the definition", M, all_float, mixed, widening) {
    device_type device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent classes : {1, 7, 8, 17, 32, 67, 129, 768, 1021})
            within_bounds<M>(device, 5, classes, 0, 2.0, apart);
        within_bounds<M>(device, 3, 257, 7, 8.0, apart);  // a padded vocabulary
        within_bounds<M>(device, 3, 1048, 8, 1.0, apart);
        within_bounds<M>(device, 300, 5003, 5, 1.0, apart);
        within_bounds<M>(device, 3, 50257, 0, 1.0, apart);
    }
}

TEST_CASE("cross_entropy on cuda: exact results, ignored rows, a gradient of each row's loss") {
    device_type device;
    for (const extent classes : {2, 37, 128, 4099}) what_is_exact(device, classes);
    ignored_rows(device);
    gradient_of_each_loss(device, 11, 67);
    gradient_of_each_loss(device, 2, 1032);
}
}  // namespace cross_entropy

namespace head {
using namespace linear_cross_entropy_checks;
using fused = ht::kernel::linear_cross_entropy<device_type>;
using chunked = ht::kernel::linear_cross_entropy<device_type, 1>;

TEST_CASE_TEMPLATE("linear_cross_entropy on cuda: loss and gradients within their bounds", M,
                   types<float, float, float>, types<bfloat16, bfloat16, bfloat16>, types<bfloat16, float, bfloat16>) {
    device_type device;
    within_bounds<M>(fused{}, device, {2, 1, 3}, write_mode::overwrite);
    within_bounds<M>(fused{}, device, {37, 19, 53}, write_mode::overwrite);
    within_bounds<M>(fused{}, device, {24, 32, 40}, write_mode::add);
}

TEST_CASE("linear_cross_entropy on cuda: rows in several chunks, logits that are kept, gradients that are not requested") {
    device_type device;
    for (const write_mode mode : {write_mode::overwrite, write_mode::add})
        within_bounds<types<float, float, float>>(chunked{}, device, {67, 3, 5}, mode);
    less_than_everything(fused{}, device);
    the_same_if_kept<types<bfloat16, bfloat16, bfloat16>>(fused{}, device, {37, 19, 53}, write_mode::add);
    the_same_if_kept<types<float, float, float>>(chunked{}, device, {67, 3, 5}, write_mode::overwrite);
}
}  // namespace head

namespace column_sum {
using namespace column_sum_checks;

TEST_CASE_TEMPLATE("column_sum on cuda: within its bound of the definition", M, all_float, mixed, narrow) {
    device_type device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 33, 136, 264}) {
            for (const extent rows : {1, 9, 37}) within_bounds<M>(device, rows, width, 0, write_mode::overwrite, apart);
        }
        within_bounds<M>(device, 37, 67, 5, write_mode::add, apart);
        within_bounds<M>(device, 37, 64, 8, write_mode::add, apart);
        within_bounds<M>(device, 5000, 2, 0, write_mode::add, apart);
        within_bounds<M>(device, 8192, 100, 0, write_mode::add, apart);
    }
    no_rows(device);
}
}  // namespace column_sum

namespace sum {
using namespace sum_checks;

TEST_CASE("sum on cuda: within its bound of the definition, and no element outside the array is read") {
    device_type device;
    for (const extent apart : {0, 1}) {
        for (const extent count : {1, 2, 5, 8, 9, 31, 33, 67, 100, 129, 257, 1021, 16384, 16385, 70001, 1000003}) {
            within_bounds<float, float, float>(device, count, apart);
            within_bounds<bfloat16, float, float>(device, count, apart);
            within_bounds<float16, float16, float>(device, count, apart);
            within_bounds<bfloat16, bfloat16, bfloat16>(device, count, apart);
        }
    }
    for (const extent apart : {0, 1, 2, 3}) {
        for (const extent count : {1, 3, 4, 5, 67, 256, 257, 1030, 16387}) ends_where_it_should(device, count, apart);
    }
    nothing_nan_and_wrong_arguments(device);
}
}  // namespace sum

}  // namespace
