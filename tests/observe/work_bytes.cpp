// SPDX-License-Identifier: MIT
/// \file
/// The bytes that watched tapes tell are those of the elements that the operations' plain loops touch, each once: counted by
/// a memory that notes them. tests/valgrind/work_bytes.py counts those of the kernels.
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/nn/conv2d.hpp>

#include "observe/work_checks.hpp"

namespace observe_work_bytes_tests {

namespace ht = halftone;

using work_checks::layers, work_checks::norms, work_checks::numbers, work_checks::tape_of_work;
using ht::extent;

/// Notes which elements of which tensors are read or written.
class memory {
  public:
    void operator()(const char* tensor, double bytes_each, extent element) {
        touched_[tensor].insert(element);
        each_[tensor] = bytes_each;
    }
    double bytes() const {
        double sum = 0;
        for (const auto& [tensor, elements] : touched_) sum += each_.at(tensor) * static_cast<double>(elements.size());
        return sum;
    }

  private:
    std::map<std::string, std::set<extent>> touched_;
    std::map<std::string, double> each_;
};

double bytes_of(const std::function<void(memory&)>& loops) {
    memory m;
    loops(m);
    return m.bytes();
}

/// y (m, n) = a (m, k) b (k, n), from these elements on.
struct product_of {
    const char *a, *b, *y;
    double a_bytes, b_bytes, y_bytes;
    extent from_a = 0, from_b = 0, from_y = 0;

