// SPDX-License-Identifier: MIT
/// \file
/// The oracle of the models' tests against the kernels' definitions and against central differences.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "nn/oracle.hpp"
#include "support/gradient_check.hpp"

namespace nn_oracle_tests {

namespace ht = halftone;
using nn_test::batch;

TEST_CASE("the oracle's loss is the kernels' definitions in sequence, its gradients are central differences") {
    const ht::nn::gpt_config config{.vocabulary = 5, .context = 3, .layers = 2, .heads = 2, .width = 4};
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> model{device, config};
    nn_test::randomize(model, 1);
    batch b = batch::random(2, 3, 5, 2);
    b.target_ids[3] = -100;
    const auto parameters = nn_test::parameters_of<double>(model);
    const nn_test::reference_loss loss(config, b);
    const auto r = nn_test::oracle<double>(config, parameters)(b);
    CHECK(r.loss == doctest::Approx(loss(parameters)).epsilon(1e-13));
    REQUIRE(r.gradients.size() == parameters.size());
    for (const auto& each : parameters) {
        const std::string& path = each.first;
        CAPTURE(path);
        support::check_gradient(
            [&](const std::vector<double>& at) {
                auto moved = parameters;
                moved.at(path).values = at;
                return loss(moved);
            },
            each.second.values, r.gradients.at(path).values);
    }
}

}  // namespace nn_oracle_tests
