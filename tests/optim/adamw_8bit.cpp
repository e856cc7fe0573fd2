// SPDX-License-Identifier: MIT
/// \file
/// AdamW with moments in 8 bits on the CPU.
#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>

#include "optim/adamw_8bit_checks.hpp"

namespace optim_adamw_8bit_tests {

namespace ht = halftone;
using namespace adamw_8bit_checks;

TEST_CASE("adamw_8bit: parameters with few elements have the bits of AdamW; a skipped step changes nothing") {
    ht::cpu device{{.threads = 2}};
    small_parameters_are_adamws<ht::amp_bf16>(device);
}

TEST_CASE("adamw_8bit: parameters that are not reached keep their codes; a run resumes from its state") {
    ht::cpu device{{.threads = 2}};
    resumes<ht::amp_bf16>(device);
}

TEST_CASE("adamw_8bit: averages of parameters, split masters, bytes of state") {
    ht::cpu device{{.threads = 2}};
    averages<ht::amp_bf16>(device);
    splits(device);
    counts_bytes(device);
}

/// Four parameters of one group, of which the first and the last have codes. The third one's moments end at the offset in their
/// slab at which the last one's codes begin in theirs.
struct chain : ht::nn::model {
    using policy = ht::amp_bf16;
    template <ht::path_name Name>
    using layer = small::layer<ht::at<policy, Name>, ht::op::linear>;
    layer<"a"> a;
    layer<"b"> b;
    layer<"c"> c;
    layer<"d"> d;

    explicit chain(ht::cpu& device)
        : ht::nn::model(device), a(parameters(), 512), b(parameters(), 256), c(parameters(), 256), d(parameters(), 512) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.a, self.b, self.c, self.d); }
};

TEST_CASE("adamw_8bit: neighbours with and without codes are updated separately") {
    ht::cpu device{{.threads = 2}};
    chain model{device};
    ht::adamw_8bit optimizer{device, model, {.min_8bit_size = 300}};
    ht::accumulator acc{model, ht::unscaled};
    small::tape tape;
    tape.gradients = [](std::size_t entry, std::size_t i) { return gradient_of(entry, i, 1); };
    tape.backward(small::loss{}, acc, model.parameters());
    optimizer.step(acc.take());
    CHECK(optimizer.place(3) == 512);
    for (const std::size_t entry : {0u, 3u}) {
        const std::size_t first = optimizer.place(entry);
        for (std::size_t block = 0; block < 2; ++block) CHECK(optimizer.absmax(0, 0)[first / 256 + block] > 0);
    }
    CHECK(optimizer.moment(0, 0).size() == 512 * sizeof(float));
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

}  // namespace optim_adamw_8bit_tests
