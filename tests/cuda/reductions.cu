// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on a GPU: the tests of tests/kernel.
// compile: read, at most 156 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/axis_reduction/checks.hpp"

namespace {

using namespace axis_checks;
using device_type = support::waiting_cuda;

TEST_CASE("axis_reduction on cuda: within its bound of the definition") {
    device_type device;
    for (const extent apart : {0, 1}) {
        all_operations<float, float>(device, ht::shape<2>{5, 264}, ht::axes<1>, apart);
        all_operations<float, float>(device, ht::shape<2>{9, 1100}, ht::axes<1>, apart);
        all_operations<float, float>(device, ht::shape<2>{40, 136}, ht::axes<0>, apart);
        all_operations<bfloat16, bfloat16>(device, ht::shape<3>{3, 4, 67}, ht::axes<0, 2>, apart);
        all_operations<bfloat16, float>(device, ht::shape<3>{2, 37, 16}, ht::axes<1>, apart);
        products<float, float>(device, ht::shape<2>{9, 1100}, ht::axes<1>, apart);
        products<float, float>(device, ht::shape<2>{40, 136}, ht::axes<0>, apart);
    }
}

TEST_CASE("axis_reduction on cuda: sums along an axis up to each element") {
    device_type device;
    every_running_sum<float, float>(device);
}

}  // namespace
