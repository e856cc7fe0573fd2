// SPDX-License-Identifier: MIT
/// \file
/// Watched tapes of models with number types of a user's own: where a step overflowed, the exponent counts of its tensors, and
/// shadow runs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>

#include <halftone/observe/numerics/html.hpp>
#include <halftone/observe/report/json.hpp>
#include <halftone/observe/shadow/html.hpp>

#include "support/own_numbers.hpp"
#include "train/overflow_checks.hpp"
#include "train/shadow_checks.hpp"

namespace train_own_numbers_watched_tests {

/// Fixed point in 16 bits with a NaN, which numbers beyond the largest, almost 64, become: multiples of 2^-9.
class fixed16_nan {
  public:
    fixed16_nan() = default;
    explicit fixed16_nan(float x)
        : code_(std::fabs(x) <= 32767 * 0x1p-9f ? static_cast<std::int16_t>(std::lrint(x * 0x1p9f)) : nan) {}
    operator float() const {
        return code_ == nan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(code_) * 0x1p-9f;
    }

  private:
    static constexpr std::int16_t nan = -32768;
    std::int16_t code_;
};

}  // namespace train_own_numbers_watched_tests

template <>
struct halftone::number_traits<train_own_numbers_watched_tests::fixed16_nan> : halftone::fixed_format<6, 9> {
    static constexpr const char* name = "fixed16_nan";
    static constexpr bool has_nan = true;
};

