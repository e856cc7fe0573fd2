// SPDX-License-Identifier: MIT
/// \file
/// Free operations on the emulated GPU: named operations, joined tensors, and custom operations, the latter also in
/// captured steps.
#include <vector>

#include <halftone/kernel/device.hpp>
#include <halftone/train/captured_step.hpp>

#include <emulator/device.hpp>

#include "autodiff/elementwise_checks.hpp"
#include "autodiff/function_checks.hpp"
#include "autodiff/region_checks.hpp"

namespace emulator_models_free_operations_tests {

namespace ht = halftone;
using machine = ht::emulator::device;

TEST_CASE("operations and losses by name on a GPU") {
    machine device{{.seed = 7}};
    elementwise_checks::gradients(device);
    elementwise_checks::further(device);
    function_checks::check_functions(device);
}

TEST_CASE("joined tensors and custom operations on a GPU") {
    machine device{{.seed = 11}};
    region_checks::joined(device);
    region_checks::joined_lists(device);
    region_checks::own_operations(device);
}

struct batch {
    ht::const_view<float, 2> x;
    template <class Function>
    batch with_views(const Function& f) const {
        return {f(x)};
    }
};

/// The masters of a model after some steps of SGD.
struct training {
    machine& device;
    region_checks::gated<ht::amp_bf16> model{device};
    ht::sgd<machine, region_checks::gated<ht::amp_bf16>> optimizer{device, model, {.lr = 0.01}};
    ht::accumulator<ht::unscaled_t, ht::types<region_checks::gated<ht::amp_bf16>>> acc{model, ht::unscaled};
    ht::tape<machine> tape{device};

    ht::variable<float, 0> body(const batch& b) {
        auto loss = ht::sum<float>(tape, model.output(tape, tape.to_device(b.x)));
        tape.backward(loss, acc);
        optimizer.step(acc.take());
        return loss;
    }
    std::vector<float> weights() const { return support::read_masters(model.parameters(), 0); }
};

TEST_CASE("apply, linear and as_variable in a captured step: the same bits") {
    machine one{{.seed = 1, .check = ht::emulator::checking::values_only}},
        two{{.seed = 99, .check = ht::emulator::checking::values_only}};
    training plain{one}, captured{two};
    ht::captured_step step{two, [&](const batch& b) { return captured.body(b); }};
    for (int t = 0; t < 4; ++t) {
        const std::vector<float> x = support::random(static_cast<std::uint64_t>(t)).normals<float>(9);
        const batch b{{x.data(), {3, 3}}};
        plain.body(b);
        step(b);
        CHECK(plain.weights() == captured.weights());
    }
    CHECK(step.replays() >= 2);
}

}  // namespace emulator_models_free_operations_tests
