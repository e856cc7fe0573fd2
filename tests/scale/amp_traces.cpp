// SPDX-License-Identifier: MIT
/// \file
/// Two models, two optimizers and three losses through scripted overflows, as torch.amp runs them
/// (tests/golden/amp.py): every scale, growth tracker, skip and found_inf is PyTorch's, and losses and parameters of
/// both are within running error bounds of the same training in double.
///
/// The last tests show the differences between halftone and PyTorch.
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/engine/tape.hpp>
#include <halftone/autodiff/op/pointwise.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/golden.hpp"
#include "support/layers.hpp"

namespace scale_amp_traces_tests {

namespace ht = halftone;
using support::tracked;
using matrix = support::matrix<tracked>;
using numbers = std::vector<float>;

constexpr int rows = 4, in = 5, hidden = 4, out = 4;
constexpr float infinity = std::numeric_limits<float>::infinity();

// The numbers that golden/amp.py takes.
float value(int salt, int i) { return static_cast<float>((7919 * salt + 104729 * i + 31 * i * i) % 65 - 32) / 32; }
numbers values(int salt, int count, float factor = 1) {
    numbers all;
    for (int i = 0; i < count; ++i) all.push_back(value(salt, i) * factor);
    return all;
}
struct micro_batch {
    numbers x1, x2, x3, t1, t3, zeros = numbers(rows * hidden, 0.0f);
    micro_batch(int salt, char letter)
        : x1(values(salt, rows * in, letter == 'h' ? 0x1p60f : letter == 'g' ? 4.0f : 1.0f)), x2(values(salt + 1000, rows * in)),
          x3(values(salt + 2000, rows * hidden)), t1(values(salt + 3000, rows * out)), t3(values(salt + 4000, rows * out)) {}
};

/// The definition: the training in double, with a bound for each number of how far a run in P's types can be off.
struct definition {
    double roundoff = 0, least = 0;  ///< of the narrow type; 0: all is float
    bool adam = true;
    matrix weight[2], bias[2], weight_grad[2], bias_grad[2];
    matrix first[2], second[2];  ///< moments: weight and bias of a for AdamW; those of b, for momentum
    double scale = 1;
    int steps[2] = {};

    definition(double narrow_roundoff, double least_narrow)
        : roundoff(narrow_roundoff), least(least_narrow), adam(narrow_roundoff == 0) {
        const auto make = [](int salt, int r, int c) { return matrix(r, c, values(salt, r * c).data()); };
        weight[0] = make(1, hidden, in), bias[0] = make(2, 1, hidden), weight[1] = make(3, out, hidden),
        bias[1] = make(4, 1, out);
        first[0] = second[0] = matrix(hidden, in), first[1] = second[1] = matrix(1, hidden);
        momentum_[0] = matrix(out, hidden), momentum_[1] = matrix(1, out);
        begin();
    }
    void begin() {
        for (int l : {0, 1}) {
            weight_grad[l] = matrix(weight[l].rows, weight[l].columns);
            bias_grad[l] = matrix(1, bias[l].columns);
        }
    }

