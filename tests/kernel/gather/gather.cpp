// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis on the CPU, compared with its definition.
#include <halftone/kernel/gather/cpu.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "kernel/gather/checks.hpp"
#include "support/each_cpu.hpp"

namespace kernel_gather_tests {

using namespace gather_checks;

TEST_CASE("gather, index_select, scatter_add, index_add: as defined") {
    support::for_each_cpu([](ht::cpu& device) { all(device); });
}

TEST_CASE("scatter_add, index_add: the same bits at one and at two threads") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    CHECK(long_sums(one) == long_sums(two));
}

/// A result of more than 8 MiB, which is stored past the caches if its address is a multiple of 16.
template <class T, int Axis>
void large_result(ht::axis_list<Axis> axes, const ht::shape<2>& s, const ht::shape<2>& places, bool is_select) {
    REQUIRE(static_cast<std::size_t>(places.size()) * sizeof(T) >= ht::detail::non_temporal_threshold);
    CAPTURE(s);
    support::random data(5);
    const guarded<T> x(data.normals<T>(s.size()));
    const guarded<std::int32_t> index(data.indices(is_select ? places[Axis] : places.size(), static_cast<int>(s[Axis])));
    ht::shape<2> strides{};
    strides[Axis] = 1;
    const auto all = is_select ? ht::const_view<std::int32_t, 2>(index.data(), places, strides) : index.const_view(places);
    const guarded<T> want(places.size());
    ht::reference::gather(x.const_view(s), Axis, all, want.view(places));
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) continue;
        ht::cpu device{{.threads = 3, .instruction_set = set}};
        for (const extent offset : {0, 3}) {
            CAPTURE(offset);
            const guarded<T> y(places.size(), offset);
            if (is_select)
                ht::index_select(device, x.const_view(s), axes, index.const_view(), y.view(places));
            else
                ht::gather(device, x.const_view(s), axes, index.const_view(places), y.view(places));
            CHECK(y.same_bits(want));
            CHECK(y.intact());
        }
    }
}

TEST_CASE("gather, index_select: results that are stored past the caches") {
    large_result<float>(ht::axes<0>, {40, 1004}, {2100, 1004}, true);     // rows of 251 times 16 bytes
    large_result<bfloat16>(ht::axes<0>, {40, 1601}, {2621, 1601}, true);  // rows that are no multiple of 16 bytes
    large_result<double>(ht::axes<0>, {40, 5}, {210001, 5}, true);        // short rows
    large_result<float>(ht::axes<1>, {2101, 37}, {2101, 1003}, false);    // a number of elements that is no multiple of 4
    large_result<double>(ht::axes<1>, {1051, 3}, {1051, 1003}, true);
    large_result<double>(ht::axes<0>, {37, 1003}, {1051, 1003}, false);
}

TEST_CASE("gather: of several indices outside the axis, the first is named at any number of threads") {
    constexpr extent rows = 400, width = 300, choices = 17, n = rows * width;
    const guarded<float> x(rows * choices), y(n), sums(rows * choices), pairs(2 * n), few(2 * choices), line(choices);
    const guarded<std::int32_t> index(std::vector<std::int32_t>(n, 16));
    // In the last of several pieces of 16,384, and in one before them.
    index[n - 1] = -5, index[n - 500] = 17, index[70500] = 2147483647, index[70001] = -2147483647 - 1;
    const auto all = index.const_view(ht::shape<2>{rows, width});
    const auto xs = x.const_view(ht::shape<2>{rows, choices});
    const ht::shape<2> few_pairs{choices, 2}, all_pairs{n, 2};
    const char* const last = " is -2147483648; expected 0 to 16";
    for (const int threads : {1, 4}) {
        ht::cpu device{{.threads = threads}};
        const auto named = [&](const std::string& operation, const auto& run) {
            CHECK_THROWS_WITH_AS(run(), (operation + ": index 70001" + last).c_str(), ht::argument_error);
        };
        named("gather", [&] { ht::gather(device, xs, ht::axes<1>, all, y.view(ht::shape<2>{rows, width})); });
        named("scatter_add", [&] {
            ht::scatter_add(device, y.const_view(ht::shape<2>{rows, width}), ht::axes<1>, all,
                            sums.view(ht::shape<2>{rows, choices}));
        });
        named("index_select", [&] {
            ht::index_select(device, few.const_view(few_pairs), ht::axes<0>, index.const_view(), pairs.view(all_pairs));
        });
        named("index_select", [&] { ht::index_select(device, line.const_view(), ht::axes<0>, index.const_view(), y.view()); });
        named("index_add", [&] {
            ht::index_add(device, pairs.const_view(all_pairs), ht::axes<0>, index.const_view(), few.view(few_pairs));
        });
        CHECK(y.intact());
        // Nothing is added then.
        CHECK(std::isnan(sums[0]));
        CHECK(std::isnan(few[0]));
    }
}

TEST_CASE("gather: wrong shapes, indices outside the axis") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
    const guarded<float> x(6), y(4);
    const guarded<std::int32_t> index(std::vector<std::int32_t>{0, 2, 1, 3});
    const auto chosen = [&] {
        ht::gather(device, x.const_view(ht::shape<2>{2, 3}), ht::axes<1>, index.const_view(ht::shape<2>{2, 2}),
                   y.view(ht::shape<2>{2, 2}));
    };
    CHECK_THROWS_WITH_AS(chosen(), "gather: index 3 is 3; expected 0 to 2", ht::argument_error);
    index[3] = -1;
    CHECK_THROWS_WITH_AS(chosen(), "gather: index 3 is -1; expected 0 to 2", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::scatter_add(device, y.const_view(ht::shape<2>{2, 2}), ht::axes<1>,
                                         index.const_view(ht::shape<2>{2, 2}), x.view(ht::shape<2>{2, 3})),
                         "scatter_add: index 3 is -1; expected 0 to 2", ht::argument_error);
}

}  // namespace kernel_gather_tests
