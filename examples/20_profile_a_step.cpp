// SPDX-License-Identifier: MIT
/// \file
/// Lesson 20: where the time of a step goes, what could be saved, and a timeline of it.
///
/// A profile says which operation takes the most time. That is not yet what to change: a product may take most of a step and
/// run as fast as the machine can. So the question is how far each operation is from its speed of light, the time that its
/// arithmetic or its bytes would take at the machine's measured peaks. Here a perceptron has an activation that somebody
/// wrote with the C++ library's erf, one number after another. It is found, and replaced by one line.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/observe/profile/peaks.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>
#include <halftone/observe/trace/chrome.hpp>
#include <halftone/observe/trace/listeners.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace ht = halftone;
using P = ht::full_fp32;

constexpr ht::extent rows = 512, width = 16, hidden = 512;

/// The plain loop: correct, in double, a number at a time.
struct gelu_value {
    HALFTONE_HD float operator()(float x) const {
        return static_cast<float>(0.5 * x * (1 + std::erf(static_cast<double>(x) / std::sqrt(2.0))));
    }
};
struct gelu_slope {
    HALFTONE_HD float operator()(float x) const {
        const double d = x;
        return static_cast<float>(0.5 * (1 + std::erf(d / std::sqrt(2.0))) + d * std::exp(-d * d / 2) / std::sqrt(2 * 3.14159265358979));
    }
};
struct my_gelu {
    static constexpr const char* name = "my_gelu";
    static auto forward(auto& ctx, const auto& x) {
        return ht::keep(ht::map(ctx, [](auto a) { return ht::opaque(gelu_value{})(a); }, x), x);
    }
    static auto backward(auto& ctx, const auto& dy, const auto& x) {
        return ht::map(ctx, [](auto g, auto a) { return g * ht::opaque(gelu_slope{})(a); }, dy, x);
    }
};

enum class activation { mine, the_librarys };

struct perceptron : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;
    activation act;

    perceptron(ht::cpu& device, activation which)
        : model{device}, up{parameters(), width, hidden}, down{parameters(), hidden, width}, act(which) {
        commit(*this, 7);
    }
    auto operator()(auto& ctx, const auto& x) const {
        const ht::scoped_range here(ctx, "perceptron");  // a part of your own, in the timeline and in the table
        const auto h = up(ctx, x);
        return down(ctx, act == activation::mine ? ht::apply<my_gelu>(ctx, h) : ht::gelu_erf(ctx, h));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

/// Steps of a training loop that tells `listener` what it does; a ht::trainer does the same by itself.
void train(ht::cpu& device, activation which, ht::range_listener& listener) {
    std::vector<float> data(static_cast<std::size_t>(rows * width));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = 2 * ht::uniform(ht::random_bits(1, 0, 0, i)) - 1;
    perceptron model{device, which};
    ht::adamw optimizer{device, model, {.lr = 1e-3}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device, ht::watched};  // tells layers and work; a plain tape tells operations alone
    tape.listen(&listener);
    for (int step = 1; step <= 6; ++step) {
        listener.begin_step(step);
        {
            const auto x = tape.to_device(ht::const_view<float, 2>(data.data(), {rows, width}));
            const auto loss = [&] {
                const ht::scoped_range part(&listener, "forward", ht::track::forward);
                const auto y = model(tape, x);
                return ht::mean(tape, ht::mul(tape, y, y));
            }();
            const ht::scoped_range part(&listener, "backward", ht::track::backward);
            tape.backward(loss, acc);
        }
        {
            const ht::scoped_range part(&listener, "optimizer", ht::track::update);
            auto grads = acc.take();
            optimizer.step(grads);
        }
        listener.end_step();
    }
}

int main() {
    ht::cpu device;
    const ht::machine_peaks peaks = ht::measure_peaks(device, 0.2);
    ht::trace_recorder trace{device, {.schedule = {.wait = 2, .warmup = 1, .active = 2, .repeat = 1}}};
    ht::speed_of_light before, after;
    ht::listener_list both{{&trace, &before}};
    train(device, activation::mine, both);
    const ht::light_table slow = before.table(peaks);

    // Sorted by what could be saved. "share" is how near a line is to its limit: what has a large share is not worth a look.
    slow.print(std::cout, 6);
    std::printf("the first line: %s\n", slow.rows[0].operation.c_str());
    // Prints: the first line: my_gelu
    double sum = 0;
    for (const ht::light_row& row : slow.rows) sum += row.seconds;
    std::printf("the lines are all of the step: %s\n", std::fabs(sum - slow.step_seconds) < 0.02 * slow.step_seconds ? "yes" : "no");
    // Prints: the lines are all of the step: yes

    // ht::gelu_erf is an expression that is compiled to vectors: now something else comes first.
    train(device, activation::the_librarys, after);
    const ht::light_table fast = after.table(peaks);
    fast.print(std::cout, 6);
    std::printf("the step is shorter: %s\n", fast.step_seconds < slow.step_seconds ? "yes" : "no");
    // Prints: the step is shorter: yes

    // The timeline: open trace.json, written by trace.write("trace.json"), in https://ui.perfetto.dev. Of each row the number
    // of ranges in the two steps that were recorded; they lie inside one another, as scopes do: "map" inside "my_gelu".
    for (const ht::trace_row& row : trace.rows())
        std::printf("%s: %d, the first is \"%s\"\n", row.title.c_str(), static_cast<int>(row.events.size()), row.events[0].name);
    // Prints: steps: 2, the first is "step"
    // Prints: forward: 18, the first is "forward"
    // Prints: backward: 12, the first is "backward"
    // Prints: optimizer: 2, the first is "optimizer"
    return 0;
}