    void operator()(memory& touch, extent m, extent k, extent n) const {
        for (extent i = 0; i < m; ++i) {
            for (extent j = 0; j < n; ++j) {
                for (extent l = 0; l < k; ++l) touch(a, a_bytes, from_a + i * k + l), touch(b, b_bytes, from_b + l * n + j);
                touch(y, y_bytes, from_y + i * n + j);
            }
        }
    }
};
void all_of(memory& touch, const char* tensor, double bytes_each, extent count) {
    for (extent i = 0; i < count; ++i) touch(tensor, bytes_each, i);
}

TEST_CASE("bytes of a product") {
    tape_of_work t;
    const auto a = numbers(ht::shape<3>{2, 3, 5}), b = numbers(ht::shape<3>{2, 5, 7});
    const auto left = t.tape.leaf(a.view()), right = t.tape.leaf(b.view());
    t.tape.backward(ht::sum(t.tape, ht::matmul(t.tape, left, right)));
    CHECK(t.told.bytes("forward matmul") == bytes_of([](memory& m) {
              for (extent i = 0; i < 2; ++i) product_of{"a", "b", "y", 4, 4, 4, 15 * i, 35 * i, 21 * i}(m, 3, 5, 7);
          }));
    CHECK(t.told.bytes("backward matmul") == bytes_of([](memory& m) {
              for (extent i = 0; i < 2; ++i) {
                  product_of{"dy", "b", "da", 4, 4, 4, 21 * i, 35 * i, 15 * i}(m, 3, 7, 5);
                  product_of{"a", "dy", "db", 4, 4, 4, 15 * i, 21 * i, 35 * i}(m, 5, 3, 7);
              }
          }));
}

TEST_CASE("bytes of softmax, and of a map") {
    tape_of_work t;
    t.run([](auto& ctx, const auto& in) { return ht::softmax(ctx, in); }, numbers(ht::shape<2>{4, 9}));
    CHECK(t.told.bytes("forward softmax") == bytes_of([](memory& m) { all_of(m, "x", 4, 36), all_of(m, "y", 4, 36); }));
    CHECK(t.told.bytes("backward softmax") ==
          bytes_of([](memory& m) { all_of(m, "y", 4, 36), all_of(m, "dy", 4, 36), all_of(m, "dx", 4, 36); }));
    t.run([](auto& ctx, const auto& in) { return ht::map(ctx, [](auto v) { return v * v; }, in); }, numbers(ht::shape<2>{4, 9}));
    CHECK(t.told.bytes("forward map") == bytes_of([](memory& m) { all_of(m, "x", 4, 36), all_of(m, "y", 4, 36); }));
    CHECK(t.told.bytes("backward map") ==
          bytes_of([](memory& m) { all_of(m, "x", 4, 36), all_of(m, "dy", 4, 36), all_of(m, "dx", 4, 36); }));
}

TEST_CASE("bytes of norms: a row's statistics are kept for the backward pass") {
    tape_of_work t;
    norms model{t.device};
    ht::accumulator acc{model, ht::unscaled};
    const auto input = numbers(ht::shape<2>{5, 6});
    const auto in = t.tape.leaf(input.view());
    t.tape.backward(ht::sum(t.tape, model.rms(t.tape, model.layer(t.tape, in))), acc);
    CHECK(t.told.bytes("forward layer_norm") == bytes_of([](memory& m) {
              for (extent i = 0; i < 5; ++i) {
                  for (extent j = 0; j < 6; ++j)
                      m("x", 4, 6 * i + j), m("y", 4, 6 * i + j), m("gain", 4, j), m("bias", 4, j);
                  m("mean", 4, i), m("rstd", 4, i);
              }
          }));
    CHECK(t.told.bytes("backward layer_norm") == bytes_of([](memory& m) {
              for (extent i = 0; i < 5; ++i) {
                  for (extent j = 0; j < 6; ++j) {
                      m("x", 4, 6 * i + j), m("dy", 4, 6 * i + j), m("dx", 4, 6 * i + j), m("gain", 4, j);
                      m("dgain", 4, j), m("dbias", 4, j);
                  }
                  m("mean", 4, i), m("rstd", 4, i);
              }
          }));
    CHECK(t.told.bytes("forward rms_norm") == bytes_of([](memory& m) {
              all_of(m, "x", 4, 30), all_of(m, "y", 4, 30), all_of(m, "gain", 4, 6), all_of(m, "rstd", 4, 5);
          }));
    CHECK(t.told.bytes("backward rms_norm") == bytes_of([](memory& m) {
              all_of(m, "x", 4, 30), all_of(m, "dy", 4, 30), all_of(m, "dx", 4, 30), all_of(m, "gain", 4, 6);
              all_of(m, "dgain", 4, 6), all_of(m, "rstd", 4, 5);
          }));
}

TEST_CASE("bytes of attention: of the scores of a query two floats are stored") {
    constexpr extent batch = 2, time = 5, heads = 3, size = 4, width = heads * size;
    tape_of_work t;
    t.run(
        [&](auto& ctx, const auto& in) {
            return ht::self_attention<ht::roles<float, float, float>>(ctx, in, heads, {.mask = ht::attention_mask::causal});
        },
        numbers(ht::shape<3>{batch, time, 3 * width}));
    const auto at = [&](extent b, extent i, extent part, extent d) { return ((b * time + i) * 3 + part) * width + d; };
    const auto each_pair = [&](const std::function<void(extent, extent, extent, extent)>& f) {
        for (extent b = 0; b < batch; ++b) {
            for (extent i = 0; i < time; ++i) {
                for (extent j = 0; j <= i; ++j) {
                    for (extent d = 0; d < width; ++d) f(b, i, j, d);
                }
            }
        }
    };
    CHECK(t.told.bytes("forward attention") == bytes_of([&](memory& m) {
              each_pair([&](extent b, extent i, extent j, extent d) {
                  m("qkv", 4, at(b, i, 0, d)), m("qkv", 4, at(b, j, 1, d)), m("qkv", 4, at(b, j, 2, d));
                  m("o", 4, (b * time + i) * width + d), m("logsumexp", 8, (b * heads + d / size) * time + i);
              });
          }));
    CHECK(t.told.bytes("backward attention") == bytes_of([&](memory& m) {
              each_pair([&](extent b, extent i, extent j, extent d) {
                  for (const char* tensor : {"qkv", "dqkv"})
                      m(tensor, 4, at(b, i, 0, d)), m(tensor, 4, at(b, j, 1, d)), m(tensor, 4, at(b, j, 2, d));
                  for (const char* tensor : {"o", "do"}) m(tensor, 4, (b * time + i) * width + d);
                  m("logsumexp", 8, (b * heads + d / size) * time + i);
              });
          }));
}

TEST_CASE("bytes of a model in bfloat16, whose residual stream and gradients of weights are floats") {
    tape_of_work t;
    layers model{t.device};
    ht::accumulator acc{model, ht::unscaled};
    const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1};  // (2, 6)
    const std::vector<std::int32_t> targets{1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5};
    const auto h = model.embed(t.tape, ht::const_view<std::int32_t, 2>(tokens.data(), {2, 6}));
    const auto logits = model.head(t.tape, model.mlp(t.tape, model.in(t.tape, h), h));
    t.tape.backward(ht::cross_entropy(t.tape, logits, ht::const_view<std::int32_t, 2>(targets.data(), {2, 6})), acc);
    constexpr extent rows = 12, width = 8, hidden = 32, classes = 7, ids = 11, times = 6;
    // A token's row of the table is read for each token, also where another has the same.
    CHECK(t.told.bytes("forward embedding") == bytes_of([&](memory& m) {
              all_of(m, "tokens", 4, rows), all_of(m, "rows of the table", 2, rows * width), all_of(m, "y", 4, rows * width);
              all_of(m, "positions", 2, times * width);
          }));
    CHECK(t.told.bytes("backward embedding") == bytes_of([&](memory& m) {
              for (extent i = 0; i < rows; ++i) {
                  m("tokens", 4, i);
                  for (extent d = 0; d < width; ++d)
                      m("dy", 4, i * width + d), m("dtable", 4, tokens[static_cast<std::size_t>(i)] * width + d), m("dpositions", 4, i % times * width + d);
              }
          }));
    static_assert(ids == 11, "all ids are among the tokens");
    CHECK(t.told.bytes("forward linear") == bytes_of([](memory& m) {  // two of them
              product_of{"h", "w", "x", 4, 2, 2}(m, rows, width, width), all_of(m, "bias", 2, width);
              product_of{"x2", "head", "logits", 4, 2, 2}(m, rows, width, classes), all_of(m, "bias of the head", 2, classes);
          }));
    CHECK(t.told.bytes("backward linear") == bytes_of([](memory& m) {
              product_of{"dx", "w", "dh", 2, 2, 4}(m, rows, width, width), product_of{"h", "dx", "dw", 4, 2, 4}(m, width, rows, width);
              all_of(m, "dbias", 4, width);
              product_of{"dlogits", "head", "dx2", 2, 2, 4}(m, rows, classes, width);
              product_of{"x2", "dlogits", "dhead", 4, 2, 4}(m, width, rows, classes), all_of(m, "dbias of the head", 4, classes);
          }));
    CHECK(t.told.bytes("forward mlp") == bytes_of([](memory& m) {
              product_of{"x", "up", "pre", 2, 2, 2}(m, rows, width, hidden), all_of(m, "bias of up", 2, hidden);
              product_of{"gelu", "down", "y", 2, 2, 4}(m, rows, hidden, width), all_of(m, "bias of down", 2, width);
              all_of(m, "residual", 4, rows * width);
          }));
    CHECK(t.told.bytes("backward mlp") == bytes_of([](memory& m) {
              product_of{"gelu", "dy", "ddown", 2, 4, 4}(m, hidden, rows, width), all_of(m, "dbias of down", 4, width);
              all_of(m, "down", 2, width * hidden), all_of(m, "pre", 2, rows * hidden);  // the gradient of pre is not stored
              all_of(m, "up", 2, width * hidden), all_of(m, "dx", 2, rows * width), all_of(m, "x", 2, rows * width);
              all_of(m, "dup", 4, width * hidden), all_of(m, "dbias of up", 4, hidden);
          }));
    CHECK(t.told.bytes("forward cross_entropy") == bytes_of([](memory& m) {
              for (extent i = 0; i < rows; ++i) {
                  for (extent j = 0; j < classes; ++j) m("logits", 2, i * classes + j);
                  m("targets", 4, i), m("losses", 4, i), m("maximum", 4, i), m("sum", 4, i);
              }
              m("loss", 4, 0), m("count", 4, 0);
          }));
    CHECK(t.told.bytes("backward cross_entropy") == bytes_of([](memory& m) {
              for (extent i = 0; i < rows; ++i) {
                  for (extent j = 0; j < classes; ++j) m("logits", 2, i * classes + j), m("dlogits", 2, i * classes + j);
                  m("targets", 4, i), m("maximum", 4, i), m("sum", 4, i);
              }
              m("gradient", 4, 0), m("count", 4, 0);
          }));
}