    /// What is stored in the narrow type somewhere on the way; gradients there are `scale` times as large.
    tracked narrow(const tracked& x, double times = 1) const {
        if (roundoff == 0) return x;
        return {x.value, x.error + roundoff * (std::fabs(x.value) + x.error) + least / 2 / times};
    }
    matrix narrow(matrix x, double times = 1) const {
        for (tracked& v : x.values) v = narrow(v, times);
        return x;
    }
    matrix forward(int l, const matrix& x) const {
        return narrow(support::plus_row(support::product(x, support::transposed(narrow(weight[l]))), narrow(bias[l])));
    }
    static matrix relu(matrix x) {
        for (tracked& v : x.values) v.value = std::max(v.value, 0.0);
        return x;
    }
    /// Adds the gradients of layer l; gives that of its input.
    matrix backward(int l, const matrix& x, matrix dy) {
        dy = narrow(dy, scale);
        weight_grad[l] = support::plus(weight_grad[l], narrow(support::product(support::transposed(dy), x), scale));
        bias_grad[l] = support::plus(bias_grad[l], narrow(support::column_sums(dy), scale));
        return narrow(support::product(dy, narrow(weight[l])), scale);
    }
    /// Through relu; where rounding may have moved its argument over zero, the whole gradient is in doubt.
    static matrix masked(matrix dy, const matrix& before) {
        for (std::size_t i = 0; i < dy.values.size(); ++i) {
            tracked& v = dy.values[i];
            const tracked& b = before.values[i];
            if (b.value != 0 && std::fabs(b.value) <= b.error) v.error += std::fabs(v.value);
            if (b.value <= 0) v.value = 0, v.error = std::fabs(b.value) <= b.error && b.value != 0 ? v.error : 0;
        }
        return dy;
    }
    /// The mean of (y - t)^2 times `factor`, and its gradient by y.
    static tracked mean_of_squares(const matrix& y, const numbers& t, double factor, matrix& dy) {
        support::sum_of<tracked> sum;
        dy = y;
        const double n = static_cast<double>(t.size());
        for (std::size_t i = 0; i < t.size(); ++i) {
            const tracked d = y.values[i] - tracked(static_cast<double>(t[i]));
            sum.add(d * d);
            dy.values[i] = support::further_roundings(d * tracked(2 * factor / n), 4);
        }
        return support::further_roundings(sum.total() / tracked(n), 2);
    }

    struct losses {
        tracked both, of_a, of_b;
    };
    losses add(const micro_batch& m, double share) {
        const matrix x1(rows, in, m.x1.data()), x2(rows, in, m.x2.data()), x3(rows, hidden, m.x3.data());
        losses l;
        matrix dy;
        const matrix z1 = forward(0, x1), h1 = relu(z1);
        l.both = mean_of_squares(forward(1, h1), m.t1, share, dy);
        backward(0, x1, masked(backward(1, h1, dy), z1));
        const matrix z2 = forward(0, x2);
        l.of_a = mean_of_squares(relu(z2), m.zeros, share / 8, dy) / tracked(8.0);
        backward(0, x2, masked(dy, z2));
        l.of_b = mean_of_squares(forward(1, x3), m.t3, share, dy);
        backward(1, x3, dy);
        return l;
    }

    template <class Function>
    void for_each_gradient(const Function& f) {
        for (int l : {0, 1}) {
            for (matrix* m : {&weight_grad[l], &bias_grad[l]}) {
                for (tracked& g : m->values) f(g);
            }
        }
    }
    static tracked root(const tracked& x) {
        const double least = std::sqrt(std::max(x.value - x.error, 0.0)), most = std::sqrt(x.value + x.error),
                     r = std::sqrt(x.value);
        return tracked(r, std::max(most - r, r - least)).rounded();
    }
    void clip(double norm, double limit) {
        if (limit != 0) for_each_gradient([&](tracked& g) { g.value = std::min(std::max(g.value, -limit), limit); });
        if (norm == 0) return;
        support::sum_of<tracked> squares;
        for_each_gradient([&](tracked& g) { squares.add(g * g); });
        tracked coefficient = support::further_roundings(tracked(norm) / (root(squares.total()) + tracked(1e-6)), 3);
        coefficient.value = std::min(coefficient.value, 1.0);
        for_each_gradient([&](tracked& g) { g = g * coefficient; });
    }
    void step(int model) {
        const int t = ++steps[model];
        for (const bool is_bias : {false, true}) {
            matrix &w = is_bias ? bias[model] : weight[model], &g = is_bias ? bias_grad[model] : weight_grad[model];
            for (std::size_t i = 0; i < w.values.size(); ++i) {
                // Unscaling is one more rounding.
                const tracked gradient = g.values[i].rounded();
                tracked change;
                if (model == 0 && adam) {
                    tracked &m = first[is_bias].values[i], &v = second[is_bias].values[i];
                    m = support::further_roundings(tracked(0.875) * m + tracked(0.125) * gradient, 2);
                    v = support::further_roundings(tracked(0.96875) * v + tracked(0.03125) * (gradient * gradient), 2);
                    const double lr = 0x1p-7 / (1 - std::pow(0.875, t)),
                                 correction = std::sqrt(1 - std::pow(0.96875, t));
                    change = support::further_roundings(
                        tracked(lr) * (m / (root(v) / tracked(correction) + tracked(1e-8))), 6);
                    w.values[i] = w.values[i] * tracked(1 - 0x1p-7 * 0.125);
                } else if (model == 0) {
                    change = tracked(0x1p-6) * gradient;
                } else {
                    tracked& m = momentum_[is_bias].values[i];
                    m = tracked(0.5) * m + gradient;
                    change = tracked(0x1p-6) * m;
                }
                w.values[i] = w.values[i] - change;
            }
        }
    }

