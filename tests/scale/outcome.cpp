// SPDX-License-Identifier: MIT
#include <string>

#include <doctest/doctest.h>

#include "scale/outcomes.hpp"

namespace scale_outcome_tests {

namespace ht = halftone;

TEST_CASE("step outcome: whether a step was skipped, and why") {
    ht::cpu device{{.threads = 1}};
    outcomes::check(device);
}

TEST_CASE("step outcome: valid until the next step") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler scaler{device};
    outcomes::trained<ht::cpu> t{device};
    auto grads = scaler.unscale(t.take(scaler, outcomes::nan));
    const auto outcome = t.optimizer.step(grads);
    CHECK(std::string(ht::name(outcome.result())) == "not a number");
    scaler.update();
    CHECK(outcome.skipped());
    t.step(scaler);
    CHECK_THROWS_AS(static_cast<void>(outcome.result()), ht::state_error);
    CHECK(t.optimizer.skips().total() == 1);
}

}  // namespace scale_outcome_tests
