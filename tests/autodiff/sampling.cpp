// SPDX-License-Identifier: MIT
/// \file
/// topk and multinomial on the CPU; sampling_checks.hpp has the tests. Also errors.
#include <halftone/kernel.hpp>

#include "autodiff/sampling_checks.hpp"

namespace autodiff_sampling_tests {

using namespace sampling_checks;

TEST_CASE("topk: the order of a stable sort; its gradient; a sampler made of topk and multinomial") {
    ht::cpu device{{.threads = 2}};
    all(device);
    gradient(device);
    samples(device);
}

TEST_CASE("multinomial: frequencies follow the weights, repeatable, by rows; rows without weights") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    draws(one, 4000);
    draws(two, 4000);
    const std::vector<float> none{0, 0, 1, 0}, negative{1, -1}, infinite{1, std::numeric_limits<float>::infinity()};
    std::vector<std::int32_t> drawn(4);
    const auto run = [&](const std::vector<float>& w, extent rows, extent samples) {
        ht::multinomial(one, ht::const_view<float, 2>(w.data(), {rows, static_cast<extent>(w.size()) / rows}),
                        ht::view<std::int32_t, 2>(drawn.data(), {rows, samples}), {});
    };
    CHECK_THROWS_WITH_AS(run(none, 2, 1),
                         "multinomial: draw 0 of row 0 finds no positive weight, or one that is negative or not finite",
                         ht::argument_error);
    CHECK_THROWS_AS(run(none, 1, 2), ht::argument_error);
    CHECK_THROWS_AS(run(negative, 1, 1), ht::argument_error);
    CHECK_THROWS_AS(run(infinite, 1, 1), ht::argument_error);
    run(none, 1, 1);
    CHECK(drawn[0] == 2);
}

}  // namespace autodiff_sampling_tests