namespace train_own_numbers_watched_tests {

namespace ht = halftone;
using overflow_checks::loop;

const auto e6m9 = ht::value_format::of<support::float16_e6m9>();

TEST_CASE("own numbers: the first operation that overflowed is found, for each operation, pass and micro-batch") {
    ht::cpu device{{.threads = 1}};
    overflow_checks::finds_each<support::amp_e6m9>(device, 1);
}

TEST_CASE("own numbers: a layer that overflows is named with its type, whose overflow is a NaN") {
    ht::cpu device{{.threads = 1}};
    loop<support::amp_e6m9, ht::cpu> l(device);
    ht::overflow_finder finder{device, l.tape};
    finder.end_step(l.step(l.whole()));
    l.scale_weight("h.1.attn.proj.weight", 0x1p33f);
    l.scale_weight("h.1.attn.qkv.weight", 0x1p6f);
    finder.end_step(l.step(l.whole()));
    const auto all = finder.take(l.model);
    REQUIRE(all.size() == 1);
    CHECK(all[0].by.layer == "h.1.attn.proj");
    CHECK(all[0].format == e6m9);
    CHECK(all[0].found.nans > 0);
    CHECK(all[0].text().find("h.1.attn.proj, linear, forward: ") != std::string::npos);
    CHECK(all[0].text().find(" NaN of 64 values in float16_e6m9") != std::string::npos);
    CHECK(ht::overflow_json(all[0]).dump().find("\"type\":\"float16_e6m9\"") != std::string::npos);
}

/// The counts of a step.
template <class P>
ht::numerics_view counted(loop<P, ht::cpu>& l) {
    ht::numerics_collector numerics{l.device, l.tape};
    l.step(l.whole());
    return numerics.take(l.model, l.scaler.get_scale());
}

TEST_CASE("own numbers: a numerics report has the exact counts, and the type's own range") {
    ht::cpu device{{.threads = 1}};
    loop<support::amp_e6m9, ht::cpu> l(device);
    // The same step, with its tensors kept.
    struct keeper final : ht::tensor_listener {
        void on_tensor(const ht::watched_tensor& t) override {
            if (t.format != e6m9) return;
            const auto* const values = static_cast<const support::float16_e6m9*>(t.data);
            ht::tensor_statistics& s = by_text[overflow_checks::text_of(t)];
            s.add(ht::detail::statistics_on_host(ht::const_view<support::float16_e6m9, 1>(values, {t.count})));
        }
        std::map<std::string, ht::tensor_statistics> by_text;
    } kept;
    l.tape.watch(kept);
    const ht::numerics_view view = counted(l);
    l.tape.unwatch(kept);
    int compared = 0;
    for (const ht::numerics_row& r : view.rows) {
        if (r.format != e6m9 || r.is_weight()) continue;
        const std::string text = r.by.layer + (r.by.after.empty() ? " " : " after " + r.by.after + " ") + r.by.operation + " " +
                                 ht::name(r.pass) + " " + (r.parameter.empty() ? ht::name(r.role) : r.parameter);
        CAPTURE(text);
        const ht::tensor_statistics& s = kept.by_text.at(text);
        CHECK(r.counts.zeros == s.zeros);
        CHECK(r.counts.largest == s.largest);
        CHECK(std::equal(std::begin(s.by_exponent), std::end(s.by_exponent), r.counts.by_exponent));
        CHECK(r.doublings() == 32 - std::ilogb(s.largest));  // the range ends at 2^33
        ++compared;
    }
    CHECK(compared > 25);
    CHECK(std::any_of(view.rows.begin(), view.rows.end(),
                      [](const ht::numerics_row& r) { return r.is_weight() && r.format == e6m9 && r.underflowed >= 0; }));
    std::ostringstream table;
    view.print(table);
    CHECK(table.str().find("float16_e6m9") != std::string::npos);
    CHECK(ht::numerics_html(view, "own").find("from 2^-39 (normal from 2^-30) to below 2^33") != std::string::npos);
}

TEST_CASE("own numbers: a numerics report proposes another type where numbers overflow, and where they come near") {
    ht::cpu device{{.threads = 1}};
    const auto proposal_for = [&](const char* layer, float times) {
        loop<support::amp_e6m9, ht::cpu> l(device);
        l.scale_weight((std::string(layer) + ".weight").c_str(), times);
        std::string all;
        for (const auto& p : counted(l).proposals()) {
            if (p.layer == layer) all += p.policy + ": " + p.text + '\n';
        }
        return all;
    };
    CHECK(proposal_for("h.1.attn.qkv", 1) == "");
    const std::string near = proposal_for("h.1.attn.qkv", 0x1p34f), beyond = proposal_for("h.1.attn.qkv", 0x1p38f);
    CAPTURE(near);
    CAPTURE(beyond);
    CHECK(near.find("ht::amp_bf16: h.1.attn.qkv: the values of linear reach ") != std::string::npos);
    CHECK(near.find(" in float16_e6m9, which ends at 8.57e+09") != std::string::npos);
    CHECK(beyond.find("of the values of linear are NaN in float16_e6m9, which ends at 8.57e+09") != std::string::npos);
    CHECK(beyond.find(" of h.1.attn.qkv.weight are NaN in float16_e6m9 and not in the master") != std::string::npos);
}

TEST_CASE("own numbers: weights beyond a type without infinities and NaNs are counted, and none of its numbers is subnormal") {
    ht::cpu device{{.threads = 1}};
    loop<support::fixed_operands, ht::cpu> l(device);
    l.scale_weight("h.0.attn.proj.weight", 1000.0f);
    const ht::numerics_view view = counted(l);
    const auto row = std::find_if(view.rows.begin(), view.rows.end(), [](const ht::numerics_row& r) {
        return r.is_weight() && r.parameter == "h.0.attn.proj.weight";
    });
    REQUIRE(row != view.rows.end());
    CHECK(row->overflowed > 0);
    CHECK(row->subnormal() == 0);
    std::string all;
    for (const auto& p : view.proposals()) all += p.text;
    CHECK(all.find(" of h.0.attn.proj.weight are its largest number in fixed16 and not in the master") != std::string::npos);
}

/// Operands in fixed point.
struct fixed_layers : ht::amp_bf16 {
    using compute = support::fixed16;
};

TEST_CASE_TEMPLATE("own numbers: a shadow run finds nothing in models that are right", P, support::amp_e6m9, support::pure_e6m9,
                   support::log8_hybrid) {
    ht::cpu device{{.threads = 1}};
    loop<P, ht::cpu> l(device);
    ht::shadow_twin<ht::nn::gpt<P>> twin{device, overflow_checks::config};
    const auto report =
        ht::shadow_run(device, l.model, twin, [&](auto& tape, const auto& m) { return l.scaler.scale(m.loss(tape, l.whole())); });
    std::ostringstream table;
    report.print(table);
    INFO(table.str());
    CHECK(report.rows.size() > 40);
    CHECK(shadow_checks::first_of(report) == "");
}

TEST_CASE("own numbers: a shadow run names the operation or weight that is wrong") {
    ht::cpu device{{.threads = 1}};
    shadow_checks::names_what_is_wrong<support::amp_e6m9>(device);
}

TEST_CASE("own numbers: a shadow run of linear layers with fixed-point operands") {
    using P = fixed_layers;
    ht::cpu device{{.threads = 1}};
    using shadow_checks::fault, shadow_checks::first_of;
    const auto half = [](auto& model) { shadow_checks::scale_weight(model.in.weight, 0.5f); };
    const auto report = shadow_checks::report_of<fault::none, P>(device, 1, half);
    std::ostringstream table;
    report.print(table);
    INFO(table.str());
    CHECK(report.rows.size() > 20);
    CHECK(first_of(report) == "");
    // Squares beyond the largest number, 8, which the next layer reads; and weights that are smaller than half of a step.
    const auto beyond = shadow_checks::report_of<fault::none, P>(device, 1, shadow_checks::as_it_is);
    CHECK(first_of(beyond) == "mid linear forward value");
    const auto lost =
        shadow_checks::report_of<fault::none, P>(device, 1, [](auto& model) { shadow_checks::scale_weight(model.mid.weight, 0x1p-14f); });
    CHECK(first_of(lost) == "mid weight mid.weight");
}

/// Every number of `up` times that of its row, whose gradient is a sum of a row's products.
template <class P>
struct gated : ht::nn::model {
    static constexpr ht::extent rows = 40, width = 128;
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "gate">> gate;
    ht::nn::linear<ht::at<P, "down">> down;
    explicit gated(auto& device)
        : model(device),
          up(parameters(), width, width, {.deviation = 0.1f}),
          gate(parameters(), width, 1, {.deviation = 0.1f}),
          down(parameters(), width, width, {.deviation = 0.1f}) {
        commit(*this, 3);
    }
    auto operator()(auto&& t, const auto& x) const {
        return down(t, ht::map(
                           t, [](auto a, auto b) { return a * b; }, up(t, x), gate(t, x)));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.gate, self.down); }
};

TEST_CASE("own numbers: a shadow run counts the steps of sums of gradients in fixed point") {
    ht::cpu device{{.threads = 1}};
    using fixed = gated<ht::with_output<ht::full_fp32, fixed16_nan>>;
    fixed model{device};
    gated<ht::full_fp32> twin{device};
    const auto inputs = support::random(3).normals<float>(fixed::rows * fixed::width);
    const std::vector<float> targets(fixed::rows * fixed::width);
    const auto report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        const auto x = tape.to_device(ht::const_view<float, 2>(inputs.data(), {fixed::rows, fixed::width}));
        return ht::mean_squared_error(tape, m(tape, x),
                                      ht::const_view<float, 2>(targets.data(), {fixed::rows, fixed::width})) *
               64;
    });
    std::ostringstream table;
    report.print(table);
    INFO(table.str());
    CHECK(shadow_checks::first_of(report) == "");
    CHECK(report.rows.size() > 8);
}

}  // namespace train_own_numbers_watched_tests