  private:
    matrix momentum_[2];
};

template <class P>
struct net : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;

    net(ht::cpu& device, int salt, int from, int to) : model(device), fc(parameters(), from, to) {
        commit(*this);
        const numbers w = values(salt, to * from), b = values(salt + 1, to);
        std::copy(w.begin(), w.end(), fc.weight.master().data());
        std::copy(b.begin(), b.end(), fc.bias.master().data());
        parameters().refresh();
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
    void append_to(numbers& all) {
        all.insert(all.end(), fc.weight.master().data(), fc.weight.master().data() + fc.weight.shape().size());
        all.insert(all.end(), fc.bias.master().data(), fc.bias.master().data() + fc.bias.shape().size());
    }
};

template <class P>
auto optimizer_of_a(ht::cpu& device, net<P>& a) {
    if constexpr (std::is_same_v<P, ht::full_fp32>) {
        return std::make_unique<ht::adamw<ht::cpu, net<P>>>(
            device, a, ht::adamw_options{.lr = 0x1p-7, .beta1 = 0.875, .beta2 = 0.96875, .weight_decay = 0.125});
    } else {
        return std::make_unique<ht::sgd<ht::cpu, net<P>>>(device, a, ht::sgd_options{.lr = 0x1p-6});
    }
}

struct counts {
    int cases = 0, steps = 0, skips = 0;
};

/// Takes the lines of a case; `at` is behind them afterwards.
template <class P>
void replay(const std::vector<support::golden_line>& lines, std::size_t& at, counts& seen, double roundoff,
            double least) {
    const support::golden_line& head = lines[at++];
    ht::cpu device{{.threads = 1}};
    net<P> a(device, 1, in, hidden), b(device, 3, hidden, out);
    const auto for_a = optimizer_of_a<P>(device, a);
    ht::sgd for_b{device, b, {.lr = 0x1p-6, .momentum = 0.5}};
    ht::accumulator acc{a, b};
    ht::tape tape{device};
    const ht::grad_scaler_options options{.init_scale = static_cast<float>(head.number(2)),
                                          .growth_factor = head.number(3),
                                          .backoff_factor = head.number(4),
                                          .growth_interval = static_cast<int>(head.number(5)),
                                          .enabled = head.number(6) != 0};
    auto scaler = std::make_unique<ht::grad_scaler<ht::cpu>>(device, options);
    const double max_norm = head.number(7), limit = head.number(8);
    definition want(roundoff, least);
    support::comparison ours, torch;
    const auto compare = [&](double mine, double theirs, const tracked& t) {
        ours.expect(mine, t.value, t.error), torch.expect(theirs, t.value, t.error);
    };

    for (int salt = 10; lines[at].kind != "end"; ++at) {
        const support::golden_line& line = lines[at];
        if (line.kind != "step") {
            ht::scaler_state state = scaler->state();
            if (line.kind == "interval") state.growth_interval = static_cast<int>(line.number(0));
            scaler =
                std::make_unique<ht::grad_scaler<ht::cpu>>(device, ht::grad_scaler_options{.enabled = options.enabled});
            scaler->load(state);
            continue;
        }
        ++seen.steps;
        CAPTURE(seen.steps);
        want.begin();
        want.scale = static_cast<double>(scaler->get_scale());
        const std::string& letters = line.words[0];
        const auto share = static_cast<float>(letters.size());
        definition::losses expected;
        float got[3] = {};
        for (const char letter : letters) {
            const micro_batch m(++salt, letter);
            const auto given = [](const numbers& v) {
                return ht::const_view<float, 2>(v.data(), {rows, static_cast<ht::extent>(v.size()) / rows});
            };
            const auto backward = [&](const auto& loss, char mine) {
                tape.backward(scaler->scale(loss / share * (letter == mine ? infinity : 1.0f)), acc);
            };
            {
                const auto loss =
                    ht::mean_squared_error(tape, b.fc(tape, ht::relu(tape, a.fc(tape, tape.constant(given(m.x1))))),
                                           tape.constant(given(m.t1)));
                got[0] = loss.item();
                backward(loss, 'i');
            }
            {
                const auto loss = ht::mean_squared_error(tape, ht::relu(tape, a.fc(tape, tape.constant(given(m.x2)))),
                                                         tape.constant(given(m.zeros)));
                got[1] = loss.item() / 8;
                backward(loss / 8, 'a');
            }
            {
                const auto loss =
                    ht::mean_squared_error(tape, b.fc(tape, tape.constant(given(m.x3))), tape.constant(given(m.t3)));
                got[2] = loss.item();
                backward(loss, 'b');
            }
            expected = want.add(m, 1.0 / static_cast<double>(letters.size()));
        }
        auto grads = scaler->unscale(acc.take());
        if (limit != 0) ht::clip_grad_value(grads, static_cast<float>(limit));
        if (max_norm != 0) ht::clip_grad_norm(grads, static_cast<float>(max_norm));
        const bool skipped[2] = {for_a->step(grads).skipped(), for_b.step(grads).skipped()};
        if (line.number(1) != 0) {
            scaler->update(static_cast<float>(line.number(1)));
        } else {
            scaler->update();
        }
        CHECK(static_cast<double>(scaler->get_scale()) == line.number(2));
        CHECK(scaler->state().growth_tracker == line.number(3));
        CHECK(skipped[0] == (line.number(4) != 0));
        CHECK(skipped[1] == (line.number(5) != 0));
        CHECK(for_a->steps() == line.number(6));
        CHECK(for_b.steps() == line.number(7));
        seen.skips += skipped[0] + skipped[1];

        // In fp16 an input of 2^60 is an infinity already.
        const bool is_known = std::isfinite(line.number(8));
        CHECK(std::isfinite(got[0]) == is_known);
        if (is_known) compare(static_cast<double>(got[0]), line.number(8), expected.both);
        compare(static_cast<double>(got[1]), line.number(9), expected.of_a);
        compare(static_cast<double>(got[2]), line.number(10), expected.of_b);
        if (max_norm != 0 || limit != 0) want.clip(max_norm, limit);
        if (line.number(4) == 0) want.step(0);
        if (line.number(5) == 0) want.step(1);
    }
    numbers all;
    a.append_to(all), b.append_to(all);
    std::size_t i = 0;
    for (int l : {0, 1}) {
        for (const matrix* m : {&want.weight[l], &want.bias[l]}) {
            for (const tracked& t : m->values) compare(static_cast<double>(all[i]), lines[at].number(i), t), ++i;
        }
    }
    CHECK(i == all.size());
    CHECK_WITHIN(ours);
    CHECK_WITHIN(torch);
    ++at, ++seen.cases;
}

TEST_CASE("amp: torch.amp.GradScaler and torch.autocast with two models, two optimizers and three losses") {
    const std::vector<support::golden_line> lines = support::read_golden("amp.txt");
    counts seen;
    for (std::size_t at = 0; at < lines.size();) {
        REQUIRE(lines[at].kind == "case");
        const std::string name = lines[at].words[0];
        CAPTURE(name);
        const std::string& policy = lines[at].words[1];
        const auto with = [&]<class P, class T>(P, T) {
            replay<P>(lines, at, seen, ht::number_traits<T>::unit_roundoff, ht::number_traits<T>::min_subnormal);
        };
        if (policy == "fp32") {
            replay<ht::full_fp32>(lines, at, seen, 0, 0);
        } else if (policy == "bf16") {
            with(ht::amp_bf16{}, ht::bfloat16{});
        } else {
            with(ht::amp_fp16{}, ht::float16{});
        }
    }
    CHECK(seen.cases == 12);
    CHECK(seen.steps >= 200);
    CHECK(seen.skips >= 50);
}

/// Both models with an optimizer each; a window of losses of a, of b or both, and how it ended.
struct pair_of {
    ht::cpu device{{.threads = 1}};
    net<ht::full_fp32> a{device, 1, in, hidden}, b{device, 3, hidden, out};
    ht::sgd<ht::cpu, net<ht::full_fp32>> for_a{device, a}, for_b{device, b};
    ht::accumulator<ht::through_scaler, ht::types<net<ht::full_fp32>, net<ht::full_fp32>>> acc{a, b};
    ht::tape<ht::cpu> tape{device};
    micro_batch data{11, '.'};

