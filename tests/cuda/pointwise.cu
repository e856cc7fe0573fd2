// SPDX-License-Identifier: MIT
/// \file
/// Maps, conversions and embeddings on a GPU: the tests of tests/kernel, and sizes that fill the machine.
// compile: read, at most 220 kernels.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/cuda/sort.cuh>

#include "cuda/device.cuh"
#include "kernel/convert/checks.hpp"
#include "kernel/dropout/checks.hpp"
#include "kernel/embedding/checks.hpp"
#include "kernel/embedding_rows/checks.hpp"
#include "kernel/map/checks.hpp"

namespace {

using device_type = support::waiting_cuda;

namespace pointwise {
using namespace map_checks;

TEST_CASE("map on cuda: functions") {
    device_type device;
    functions_within_bounds(device);
    short_forms_within_bounds<ht::bfloat16>(device);
    short_forms_within_bounds<ht::float16>(device);
}

TEST_CASE("map on cuda: types, sizes, remainders") {
    device_type device;
    for (const extent size : {1, 3, 8, 1009, 70001}) {
        types_within_bounds<float, float, float>(device, device, size, 0, 0);
        types_within_bounds<ht::bfloat16, ht::bfloat16, ht::bfloat16>(device, device, size, 0, 0);
        types_within_bounds<ht::float16, float, ht::float16>(device, device, size, 1, 0);
    }
}

TEST_CASE("map on cuda: NaN and zeros, rows, columns, scalars, functors, wrong arguments") {
    device_type device;
    nan_and_zeros(device);
    rows_columns_scalars(device);
    long_rows(device);
    functors_constants_tensors(device);
    refuses(device);
}

TEST_CASE("map on cuda: gradients") {
    device_type device;
    const ht::shape<2> shapes[]{{1, 1}, {113, 31}, {5000, 8}, {700, 264}, {3, 40009}};
    for (const ht::shape<2>& shape : shapes) {
        gradients_within_bounds(device, device, shape, 0);
        gradients_within_bounds(device, device, shape, 1);
    }
    absent_gradients(device);
    bias_gradient(device);
    steady_step_allocates_nothing(device);
}
}  // namespace pointwise

namespace conversion {
using namespace convert_checks;

TEST_CASE_TEMPLATE("convert on cuda: every element as its own conversion", M, down_bf16, down_f16, up_bf16, up_f16,
                   across, back, copy) {
    device_type device;
    for (const extent count : {1, 7, 63, 1023}) converts_each<typename M::X, typename M::Y>(device, count);
    converts_each<typename M::X, typename M::Y>(device, 399'999, 0, 0);
}

TEST_CASE("convert on cuda: in place with a factor, wrong arguments, empty tensors") {
    device_type device;
    scales_in_place(device);
    refuses(device);
}
}  // namespace conversion

namespace dropping {
using namespace dropout_checks;

TEST_CASE("dropout on cuda: as its definition, at any alignment; masks are random") {
    device_type device;
    for (const extent count : {1, 3, 8, 1031, 70001}) {
        CHECK(is_right<bfloat16, float>(device, count, 0.1f, 0, 0));
        CHECK(is_right<bfloat16, float>(device, count, 0.75f, 1, 0));
    }
    ends_of_the_range(device);
    masks_are_random(device, 100'000);
}
}  // namespace dropping

namespace embeddings {
using namespace embedding_checks;

TEST_CASE_TEMPLATE("embedding on cuda: forward is the rounded sum of its two rows", M, all_float, rounding_down,
                   narrow) {
    device_type device;
    for (const extent width : {1, 7, 64, 257, 1024}) {
        forward_within_bounds<M>(device, width);
        forward_within_bounds<M>(device, width, alignment::vectors);
    }
}

TEST_CASE_TEMPLATE("embedding on cuda: backward within its bound of the definition", M, accumulated,
                   accumulated_narrow) {
    device_type device;
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        for (const extent width : {1, 67, 1024}) {
            backward_within_bounds<M>(device, 11, 4, 40, width, mode);
            backward_within_bounds<M>(device, 11, 4, 40, width, mode, alignment::vectors);
        }
        backward_within_bounds<M>(device, 7, 100, 1000, 33, mode);
        backward_within_bounds<M>(device, 50257, 1024, 8192, 64, mode, alignment::vectors);
    }
}

TEST_CASE("embedding on cuda: integers exactly, the same bits in every run; wrong shapes, no rows") {
    device_type device;
    const exact_sums one(device), two(device);
    CHECK(one.same_bits(two));
    adds_exactly_at_all_sizes(device, 100000);
    refuses(device);
}
}  // namespace embeddings

namespace embedding_rows {
using namespace embedding_rows_checks;

TEST_CASE("embedding rows on cuda: the bits of a dense gradient, and invalid tokens have no row") {
    device_type device;
    for (const extent width : {1, 8, 67, 300}) as_dense<bfloat16, float>(device, 23, width, {40, 9, 0, 64});
    as_dense<bfloat16, float>(device, 3000, 4, {700, 600, 900}, 16);
    as_dense<bfloat16, float>(device, 1 << 20, 64, {5000, 5000}, 16);
    as_dense<bfloat16, float>(device, 9, 8, {40, 300}, 16, true);
}

TEST_CASE("running sums on cuda: of as many values as several blocks have") {
    device_type device;
    for (const extent count : {1, 31, 5000, 100003}) {
        const guarded<ht::simt::word> sums(count);
        ht::simt::word sum = 0;
        std::vector<ht::simt::word> want;
        for (extent i = 0; i < count; ++i) {
            sums[i] = static_cast<ht::simt::word>(i * 7 % 5);
            want.push_back(sum += sums[i]);
        }
        inclusive_sum(device, sums.data(), count);
        device.synchronize();
        CHECK(sums.intact());
        CHECK(std::equal(want.begin(), want.end(), sums.data()));
    }
}
}  // namespace embedding_rows

}  // namespace
