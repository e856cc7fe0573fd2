// SPDX-License-Identifier: MIT
/// \file
/// Counters of memory: live and peak, by kind and in total.
#include <string>

#include <doctest/doctest.h>

#include <halftone/memory/usage.hpp>

namespace memory_usage_tests {

namespace ht = halftone;
using ht::memory_kind;

TEST_CASE("memory_usage: live and peak bytes, by kind and in total") {
    ht::memory_usage usage;
    usage.add(100, memory_kind::activation);
    usage.add(50, memory_kind::gradient);
    usage.remove(100, memory_kind::activation);
    usage.add(30, memory_kind::activation);
    CHECK(usage.live() == 80);
    CHECK(usage.peak() == 150);  // of the sum of all kinds
    CHECK(usage.live(memory_kind::activation) == 30);
    CHECK(usage.peak(memory_kind::activation) == 100);  // of this kind alone
    CHECK(usage.live(memory_kind::gradient) == 50);
    CHECK(usage.peak(memory_kind::gradient) == 50);
    CHECK(usage.peak(memory_kind::master) == 0);

    usage.reset_peaks();
    CHECK(usage.peak() == 80);
    CHECK(usage.peak(memory_kind::activation) == 30);
    usage.add(1, memory_kind::activation);
    CHECK(usage.peak() == 81);
}

TEST_CASE("memory_usage: blocks from the system are counted separately from the bytes used in them") {
    ht::memory_usage usage;
    usage.add_block(1000, memory_kind::activation);
    CHECK(usage.held() == 1000);
    CHECK(usage.live() == 0);
    usage.add_block(500, memory_kind::master);
    usage.remove_block(1000, memory_kind::activation);
    CHECK(usage.held() == 500);
    CHECK(usage.held(memory_kind::master) == 500);
    CHECK(usage.held(memory_kind::activation) == 0);
    CHECK(usage.peak_held(memory_kind::activation) == 1000);
    CHECK(usage.peak_held() == 1500);
    CHECK(usage.allocations() == 2);
    usage.reset_peaks();
    CHECK(usage.peak_held() == 500);
    CHECK(usage.allocations() == 2);
}

TEST_CASE("memory_kind: every kind has its own name") {
    std::string names;
    for (int kind = 0; kind < ht::memory_kinds; ++kind) names += std::string(" ") + ht::name(memory_kind{kind});
    CHECK(names == " master copy gradient moment activation workspace other");
}

}  // namespace memory_usage_tests