    auto unscaled(ht::grad_scaler<ht::cpu>& scaler, float times_a, float times_b) {
        const auto x2 = tape.constant(ht::const_view<float, 2>(data.x2.data(), {rows, in}));
        tape.backward(scaler.scale(ht::mean(tape, a.fc(tape, x2)) * times_a), acc);
        const auto x3 = tape.constant(ht::const_view<float, 2>(data.x3.data(), {rows, hidden}));
        tape.backward(scaler.scale(ht::mean(tape, b.fc(tape, x3)) * times_b), acc);
        return scaler.unscale(acc.take());
    }
    static numbers parameters_of(net<ht::full_fp32>& model) {
        numbers all;
        model.append_to(all);
        return all;
    }
};

TEST_CASE(
    "amp, other than PyTorch: a growth interval set below the tracker takes effect, compared with >= and not ==") {
    pair_of p;
    ht::grad_scaler scaler{p.device, {.init_scale = 64, .growth_interval = 10}};
    const auto round = [&](ht::grad_scaler<ht::cpu>& s) { p.unscaled(s, 1, 1), s.update(); };
    for (int i = 0; i < 6; ++i) round(scaler);
    ht::scaler_state state = scaler.state();
    state.growth_interval = 4;
    ht::grad_scaler resumed{p.device};
    resumed.load(state);
    round(resumed);
    CHECK(resumed.get_scale() == 128);
}

TEST_CASE(
    "amp, other than PyTorch: a step with gradients that are not finite is skipped under a disabled scaler, too") {
    pair_of p;
    ht::grad_scaler scaler{p.device, {.enabled = false}};
    const numbers before = pair_of::parameters_of(p.a);
    auto grads = p.unscaled(scaler, infinity, 1);
    CHECK(p.for_a.step(grads).skipped());
    CHECK_FALSE(p.for_b.step(grads).skipped());
    CHECK(pair_of::parameters_of(p.a) == before);
}

TEST_CASE("amp, other than PyTorch: clipping the norm of both, where one overflows, gives the other zeros and no NaN") {
    pair_of p;
    ht::grad_scaler scaler{p.device};
    const numbers before = pair_of::parameters_of(p.b);
    auto grads = p.unscaled(scaler, infinity, 1);
    ht::clip_grad_value(grads, 0.5f);
    ht::clip_grad_norm(grads, 1.0f);
    CHECK(p.for_a.step(grads).skipped());
    CHECK_FALSE(p.for_b.step(grads).skipped());
    CHECK(pair_of::parameters_of(p.b) == before);
}

}  // namespace scale_amp_traces_tests
