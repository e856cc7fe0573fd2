// SPDX-License-Identifier: MIT
/// \file
/// The order of calls: every call in the wrong order throws, and the object can then be used in the right order.
#include <cstring>
#include <optional>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/small_model.hpp"

namespace scale_order_tests {

namespace ht = halftone;
using model_type = small::model<ht::amp_fp16>;

/// A model with all that has an order.
struct trained {
    explicit trained(ht::cpu& device) : model(device, 3), optimizer(device, model), acc(model) {
        tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
    }
    model_type model;
    ht::sgd<ht::cpu, model_type> optimizer;
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc;
    small::tape tape;
    using raw = ht::gradients<void, ht::types<model_type>>;
    std::optional<ht::scaled<raw>> taken;
    std::optional<ht::gradients<ht::cpu, ht::types<model_type>>> unscaled;
};

struct program {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler<ht::cpu> scaler{device}, stranger{device};
    trained a{device}, b{device};

    /// A verb and whose: "backward a", "update".
    void run(const std::string& verb, trained& t) {
        if (verb == "backward") t.tape.backward(scaler.scale(small::loss{}), t.acc, t.model.parameters());
        if (verb == "take") t.taken.emplace(t.acc.take());
        if (verb == "unscale") t.unscaled.emplace(scaler.unscale(std::move(*t.taken)));
        if (verb == "stranger") stranger.unscale(std::move(*t.taken));
        if (verb == "clip") ht::clip_grad_norm(*t.unscaled, 1);
        if (verb == "limit") ht::clip_grad_value(*t.unscaled, 1);
        if (verb == "step") t.optimizer.step(*t.unscaled);
        if (verb == "other") t.optimizer.step(&t == &a ? *b.unscaled : *a.unscaled);
        if (verb == "discard") t.acc.discard();
        if (verb == "update") scaler.update();
        if (verb == "set") scaler.update(1024.0f);
    }
};

constexpr const char* no_backward = "accumulator: take() without a backward pass since the last take()";
constexpr const char* nothing_unscaled =
    "grad_scaler: update() before any gradients were unscaled; call scaler.unscale(acc.take()) and optimizer.step "
    "first";
constexpr const char* moved = "unscale: these gradients were moved from";
constexpr const char* twice =
    "unscale: called twice for the same model since the last update(); step and update once per window";
constexpr const char* stale =
    "unscale: update() was called after the backward pass and before unscale(); the scale is no longer theirs";
constexpr const char* step_twice =
    "sgd: step() was called twice with the same gradients; one optimizer updates all of a model, and groups give parts "
    "of it other rates";
constexpr const char* step_late = "sgd: step() after the scaler's update(); call unscale, step, update in this order";
constexpr const char* window_changed =
    "accumulator: the loss scale changed inside a window, after 1 micro-batches; call update() once, after the step, "
    "or discard()";
#define REUSED(OPERATION) \
    OPERATION ": a further backward pass has reused the memory of these gradients; use them before it"

struct row {
    const char* script;
    const char* sentence;  ///< of the last verb; nullptr where the order is right
};

constexpr row rows[] = {
// Allowed orders.
    {"backward a, take a, unscale a, step a, update", nullptr},
    {"backward a, backward a, take a, unscale a, limit a, clip a, step a, update, backward a, take a, unscale a, step "
     "a, update",
     nullptr},
    {"backward a, take a, unscale a, update", nullptr},  // a step that the program itself leaves out
    {"set, backward a, take a, unscale a, step a, set, backward a, take a, unscale a, step a, update", nullptr},
    {"backward a, discard a, backward a, take a, unscale a, step a, update", nullptr},
    {"backward a, take a, unscale a, step a, backward b, take b, unscale b, step b, update", nullptr},
    {"backward a, backward b, take a, take b, unscale b, unscale a, step a, step b, update", nullptr},
    {"backward a, take a, unscale a, step a, update, backward b, take b, unscale b, step b, update", nullptr},
    // One optimizer: in each state, the calls that may not come next.
    {"take a", no_backward},
    {"update", nothing_unscaled},
    {"backward a, update", nothing_unscaled},
    {"backward a, set, backward a", window_changed},
    {"backward a, set, take a, unscale a", stale},
    {"backward a, discard a, take a", no_backward},
    {"backward a, take a, take a", no_backward},
    {"backward a, take a, update", nothing_unscaled},
    {"backward a, take a, set, unscale a", stale},
    {"backward a, take a, stranger a", "unscale: another scaler scaled the losses of these gradients"},
    {"backward a, take a, backward a, unscale a", REUSED("unscale")},
    {"backward a, take a, discard a, unscale a", REUSED("unscale")},
    {"backward a, take a, unscale a, take a", no_backward},
    {"backward a, take a, unscale a, unscale a", moved},
    {"backward a, take a, unscale a, backward a, take a, unscale a", twice},
    {"backward a, take a, unscale a, backward a, clip a", REUSED("clip_grad_norm")},
    {"backward a, take a, unscale a, backward a, limit a", REUSED("clip_grad_value")},
    {"backward a, take a, unscale a, backward a, step a", REUSED("sgd")},
    {"backward a, take a, unscale a, update, step a", step_late},
    {"backward a, take a, unscale a, set, step a", step_late},
    {"backward a, take a, unscale a, update, update", nothing_unscaled},
    {"backward a, take a, unscale a, step a, step a", step_twice},
    {"backward a, take a, unscale a, step a, clip a",
     "clip_grad_norm: after a step with these gradients; clip before all steps"},
    {"backward a, take a, unscale a, step a, limit a",
     "clip_grad_value: after a step with these gradients; clip before all steps"},
    {"backward a, take a, unscale a, step a, backward a, take a, unscale a", twice},
    {"backward a, take a, unscale a, step a, update, step a", step_twice},
    {"backward a, take a, unscale a, step a, update, update", nothing_unscaled},
    {"backward a, take a, unscale a, step a, set, update", nothing_unscaled},
    // Two optimizers and one scale: update once, after both.
    {"backward a, backward b, take a, unscale a, step a, update, take b, unscale b", stale},
    {"backward a, backward b, take a, unscale a, step a, update, backward b", window_changed},
    {"backward a, backward b, take a, take b, unscale a, step a, update, unscale b", stale},
    {"backward a, backward b, take a, take b, unscale a, unscale b, step a, update, step b", step_late},
    {"backward a, backward b, take a, take b, unscale a, unscale b, step a, step b, step a", step_twice},
    {"backward a, backward b, take a, take b, unscale a, unscale b, step a, step b, update, update", nothing_unscaled},
    {"backward a, take a, unscale a, other b", "sgd: these gradients belong to another model's parameters"},
};

TEST_CASE("order of calls: every wrong call throws its sentence, and right calls work afterwards") {
    for (const row& r : rows) {
        CAPTURE(r.script);
        program p;
        std::string thrown, call, last;
        std::istringstream calls(r.script);
        while (std::getline(calls, call, ',')) {
            REQUIRE_MESSAGE(thrown.empty(), last);  // no call before the last may throw
            std::istringstream words(call);
            std::string verb, whose;
            words >> verb >> whose;
            last = call + ": ";
            try {
                p.run(verb, whose == "b" ? p.b : p.a);
            } catch (const ht::error& e) {
                thrown = e.what();
                last += thrown;
            }
        }
        CHECK(thrown == (r.sentence == nullptr ? "" : r.sentence));

        // Open gradients are dropped; two further rounds of both optimizers work, and the scale counts two good steps.
        p.scaler.update(512.0f);
        const int tracker = p.scaler.state().growth_tracker;
        for (trained* t : {&p.a, &p.b}) t->acc.discard();
        for (int round = 0; round < 2; ++round) {
            for (trained* t : {&p.a, &p.b}) {
                for (const char* verb : {"backward", "backward", "take", "unscale", "clip", "step"}) p.run(verb, *t);
            }
            p.scaler.update();
        }
        CHECK(p.scaler.get_scale() == 512);
        CHECK(p.scaler.state().growth_tracker == tracker + 2);
    }
}

TEST_CASE("order of calls: a disabled scaler prescribes none; the gradients' own order remains") {
    ht::cpu device{{.threads = 1}};
    trained t{device};
    ht::grad_scaler scaler{device, {.enabled = false}};
    for (int round = 0; round < 2; ++round) {
        t.tape.backward(scaler.scale(small::loss{}), t.acc, t.model.parameters());
        scaler.update(), scaler.update(3.0f);
        t.tape.backward(scaler.scale(small::loss{}), t.acc, t.model.parameters());
        auto grads = scaler.unscale(t.acc.take());
        scaler.update();
        CHECK(t.optimizer.step(grads).result() == ht::step_result::taken);
        CHECK_THROWS_AS(t.optimizer.step(grads), ht::state_error);
    }
    CHECK(scaler.state().enabled == false);
}

}  // namespace scale_order_tests
