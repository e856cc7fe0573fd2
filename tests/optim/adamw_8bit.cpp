// SPDX-License-Identifier: MIT
/// \file
/// AdamW with moments in 8 bits on the CPU.
#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>

#include "optim/adamw_8bit_checks.hpp"

namespace {

namespace ht = halftone;
using namespace adamw_8bit_checks;

TEST_CASE("adamw_8bit: what is too small for 8 bits has the bits of AdamW; a skipped step changes nothing") {
    ht::cpu device{{.threads = 2}};
    small_parameters_are_adamws<ht::amp_bf16>(device);
}

TEST_CASE("adamw_8bit: parameters that are not reached keep their codes; a run goes on from its state") {
    ht::cpu device{{.threads = 2}};
    resumes<ht::amp_bf16>(device);
}

TEST_CASE("adamw_8bit: averages of parameters, split masters, bytes of state") {
    ht::cpu device{{.threads = 2}};
    averages<ht::amp_bf16>(device);
    splits(device);
    counts_bytes(device);
}

TEST_CASE("adamw_8bit: options out of range are refused") {
    ht::cpu device{{.threads = 1}};
    using model_type = small::model<ht::amp_bf16>;
    model_type model{device};
    using optimizer = ht::adamw_8bit<ht::cpu, model_type>;
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.min_8bit_size = -1}}),
                         "adamw_8bit: min_8bit_size is -1; expected 0 or more", ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.beta1 = 1}}),
                         "adamw_8bit: a beta is 1; expected 0 or more and less than 1", ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.lr = -1}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.epsilon = -1e-8}}), ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, {}, {{"fc9", {.weight_decay = 0}}}}),
                         "adamw_8bit: the group 'fc9' names no parameter; the first of them is fc1.weight",
                         ht::argument_error);
}

}  // namespace
