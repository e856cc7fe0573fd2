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
#include "optim/matrix_model.hpp"
#include "support/bounds.hpp"

namespace muon_checks {

namespace ht = halftone;

using small::gradient, small::initial_parameter;
template <class P>
using net = small::matrix_net<P>;

inline constexpr int matrix_count = 91;
/// The gradients of any entry; those of the two matrices are the golden file's.
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
    small::assign_initial(model.wide.weight, 0), small::assign_initial(model.tall.weight, matrix_count);
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

/// The cases of tests/golden/muon.py, up to `last` steps. With products in bfloat16 the parameters are at most twice as far
/// from the definition as torch's; with products in float they are within the bound of their roundings.
template <class Products, class Device>
void equals_definition(Device& device, int last) {
    ht::muon_options o;
    std::vector<support::golden_line> lines = support::read_golden("muon.txt");
    for (std::size_t c = 0; c < lines.size(); ++c) {
        if (lines[c].kind != "case") continue;
        o = ht::muon_options{
            .hidden = {"wide", "tall"},
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
                // An iteration rounds three products of at most 13 terms, whose coefficients add up to 13. Each later iteration
                // multiplies the error by at most 3.9, the polynomial's largest slope up to singular values of 1.2.
                const double of_iterations = 3 * 13 * support::gamma(16) * 311;
                CHECK(mine <= t * o.lr * 0.2 * std::sqrt(13.0) * 2 * of_iterations + 3 * t * 0x1p-24);
                CHECK(mine < theirs / 16);
            } else {
                CHECK(mine <= 2 * theirs);
            }
        }
    }
}

/// Entries: a to d of one shape, e and f of another, each with a bias.
template <class P>
struct alike_net : ht::nn::model {
    using policy = P;
    small::matrix_layer<ht::at<P, "a">> a;
    small::matrix_layer<ht::at<P, "b">> b;
    small::matrix_layer<ht::at<P, "c">> c;
    small::matrix_layer<ht::at<P, "d">> d;
    small::matrix_layer<ht::at<P, "e">> e;
    small::matrix_layer<ht::at<P, "f">> f;

    template <class Device>
    explicit alike_net(Device& device)
        : ht::nn::model(device),
          a(parameters(), 16, 24),
          b(parameters(), 16, 24),
          c(parameters(), 16, 24),
          d(parameters(), 16, 24),
          e(parameters(), 13, 7),
          f(parameters(), 13, 7) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.a, self.b, self.c, self.d, self.e, self.f); }
};

/// Matrices of one shape have the same bits in batches of any size, also in a step that reaches only some of them.
template <class Device>
void batches_alike(Device& device) {
    using model_type = alike_net<ht::amp_fp16>;
    std::vector<std::vector<std::vector<float>>> all;
    for (const int batch : {1, 0, 3}) {
        model_type model{device};
        ht::muon muon{device, model,
                      ht::muon_options{.hidden = {"*"}, .lr = 0.0625, .batch = batch, .adamw = {.lr = 0.03125}},
                      {{"d", {.lr_scale = 0.5}}}};
        ht::grad_scaler scaler{device};
        ht::accumulator acc{model};
        small::tape tape;
        for (int t = 1; t <= 3; ++t) {
            tape.reaches = [=](std::size_t entry) { return t != 2 || entry != 2; };
            tape.gradients = [=](std::size_t entry, std::size_t i) {
                return static_cast<float>(gradient(static_cast<int>(500 * entry + i), t));
            };
            tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
            auto grads = scaler.unscale(acc.take());
            CHECK_FALSE(muon.step(grads).skipped());
            scaler.update();
        }
        all.push_back({small::master_of(model.a.weight), small::master_of(model.b.weight), small::master_of(model.c.weight),
                       small::master_of(model.d.weight), small::master_of(model.e.weight), small::master_of(model.f.weight)});
    }
    CHECK((all[1] == all[0]));
    CHECK((all[2] == all[0]));
    const model_type untouched{device};
    CHECK((all[0][1] != small::master_of(untouched.b.weight)));
    CHECK((all[0][1] != all[0][0]));
}

/// Parameters that are not hidden matrices have the bits of AdamW; a skipped step changes nothing.
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
