// SPDX-License-Identifier: MIT
/// \file
/// Adafactor on the CPU: compared with torch over 100 steps; its state; wrong options.
#include <halftone/kernel/optimizer_step/adafactor/cpu.hpp>

#include "optim/adafactor_checks.hpp"

namespace optim_adafactor_tests {

using namespace adafactor_model;

TEST_CASE("adafactor: equals torch.optim.Adafactor over 100 steps") {
    ht::cpu device{{.threads = 2}};
    equals_torch(device, 100);
}

TEST_CASE("adafactor: one number for each row and column; groups, frozen parameters, skipped and resumed steps") {
    ht::cpu device{{.threads = 2}};
    keeps_little(device);
}

TEST_CASE("adafactor: options out of range are refused") {
    ht::cpu device{{.threads = 1}};
    net<ht::amp_fp16> model{device};
    using optimizer = ht::adafactor<ht::cpu, net<ht::amp_fp16>>;
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.beta2_decay = 0.5}}), "adafactor: beta2_decay is 0.5; expected 0 or less",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.d = 0.5}}), "adafactor: d is 0.5; expected 1 or more",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.epsilon1 = 1e-30}}),
                         "adafactor: epsilon1 is 1e-30; expected 2^-63 or more, so that its square is a normal float, and "
                         "2^63 or less",
                         ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.epsilon2 = -1}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.lr = -1}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.weight_decay = -1}}), ht::argument_error);
}

}  // namespace optim_adafactor_tests
