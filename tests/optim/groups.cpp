// SPDX-License-Identifier: MIT
#include <limits>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>
#include <halftone/optim/groups.hpp>
#include <halftone/optim/sgd.hpp>

#include "optim/small_model.hpp"

namespace optim_groups_tests {

namespace ht = halftone;
using model_type = small::model<ht::amp_bf16>;

/// How far each entry moves in one step of w -= lr (1 + decay w) from w = 1.
struct moves {
    float fc1, norm, fc2, head;
};
moves step(double lr, double decay, std::vector<ht::parameter_group> groups) {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    const auto each = [&](const auto& f) {
        return moves{f(model.fc1.weight), f(model.norm.weight), f(model.fc2.weight), f(model.head.weight)};
    };
    each([](const auto& p) {
        for (int i = 0; i < p.shape()[0]; ++i) p.master()(i) = 1;
        return 0.0f;
    });
    ht::sgd optimizer{device, model, {.lr = lr, .weight_decay = decay}, std::move(groups)};
    ht::accumulator acc{model, ht::unscaled};
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
    tape.backward(small::loss{}, acc, model.parameters());
    optimizer.step(acc.take());
    return each([](const auto& p) {
        if (p.is_frozen()) return 0.0f;
        const float moved = 1 - p.master()(0);
        for (int i = 0; i < p.shape()[0]; ++i) CHECK(1 - p.master()(i) == moved);
        return moved;
    });
}

TEST_CASE("groups: rates, rate scales and decays are those of the last group that sets them") {
    const moves plain = step(0.25, 0, {});
    CHECK(plain.fc1 == 0.25f);
    CHECK(plain.norm == 0.25f);

    const moves m = step(
        0.25, 1,
        {{"*", {.lr_scale = 2}}, {"norm", {.weight_decay = 0}}, {"fc*", {.lr = 0.125}}, {"fc2", {.weight_decay = 3}}});
    CHECK(m.fc1 == 0.25f);  // 0.125 (1 + 1)
    CHECK(m.norm == 0.5f);  // 2 * 0.25
    CHECK(m.fc2 == 0.5f);   // 0.125 (1 + 3)
    CHECK(m.head == 1.0f);  // 2 * 0.25 (1 + 1)
    CHECK(step(0.25, 0, {{"head", {.lr = 0.125}}, {"head", {.lr_scale = 3}}}).head == 0.75f);
}

TEST_CASE("groups: frozen parameters have no gradient, moment or master, and keep their values") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    const auto before = model.fc2.weight.values()(3);
    const float head = model.head.weight.master()(1);
    ht::adamw optimizer{device, model, {.lr = 0.1}, {{"fc2", ht::frozen}, {"norm", ht::frozen}}};
    CHECK(model.fc2.weight.is_frozen());
    CHECK(model.norm.weight.is_frozen());
    ht::accumulator acc{model, ht::unscaled};
    // fc1 with 67 and head with 3 elements are left, in granules.
    CHECK(device.memory().usage().live(ht::memory_kind::gradient) == (128 + 64) * sizeof(float) + 64);
    CHECK(device.memory().usage().live(ht::memory_kind::moment) == 2 * (128 + 64) * sizeof(float));
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
    tape.backward(small::loss{}, acc, model.parameters());
    optimizer.step(acc.take());
    CHECK(model.fc2.weight.values()(3).bits() == before.bits());
    CHECK(model.head.weight.master()(1) < head);
    CHECK(model.head.weight.values()(1).bits() == ht::bfloat16(model.head.weight.master()(1)).bits());
}

TEST_CASE("groups: all frozen except what a later group trains") {
    const moves m = step(0.25, 0, {{"*", ht::frozen}, {"head", ht::trained}});
    CHECK(m.fc1 == 0);
    CHECK(m.norm == 0);
    CHECK(m.fc2 == 0);
    CHECK(m.head == 0.25f);
    CHECK(step(0.25, 0, {{"head", ht::trained}, {"*", ht::frozen}}).head == 0);
}

TEST_CASE("groups: one or several in braces") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    ht::adamw one{device, model, {.lr = 3e-4f}, {{"norm", {.weight_decay = 0}}}};
    ht::adamw two{
        device, model, {.lr = 3e-4f, .weight_decay = 0.1f}, {{"*norm", {.weight_decay = 0}}, {"head", {.lr = 1e-5f}}}};
    ht::sgd none{device, model, {.lr = 3e-4f}, {}};
    ht::sgd bare{device, model};
    CHECK(one.options().weight_decay == 1e-2);
}

TEST_CASE("groups: a pattern that matches nothing, and options that contradict each other") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    using optimizer = ht::sgd<ht::cpu, model_type>;
    CHECK_THROWS_WITH_AS((optimizer{device, model, {}, {{"fc3", ht::frozen}}}),
                         "sgd: the group 'fc3' names no parameter; the first of them is fc1.weight",
                         ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {}, {{"fc1", {.lr = 1, .lr_scale = 1}}}}), ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, {}, {{"fc1", {.weight_decay = -1}}}}),
                         "sgd: the group 'fc1' has an lr, lr_scale or weight_decay of -1; expected 0 or more",
                         ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {}, {{"fc1", {.lr = std::numeric_limits<double>::quiet_NaN()}}}}),
                    ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {}, {{"fc1", {.lr_scale = std::numeric_limits<double>::infinity()}}}}),
                    ht::argument_error);
    CHECK_FALSE(model.fc1.weight.is_frozen());
}

TEST_CASE("groups: what was frozen before cannot be trained") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    const std::initializer_list<ht::parameter_group> head_alone = {{"*", ht::frozen}, {"head", ht::trained}};
    ht::sgd first{device, model, {}, head_alone};
    CHECK_THROWS_WITH_AS((ht::sgd{device, model, {}, {{"head", ht::frozen}, {"fc1", ht::trained}}}),
                         "sgd: a group trains fc1.weight, which was frozen before; what is frozen stays so",
                         ht::argument_error);
    CHECK_FALSE(model.head.weight.is_frozen());
    ht::sgd again{device, model, {}, head_alone};
}

TEST_CASE("groups: neighbours with equal rates are one segment") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    const ht::store& s = model.parameters();
    const auto segments_of = [&](const std::vector<ht::parameter_group>& groups, std::size_t left_out = 100) {
        return ht::detail::join_segments(s, ht::detail::make_segments(s, 0.1, groups),
                                         [=](const ht::detail::update_segment& one) { return one.entry != left_out; });
    };
    CHECK(segments_of({}).size() == 2);
    const auto segments = segments_of({{"fc2", {.weight_decay = 0.1}}});
    REQUIRE(segments.size() == 2);
    CHECK(segments[0].count == 128 + 128 + 64);
    CHECK(segments_of({{"fc2", {.weight_decay = 0}}}).size() == 4);
    // Segments end before an entry that is left out and begin again after it.
    const auto around = segments_of({}, 2);
    REQUIRE(around.size() == 3);
    CHECK(around[0].count == 128);
    CHECK(around[2].count == 64);
    CHECK(around[2].gradient == 256);
    // Without fc2's gradient and master, fc1 and head are neighbours in their slabs, but not among the copies.
    model.parameters().freeze("fc2");
    CHECK(segments_of({}).size() == 3);
}

}  // namespace optim_groups_tests
