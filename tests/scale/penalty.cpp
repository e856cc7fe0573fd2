// SPDX-License-Identifier: MIT
/// \file
/// Gradient penalties under a gradient scaler: PyTorch's recipe step by step, the types of policies, and wrong orders.
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

#include "optim/golden.hpp"
#include "scale/penalised_steps.hpp"
#include "scale/penalty_definition.hpp"
#include "support/bounds.hpp"
#include "support/gradient_sink.hpp"

namespace scale_penalty_tests {

namespace ht = halftone;

constexpr ht::extent rows = 6, in = 3, hidden = 4, out = 2;

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    explicit network(ht::cpu& device) : model(device), up(parameters(), in, hidden), down(parameters(), hidden, out) {
        commit(*this, 3);
    }
    auto operator()(auto& tape, const auto& x) const { return down(tape, ht::gelu(tape, up(tape, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }

    std::vector<float> values() const {
        std::vector<float> all;
        for (std::size_t i = 0; i < parameters().entries().size(); ++i) {
            const auto here = support::read_masters(parameters(), i);
            all.insert(all.end(), here.begin(), here.end());
        }
        return all;
    }
    void assign(const double* from) {
        for (std::size_t i = 0; i < parameters().entries().size(); ++i) {
            const std::size_t n = parameters().entries()[i].count;
            support::write_masters(parameters(), i, std::vector<float>(from, from + n));
            from += n;
        }
        parameters().refresh();
    }
};

/// golden/penalty.py's numbers.
std::vector<float> numbers(int count, int start, int step, int modulus) {
    std::vector<float> all;
    for (int i = 0; i < count; ++i)
        all.push_back(static_cast<float>((start + step * i) % modulus - modulus / 2) / static_cast<float>(modulus) * 2);
    return all;
}

ht::const_view<float, 2> as_matrix(const std::vector<float>& values, ht::extent columns) {
    return {values.data(), {static_cast<ht::extent>(values.size()) / columns, columns}};
}

penalty::definition definition_at(const std::vector<double>& parameters, const std::vector<float>& x,
                                  const std::vector<float>& t, double scale) {
    const double* p = parameters.data();
    const auto next = [&](ht::extent r, ht::extent c) {
        p += r * c;
        return penalty::matrix(static_cast<int>(r), static_cast<int>(c), p - r * c);
    };
    const auto up = next(hidden, in), up_bias = next(1, hidden), down = next(out, hidden), down_bias = next(1, out);
    return {up, up_bias, down, down_bias, penalty::matrix(rows, in, x.data()), t, scale};
}

template <class P>
void replay(const std::vector<support::golden_line>& lines, std::size_t& at) {
    const std::vector<float> x = numbers(rows * in, 3, 5, 16), t = numbers(rows * out, 1, 7, 16);
    constexpr float rate = 0.0625f;
    ht::cpu device{{.threads = 1}};
    network<P> model(device);
    ht::sgd optimizer{device, model, {.lr = rate}};
    ht::grad_scaler scaler{device, {.init_scale = 256, .growth_interval = 5, .min_scale = 0}};
    ht::accumulator acc{model};
    ht::tape tape{device, ht::double_backward};

    std::vector<double> before;
    for (std::size_t i = 0; i < lines[at].words.size(); ++i) before.push_back(lines[at].number(i));
    int steps = 0, skips = 0;
    double scale = 256;
    support::comparison updates, torch_updates;
    for (++at; at < lines.size() && lines[at].kind == "step"; ++at, ++steps) {
        const support::golden_line& want = lines[at];
        CAPTURE(steps);
        // Each step starts from PyTorch's parameters, so that its errors are those of one step.
        model.assign(before.data());
        std::vector<float> inputs = x;
        for (float& v : inputs) v *= static_cast<float>(want.number(0));

        const auto loss =
            ht::mean_squared_error(tape, model(tape, tape.constant(as_matrix(inputs, in))), as_matrix(t, out));
        const auto grads = scaler.unscale(tape.gradients(scaler.scale(loss), model));
        const auto total = ht::add(tape, loss, ht::norm(tape, grads));
        const float got_loss = loss.item(), got_total = total.item();
        const auto operations = static_cast<double>(tape.graph().records());
        tape.backward(scaler.scale(total), acc);
        auto unscaled = scaler.unscale(acc.take());
        const bool skipped = optimizer.step(unscaled).skipped();
        scaler.update();

        CHECK(skipped == (want.number(1) != 0));
        CHECK(static_cast<double>(scaler.get_scale()) == want.number(2));
        CHECK(scaler.state().growth_tracker == want.number(3));
        skips += skipped ? 1 : 0;
        const std::vector<float> after = model.values();
        REQUIRE(want.words.size() == 6 + after.size());
        // Both programs' operations pass values through one sum of 18 products and a few functions at most, relative to
        // magnitudes whose largest the gradient shows: that of the loss and of its norm, the largest of which is the
        // step's.
        double largest = 0;
        for (std::size_t i = 0; i < after.size(); ++i)
            largest = std::max(largest, std::fabs(want.number(6 + i) - before[i]) / static_cast<double>(rate));
        const double bound = 2 * support::gamma(operations * (18 + 8));
        for (std::size_t i = 0; i < after.size(); ++i) {
            if (skipped) CHECK(static_cast<double>(after[i]) == before[i]);
            if (!std::is_same_v<P, ht::full_fp32>) continue;
            CHECK(std::fabs(static_cast<double>(after[i]) - want.number(6 + i)) <=
                  bound * largest * static_cast<double>(rate) + 2 * support::rounding<float>(before[i]));
        }
        if (!skipped && std::is_same_v<P, ht::full_fp32>) {
            CHECK(std::fabs(static_cast<double>(got_loss) - want.number(4)) <= bound * want.number(4));
            CHECK(std::fabs(static_cast<double>(got_total) - want.number(5)) <= bound * want.number(5));
        }
        if (!skipped && std::is_same_v<P, ht::amp_fp16>) {
            // Both programs against the step in double, by running error bounds.
            const auto exact = definition_at(before, inputs, t, scale)();
            const auto within = [](double got, const support::tracked& is) {
                return std::fabs(got - is.value) <= is.error;
            };
            CHECK(within(static_cast<double>(got_loss), exact.loss));
            CHECK(within(static_cast<double>(got_total), exact.total));
            CHECK(within(want.number(4), exact.loss));
            CHECK(within(want.number(5), exact.total));
            for (std::size_t i = 0; i < after.size(); ++i) {
                const double lr = static_cast<double>(rate), is = -lr * exact.gradients[i].value;
                const double off = lr * exact.gradients[i].error + 2 * support::rounding<float>(2 * before[i]);
                updates.expect(static_cast<double>(after[i]) - before[i], is, off);
                torch_updates.expect(want.number(6 + i) - before[i], is, off);
            }
        }
        scale = want.number(2);
        for (std::size_t i = 0; i < before.size(); ++i) before[i] = want.number(6 + i);
    }
    if (std::is_same_v<P, ht::amp_fp16>) {
        CHECK_WITHIN(updates);
        CHECK_WITHIN(torch_updates);
    }
    CHECK(steps >= 20);
    CHECK(skips >= 4);
    CHECK(tape.memory().live() == 0);
}

TEST_CASE("a gradient penalty: scale, skips and parameters of PyTorch's recipe") {
    const auto lines = support::read_golden("penalty.txt");
    std::size_t at = 1;
    REQUIRE(lines[0].words[0] == "fp32");
    replay<ht::full_fp32>(lines, at);
    REQUIRE(lines[at].words[0] == "fp16");
    replay<ht::amp_fp16>(lines, ++at);
    CHECK(at == lines.size());
}

TEST_CASE("Hessian times vector: differences of a plain tape's gradients") {
    const std::vector<float> x = numbers(rows * in, 3, 5, 16), t = numbers(rows * out, 1, 7, 16);
    ht::cpu device{{.threads = 1}};
    network<ht::full_fp32> model(device);
    const std::vector<float> start = model.values();
    std::vector<float> direction;
    for (std::size_t i = 0; i < start.size(); ++i) direction.push_back(static_cast<float>(i % 5) - 1.5f);
    support::gradient_sink sink(model.parameters());
    const auto gathered = [&] {
        std::vector<double> all;
        for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
            for (const float g : sink.entry(i)) all.push_back(static_cast<double>(g));
        }
        sink.close();
        return all;
    };
    const auto loss_on = [&](auto& tape) {
        return ht::mean_squared_error(tape, model(tape, tape.constant(as_matrix(x, in))), as_matrix(t, out));
    };

    ht::tape tape{device, ht::double_backward};
    std::vector<double> got, first;
    std::uint64_t blocks = 0;
    for (int pass = 0; pass < 4; ++pass) {
        const auto loss = loss_on(tape);
        const auto grads = tape.gradients(loss, model);
        ht::variable<float, 0> total;
        std::size_t at = 0;
        for (std::size_t i = 0; i < grads.size(); ++i) {
            const auto v = tape.constant(ht::const_view<float, 1>(direction.data() + at, grads[i].shape()));
            const auto part = ht::sum(tape, ht::mul(tape, grads[i], v));
            total = i == 0 ? part : ht::add(tape, total, part);
            at += static_cast<std::size_t>(grads[i].size());
        }
        tape.backward(total, sink);
        const auto now = gathered();
        if (pass == 2) blocks = device.memory().usage().allocations();
        if (pass > 0) CHECK(now == got);
        got = now;
    }
    CHECK(device.memory().usage().allocations() == blocks);

    ht::tape plain{device};
    double operations = 0;
    const auto gradient_at = [&](double step) {
        std::vector<double> moved;
        for (std::size_t i = 0; i < start.size(); ++i)
            moved.push_back(static_cast<double>(start[i]) + step * static_cast<double>(direction[i]));
        model.assign(moved.data());
        const auto loss = loss_on(plain);
        operations = static_cast<double>(plain.graph().records());
        plain.backward(loss, sink);
        return gathered();
    };
    const double h = 0x1p-7;
    const auto above = gradient_at(h), below = gradient_at(-h), far_above = gradient_at(2 * h),
               far_below = gradient_at(-2 * h);
    double largest = 0;
    for (const double g : far_above) largest = std::max(largest, std::fabs(g));
    support::comparison c;
    for (std::size_t i = 0; i < got.size(); ++i) {
        // The error of the narrow difference is a quarter of that of the wide one, but for higher terms; both gradients
        // are rounded.
        const double narrow = (above[i] - below[i]) / (2 * h), wide = (far_above[i] - far_below[i]) / (4 * h);
        c.expect(got[i], narrow,
                 std::fabs(narrow - wide) + 2 * support::gamma(operations * (18 + 8)) * largest / (2 * h));
    }
    CHECK_WITHIN(c);
}

struct small_run {
    ht::cpu device{{.threads = 1}};
    network<ht::amp_fp16> model{device};
    ht::grad_scaler<ht::cpu> scaler{device, {.init_scale = 64}};
    ht::accumulator<ht::through_scaler, ht::types<network<ht::amp_fp16>>> acc{model};
    ht::tape<ht::cpu, ht::double_backward_tape> tape{device, ht::double_backward};
    std::vector<float> x = numbers(rows * in, 3, 5, 16), t = numbers(rows * out, 1, 7, 16);
    ht::variable<float, 0> loss_of(const ht::variable<float, 2>& in_x) {
        return ht::mean_squared_error(tape, model(tape, in_x), as_matrix(t, out));
    }
};

TEST_CASE_FIXTURE(small_run, "gradients as variables: types, names, and what a plain backward pass gives") {
    const auto leaf = tape.leaf(as_matrix(x, in));
    const auto low = ht::map(ht::autocast<ht::full_fp32>(tape), [](auto a) { return a; }, leaf);
    const auto y = model(tape, low);
    static_assert(std::is_same_v<std::remove_cvref_t<decltype(y)>, ht::variable<ht::float16, 2>>);
    const auto loss = ht::mean_squared_error(tape, y, as_matrix(t, out));
    const auto scaled = tape.gradients(scaler.scale(loss), leaf, model, y);
    static_assert(ht::is_scaled<std::remove_cvref_t<decltype(scaled)>>);
    CHECK(scaled.value().size() == 1 + 4 + 1);
    const auto grads = scaler.unscale(tape.gradients(scaler.scale(loss), leaf, model, y));
    static_assert(std::is_same_v<decltype(grads.of(y)), ht::variable<float, 2>>);
    static_assert(std::is_same_v<decltype(grads.of(model.up.weight)), ht::variable<float, 2>>);
    const std::vector<double> weight = support::doubles(grads.of(model.up.weight).view()),
                              slope = support::doubles(grads.of(leaf).view());
    // That of y is a fp16 number times 1 / 64.
    for (const double g : support::doubles(grads.of(y).view()))
        CHECK(static_cast<double>(static_cast<float>(ht::float16(static_cast<float>(g * 64)))) == g * 64);
    CHECK_THROWS_AS(scaled.value().of(loss), ht::argument_error);

    // The same products in the same types: a plain pass over the same tape differs by roundings to fp16 alone.
    tape.backward(scaler.scale(loss), acc);
    const auto unscaled = acc.take();
    const auto plain = support::doubles(unscaled.value().of(model.up.weight));
    const double u16 = ht::unit_roundoff<ht::float16>;
    double largest = 0;
    for (const double p : plain) largest = std::max(largest, std::fabs(p / 64));
    for (std::size_t i = 0; i < plain.size(); ++i)
        CHECK(std::fabs(weight[i] - plain[i] / 64) <= support::gamma(8, u16) * largest * rows);
    CHECK(support::doubles(tape.gradient(leaf)).size() == slope.size());
}

TEST_CASE_FIXTURE(small_run, "what gradients() refuses leaves the tape as it was") {
    const auto leaf = tape.leaf(as_matrix(x, in)), constant = tape.constant(as_matrix(x, in)),
               unused = tape.leaf(as_matrix(x, in));
    const auto loss = loss_of(leaf);
    CHECK_THROWS_AS(tape.gradients(loss, constant), ht::argument_error);
    CHECK_THROWS_AS(tape.gradients(loss, unused), ht::state_error);
    ht::tape other{device, ht::double_backward};
    CHECK_THROWS_AS(tape.gradients(loss, other.leaf(as_matrix(x, in))), ht::argument_error);
    CHECK_THROWS_AS(other.gradients(loss, leaf), ht::argument_error);
    network<ht::amp_fp16> stranger(device);
    CHECK_THROWS_AS(tape.gradients(loss, stranger), ht::state_error);
    CHECK_THROWS_AS(tape.gradients(loss, stranger.up.bias), ht::state_error);

    // Gradients of gradients are for backward() to differentiate.
    const auto grads = tape.gradients(loss, leaf);
    const auto penalty = ht::sum_of_squares(tape, grads);
    CHECK_THROWS_AS(tape.gradients(penalty, leaf), ht::state_error);
    // Those that were computed before may be: they are values, and the loss is on the tape still.
    CHECK(tape.gradients(ht::add(tape, loss, ht::mul(tape, loss, loss)), leaf).size() == 1);

    auto scaled = tape.gradients(scaler.scale(loss), leaf);
    ht::grad_scaler another{device};
    CHECK_THROWS_AS(another.unscale(std::move(scaled)), ht::state_error);
    tape.backward(scaler.scale(penalty), acc);
    CHECK_THROWS_AS(tape.gradients(loss, leaf), ht::state_error);
    scaler.unscale(acc.take());
    auto late = tape.gradients(scaler.scale(loss_of(leaf)), leaf);
    scaler.update();
    CHECK_THROWS_AS(scaler.unscale(std::move(late)), ht::state_error);
    tape.clear();

    model.parameters().freeze("up");
    CHECK_THROWS_AS(tape.gradients(loss_of(leaf), model.up.weight), ht::argument_error);
    CHECK(tape.gradients(loss_of(leaf), model).size() == 2);
    using roles = ht::roles<float, float, float>;
    const auto q = tape.leaf(ht::const_view<float, 4>(x.data(), {1, 3, 1, 2}));
    CHECK_THROWS_AS(ht::attention<roles>(tape, q, q, q, {.strategy = ht::attention_strategy::flash}),
                    ht::argument_error);
}

TEST_CASE("penalties with a sparse table in a captured step: the bits of a dense one") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    penalised_steps::check(one, two);
}

}  // namespace scale_penalty_tests
