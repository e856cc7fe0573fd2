// SPDX-License-Identifier: MIT
/// \file
/// The number of prefetched cache lines: all lines that runs of bytes touch, wherever the runs begin.
#include <cstddef>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>

namespace kernel_product_prefetch_tests {

namespace ht = halftone;
using ht::extent;

TEST_CASE("lookahead: prefetches as many lines as runs of bytes touch") {
    alignas(64) static std::byte memory[4096];
    const auto lines = [](extent begin, extent bytes, extent stride) {
        return ht::detail::strided_lines(memory + begin, 3, bytes, stride).count();
    };
    CHECK(lines(0, 64, 128) == 3);
    CHECK(lines(0, 65, 128) == 6);
    CHECK(lines(2, 64, 128) == 6);  // the end of each run is on a separate line
    CHECK(lines(2, 62, 128) == 3);
    CHECK(lines(32, 256, 1024) == 15);
    // Where the next run begins elsewhere in its line, it may touch one more.
    CHECK(lines(0, 64, 130) == 6);
    CHECK(lines(0, 128, 130) == 9);
    CHECK(lines(0, 2, 130) == 3);
    CHECK(lines(0, 0, 64) == 0);
    CHECK(ht::detail::strided_lines().count() == 0);
}

}  // namespace kernel_product_prefetch_tests
