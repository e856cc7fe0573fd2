// SPDX-License-Identifier: MIT
/// \file
/// Tests of Muon, for every device: its definition in double over 100 steps, with no larger error than torch.optim.Muon has.
///
///     muon_checks::equals_definition<ht::amp_bf16>(device, 100);
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/muon/reference.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/muon.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/golden.hpp"
#include "optim/small_model.hpp"
#include "support/bounds.hpp"

namespace muon_checks {

namespace ht = halftone;

template <class P>
struct matrix_layer {
    using policy = P;
    using operation = ht::op::linear;
    static constexpr bool owns_parameters = true;
    ht::parameter<ht::storage_signature<P, operation>, 2> weight;
    ht::parameter<ht::storage_signature<P, operation>, 1> bias;

    matrix_layer(ht::store& s, ht::extent rows, ht::extent columns)
        : weight(s.add<P, operation>("weight", ht::shape<2>{rows, columns}, {.deviation = 0.5f})),
          bias(s.add<P, operation>("bias", ht::shape<1>{rows}, {.deviation = 0.5f})) {}
};

/// Entries: wide.weight, wide.bias, tall.weight, tall.bias, head.weight, head.bias.
template <class P>
struct net : ht::nn::model {
    using policy = P;
    matrix_layer<ht::at<P, "wide">> wide;
    matrix_layer<ht::at<P, "tall">> tall;
    matrix_layer<ht::at<P, "head">> head;

    template <class Device>
    explicit net(Device& device)
        : ht::nn::model(device), wide(parameters(), 7, 13), tall(parameters(), 13, 7), head(parameters(), 3, 5) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.wide, self.tall, self.head); }
};

inline constexpr int matrix_count = 91;
inline double initial_parameter(int i) { return ((31 * i) % 65 - 32) / 64.0; }
inline double gradient(int i, int t) { return ((7919 * t + 104729 * i + 31 * i * i + 17 * t * i) % 2049 - 1024) / 1024.0; }
/// Of any entry; those of the two matrices are the golden file's.
inline float gradient_of(std::size_t entry, std::size_t i, int t) {
    const int base = entry == 0 ? 0 : entry == 2 ? matrix_count : 300;
    return static_cast<float>(gradient(base + static_cast<int>(i), t));
}

/// The two matrices by the definition.
struct exact {
    std::vector<double> w, m;

    exact() : m(2 * matrix_count) {
        for (int i = 0; i < 2 * matrix_count; ++i) w.push_back(initial_parameter(i));
    }
    void step(int t, const ht::muon_options& o) {
        for (const int which : {0, 1}) {
            const ht::shape<2> shape = which == 0 ? ht::shape<2>{7, 13} : ht::shape<2>{13, 7};
            const int first = which * matrix_count;
            std::vector<double> g;
            for (int i = 0; i < matrix_count; ++i) g.push_back(gradient(first + i, t));
            const double ratio = o.adjust_lr_fn == ht::muon_adjust_lr::original ? (which == 0 ? 1 : std::sqrt(13.0 / 7))
                                                                                : 0.2 * std::sqrt(13.0);
            ht::reference::muon(ht::view<double, 2>(w.data() + first, shape), ht::view<const double, 2>(g.data(), shape),
                                ht::view<double, 2>(m.data() + first, shape), {o.momentum, o.nesterov}, o.newton_schulz, o.lr,
                                ratio, o.weight_decay);
        }
    }
};

template <class Model>
void set_parameters(Model& model) {
    const auto set = [](const auto& parameter, int first) {
        using param = typename std::remove_cvref_t<decltype(parameter)>::param;
        std::vector<param> values;
        for (int i = 0; i < matrix_count; ++i) values.push_back(param(static_cast<float>(initial_parameter(first + i))));
        parameter.assign(values);
    };
    set(model.wide.weight, 0), set(model.tall.weight, matrix_count);
}
template <class Model>
std::vector<float> matrices(Model& model) {
    std::vector<float> all;
    for (const float w : small::master_of(model.wide.weight)) all.push_back(w);
    for (const float w : small::master_of(model.tall.weight)) all.push_back(w);
    return all;
}
inline double root_mean_square(const std::vector<float>& w, const std::vector<double>& of) {
    double sum = 0;
    for (std::size_t i = 0; i < of.size(); ++i) sum += std::pow(static_cast<double>(w[i]) - of[i], 2);
    return std::sqrt(sum / static_cast<double>(of.size()));
}

