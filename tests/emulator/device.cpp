// SPDX-License-Identifier: MIT
/// \file
/// The emulated device imitates GPUs of several architectures, which determine the tiles of kernels.
#include <doctest/doctest.h>

#include "emulator/device.hpp"

namespace emulator_device_tests {

namespace simt = halftone::simt;
namespace emulator = halftone::emulator;

/// A block with all the shared memory that an A100 has for one, plus this number of bytes.
template <int More>
struct large_kernel {
    static constexpr int threads = 32;
    static constexpr simt::word shared_bytes = 163 * 1024 + More;

    simt::grid_shape grid() const { return {1, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt) const {}
};

TEST_CASE("emulated device: a block has the shared memory that its architecture gives") {
    emulator::device a100, other({}, simt::architecture_of(86)), newer({}, simt::architecture_of(90));
    CHECK(a100.architecture().version == 80);
    CHECK(a100.architecture().fits<large_kernel<0>>());
    CHECK(!a100.architecture().fits<large_kernel<1>>());
    CHECK_NOTHROW(a100.launch(large_kernel<0>{}));
    CHECK_THROWS_AS(a100.launch(large_kernel<1>{}), emulator::failure);
    CHECK_THROWS_AS(other.launch(large_kernel<0>{}), emulator::failure);
    CHECK_NOTHROW(newer.launch(large_kernel<1>{}));
}

TEST_CASE("shared memory of a block by architecture") {
    for (const int version : {86, 89, 120, 121}) CHECK(simt::architecture_of(version).shared_bytes == 101376);
    for (const int version : {80, 87}) CHECK(simt::architecture_of(version).shared_bytes == 166912);
    for (const int version : {90, 100, 103}) CHECK(simt::architecture_of(version).shared_bytes == 232448);
}

}  // namespace emulator_device_tests
