// SPDX-License-Identifier: MIT
/// \file
/// Shadow runs on the CPU: sound steps have nothing to report, and what is wrong in one layer has its name.
#include <sstream>

#include <halftone/autodiff/elementwise_loss.hpp>
#include <halftone/autodiff/softmax.hpp>

#include "train/overflow_checks.hpp"
#include "train/shadow_checks.hpp"

namespace {

namespace ht = halftone;

using shadow_checks::first_of;

TEST_CASE_TEMPLATE("shadow: an operation that casts wrongly or loses addends, and a stale copy, have their names", P,
                   ht::amp_bf16, ht::amp_fp16) {
    ht::cpu device{{.threads = 1}};
    shadow_checks::names_what_is_wrong<P>(device);
}

TEST_CASE("shadow: a layer whose gradients underflow or overflow has its name") {
    ht::cpu device{{.threads = 1}};
    shadow_checks::names_what_leaves_the_range(device);
}

TEST_CASE_TEMPLATE("shadow: a GPT's step under mixed precision differs from fp32 by its rounding alone", P,
                   ht::amp_bf16, ht::amp_fp16) {
    ht::cpu device{{.threads = 1}};
    overflow_checks::loop<P, ht::cpu> l(device);
    ht::shadow_twin<ht::nn::gpt<P>> twin{device, overflow_checks::config};
    const auto report = ht::shadow_run(
        device, l.model, twin, [&](auto& tape, const auto& m) { return l.scaler.scale(m.loss(tape, l.whole())); });
    std::ostringstream table;
    report.print(table);
    CAPTURE(table.str());
    CHECK(first_of(report) == "");
}

}  // namespace
