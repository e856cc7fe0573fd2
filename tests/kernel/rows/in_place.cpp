// SPDX-License-Identifier: MIT
/// \file
/// Every function of views refuses a result in the memory of what it reads; those that may work in place do.
#include <functional>
#include <vector>

#include <halftone/kernel.hpp>

#include "kernel/overlap_checks.hpp"

namespace kernel_rows_in_place_tests {

namespace ht = halftone;
using overlap_checks::refusal;
using P = ht::full_fp32;

/// Memory of 256 numbers, and views of it.
struct numbers {
    std::vector<float> all = std::vector<float>(256, 0.5f);

    ht::view<float, 1> row(ht::extent n, ht::extent at = 0) { return {all.data() + at, {n}}; }
    ht::view<float, 2> rows(ht::extent at = 0) { return {all.data() + at, {3, 4}}; }
    ht::view<float, 4> images(ht::extent at = 0) { return {all.data() + at, {1, 2, 4, 4}}; }
};

TEST_CASE("functions of rows: in place, or refused by name in the memory of what they read") {
    ht::cpu device{{.threads = 1}};
    numbers x, y;
    const auto gain = y.row(4, 128), each = y.row(3, 160);
    const auto in_place = [&](const char* read, const char* written, const std::function<void(ht::view<float, 2>)>& f) {
        CHECK(refusal([&] { f(x.rows()); }).empty());
        CHECK(refusal([&] { f(x.rows(3)); }) == std::string(read) + " (3, 4) is in the memory of " + written +
                                                    " (3, 4), which is written to while it is read; copy it first");
    };
    in_place("softmax: x", "y", [&](auto to) { ht::softmax<P>(device, x.rows(), to); });
    in_place("softmax: x", "y", [&](auto to) { ht::log_softmax<P>(device, x.rows(), to); });
    in_place("softmax backward: dy", "dx", [&](auto to) { ht::softmax_gradients<P>(device, y.rows(), x.rows(), to); });
    in_place("softmax backward: y", "dx",
             [&](auto to) { ht::log_softmax_gradients<P>(device, x.rows(), y.rows(), to); });
    in_place("layer_norm: x", "y", [&](auto to) { ht::layer_norm<P>(device, x.rows(), gain, gain, to); });
    in_place("layer_norm backward: dy", "dx", [&](auto to) {
        ht::layer_norm_gradients<P>(device, y.rows(), gain, x.rows(), each, each, to, y.row(4, 200), y.row(4, 210));
    });
    in_place("rms_norm: x", "y", [&](auto to) { ht::rms_norm<P>(device, x.rows(), gain, to); });
    in_place("rms_norm backward: x", "dx",
             [&](auto to) { ht::rms_norm_gradients<P>(device, x.rows(), gain, y.rows(), each, to, y.row(4, 200)); });
    const std::vector<std::int32_t> targets(3, 1);
    const ht::const_view<std::int32_t, 1> wanted(targets.data(), {3});
    in_place("cross_entropy backward: logits", "dlogits", [&](auto to) {
        ht::cross_entropy_gradients<P>(device, x.rows(), wanted, each, each, y.row(1, 200), y.row(1, 210), to);
    });
    in_place("cumsum: x", "y", [&](auto to) { ht::cumsum(device, x.rows(), ht::axes<1>, to); });
    const auto one_row_in_place = [&](const char* read, const std::function<void(ht::view<float, 1>)>& f) {
        CHECK(refusal([&] { f(x.row(12)); }).empty());
        CHECK(refusal([&] { f(x.row(12, 3)); }) == std::string(read) +
                                                       " (12) is in the memory of y (12), which is written "
                                                       "to while it is read; copy it first");
    };
    const ht::kernel::dropout_draw draw{};
    one_row_in_place("dropout: x", [&](auto to) { ht::dropout(device, x.row(12), to, draw); });
    one_row_in_place("dropout: base", [&](auto to) { ht::dropout(device, y.row(12), x.row(12), to, draw); });
    const ht::view<float, 4> heads(x.all.data(), {1, 3, 1, 4});
    const ht::view<float, 2> table = y.rows(64);
    CHECK(refusal([&] { ht::rotary(device, heads, table, heads); }).empty());
    CHECK(refusal([&] {
              ht::rotary(device, heads, table, ht::view<float, 4>(x.all.data() + 4, {1, 3, 1, 4}));
          }) ==
          "rotary: x (1, 3, 1, 4) is in the memory of y (1, 3, 1, 4), which is written to while it is read; copy it "
          "first");
}

TEST_CASE("products, reductions, look-ups, windows and attention are refused in the memory of what they read") {
    ht::cpu device{{.threads = 1}};
    numbers x, y;
    const auto refused = [&](const char* sentence, const std::function<void()>& f) {
        CHECK(refusal(f) == std::string(sentence) + ", which is written to while it is read; copy it first");
    };
    const ht::view<float, 2> square(x.all.data(), {4, 4}), next(y.all.data(), {4, 4});
    refused("matmul: a (4, 4) is in the memory of c (4, 4)", [&] { ht::matmul<P>(device, square, next, square); });
    refused("matmul: b (4, 4) is in the memory of c (4, 4)", [&] {
        ht::matmul<P>(device, square, next, ht::view<float, 2>(y.all.data() + 12, {4, 4}));
    });
    CHECK(refusal([&] {
              ht::matmul<P>(device, square, square, ht::view<float, 2>(y.all.data(), {4, 4}, {8, 1}));
          }).empty());
    const ht::view<float, 3> stack(x.all.data(), {3, 2, 2}), others(y.all.data(), {3, 2, 2});
    refused("batched_matmul: b (3, 2, 2) is in the memory of c (3, 2, 2)", [&] {
        ht::batched_matmul<P>(device, stack, others, ht::view<float, 3>(y.all.data() + 4, {3, 2, 2}));
    });
    const auto added = [](auto sum, auto x) { return sum + x; };
    refused("matmul: the bias (4) is in the memory of c (4, 4)",
            [&] { ht::matmul<P>(device, square, square, next, ht::bias{y.row(4, 4)}); });
    refused("matmul: an epilogue's operand (4, 4) is in the memory of c (4, 4)", [&] {
        ht::matmul<P>(device, square, square, next, ht::then{added, ht::view<float, 2>(y.all.data() + 1, {4, 4})});
    });
    CHECK(refusal([&] { ht::matmul<P>(device, square, square, next, ht::then{added, next}); }).empty());
    refused("matmul: b (4, 4) is in the memory of what the epilogue keeps (4, 4)", [&] {
        ht::matmul<P>(device, square, ht::view<float, 2>(y.all.data() + 64, {4, 4}), next,
                      ht::bias_gelu_keep{y.row(4, 128), ht::view<float, 2>(y.all.data() + 68, {4, 4})});
    });
    const std::vector<std::int32_t> classes(3, 1);
    refused("cross_entropy: logits (3, 4) is in the memory of sum (3)", [&] {
        ht::cross_entropy<P>(device, x.rows(), ht::const_view<std::int32_t, 1>(classes.data(), {3}), y.row(3), y.row(3, 4),
                             x.row(3, 9), ht::view<float, 1>{}, ht::view<float, 1>{});
    });
    refused("rms_norm: gain (4) is in the memory of y (3, 4)",
            [&] { ht::rms_norm<P>(device, x.rows(), x.row(4), x.rows()); });
    refused("adamw_step: gradients (8) is in the memory of parameters (8)",
            [&] { ht::adamw_step<P>(device, x.row(8), ht::view<float, 1>{}, x.row(8, 1), y.row(8), y.row(8, 8)); });
    refused("adamw_step: first moment (8) is in the memory of second moment (8)",
            [&] { ht::adamw_step<P>(device, x.row(8), ht::view<float, 1>{}, x.row(8, 16), y.row(8), y.row(8, 4)); });
    refused("batch_norm: x (1, 2, 4, 4) is in the memory of y (1, 2, 4, 4)", [&] {
        ht::batch_norm(device, x.images(), ht::view<float, 1>{}, ht::view<float, 1>{}, y.row(2), y.row(2, 2),
                       x.images(1), y.row(2, 4), y.row(2, 6), {.training = true});
    });
    refused("sum: x (3, 4) is in the memory of y (4)", [&] { ht::sum(device, x.rows(), ht::axes<0>, x.row(4)); });
    refused("amax: x (3, 4) is in the memory of y (3)", [&] { ht::amax(device, x.rows(), ht::axes<1>, x.row(3, 9)); });
    refused("column_sum: x (3, 4) is in the memory of out (4)", [&] { ht::column_sum(device, x.rows(), x.row(4)); });
    const std::vector<std::int32_t> indices(3, 1);
    const ht::const_view<std::int32_t, 1> index(indices.data(), {3});
    refused("index_select: x (3, 4) is in the memory of y (3, 4)",
            [&] { ht::index_select(device, x.rows(), ht::axes<0>, index, x.rows()); });
    refused("index_add: from (3, 4) is in the memory of to (3, 4)",
            [&] { ht::index_add(device, x.rows(), ht::axes<0>, index, x.rows(2)); });
    refused("embedding: table (3, 4) is in the memory of out (3, 4)", [&] {
        ht::embedding<P>(device, index, x.rows(), ht::view<float, 2>(nullptr, {0, 4}), x.rows(4));
    });
    refused("max_pool2d: x (1, 2, 4, 4) is in the memory of y (1, 2, 2, 2)", [&] {
        ht::max_pool2d(device, x.images(), {.kernel_size = {2, 2}}, ht::view<float, 4>(x.all.data(), {1, 2, 2, 2}));
    });
    refused("avg_pool2d: x (1, 2, 4, 4) is in the memory of y (1, 2, 2, 2)", [&] {
        ht::avg_pool2d(device, x.images(), {.kernel_size = {2, 2}}, ht::view<float, 4>(x.all.data(), {1, 2, 2, 2}));
    });
    const ht::view<float, 4> weight(y.all.data(), {2, 2, 1, 1});
    refused("conv2d: x (1, 2, 4, 4) is in the memory of y (1, 2, 4, 4)",
            [&] { ht::conv2d<P>(device, x.images(), weight, ht::view<float, 1>{}, x.images()); });
    const ht::view<float, 4> q(x.all.data(), {1, 4, 1, 8}), k(y.all.data(), {1, 4, 1, 8});
    refused("attention: q (1, 4, 1, 8) is in the memory of o (1, 4, 1, 8)",
            [&] { ht::attention<P>(device, q, k, k, q); });
    const ht::view<float, 4> o(x.all.data() + 64, {1, 4, 1, 8}), dq(x.all.data() + 128, {1, 4, 1, 8});
    refused("attention gradients: dq (1, 4, 1, 8) is in the memory of dk (1, 4, 1, 8)", [&] {
        ht::attention_gradients<P>(device, q, k, k, o, ht::const_view<float, 4>(y.all.data() + 64, {1, 1, 4, 2}), o, dq,
                                   dq, ht::view<float, 4>(y.all.data() + 128, {1, 4, 1, 8}));
    });
}

TEST_CASE("tensors of functions of scores, operands of epilogues and statistics of losses are compared with results") {
    ht::cpu device{{.threads = 1}};
    numbers x, y, z;
    const auto refused = [&](const char* sentence, const std::function<void()>& f) {
        CHECK(refusal(f) == std::string(sentence) + ", which is written to while it is read; copy it first");
    };
    const ht::view<float, 4> q(x.all.data(), {1, 4, 1, 8}), k(y.all.data(), {1, 4, 1, 8}),
        o(z.all.data(), {1, 4, 1, 8});
    const auto with_table = [&](ht::view<float, 1> in) {
        return [table = ht::lookup(in)](auto score, auto, auto, auto query, auto) { return score + table(query) * 2; };
    };
    const ht::view<float, 4> sums(z.all.data() + 64, {1, 1, 4, 2});
    const auto attend = [&](ht::view<float, 1> table) {
        ht::attention<P>(device, q, k, k, o, sums, {}, with_table(table));
    };
    refused("attention: a function's tensor (4) is in the memory of o (1, 4, 1, 8)", [&] { attend(z.row(4, 30)); });
    refused("attention: a function's tensor (4) is in the memory of logsumexp (1, 1, 4, 2)",
            [&] { attend(z.row(4, 71)); });
    CHECK(refusal([&] { attend(z.row(4, 72)); }).empty());
    const ht::view<float, 4> d_o(x.all.data() + 64, {1, 4, 1, 8}), dq(z.all.data() + 128, {1, 4, 1, 8}),
        dk(z.all.data() + 160, {1, 4, 1, 8}), dv(z.all.data() + 192, {1, 4, 1, 8});
    const auto gradients = [&](ht::view<float, 1> table) {
        ht::attention_gradients<P>(device, ht::kernel::attention_backward<float>{q, k, k, o, sums, d_o, dq, dk, dv, {}},
                                   with_table(table));
    };
    refused("attention gradients: a function's tensor (4) is in the memory of dk (1, 4, 1, 8)",
            [&] { gradients(z.row(4, 160)); });
    refused("attention gradients: a function's tensor (4) is in the memory of dv (1, 4, 1, 8)",
            [&] { gradients(z.row(4, 192)); });

    const auto added = [](auto sum, auto x) { return sum + x; };
    const ht::view<float, 3> a(x.all.data(), {3, 2, 2}), b(y.all.data(), {3, 2, 2}), c(z.all.data(), {3, 2, 2});
    const auto product = [&](ht::extent at) {
        ht::batched_matmul<P>(device, a, b, c, ht::then{added, ht::view<float, 3>(z.all.data() + at, {3, 2, 2})});
    };
    refused("batched_matmul: the epilogue's operand (3, 2, 2) is in the memory of c (3, 2, 2)", [&] { product(4); });
    CHECK(refusal([&] { product(0); }).empty());

    const std::vector<std::int32_t> classes(3, 1);
    const ht::const_view<std::int32_t, 1> targets(classes.data(), {3});
    const ht::kernel::cross_entropy_terms<float> terms{.label_smoothing = 0.1f};
    const auto weighted = [&](ht::extent losses, ht::extent sum, ht::extent weights) {
        ht::weighted_cross_entropy<P>(device, z.rows(), targets, terms, z.row(3, losses), z.row(3, 30), z.row(3, sum),
                                      z.row(3, weights));
    };
    CHECK(refusal([&] { weighted(20, 40, 50); }).empty());
    refused("weighted_cross_entropy: logits (3, 4) is in the memory of losses (3)", [&] { weighted(9, 40, 50); });
    refused("weighted_cross_entropy: maximum (3) is in the memory of sum (3)", [&] { weighted(20, 30, 50); });
    refused("weighted_cross_entropy: row_weights (3) is in the memory of sum (3)", [&] { weighted(20, 40, 42); });
    refused("weighted_cross_entropy: logits (3, 4) is in the memory of row_weights (3)", [&] { weighted(20, 40, 0); });
    refused("weighted_cross_entropy backward: sum (3) is in the memory of dlogits (3, 4)", [&] {
        ht::weighted_cross_entropy_gradients<P>(device, x.rows(), targets, terms, y.row(3), z.row(3, 4), y.row(1, 20),
                                                y.row(1, 30), z.rows());
    });
    refused("cross_entropy: losses (3) is in the memory of maximum (3)", [&] {
        ht::cross_entropy<P>(device, x.rows(), targets, y.row(3), y.row(3, 2), y.row(3, 30), y.row(1, 50),
                             y.row(1, 60));
    });
    refused("cross_entropy backward: gradient (1) is in the memory of dlogits (3, 4)", [&] {
        ht::cross_entropy_gradients<P>(device, x.rows(), targets, y.row(3), y.row(3, 4), z.row(1, 11), y.row(1, 30),
                                       z.rows());
    });

    const auto head = [&](ht::extent losses, ht::extent maximum) {
        return ht::kernel::linear_cross_entropy_rows{targets,      z.row(3, losses), z.row(3, maximum),
                                                     z.row(3, 40), z.row(1, 50),     z.row(1, 60)};
    };
    const auto weight = y.rows();
    CHECK(refusal([&] { ht::linear_cross_entropy<P>(device, z.rows(), weight, head(20, 30)); }).empty());
    refused("linear_cross_entropy: x (3, 4) is in the memory of losses (3)",
            [&] { ht::linear_cross_entropy<P>(device, z.rows(), weight, head(11, 30)); });
    refused("linear_cross_entropy: losses (3) is in the memory of maximum (3)",
            [&] { ht::linear_cross_entropy<P>(device, z.rows(), weight, head(20, 22)); });
    refused("linear_cross_entropy backward: maximum (3) is in the memory of dw (3, 4)", [&] {
        ht::linear_cross_entropy_gradients<P>(device, x.rows(), weight, head(20, 30), y.row(1, 100), x.rows(100),
                                              z.rows(28));
    });
    refused("linear_cross_entropy backward: dx (3, 4) is in the memory of dw (3, 4)", [&] {
        ht::linear_cross_entropy_gradients<P>(device, x.rows(), weight, head(20, 30), y.row(1, 100), x.rows(100),
                                              x.rows(104));
    });
}

}  // namespace kernel_rows_in_place_tests
