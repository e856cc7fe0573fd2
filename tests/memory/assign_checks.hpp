// SPDX-License-Identifier: MIT
/// \file
/// Parameters that are assigned from host memory, on any device.
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <halftone/memory/store.hpp>
#include <halftone/policy.hpp>
#include <halftone/tensor/host_tensor.hpp>

namespace assign_checks {

namespace ht = halftone;

template <class Device>
void masters_and_copies(Device& device) {
    ht::store parameters{device.memory()};
    const auto before =
        parameters.add<ht::at<ht::amp_bf16, "fc">, ht::op::linear>("before", ht::shape<1>{70}, {.mean = 1});
    const auto weight =
        parameters.add<ht::at<ht::amp_bf16, "fc">, ht::op::linear>("weight", ht::shape<2>{2, 3}, {.mean = 1});
    const auto after =
        parameters.add<ht::at<ht::amp_bf16, "fc">, ht::op::linear>("after", ht::shape<1>{3}, {.mean = 1});
    const auto gain =
        parameters.add<ht::at<ht::amp_bf16, "norm">, ht::op::layer_norm>("gain", ht::shape<1>{3}, {.mean = 1});
    const auto narrow = parameters.add<ht::at<ht::pure_bf16, "fc">, ht::op::linear>("narrow", ht::shape<1>{1}, {});
    CHECK_THROWS_AS(weight.assign(std::vector<float>(6)), ht::state_error);
    parameters.commit();

    const float third = 1.0f / 3, values[] = {third, 2, 3, 4, 5, -third};
    weight.assign(values);
    const auto master = ht::to_host(device, weight.master());
    const auto copy = ht::to_host(device, weight.values());
    for (int i = 0; i < 6; ++i) {
        CHECK(master.data()[i] == values[i]);
        CHECK(copy.data()[i].bits() == ht::bfloat16(values[i]).bits());
    }
    for (const float each : ht::to_host(device, before.master())) CHECK(each == 1);
    for (const ht::bfloat16 each : ht::to_host(device, before.values())) CHECK(each == 1.0f);
    for (const float each : ht::to_host(device, after.master())) CHECK(each == 1);
    for (const ht::bfloat16 each : ht::to_host(device, after.values())) CHECK(each == 1.0f);

    auto changed = ht::to_host(device, gain.master());  // a parameter that is read in fp32 has no copy
    changed(1) = third;
    gain.assign(changed);
    CHECK(ht::to_host(device, gain.values())(0) == 1);
    CHECK(ht::to_host(device, gain.values())(1) == third);
    const ht::bfloat16 one[] = {ht::bfloat16(1)};
    narrow.assign(one);
    CHECK(ht::to_host(device, narrow.values())(0) == 1.0f);

    CHECK_THROWS_WITH_AS(weight.assign(std::vector<float>(5)), "store: 5 values for fc.weight, which is (2, 3)",
                         ht::shape_error);
    CHECK(ht::to_host(device, weight.master())(0, 0) == third);
    // A frozen parameter can be assigned while it has a master, whose offset then differs from its copy's.
    parameters.keep_master(after.entry());
    parameters.freeze("fc.after");
    parameters.freeze("fc.before");
    after.assign(std::vector<float>{7, 8, third});
    CHECK(ht::to_host(device, after.master())(1) == 8);
    CHECK(ht::to_host(device, after.values())(2).bits() == ht::bfloat16(third).bits());
    CHECK(ht::to_host(device, weight.values())(1, 1) == 5.0f);
    CHECK_THROWS_AS(before.assign(std::vector<float>(70)), ht::state_error);
}

}  // namespace assign_checks