TEST_CASE("bytes of a convolution, and of a join") {
    tape_of_work t;
    const auto w = numbers(ht::shape<4>{6, 2, 3, 3});
    const auto weight = t.tape.leaf(w.view());
    t.run([&](auto& ctx, const auto& in) { return ht::conv2d(ctx, in, weight, {.padding = {1, 1}, .groups = 2}); },
          numbers(ht::shape<4>{2, 4, 5, 5}));
    const auto taps = [](const std::function<void(extent, extent, extent)>& f) {  // of elements of x, weight and y
        for (extent b = 0; b < 2; ++b) {
            for (extent out = 0; out < 6; ++out) {
                for (extent at = 0; at < 25; ++at) {
                    for (extent tap = 0; tap < 18; ++tap) {
                        const extent in = out / 3 * 2 + tap / 9, i = at / 5 + tap % 9 / 3 - 1, j = at % 5 + tap % 3 - 1;
                        if (i >= 0 && i < 5 && j >= 0 && j < 5)
                            f(((b * 4 + in) * 5 + i) * 5 + j, out * 18 + tap, (b * 6 + out) * 25 + at);
                    }
                }
            }
        }
    };
    CHECK(t.told.bytes("forward conv2d") == bytes_of([&](memory& m) {
              taps([&](extent x, extent k, extent y) { m("x", 4, x), m("weight", 4, k), m("y", 4, y); });
          }));
    CHECK(t.told.bytes("backward conv2d") == bytes_of([&](memory& m) {
              taps([&](extent x, extent k, extent y) {
                  m("x", 4, x), m("dx", 4, x), m("weight", 4, k), m("dweight", 4, k), m("dy", 4, y);
              });
          }));
    const auto a = numbers(ht::shape<2>{3, 5});
    const auto x = t.tape.leaf(a.view()), y = t.tape.leaf(a.view());
    t.tape.backward(ht::sum(t.tape, ht::cat(t.tape, 0, x, y)));
    CHECK(t.told.bytes("forward cat") == bytes_of([](memory& m) { all_of(m, "parts", 4, 30), all_of(m, "y", 4, 30); }));
    CHECK(t.told.bytes("backward cat") == bytes_of([](memory& m) { all_of(m, "dparts", 4, 30), all_of(m, "dy", 4, 30); }));
}

}  // namespace observe_work_bytes_tests
