// SPDX-License-Identifier: MIT
/// \file
/// Results that are large enough for non-temporal stores: they have the bits of the same rows computed a few at a time, with
/// ordinary stores.
#include <algorithm>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/norm/cpu.hpp>
#include <halftone/kernel/softmax/cpu.hpp>
#include <halftone/number.hpp>

#include "support/each_set.hpp"
#include "support/random.hpp"

namespace kernel_rows_streams_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;

/// Rows of whole cache lines.
struct large_array {
    extent rows, width;
    static constexpr extent part = 50;

    template <class T>
    ht::buffer memory_of(ht::cpu& device) const {
        return ht::buffer(device.memory(), static_cast<std::size_t>(rows * width) * sizeof(T), ht::memory_kind::other);
    }
    template <class T>
    ht::view<T, 2> some_rows(const ht::buffer& b, extent first, extent count) const {
        return {reinterpret_cast<T*>(b.data()) + first * width, {count, width}};
    }

    /// run(from, to, first row): on all rows at once, then on a few at a time.
    template <class X, class Y, class Run>
    void same_in_parts(ht::cpu& device, const Run& run) const {
        const ht::buffer from = memory_of<X>(device), whole = memory_of<Y>(device), in_parts = memory_of<Y>(device);
        REQUIRE(ht::kernel::stores_non_temporal(some_rows<Y>(whole, 0, rows), from.data()));
        REQUIRE(!ht::kernel::stores_non_temporal(some_rows<Y>(in_parts, 0, part), from.data()));
        support::random data(5);
        const auto some = data.normals<X>(8191);
        for (extent i = 0; i < rows * width; ++i)
            reinterpret_cast<X*>(from.data())[i] = some[static_cast<std::size_t>(i % 8191)];
        run(some_rows<const X>(from, 0, rows), some_rows<Y>(whole, 0, rows), 0);
        for (extent i = 0; i < rows; i += part) {
            const extent count = std::min(part, rows - i);
            run(some_rows<const X>(from, i, count), some_rows<Y>(in_parts, i, count), i);
        }
        CHECK(std::memcmp(whole.data(), in_parts.data(), whole.bytes()) == 0);
    }

    template <class T>
    void all_same(ht::cpu& device) const {
        same_in_parts<float, T>(device, [&](auto from, auto to, extent) { ht::kernel::convert<ht::cpu>::run(device, from, to); });
        same_in_parts<T, T>(device, [&](auto from, auto to, extent) {
            ht::map(device, [](auto x) { return ht::gelu(x); }, from, to);
        });
        same_in_parts<T, T>(device, [&](auto from, auto to, extent) {
            ht::kernel::softmax<ht::cpu>::forward<T, T>(device, {.x = from, .y = to});
        });
        same_in_parts<T, T>(device, [&](auto from, auto to, extent) {
            ht::kernel::softmax<ht::cpu>::backward<T, T>(device, {.y = from, .dy = from, .dx = to});
        });
        support::random data(7);
        const std::vector<float> gain = data.normals<float>(width), one(static_cast<std::size_t>(rows), 0.5f);
        const std::vector<std::int32_t> targets = data.indices(rows, static_cast<int>(width));
        same_in_parts<T, T>(device, [&](auto from, auto to, extent) {
            ht::kernel::layer_norm<ht::cpu>::forward<T, float, T>(device, {.x = from, .gain = {gain.data(), {width}}, .y = to});
        });
        same_in_parts<T, T>(device, [&](auto from, auto to, extent first) {
            const ht::shape<1> here{from.extent_of(0)};
            ht::kernel::layer_norm<ht::cpu>::backward<T, float, T, float>(
                device, {.x = from, .gain = {gain.data(), {width}}, .dy = from, .mean = {one.data() + first, here},
                         .rstd = {one.data() + first, here}, .dx = to});
        });
        same_in_parts<T, T>(device, [&](auto from, auto to, extent first) {
            const ht::shape<1> here{from.extent_of(0)};
            ht::kernel::cross_entropy<ht::cpu>::backward<T, T>(
                device, {.logits = from, .targets = {targets.data() + first, here}, .maximum = {one.data() + first, here},
                         .sum = {one.data() + first, here}, .gradient = {one.data() + first, here}, .dlogits = to});
        });
    }
};

TEST_CASE("rows: non-temporal stores give the bits of ordinary ones") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        // Not a whole number of vector blocks; four rows are processed together, and three remain.
        for (const large_array& a : {large_array{4500, 992}, large_array{66003, 64}}) {
            a.all_same<bfloat16>(device);
            a.all_same<float>(device);
        }
    });
}

}  // namespace kernel_rows_streams_tests
