// SPDX-License-Identifier: MIT
/// \file
/// The flops that watched tapes tell are those of the operations' plain loops, counted one by one with a number that
/// counts; their bytes those of the tensors (work_bytes.cpp counts them).
#include <cmath>
#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/nn/conv2d.hpp>

#include "observe/work_checks.hpp"

namespace observe_work_tests {

namespace ht = halftone;

using work_checks::layers, work_checks::norms, work_checks::numbers, work_checks::tape_of_work;

long flops = 0;

/// A number whose operations are counted; its values do not matter.
struct counted {
    double v = 1;
};
counted one(double v) {
    ++flops;
    return {v};
}
counted operator+(counted a, counted b) { return one(a.v + b.v); }
counted operator-(counted a, counted b) { return one(a.v - b.v); }
counted operator*(counted a, counted b) { return one(a.v * b.v); }
counted operator/(counted a, counted b) { return one(a.v / b.v); }
counted& operator+=(counted& a, counted b) { return a = a + b; }
counted function(counted a) { return one(a.v); }  // exp, log, sqrt, tanh
const counted x{}, y{}, constant{};

long count_of(const std::function<void()>& loops) {
    flops = 0;
    loops();
    return flops;
}
/// n times.
void each(ht::extent n, const std::function<void()>& f) {
    for (ht::extent i = 0; i < n; ++i) f();
}

void product(ht::extent m, ht::extent k, ht::extent n) {
    each(m * n, [&] {
        counted sum{};
        each(k, [&] { sum += x * y; });
    });
}
void softmax_statistics(ht::extent classes, const std::function<void()>& more) {
    counted sum{};
    each(classes, [&] { sum += function(x - y), more(); });
}

TEST_CASE("a product's flops are two for each term, and two products in its backward pass") {
    tape_of_work t;
    const auto a = numbers(ht::shape<3>{2, 3, 5}), b = numbers(ht::shape<3>{2, 5, 7});
    const auto left = t.tape.leaf(a.view()), right = t.tape.leaf(b.view());
    t.tape.backward(ht::sum(t.tape, ht::matmul(t.tape, left, right)));
    CHECK(t.told.flops("forward matmul") == count_of([] { each(2, [] { product(3, 5, 7); }); }));
    CHECK(t.told.flops("backward matmul") == count_of([] {
              each(2, [] { product(3, 7, 5), product(5, 3, 7); });
          }));
    CHECK(t.told.of["forward matmul"].products == t.told.flops("forward matmul"));
    CHECK(t.told.bytes("forward matmul") == 4 * 2 * (3 * 5 + 5 * 7 + 3 * 7));
    CHECK(t.told.bytes("backward matmul") == 4 * 2 * (3 * 7 + 2 * 3 * 5 + 2 * 5 * 7));
}

TEST_CASE("softmax, a map, and sums") {
    tape_of_work t;
    t.run([](auto& ctx, const auto& in) { return ht::softmax(ctx, in); }, numbers(ht::shape<2>{4, 9}));
    CHECK(t.told.flops("forward softmax") == count_of([] {
              each(4, [] {
                  counted sum{};
                  each(9, [&] { sum += function(constant * (x - y)); });
                  each(9, [] { x / y; });
              });
          }));
    CHECK(t.told.flops("backward softmax") == count_of([] {
              each(4, [] {
                  counted sum{};
                  each(9, [&] { sum += x * y; });
                  each(9, [] { constant * (y * (x - y)); });
              });
          }));
    CHECK(t.told.bytes("backward softmax") == 3 * 4 * 9 * 4);
    t.run([](auto& ctx, const auto& in) { return ht::map(ctx, [](auto v) { return v * v + 2 * v; }, in); },
          numbers(ht::shape<2>{4, 9}));
    CHECK(t.told.flops("forward map") == count_of([] { each(4 * 9, [] { x * x + constant * x; }); }));
}

TEST_CASE("a join of variables, given one by one or as a list") {
    const auto a = numbers(ht::shape<2>{3, 5});
    for (const bool is_list : {false, true}) {
        tape_of_work t;
        const auto x = t.tape.leaf(a.view()), y = t.tape.leaf(a.view());
        const auto joined = is_list ? ht::cat(t.tape, 0, std::vector{x, y}) : ht::cat(t.tape, 0, x, y);
        t.tape.backward(ht::sum(t.tape, joined));
        CHECK(t.told.bytes("forward cat") == 2 * 4 * 30);
        CHECK(t.told.flops("backward cat") == 30);
        CHECK(t.told.bytes("backward cat") == 2 * 4 * 30);
    }
}

TEST_CASE("norms of rows") {
    tape_of_work t;
    norms model{t.device};
    ht::accumulator acc{model, ht::unscaled};
    const auto input = numbers(ht::shape<2>{5, 6});
    const auto in = t.tape.leaf(input.view());
    t.tape.backward(ht::sum(t.tape, model.rms(t.tape, model.layer(t.tape, in))), acc);
    CHECK(t.told.flops("forward layer_norm") == count_of([] {
              each(5, [] {
                  counted sum{}, squares{};
                  each(6, [&] { sum += x; });
                  const counted mean = sum / constant;
                  each(6, [&] {
                      const counted deviation = x - mean;
                      squares += deviation * deviation;
                  });
                  const counted rstd = constant / function(squares / constant + constant);
                  each(6, [&] { (x - mean) * rstd * y + y; });
              });
          }));
    CHECK(t.told.flops("backward layer_norm") == count_of([] {
              each(5, [] {
                  counted h_sum{}, hn_sum{}, gain{}, bias{};
                  each(6, [&] {
                      const counted n = (x - y) * constant, h = x * y;
                      h_sum += h, hn_sum += h * n, gain += x * n, bias += x;
                  });
                  const counted mean_h = h_sum / constant, mean_hn = hn_sum / constant;
                  each(6, [&] { (x - mean_h - y * mean_hn) * constant; });
              });
          }));
    CHECK(t.told.flops("forward rms_norm") == count_of([] {
              each(5, [] {
                  counted squares{};
                  each(6, [&] { squares += x * x; });
                  const counted rstd = constant / function(squares / constant + constant);
                  each(6, [&] { x * rstd * y; });
              });
          }));
    CHECK(t.told.flops("backward rms_norm") == count_of([] {
              each(5, [] {
                  counted hn_sum{}, gain{};
                  each(6, [&] {
                      const counted n = x * constant, h = x * y;
                      hn_sum += h * n, gain += x * n;
                  });
                  const counted mean_hn = hn_sum / constant;
                  each(6, [&] { (x - y * mean_hn) * constant; });
              });
          }));
}

TEST_CASE("attention: pairs of a query and a key that it sees") {
    constexpr ht::extent batch = 2, time = 5, heads = 3, size = 4;
    for (const auto mask : {ht::attention_mask::full, ht::attention_mask::causal}) {
        CAPTURE(static_cast<int>(mask));
        tape_of_work t;
        t.run(
            [&](auto& ctx, const auto& in) {
                return ht::self_attention<ht::roles<float, float, float>>(ctx, in, heads, {.mask = mask});
            },
            numbers(ht::shape<3>{batch, time, 3 * heads * size}));
        const auto seen = [&](ht::extent i) { return mask == ht::attention_mask::causal ? i + 1 : time; };
        const auto each_query = [&](const std::function<void(ht::extent)>& f) {
            each(batch * heads, [&] {
                for (ht::extent i = 0; i < time; ++i) f(seen(i));
            });
        };
        CHECK(t.told.flops("forward attention") == count_of([&] {
                  each_query([&](ht::extent keys) {
                      each(keys, [&] { product(1, size, 1), constant * x; });
                      softmax_statistics(keys, [] {});
                      constant + function(x);
                      each(size, [&] {
                          counted o{};
                          each(keys, [&] { o += x * y; });
                          o / constant;
                      });
                  });
              }));
        CHECK(t.told.flops("backward attention") == count_of([&] {
                  each_query([&](ht::extent keys) {
                      product(1, size, 1);  // of d_o and o
                      each(keys, [&] {
                          product(1, size, 1), product(1, size, 1);  // scores, and d_o v
                          const counted p = function(constant * x - y);
                          constant * (p * (x - y));
                          product(size, 1, 1), product(size, 1, 1), product(size, 1, 1);  // added to dq, dk, dv
                      });
                  });
              }));
    }
}

void gelu() {
    const counted t = function(constant * (x * (constant + constant * (x * x))));
    constant * x * (constant + t);
}
void gelu_gradient() {
    const counted square = x * x;
    const counted t = function(constant * (x * (constant + constant * square)));
    const counted slope = constant * x * (constant - t * t) * (constant + constant * square) * constant;
    (constant * (constant + t) + slope) * y;
}

TEST_CASE("a model in bfloat16: embedding, linear, perceptron, cross-entropy") {
    tape_of_work t;
    layers model{t.device};
    ht::accumulator acc{model, ht::unscaled};
    const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1};  // (2, 6)
    const std::vector<std::int32_t> targets{1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5};
    const auto h = model.embed(t.tape, ht::const_view<std::int32_t, 2>(tokens.data(), {2, 6}));
    const auto logits = model.head(t.tape, model.mlp(t.tape, model.in(t.tape, h), h));
    t.tape.backward(ht::cross_entropy(t.tape, logits, ht::const_view<std::int32_t, 2>(targets.data(), {2, 6})), acc);
    constexpr ht::extent rows = 12, width = 8, hidden = 32, classes = 7;
    CHECK(t.told.flops("forward embedding") == count_of([] { each(rows * width, [] { x + y; }); }));
    CHECK(t.told.flops("backward embedding") == count_of([] { each(rows * width, [] { x + y, x + y; }); }));
    CHECK(t.told.flops("forward linear") == count_of([] {  // two of them
              product(rows, width, width), each(rows * width, [] { x + y; });
              product(rows, width, classes), each(rows * classes, [] { x + y; });
          }));
    CHECK(t.told.flops("backward linear") == count_of([] {
              product(rows, width, width), product(width, rows, width), each(rows * width, [] { x + y; });
              product(rows, classes, width), product(classes, rows, width), each(rows * classes, [] { x + y; });
          }));
    CHECK(t.told.flops("forward mlp") == count_of([] {
              product(rows, width, hidden), each(rows * hidden, [] { x + y, gelu(); });
              product(rows, hidden, width), each(rows * width, [] { x + y, x + y; });
          }));
    CHECK(t.told.flops("backward mlp") == count_of([] {
              product(width, rows, hidden), each(rows * width, [] { x + y; });
              product(rows, width, hidden), each(rows * hidden, [] { gelu_gradient(); });
              product(hidden, rows, width), each(rows * hidden, [] { x + y; });
              product(rows, hidden, width);
          }));
    CHECK(t.told.flops("forward cross_entropy") == count_of([] {
              counted sum{};
              each(rows, [&] {
                  softmax_statistics(classes, [] {});
                  sum += (x - y) + function(x);
              });
              sum / constant;
          }));
    CHECK(t.told.flops("backward cross_entropy") == count_of([] {
              x / y;
              each(rows, [] {
                  each(classes, [] { function(x - y) / constant * constant; });
                  x - y;
              });
          }));
    CHECK(t.told.of["forward linear"].in == ht::arithmetic::bf16);
    // The residual and the result are floats.
    CHECK(t.told.bytes("forward mlp") ==
          2 * (rows * width + 2 * width * hidden + hidden + width + 2 * rows * hidden) + 4 * 2 * rows * width);
}

TEST_CASE("a convolution: a product for each tap") {
    tape_of_work t;
    const auto w = numbers(ht::shape<4>{6, 2, 3, 3});
    const auto weight = t.tape.leaf(w.view());
    t.run([&](auto& ctx, const auto& in) { return ht::conv2d(ctx, in, weight, {.padding = {1, 1}, .groups = 2}); },
          numbers(ht::shape<4>{2, 4, 5, 5}));
    const auto taps = [] { each(2 * 6 * 5 * 5, [] { product(1, 2 * 3 * 3, 1); }); };
    CHECK(t.told.flops("forward conv2d") == count_of(taps));
    CHECK(t.told.flops("backward conv2d") == count_of([&] { taps(), taps(); }));
}

}  // namespace observe_work_tests
