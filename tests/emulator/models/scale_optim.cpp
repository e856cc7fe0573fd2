// SPDX-License-Identifier: MIT
/// \file
/// Accumulator, scaler, clipping and optimizers with all their values in a GPU's memory, which the host cannot
/// access; and the same on the CPU, for comparison.
#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/gradient_norm/device.hpp>
#include <halftone/kernel/optimizer_step/device.hpp>
#include <halftone/kernel/quantize/device.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/static_scaler.hpp>

#include <emulator/device.hpp>

#include "optim/golden.hpp"
#include "optim/golden_run.hpp"
#include "optim/large_checks.hpp"
#include "optim/small_model.hpp"
#include "scale/outcomes.hpp"
#include "scale/outliers.hpp"
#include "scale/traces.hpp"
#include "support/bounds.hpp"

namespace emulator_models_scale_optim_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
constexpr float infinity = std::numeric_limits<float>::infinity();

float gradient(int step, std::size_t entry, std::size_t i) {
    return static_cast<float>(
               static_cast<int>((i * 7919 + entry * 31 + static_cast<std::size_t>(step) * 104729) % 257) - 128) /
           256;
}

/// A model with everything that a step takes, on any device.
template <class Device, class P>
struct run {
    explicit run(Device& d, ht::extent width = 67, std::vector<ht::parameter_group> groups = {})
        : device(d),
          model(d, width),
          optimizer(d, model, ht::adamw_options{.lr = 0.01, .seed = 3}, std::move(groups)),
          scaler(d),
          acc(model) {}

