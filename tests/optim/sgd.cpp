// SPDX-License-Identifier: MIT
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/sgd.hpp>

#include "optim/golden_run.hpp"
#include "support/each_set.hpp"

namespace optim_sgd_tests {

namespace ht = halftone;
using support::u;

/// One parameter in exact arithmetic and a bound of what float arithmetic may have added; see adamw.cpp.
struct tracked_sgd {
    double w = 0, m = 0;
    double error_w = 0, error_m = 0;

    void step(double g, double error_g, const ht::sgd_options& o, double lr, double weight_decay, int t) {
        double d = g + weight_decay * w;
        double error_d = error_g + weight_decay * error_w + 2 * u * weight_decay * std::fabs(w) + u * std::fabs(d);
        if (o.momentum != 0) {
            const double keep = t == 1 ? 0 : o.momentum, take = t == 1 ? 1 : 1 - o.dampening;
            error_m = keep * error_m + take * error_d + 2 * u * keep * std::fabs(m) + 2 * u * take * std::fabs(d);
            m = keep * m + take * d;
            error_m += u * std::fabs(m);
            const bool corrected = o.kind == ht::nesterov;
            error_d = corrected ? error_d + o.momentum * (error_m + 2 * u * std::fabs(m)) : error_m;
            d = corrected ? d + o.momentum * m : m;
            if (corrected) error_d += u * std::fabs(d);
        }
        w -= lr * d;
        error_w += lr * (error_d + 2 * u * std::fabs(d)) + u * std::fabs(w);
    }
    double bound() const { return 1.001 * error_w; }
};

TEST_CASE("sgd: equals torch.optim.SGD within fp32 rounding, over 100 steps") {
    const std::vector<support::golden_line> lines = support::read_golden("sgd.txt");
    int cases = 0;
    support::for_each_set([&](ht::isa set) {
        for (std::size_t at = 0; at < lines.size();) {
            const support::golden_line& head = lines[at++];
            REQUIRE(head.kind == "case");
            CAPTURE(head.words[0]);
            const ht::sgd_options options{
                .lr = head.number(1),
                .momentum = head.number(2),
                .dampening = head.number(3),
                .weight_decay = head.number(5),
                .kind = head.number(4) != 0 ? ht::momentum_kind::nesterov : ht::momentum_kind::plain};
            const golden::clipping clip{head.number(6), head.number(7), head.number(8)};
            const bool grouped = head.number(9) != 0;

            ht::cpu device{{.threads = 2, .instruction_set = set}};
            small::model<ht::amp_fp16> model{device, golden::width};
            golden::set_parameters(model);
            ht::sgd optimizer{device, model, options, golden::groups(grouped)};
            std::vector<tracked_sgd> exact(golden::parameters);
            for (int i = 0; i < golden::parameters; ++i)
                exact[static_cast<std::size_t>(i)].w = golden::initial_parameter(i);

            support::comparison with_exact, with_torch;
            golden::train(device, model, optimizer, clip, 100, [&](int t) {
                const golden::clipped_gradients g(clip, t);
                for (std::size_t i = 0; i < exact.size(); ++i) {
                    const int n = static_cast<int>(i);
                    exact[i].step(g.value[i], g.error[i], options, golden::lr_of(n, options.lr, grouped),
                                  golden::decay_of(n, options.weight_decay, grouped), t);
                }
                if (at == lines.size() || lines[at].kind != "step" || lines[at].number(0) != t) return;
                const std::vector<float> ours = golden::get_parameters(model);
                for (std::size_t i = 0; i < exact.size(); ++i) {
                    with_exact.expect(static_cast<double>(ours[i]), exact[i].w, exact[i].bound());
                    with_torch.expect(static_cast<double>(ours[i]), lines[at].number(i + 1), 2 * exact[i].bound());
                    CHECK(exact[i].bound() < 1e-4 * std::max(std::fabs(exact[i].w), 1.0));
                }
                ++at;
            });
            CHECK_WITHIN(with_exact);
            CHECK_WITHIN(with_torch);
            for (int i = 0; i < golden::width; ++i) {
                CHECK(model.fc1.weight.values()(i).bits() == ht::float16(model.fc1.weight.master()(i)).bits());
            }
            ++cases;
        }
    });
    CHECK(cases >= 7);
}

TEST_CASE("sgd: without momentum it has no memory for moments") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    ht::sgd plain{device, model, {.lr = 0.1}};
    CHECK(device.memory().usage().live(ht::memory_kind::moment) == 0);
    ht::sgd heavy{device, model, {.lr = 0.1, .momentum = 0.9}};
    CHECK(device.memory().usage().live(ht::memory_kind::moment) == (128 + 64 + 128 + 64) * sizeof(float));
}

TEST_CASE("sgd: options out of range are refused") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    using optimizer = ht::sgd<ht::cpu, small::model<ht::full_fp32>>;
    CHECK_THROWS_AS((optimizer{device, model, {.momentum = -1}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.kind = ht::nesterov}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.momentum = 0.9, .dampening = 0.1, .kind = ht::nesterov}}),
                    ht::argument_error);
}

}  // namespace optim_sgd_tests
