// SPDX-License-Identifier: MIT
/// \file
/// Eight-bit products on the emulated GPU: exact where eight bits are enough; steps under delayed scaling, captured
/// and not.
#include <cmath>
#include <limits>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/train/captured_step.hpp>

#include <emulator/device.hpp>

#include "autodiff/scaled_linear_checks.hpp"
#include "observe/operand_checks.hpp"

namespace emulator_models_fp8_tests {

namespace ht = halftone;
using ht::bfloat16;
using machine = ht::emulator::device;
using powers = ht::with_scaling<ht::fp8_hybrid, ht::current_scaling<0, ht::scale_steps::powers_of_two>>;
using delayed = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<4>>;

TEST_CASE("linear in eight bits on a GPU: exact on small integers") {
    machine device{{.seed = 11}};
    scaled_linear_checks::exact<powers>(device, {6, 5, 7}, 6);
    scaled_linear_checks::exact<powers>(device, {33, 64, 32}, 1);
    CHECK(device.count().bank_conflicts == 0);
}

TEST_CASE("watched tapes on a GPU: operands in eight bits are counted, and named where they are not finite") {
    machine device{{.seed = 12, .check = ht::emulator::checking::values_only}};
    operand_checks::counts_are_exact(device);
    operand_checks::overflow_is_named(device);
}

TEST_CASE("linear in eight bits on a GPU with matrix units for them: these compute all three products, exactly") {
    machine ada{{.seed = 11, .mma = ht::emulator::accumulation::truncating}, ht::simt::architecture_of(89)};
    scaled_linear_checks::exact<powers>(ada, {33, 64, 32}, 1);
    // Four warps' eight for each product, in two steps of k: forward, to x and to w in two passes, and forward again.
    CHECK(ada.count().eight_bit_mmas == (2 * 3 + 1) * 2 * 4 * 8);
    CHECK(ada.count().bank_conflicts == 0);
}

/// A perceptron and a layer under delayed scaling, and all that a step of them changes.
template <class Device>
struct small {
    struct network : ht::nn::model {
        using policy = ht::recipe<delayed, ht::rule<"down", ht::with_output<delayed, float>>>;
        ht::nn::mlp<ht::at<policy, "mlp">> mlp;
        ht::nn::linear<ht::at<policy, "down">> down;  // its weight has no copy, and its gradient is of floats
        explicit network(Device& device) : ht::nn::model{device}, mlp{parameters(), 24, 40}, down{parameters(), 24, 8} {
            commit(*this, 5);
        }
        static decltype(auto) visit(auto&& self, auto&& f) { return f(self.mlp, self.down); }
    };
    Device& device;
    network model{device};
    ht::sgd<Device, network> optimizer{device, model, {.lr = 5e-4}};
    ht::accumulator<ht::unscaled_t, ht::types<network>> acc{model, ht::unscaled};
    ht::tape<Device> tape{device};

    ht::variable<float, 0> step(const ht::const_view<bfloat16, 2>& x) {
        ht::variable<float, 0> last;
        for (int micro = 0; micro < 2; ++micro) {
            last = {};
            const auto in = tape.constant(x);
            const auto y = model.down(tape, model.mlp(tape, in, in));
            last = ht::sum(tape, ht::mul(tape, y, y));
            tape.backward(last / 2, acc);
        }
        auto grads = acc.take();
        optimizer.step(grads);
        return last;
    }
    std::vector<float> numbers() const {
        std::vector<float> all;
        for (const ht::amax_state& s : model.parameters().amaxes().read()) {
            all.push_back(s.scale);
            all.insert(all.end(), s.history.begin(), s.history.end());
        }
        for (std::size_t i = 0; i < 6; ++i) {
            const auto more = support::read_masters(model.parameters(), i);
            all.insert(all.end(), more.begin(), more.end());
        }
        return all;
    }
};

TEST_CASE("delayed scaling: captured steps give the bits of uncaptured ones, skipped steps too") {
    machine one{{.seed = 1}}, two{{.seed = 99, .resident_blocks = 1}};
    small<machine> plain{one}, other{two};
    ht::captured_step step{two, [&](const ht::const_view<bfloat16, 2>& x) { return other.step(x); }};
    CHECK(plain.model.parameters().amaxes().size() == 3 * 3);
    support::random data{8};
    for (int t = 0; t < 9; ++t) {
        CAPTURE(t);
        std::vector<bfloat16> x = data.normals<bfloat16>(6 * 24, std::exp2(t % 4 - 2));
        if (t == 6) x[7] = bfloat16(std::numeric_limits<float>::infinity());
        const ht::const_view<bfloat16, 2> view{x.data(), {6, 24}};
        const std::vector<float> before = plain.numbers();
        const float loss = plain.step(view).item();
        step(view);
        if (t != 6) CHECK(step.loss() == loss);
        CHECK(other.numbers() == plain.numbers());
        CHECK((plain.numbers() == before) == (t == 6));
        CHECK(plain.optimizer.last_step_skipped() == (t == 6));
    }
    // Histories that were read can be restored, at any position of the ring and after steps were captured.
    ht::amax_histories& histories = other.model.parameters().amaxes();
    const std::vector<ht::amax_state> saved = plain.model.parameters().amaxes().read();
    std::vector<ht::amax_state> astray = saved;
    for (ht::amax_state& s : astray) s.scale = 0.5f, s.history.assign(s.history.size(), 3.0f);
    histories.load(astray);
    CHECK(histories.read()[4].history == std::vector<float>(4, 3.0f));
    CHECK(other.numbers() != plain.numbers());
    histories.load(saved);
    support::random more{9};
    for (int t = 0; t < 5; ++t) {
        CAPTURE(t);
        const std::vector<bfloat16> x = more.normals<bfloat16>(6 * 24, std::exp2(t % 4 - 2));
        const ht::const_view<bfloat16, 2> view{x.data(), {6, 24}};
        plain.step(view);
        CHECK(step(view) == ht::step_run::replayed);
        CHECK(other.numbers() == plain.numbers());
    }
    // The same numbers again and again: the model learns to give zeros for them.
    const std::vector<bfloat16> x = data.normals<bfloat16>(6 * 24);
    const ht::const_view<bfloat16, 2> view{x.data(), {6, 24}};
    const float first = plain.step(view).item();
    for (int t = 0; t < 10; ++t) plain.step(view);
    CHECK(plain.step(view).item() < first * 0.75f);
    CHECK(step.replays() >= 6);
    CHECK(one.count().bank_conflicts == 0);
}

}  // namespace emulator_models_fp8_tests
