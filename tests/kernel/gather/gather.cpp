// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis on the CPU, compared with its definition.
#include <halftone/kernel/gather/cpu.hpp>

#include "kernel/gather/checks.hpp"
#include "support/each_cpu.hpp"

namespace {

using namespace gather_checks;

TEST_CASE("gather, index_select, scatter_add, index_add: as defined") {
    support::for_each_cpu([](ht::cpu& device) { all(device); });
}

TEST_CASE("scatter_add, index_add: the same bits at one and at two threads") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    CHECK(long_sums(one) == long_sums(two));
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

}  // namespace
