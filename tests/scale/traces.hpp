// SPDX-License-Identifier: MIT
/// \file
/// The traces of torch.amp.GradScaler (tests/golden/scaler.txt), replayed on any device.
///
///     traces::replay([] { return std::make_unique<ht::cpu>(); });
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/golden.hpp"
#include "optim/small_model.hpp"

namespace traces {

namespace ht = halftone;

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// A model with its optimizer and its gradients, one of several under a scaler.
template <class Device>
struct trained {
    using model_type = small::model<ht::amp_fp16>;

    explicit trained(Device& device) : model(device, 3), optimizer(device, model, {.lr = 1}), acc(model) {}
    model_type model;
    ht::sgd<Device, model_type> optimizer;
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc;
    small::tape tape;

    /// '.' finite gradients, 'i' one infinity among them, 'n' a NaN.
    void backward(const ht::grad_scaler<Device>& scaler, char letter) {
        tape.gradients = [letter](std::size_t entry, std::size_t i) {
            return entry != 2 || i != 4 || letter == '.' ? 1.0f : letter == 'i' ? -infinity : nan;
        };
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
    }
    auto unscale(ht::grad_scaler<Device>& scaler, char letter) {
        backward(scaler, letter);
        return scaler.unscale(acc.take());
    }
};

/// make_device() gives a std::unique_ptr to a device; a new one for each case.
template <class MakeDevice>
void replay(const MakeDevice& make_device) {
    const std::vector<support::golden_line> lines = support::read_golden("scaler.txt");
    int cases = 0, updates = 0;
    for (std::size_t at = 0; at < lines.size(); ++cases) {
        const support::golden_line& head = lines[at++];
        REQUIRE(head.kind == "case");
        CAPTURE(head.words[0]);
        const auto device = make_device();
        using device_type = typename decltype(device)::element_type;
        ht::grad_scaler scaler{*device,
                               {.init_scale = static_cast<float>(head.number(1)),
                                .growth_factor = head.number(2),
                                .backoff_factor = head.number(3),
                                .growth_interval = static_cast<int>(head.number(4)),
                                .min_scale = 0,  // PyTorch's scale has no minimum
                                .enabled = head.number(5) != 0}};
        std::vector<std::unique_ptr<trained<device_type>>> all;
        for (int i = 0; i < static_cast<int>(head.number(6)); ++i)
            all.push_back(std::make_unique<trained<device_type>>(*device));

        for (; at < lines.size() && lines[at].kind == "update"; ++at, ++updates) {
            const support::golden_line& line = lines[at];
            CAPTURE(updates);
            for (std::size_t i = 0; i < all.size(); ++i) {
                auto grads = all[i]->unscale(scaler, line.words[0][i]);
                const bool skipped = all[i]->optimizer.step(grads).skipped();
                CHECK(skipped == (line.words[0][i] != '.'));
            }
            scaler.update();
            CHECK(static_cast<double>(scaler.get_scale()) == line.number(1));
            CHECK(scaler.state().growth_tracker == line.number(2));
            for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i]->optimizer.steps() == line.number(3 + i));
        }
    }
    CHECK(cases >= 10);
    CHECK(updates >= 100);
}

}  // namespace traces