/// The cases of tests/golden/muon.py, up to `last` steps. Where products are in bfloat16 the parameters are at most twice as
/// far from the definition as torch's; in float, within what its roundings can come to.
template <class Products, class Device>
void equals_definition(Device& device, int last) {
    ht::muon_options o;
    std::vector<support::golden_line> lines = support::read_golden("muon.txt");
    for (std::size_t c = 0; c < lines.size(); ++c) {
        if (lines[c].kind != "case") continue;
        o = {.hidden = {"wide", "tall"},
             .lr = lines[c].number(1),
             .weight_decay = lines[c].number(2),
             .momentum = lines[c].number(3),
             .nesterov = lines[c].number(4) != 0,
             .adjust_lr_fn = lines[c].number(5) != 0 ? ht::muon_adjust_lr::match_rms_adamw : ht::muon_adjust_lr::original};
        net<ht::amp_fp16> model{device};
        set_parameters(model);
        ht::muon<Device, net<ht::amp_fp16>, Products> optimizer{device, model, o};
        ht::grad_scaler scaler{device};
        ht::accumulator acc{model};
        small::tape tape;
        exact e;
        std::size_t line = c + 1;
        for (int t = 1; t <= last; ++t) {
            tape.gradients = [=](std::size_t entry, std::size_t i) { return gradient_of(entry, i, t); };
            for (int micro = 0; micro < 2; ++micro) tape.backward(scaler.scale(small::loss{} / 2), acc, model.parameters());
            auto grads = scaler.unscale(acc.take());
            CHECK_FALSE(optimizer.step(grads).skipped());
            scaler.update();
            e.step(t, o);
            if (line >= lines.size() || lines[line].kind != "step" || static_cast<int>(lines[line].number(0)) != t) continue;
            std::vector<float> torch;
            for (std::size_t i = 1; i < lines[line].words.size(); ++i)
                torch.push_back(static_cast<float>(lines[line].number(i)));
            ++line;
            CAPTURE(lines[c].words[0]);
            CAPTURE(t);
            const double mine = root_mean_square(matrices(model), e.w), theirs = root_mean_square(torch, e.w);
            CHECK(theirs > 0);
            if constexpr (std::is_same_v<typename ht::resolve<Products>::output, float>) {
                // An iteration rounds three products of at most 13 terms, whose coefficients are 13 in all; what it does wrong
                // the later ones enlarge by at most 3.9 each, the polynomial's slope up to singular values of 1.2.
                const double of_iterations = 3 * 13 * support::gamma(16) * 311;
                CHECK(mine <= t * o.lr * 0.2 * std::sqrt(13.0) * 2 * of_iterations + 3 * t * 0x1p-24);
                CHECK(mine < theirs / 16);
            } else {
                CHECK(mine <= 2 * theirs);
            }
        }
    }
}

/// What is no hidden matrix has the bits of AdamW's; a skipped step changes nothing.
template <class Device>
void leaves_the_rest_to_adamw(Device& device) {
    const std::vector<ht::parameter_group> groups{{"tall.bias", {.lr_scale = 0.5}}, {"wide.bias", ht::frozen}};
    net<ht::amp_fp16> one{device}, two{device};
    ht::muon muon{device, one,
                  ht::muon_options{.hidden = {"wide", "tall"}, .lr = 0.0625, .adamw = {.lr = 0.03125, .weight_decay = 0.25}},
                  groups};
    ht::adamw adamw{device, two, ht::adamw_options{.lr = 0.03125, .weight_decay = 0.25}, groups};
    CHECK(muon.is_hidden(0));
    CHECK_FALSE(muon.is_hidden(1));
    CHECK_FALSE(muon.is_hidden(4));
    ht::grad_scaler scaler{device};
    ht::accumulator acc{one}, other{two};
    small::tape tape;
    for (int t = 1; t <= 4; ++t) {
        const bool overflow = t == 3;
        tape.gradients = [=](std::size_t entry, std::size_t i) {
            return overflow && i == 1 ? std::numeric_limits<float>::infinity() : gradient_of(entry, i, t);
        };
        tape.backward(scaler.scale(small::loss{}), acc, one.parameters());
        tape.backward(scaler.scale(small::loss{}), other, two.parameters());
        auto grads = scaler.unscale(acc.take());
        auto others = scaler.unscale(other.take());
        const std::vector<float> before = matrices(one);
        CHECK(muon.step(grads).skipped() == overflow);
        CHECK(adamw.step(others).skipped() == overflow);
        scaler.update();
        CHECK((matrices(one) == before) == overflow);
        CHECK((small::master_of(one.head.weight) == small::master_of(two.head.weight)));
        CHECK((small::master_of(one.head.bias) == small::master_of(two.head.bias)));
        CHECK((small::master_of(one.tall.bias) == small::master_of(two.tall.bias)));
    }
    CHECK(muon.steps() == 3);
}

}  // namespace muon_checks
