// SPDX-License-Identifier: MIT
/// \file
/// Muon on the CPU: 100 steps compared with its definition and with torch.optim.Muon, parameters that AdamW updates, and errors.
#include <halftone/kernel/matmul/cpu.hpp>

#include "optim/muon_checks.hpp"

#include "support/each_set.hpp"

namespace optim_muon_tests {

namespace ht = halftone;
using muon_checks::net;

TEST_CASE("muon: equals its definition over 100 steps, in bfloat16 as well as torch.optim.Muon") {
    ht::cpu device{{.threads = 2}};
    muon_checks::equals_definition<ht::amp_bf16>(device, 100);
}

TEST_CASE("muon: with products in float it is within the bound of its roundings") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        muon_checks::equals_definition<ht::full_fp32>(device, 100);
    });
}

TEST_CASE("muon: AdamW updates all except hidden matrices, with groups and frozen parameters; skipped steps change nothing") {
    ht::cpu device{{.threads = 2}};
    muon_checks::leaves_the_rest_to_adamw(device);
}

TEST_CASE("muon: matrices of one shape have the same bits in a batch as one by one") {
    ht::cpu device{{.threads = 2}};
    muon_checks::batches_alike(device);
}

TEST_CASE("muon: options out of range are refused") {
    ht::cpu device{{.threads = 1}};
    net<ht::full_fp32> model{device};
    using optimizer = ht::muon<ht::cpu, net<ht::full_fp32>>;
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.hidden = {"wide.bias"}}}),
                         "muon: the hidden pattern 'wide.bias' names no matrix", ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.hidden = {"wide"}, .lr = 0}}),
                         "muon: lr is 0; expected more than 0, since AdamW's rate is a multiple of it", ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.hidden = {"wide"}, .momentum = 1}}),
                         "muon: momentum is 1; expected 0 or more and less than 1", ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.hidden = {"wide"}, .newton_schulz = {.steps = 100}}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.hidden = {"wide"}, .newton_schulz = {.epsilon = 0}}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.hidden = {"wide"}, .adamw = {.beta1 = 1}}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.hidden = {"wide"}, .weight_decay = -1}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.hidden = {"wide"}, .batch = -1}}), ht::argument_error);
}

}  // namespace optim_muon_tests