    /// Two micro-batches and a step; `worst` is added to one of the gradients. Gives the norm that was clipped.
    float step(int t, float worst = 0, float max_norm = 1) {
        tape.gradients = [=](std::size_t entry, std::size_t i) {
            return entry == 2 && i == 5 ? gradient(t, entry, i) + worst : gradient(t, entry, i);
        };
        for (int micro = 0; micro < 2; ++micro) tape.backward(scaler.scale(small::loss{} / 2), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        const auto norm = ht::clip_grad_norm(grads, max_norm);
        const auto outcome = optimizer.step(grads);
        scaler.update();
        skipped = outcome.skipped();
        return norm.value();
    }
    /// Every byte that a step may change.
    std::vector<std::byte> bytes() {
        std::vector<std::byte> all;
        const auto add = [&](const std::byte* data, std::size_t n) {
            const std::vector<std::byte> more = small::bytes_at(model.parameters(), data, n);
            all.insert(all.end(), more.begin(), more.end());
        };
        for (std::size_t g = 0; g < model.parameters().groups().size(); ++g) {
            const ht::store::group& group = model.parameters().groups()[g];
            add(group.master.data(), group.master.bytes());
            add(group.copy.data(), group.copy.bytes());
            for (int which = 0; which < 2; ++which)
                add(optimizer.moment(which, g).data(), optimizer.moment(which, g).size());
        }
        return all;
    }

    Device& device;
    small::model<P> model;
    ht::adamw<Device, small::model<P>> optimizer;
    ht::grad_scaler<Device> scaler;
    ht::accumulator<ht::through_scaler, ht::types<small::model<P>>> acc;
    small::tape tape;
    bool skipped = false;
};

using pure = ht::with_state<ht::pure_bf16, ht::bfloat16>;

/// Portable code has no fused multiply-add.
bool has_multiply_add() {
    if (!ht::supports(ht::isa::avx2)) MESSAGE("not checked: the bits of the CPU (this processor lacks avx2)");
    return ht::supports(ht::isa::avx2);
}

TEST_CASE_TEMPLATE("steps on a GPU: parameters, copies and moments have the CPU's bits", P, ht::amp_bf16, ht::amp_fp16,
                   ht::full_fp32, pure) {
    if (!has_multiply_add()) return;
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    emulator::device device;
    run<ht::cpu, P> here(cpu);
    run<emulator::device, P> there(device);
    CHECK((there.bytes() == here.bytes()));
    for (int t = 1; t <= 5; ++t) {
        // The norm's bits differ between devices, so that no test clips by norm.
        const float norm = here.step(t, 0, 1000);
        CHECK(static_cast<double>(there.step(t, 0, 1000)) ==
              doctest::Approx(static_cast<double>(norm)).epsilon(support::gamma(300)));
        CHECK((there.bytes() == here.bytes()));
    }
    CHECK(there.optimizer.steps() == 5);
}

TEST_CASE("steps on a GPU: an infinity or a NaN skips the step, leaves every byte, and halves the scale") {
    emulator::device device;
    run<emulator::device, ht::amp_fp16> r(device);
    const float norm = r.step(1);
    CHECK_FALSE(r.skipped);
    CHECK(norm > 1);
    CHECK(r.scaler.get_scale() == 65536);
    const auto before = r.bytes();
    float scale = 65536;
    for (const float worst : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
        const float found = r.step(2, worst);
        CHECK((ht::is_nan(worst) ? ht::is_nan(found) : found == infinity));
        CHECK(r.skipped);
        CHECK((r.bytes() == before));
        CHECK(r.scaler.get_scale() == (scale /= 2));
        CHECK(r.optimizer.steps() == 1);
    }
    CHECK(r.optimizer.skipped_steps() == 3);
    CHECK(r.scaler.overflows() == 3);
    r.step(2);
    CHECK_FALSE(r.skipped);

    // The skipped steps have no effect: gradients are scaled by powers of two.
    emulator::device another;
    run<emulator::device, ht::amp_fp16> other(another);
    other.step(1), other.step(2);
    CHECK((other.bytes() == r.bytes()));
}

TEST_CASE("steps on a GPU: groups and frozen parameters") {
    if (!has_multiply_add()) return;
    ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
    emulator::device device;
    const std::vector<ht::parameter_group> groups{
        {"norm", {.weight_decay = 0}}, {"head", {.lr_scale = 0.1}}, {"fc2", ht::frozen}};
    run<ht::cpu, ht::amp_bf16> here(cpu, 67, groups);
    run<emulator::device, ht::amp_bf16> there(device, 67, groups);
    for (int t = 1; t <= 3; ++t) here.step(t, 0, 1000), there.step(t, 0, 1000);
    CHECK((there.bytes() == here.bytes()));
    CHECK(there.model.fc2.weight.is_frozen());
}

TEST_CASE("steps on a GPU: a steady one allocates nothing") {
    emulator::device device;
    run<emulator::device, ht::amp_fp16> r(device, 20000);
    r.step(1);
    const auto allocations = device.memory().usage().allocations();
    for (int t = 2; t < 4; ++t) r.step(t);
    CHECK(device.memory().usage().allocations() == allocations);
}

TEST_CASE("steps on a GPU: resumed, they continue with the same bits") {
    emulator::device device;
    run<emulator::device, pure> whole(device), half(device), resumed(device);
    for (int t = 1; t <= 4; ++t) whole.step(t);
    for (int t = 1; t <= 2; ++t) half.step(t);
    resumed.optimizer.load(half.optimizer.state());
    resumed.scaler.load(half.scaler.state());
    ht::store& from = half.model.parameters();
    ht::store& to = resumed.model.parameters();
    const auto move = [&](std::byte* target, const std::byte* source, std::size_t bytes) {
        to.memory().write(target, small::bytes_at(from, source, bytes).data(), bytes);
    };
    for (std::size_t g = 0; g < from.groups().size(); ++g) {
        move(to.groups()[g].master.data(), from.groups()[g].master.data(), from.groups()[g].master.bytes());
        for (int which = 0; which < 2; ++which) {
            const auto moments = half.optimizer.moment(which, g);
            move(resumed.optimizer.moment(which, g).data(), moments.data(), moments.size());
        }
    }
    to.refresh();
    for (int t = 3; t <= 4; ++t) resumed.step(t);
    CHECK((resumed.bytes() == whole.bytes()));
}

TEST_CASE("steps on a GPU: a schedule is followed where it is needed, and skipped steps do not advance it") {
    emulator::device device;
    small::model<ht::amp_fp16> model{device};
    ht::sgd optimizer{device, model, {.lr = 0.5}};
    optimizer.set_schedule({.shape = ht::schedule::linear, .total_steps = 6, .warmup_steps = 2});
    ht::static_scaler scaler{device};
    ht::accumulator acc{model};
    small::tape tape;
    const double expected[] = {0, 0.25, 0.5, 0.5, 0.375};
    for (int call = 0; call < 5; ++call) {
        const bool overflow = call == 2;
        CHECK(optimizer.lr() == expected[call]);
        tape.gradients = [=](std::size_t, std::size_t) { return overflow ? infinity : 1.0f; };
        const float before = small::master_of(model.fc1.weight)[0];
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        CHECK(optimizer.step(grads).skipped() == overflow);
        CHECK(small::master_of(model.fc1.weight)[0] ==
              (overflow ? before : before - static_cast<float>(expected[call])));
        scaler.update();
    }
    CHECK(optimizer.state().steps == 4);
    CHECK(scaler.overflows() == 1);
}

TEST_CASE("steps on a GPU: clips in the order of their calls, gradients without a scaler, two models") {
    emulator::device device;
    small::model<ht::amp_bf16> a{device, 1}, b{device, 1};
    ht::accumulator acc{a, b, ht::unscaled};
    ht::sgd for_a{device, a, {.lr = 1}};
    small::tape tape;
    tape.gradients = [](std::size_t entry, std::size_t i) { return entry == 0 && i == 0 ? 3.0f : 0.0f; };
    tape.backward(small::loss{}, acc, a.parameters());
    tape.gradients = [](std::size_t entry, std::size_t i) { return entry == 1 && i == 4 ? 4.0f : 0.0f; };
    tape.backward(small::loss{}, acc, b.parameters());
    auto grads = acc.take();
    CHECK(ht::clip_grad_norm(device, grads, infinity).value() == 5.0f);
    ht::clip_grad_value(device, grads, 2.0f);
    CHECK(ht::clip_grad_norm(device, grads, infinity).value() == std::sqrt(8.0f));
    const float before = small::master_of(a.fc1.weight)[0];
    CHECK_FALSE(for_a.step(grads).skipped());
    CHECK(small::master_of(a.fc1.weight)[0] == before - 2.0f);
}

TEST_CASE("steps on a GPU: whether a step was skipped, and why") {
    emulator::device device;
    outcomes::check(device);
}

TEST_CASE("steps on a GPU: finite gradients that are too large for the moments count as an overflow") {
    emulator::device device{{.check = emulator::checking::values_only}};
    large_gradients::check(device);
}

TEST_CASE("steps on a GPU: outliers are left out") {
    emulator::device device;
    outliers::check_scripts(device);
}

TEST_CASE("steps on a GPU: the traces of torch.amp.GradScaler") {
    traces::replay([] { return std::make_unique<emulator::device>(); });
}

/// Both devices take the cases of torch's optimizers; bounds of each against torch are in tests/optim.
template <class MakeOptimizer>
void replay_golden(const char* file, const MakeOptimizer& make) {
    if (!has_multiply_add()) return;
    const std::vector<support::golden_line> lines = support::read_golden(file);
    int cases = 0;
    for (const support::golden_line& head : lines) {
        if (head.kind != "case") continue;
        CAPTURE(head.words[0]);
        // Clipping by norm is left out: its coefficient depends on the order of a sum.
        const golden::clipping clip{0, head.number(7), head.number(8)};
        const bool grouped = head.number(9) != 0;
        const auto train = [&](auto& device) {
            small::model<ht::amp_bf16> model{device, golden::width};
            golden::set_parameters(model);
            auto optimizer = make(device, model, head, golden::groups(grouped));
            golden::train(device, model, *optimizer, clip, 10, [](int) {});
            return golden::get_parameters(model);
        };
        ht::cpu cpu{{.threads = 1, .instruction_set = ht::isa::avx2}};
        emulator::device device;
        CHECK(train(device) == train(cpu));
        ++cases;
    }
    CHECK(cases >= 7);
}

TEST_CASE("steps on a GPU: the cases of torch.optim.AdamW, as on the CPU") {
    replay_golden("adamw.txt", []<class Device, class Model>(Device& device, Model& model,
                                                             const support::golden_line& head,
                                                             std::vector<ht::parameter_group> groups) {
        const ht::adamw_options options{.lr = head.number(1), .beta1 = head.number(2), .beta2 = head.number(3), .epsilon = head.number(4), .weight_decay = head.number(5)};
        return std::make_unique<ht::adamw<Device, Model>>(device, model, options, std::move(groups));
    });
}

TEST_CASE("steps on a GPU: the cases of torch.optim.SGD, as on the CPU") {
    replay_golden("sgd.txt",
                  []<class Device, class Model>(Device& device, Model& model, const support::golden_line& head,
                                                std::vector<ht::parameter_group> groups) {
                      const ht::sgd_options options{
                          .lr = head.number(1),
                          .momentum = head.number(2),
                          .dampening = head.number(3),
                          .weight_decay = head.number(5),
                          .kind = head.number(4) != 0 ? ht::momentum_kind::nesterov : ht::momentum_kind::plain};
                      return std::make_unique<ht::sgd<Device, Model>>(device, model, options, std::move(groups));
                  });
}

}  // namespace emulator_models_scale_optim_tests
