// SPDX-License-Identifier: MIT
/// \file
/// A step by a rule outside of the library, with three moments, has the bits of the CPU on every device.
///
///     own_rule_checks::agrees(cpu, device);
#pragma once

#include <doctest/doctest.h>

#include <halftone/number/bfloat16.hpp>

#include "kernel/optimizer_step/step_checks.hpp"
#include "optim/ademamix.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace own_rule_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using support::guarded;

/// All operands of a step; equal ones for equal n.
struct slabs {
    support::random data{1};
    guarded<float> master, gradient;
    guarded<ht::bfloat16> copy;
    guarded<float> fast, slow, second;

    explicit slabs(ht::extent n)
        : master(data.normals<float>(n), n % 5),
          gradient(data.normals<float>(n, 100), 3),
          copy(n, 1),
          fast(data.normals<float>(n), 2),
          slow(data.normals<float>(n), 1),
          second(data.normals<float>(n), 0) {
        for (ht::extent i = 0; i < n; ++i) second.view()(i) = second[i] < 0 ? -second[i] : second[i];
    }
    template <class Device>
    void step(Device& device) const {
        step_checks::run(device, kernel::optimizer_step_arguments<own::ademamix_rule, float, ht::bfloat16, float, float>{
                                     .master = master.view(),
                                     .copy = copy.view(),
                                     .gradient = gradient.const_view(),
                                     .moments = {fast.view(), slow.view(), second.view()},
                                     .rule = own::ademamix_options{}.rule(),
                                     .rates = {.weight_decay = 0.1},
                                     .factors = &step_checks::factors,
                                     .step = &step_checks::third,
                                     .key = {.seed = 5, .tensor = 8, .first = 64}});
    }
    bool same_bits(const slabs& o) const {
        return master.same_bits(o.master) && copy.same_bits(o.copy) && fast.same_bits(o.fast) && slow.same_bits(o.slow) &&
               second.same_bits(o.second);
    }
};

/// `cpu` has a set with fused multiply-adds.
template <class Cpu, class Device>
void agrees(Cpu& cpu, Device& device) {
    for (const ht::extent n : {ht::extent{1}, ht::extent{67}, ht::extent{2053}}) {
        CAPTURE(n);
        const slabs one(n), two(n), untouched(n);
        one.step(cpu), two.step(device);
        CHECK(two.same_bits(one));
        CHECK_FALSE(one.same_bits(untouched));
    }
}

}  // namespace own_rule_checks
