// SPDX-License-Identifier: MIT
/// \file
/// Packed documents through a GPT on the CPU.
#include "nn/packed_checks.hpp"

namespace {

namespace ht = halftone;

template <class Check>
void on_every_set_packed(const Check& check) {
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        check(device);
    });
}

TEST_CASE("packed documents: the logits of each have the bits that they have alone") {
    on_every_set_packed([](ht::cpu& device) { nn_test::check_packed_logits<ht::amp_bf16>(device); });
}

TEST_CASE("packed documents of one length: the bits that loss and gradients have for a batch of them") {
    on_every_set_packed([](ht::cpu& device) { nn_test::check_packed_as_batch<ht::amp_bf16>(device); });
}

TEST_CASE("packed documents of various lengths: loss and every gradient within rounding") {
    ht::cpu device{{.threads = 2}};
    nn_test::check_packed_gradients<ht::amp_bf16, ht::bfloat16>(device, 1);
}

TEST_CASE("packed documents: invalid offsets are refused") {
    ht::cpu device{{.threads = 1}};
    nn_test::check_packed_refusals<ht::amp_bf16>(device);
}

}  // namespace
