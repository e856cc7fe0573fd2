// SPDX-License-Identifier: MIT
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>

#include "optim/golden_run.hpp"
#include "optim/tracked_adamw.hpp"
#include "support/each_set.hpp"

namespace optim_adamw_tests {

namespace ht = halftone;
using golden::tracked_adamw;

TEST_CASE("adamw: equals torch.optim.AdamW within fp32 rounding, over 100 steps") {
    std::vector<support::golden_line> lines = support::read_golden("adamw.txt");
    int cases = 0;
    support::for_each_set([&](ht::isa set) {
        for (std::size_t at = 0; at < lines.size();) {
            const support::golden_line& head = lines[at++];
            REQUIRE(head.kind == "case");
            CAPTURE(head.words[0]);
            const ht::adamw_options options{.lr = head.number(1),
                                            .beta1 = head.number(2),
                                            .beta2 = head.number(3),
                                            .epsilon = head.number(4),
                                            .weight_decay = head.number(5)};
            const golden::clipping clip{head.number(6), head.number(7), head.number(8)};
            const bool grouped = head.number(9) != 0;

            ht::cpu device{{.threads = 2, .instruction_set = set}};
            small::model<ht::amp_bf16> model{device, golden::width};
            golden::set_parameters(model);
            ht::adamw optimizer{device, model, options, golden::groups(grouped)};
            std::vector<tracked_adamw> exact(golden::parameters);
            for (int i = 0; i < golden::parameters; ++i)
                exact[static_cast<std::size_t>(i)].w = golden::initial_parameter(i);

            support::comparison with_exact, with_torch;
            golden::train(device, model, optimizer, clip, 100, [&](int t) {
                const golden::clipped_gradients g(clip, t);
                for (std::size_t i = 0; i < exact.size(); ++i) {
                    const int n = static_cast<int>(i);
                    exact[i].step(g.value[i], g.error[i], options, golden::lr_of(n, options.lr, grouped),
                                  golden::decay_of(n, options.weight_decay, grouped), t);
                }
                if (at == lines.size() || lines[at].kind != "step" || lines[at].number(0) != t) return;
                const std::vector<float> ours = golden::get_parameters(model);
                for (std::size_t i = 0; i < exact.size(); ++i) {
                    with_exact.expect(static_cast<double>(ours[i]), exact[i].w, exact[i].bound());
                    with_torch.expect(static_cast<double>(ours[i]), lines[at].number(i + 1), 2 * exact[i].bound());
                    CHECK(exact[i].bound() < 1e-4 * std::max(std::fabs(exact[i].w), 1.0));
                }
                ++at;
            });
            CHECK_WITHIN(with_exact);
            CHECK_WITHIN(with_torch);
            CHECK(optimizer.steps() == 100);
            for (int i = 0; i < golden::width; ++i) {
                CHECK(model.fc1.weight.values()(i).bits() == ht::bfloat16(model.fc1.weight.master()(i)).bits());
            }
            ++cases;
        }
    });
    CHECK(cases >= 10);
}

TEST_CASE("adamw: options out of range are refused") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    using optimizer = ht::adamw<ht::cpu, small::model<ht::full_fp32>>;
    CHECK_THROWS_AS((optimizer{device, model, {.lr = -1}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.beta1 = 1}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.beta2 = -0.1}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.epsilon = -1e-8}}), ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.weight_decay = -0.5}}),
                         "adamw: weight_decay is -0.5; expected 0 or more", ht::argument_error);
}

TEST_CASE("adamw: bf16 parameters without a master move on average, and in the same way each time") {
    ht::cpu device{{.threads = 2}};
    const auto train = [&](std::uint64_t seed) {
        small::model<ht::with_state<ht::pure_bf16, ht::bfloat16>> model{device, 4001};
        for (int i = 0; i < 4001; ++i) model.fc1.weight.master()(i) = ht::bfloat16(1.0f);
        ht::adamw optimizer{device, model, {.lr = 1e-4, .weight_decay = 0, .seed = seed}};
        ht::accumulator acc{model, ht::unscaled};
        small::tape tape;
        tape.gradients = [](std::size_t, std::size_t) { return 0.5f; };
        for (int t = 0; t < 10; ++t) {
            tape.backward(small::loss{}, acc, model.parameters());
            optimizer.step(acc.take());
        }
        double sum = 0;
        std::vector<std::uint16_t> bits;
        for (int i = 0; i < 4001; ++i) {
            sum += static_cast<double>(static_cast<float>(model.fc1.weight.master()(i)));
            bits.push_back(model.fc1.weight.master()(i).bits());
        }
        return std::pair(1 - sum / 4001, bits);
    };
    const auto [moved, bits] = train(1);
    // Ten steps of 1e-4, each far below half of a bf16's step at 1, which is 2^-9. Each of 40,010 roundings is off by
    // at most 2^-8, so the mean over 4001 is within five standard deviations of sqrt(10 / 4001) 2^-9.
    CHECK(std::fabs(moved - 1e-3) < 5 * std::sqrt(10.0 / 4001) * 0x1p-9);
    CHECK(moved > 0);
    CHECK(train(1).second == bits);
    CHECK(train(2).second != bits);
}

}  // namespace optim_adamw_tests
