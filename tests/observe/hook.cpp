// SPDX-License-Identifier: MIT
/// \file
/// Operations unknown to every diagnostic tool, and a tool unknown to every operation: they work together through the hook of a
/// tape (autodiff/engine/hook.hpp).
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/observe/ledger/ledger.hpp>
#include <halftone/observe/shadow/shadow.hpp>

#include "support/outer.hpp"
#include "support/random.hpp"

namespace observe_hook_tests {

namespace ht = halftone;

constexpr ht::extent width = 12;

template <class P>
struct net : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    float off = 1;

    explicit net(ht::cpu& device) : model(device), up(parameters(), width, width, {.deviation = 1}) { commit(*this, 3); }
    auto operator()(auto&& t, const auto& x) const {
        const auto region = ht::autocast<P>(t);
        const auto a = ht::reshape(region, ht::softsign(region, up(t, x)), ht::shape<1>{width});
        return ht::outer(region, a, a, off);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up); }
};

struct step {
    std::vector<float> inputs = support::random(3).normals<float>(width);
    std::vector<float> targets = std::vector<float>(width * width);

    auto operator()(auto& tape, const auto& model) const {
        const auto x = tape.to_device(ht::const_view<float, 2>(inputs.data(), {1, width}));
        return ht::mean_squared_error(tape, model(tape, x),
                                      ht::const_view<float, 2>(targets.data(), {width, width}));
    }
};

ht::shadow_report report_of(float off) {
    ht::cpu device{{.threads = 1}};
    net<ht::amp_bf16> model{device};
    net<ht::full_fp32> twin{device};
    model.off = twin.off = off;
    return ht::shadow_run(device, model, twin, step{});
}

TEST_CASE("hook: a shadow run bounds operations that it does not know") {
    const auto report = report_of(1);
    CHECK(report.first() == nullptr);
    int of_outer = 0, of_softsign = 0;
    for (const ht::shadow_row& r : report.rows) {
        of_outer += r.by.operation == "outer" ? 1 : 0, of_softsign += r.by.operation == "softsign" ? 1 : 0;
        // Rounding changes the result, and the bound is narrow enough to find errors.
        if (r.by.operation == "outer" && r.pass == ht::pass::forward) CHECK((r.ratio > 0.1 && r.ratio < 1));
    }
    CHECK(of_outer == 3);     // its result, and the gradients of both of its inputs
    CHECK(of_softsign == 2);

    const auto wrong = report_of(1.03f);
    REQUIRE(wrong.first() != nullptr);
    CHECK(wrong.first()->by.operation == "outer");
    CHECK(wrong.first()->pass == ht::pass::forward);
}

TEST_CASE("hook: the ledger lists unknown operations by the form of their records") {
    ht::cpu device{{.threads = 1}};
    const net<ht::amp_bf16> model{device};
    ht::tape recorder{device, ht::ledger_of_calls};
    step{}(recorder, model);
    std::vector<ht::ledger_entry> of_outer;
    for (const ht::ledger_entry& e : recorder.entries()) {
        if (std::string(e.op) == "outer") of_outer.push_back(e);
    }
    REQUIRE(of_outer.size() == 3);
    for (const ht::ledger_entry& e : of_outer) CHECK(std::string(e.in) == "bfloat16");
    CHECK(std::string(of_outer[0].operands[1].name) == "b");
    CHECK(of_outer[1].pass == ht::ledger_pass::input_gradient);
    CHECK(std::string(of_outer[1].operands[0].name) == "dy");
    CHECK(std::string(of_outer[1].operands[1].name) == "b");
    CHECK(of_outer[1].operands[2].name == nullptr);
    CHECK(std::string(of_outer[2].operands[1].name) == "a");
}

/// What happens, in its order.
struct story : ht::detail::tape_hook {
    using tape_hook::tape_hook;
    std::string told;

    template <class Where>
    void begin(const char* operation) {
        told += operation + std::string("(");
    }
    void end() { told += ")"; }
    template <class T, int Rank>
    void give(const ht::variable<T, Rank>& y, bool) {
        told += std::to_string(y.size());
    }
    template <class Record>
    void record(const Record&) {
        told += "!";
    }
    template <class Record, class Run>
    void backward(const Record&, const noted&, const Run& run) {
        told += std::string(" ") + Record::operation::name + "[";
        run();
        told += "]";
    }
    template <class T, int Rank>
    void give_gradient(const ht::gradient_of<T, Rank>& v, const T*, ht::write_mode mode) {
        told += (mode == ht::write_mode::add ? "+" : "=") + std::to_string(v.shape().size());
    }
};

TEST_CASE("hook: a tool sees every operation's begin, result and backward pass, and changes no bit") {
    ht::cpu device{{.threads = 1}};
    const std::vector<float> values = support::random(4).normals<float>(width);
    const auto loss = [&](auto& tape, const auto& x) { return ht::sum(tape, ht::outer(tape, ht::softsign(tape, x), x)); };

    ht::detail::hooked_tape<ht::cpu, story> tape{device};
    const auto x = tape.leaf(ht::const_view<float, 1>(values.data(), {width}));
    tape.backward(loss(tape, x));
    CHECK(tape.hook().told == "softsign(12!)outer(144!)sum(1!) sum[=144] outer[=12=12] softsign[+12]");

    ht::tape plain{device};
    const auto same = plain.leaf(ht::const_view<float, 1>(values.data(), {width}));
    plain.backward(loss(plain, same));
    const auto a = tape.gradient(x), b = plain.gradient(same);
    for (ht::extent i = 0; i < width; ++i) CHECK(a(i) == b(i));
    static_assert(sizeof(plain) < sizeof(tape));
}

}  // namespace observe_hook_tests
