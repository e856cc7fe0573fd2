// SPDX-License-Identifier: MIT
/// \file
/// Lesson 27: low-rank adapters (LoRA).
///
/// A trained matrix W of out rows and in columns is to learn something new. Instead of W the products of two thin matrices
/// are trained, B (out, r) times A (r, in): y = W x + s B (A x). W stays as it is. So it needs no gradient, no moments and
/// no fp32 master, and can be kept in two bytes a number. B begins as zeros: at first the model is its base. The
/// gradients follow from those of W: with G = dL/dW, that of B is s G Aᵀ, and that of A is s Bᵀ G; but G, as large as W,
/// is never made. Here the same small task is learnt by hand and by ht::lora, with the same losses.
#include <cstdio>
#include <random>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/io/adapters.hpp>

namespace ht = halftone;
using matrix = std::vector<float>;  // row-major

constexpr int in = 64, out = 48, rank = 4, rows = 32, steps = 60;
constexpr float scale = 2, rate = 0.5f;  // s = alpha / rank

/// c (m, n) += a (m, k) b (k, n), or with aᵀ or bᵀ in their place.
void add_product(matrix& c, const matrix& a, const matrix& b, int m, int k, int n, bool a_turned, bool b_turned, float factor) {
    const auto at = [](int row, int width, int column) { return static_cast<std::size_t>(row * width + column); };
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int p = 0; p < k; ++p) sum += (a_turned ? a[at(p, m, i)] : a[at(i, k, p)]) * (b_turned ? b[at(j, k, p)] : b[at(p, n, j)]);
            c[at(i, n, j)] += factor * sum;
        }
    }
}

/// One layer, and the mean of (y - wanted)².
template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear_no_bias<ht::at<P, "fc">> fc;
    explicit network(ht::cpu& device) : model{device}, fc{parameters(), in, out} { commit(*this, 7); }
    auto loss(auto&& ctx, const auto& x, const auto& wanted) const { return ht::mse_loss(ctx, fc(ctx, x), wanted); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

/// The losses of some steps by hand. Changes A and B.
std::vector<float> by_hand(const matrix& w, matrix& a, matrix& b, const matrix& x, const matrix& wanted) {
    std::vector<float> losses;
    for (int step = 0; step < steps; ++step) {
        matrix u(rows * rank), y(rows * out), dy(rows * out), du(rows * rank), db(out * rank), da(rank * in);
        add_product(u, x, a, rows, in, rank, false, true, 1);      // u = x Aᵀ: four numbers a row
        add_product(y, x, w, rows, in, out, false, true, 1);       // y = x Wᵀ
        add_product(y, u, b, rows, rank, out, false, true, scale);  //   + s u Bᵀ
        float loss = 0;
        for (std::size_t i = 0; i < y.size(); ++i) {
            const float difference = y[i] - wanted[i];
            loss += difference * difference / (rows * out);
            dy[i] = 2 * difference / (rows * out);
        }
        losses.push_back(loss);
        add_product(db, dy, u, out, rows, rank, true, false, scale);  // dB = s dyᵀ u, which is s G Aᵀ
        add_product(du, dy, b, rows, out, rank, false, false, scale);
        add_product(da, du, x, rank, rows, in, true, false, 1);  // dA = duᵀ x, which is s Bᵀ G
        for (std::size_t i = 0; i < a.size(); ++i) a[i] -= rate * da[i];
        for (std::size_t i = 0; i < b.size(); ++i) b[i] -= rate * db[i];
    }
    return losses;
}

int main() {
    ht::cpu device;
    const ht::add_adapters added{device, {.rank = rank, .alpha = scale * rank}};
    network<ht::lora<ht::full_fp32, ht::full_fp32>> model{device};

    // W and A as the model has them, B as it begins; and a task whose answer is another matrix, of rank 2 away from W.
    const float* const weight = model.fc.weight.values().data();
    const float* const a_of_model = model.fc.adapter.a().values().data();
    const matrix w(weight, weight + out * in);
    matrix a(a_of_model, a_of_model + rank * in), b(out * rank);
    std::mt19937 engine(3);
    std::normal_distribution<float> normal;
    matrix x(rows * in), left(out * 2), right(2 * in), other = w, wanted(rows * out);
    for (matrix* m : {&x, &left, &right}) {
        for (float& v : *m) v = normal(engine);
    }
    add_product(other, left, right, out, 2, in, false, false, 0.1f);
    add_product(wanted, x, other, rows, in, out, false, true, 1);

    // The same steps by the library: gradients and the update of A and B alone.
    ht::sgd optimizer{device, model, {.lr = rate}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const auto inputs = ht::const_view<float, 2>(x.data(), {rows, in}), targets = ht::const_view<float, 2>(wanted.data(), {rows, out});
    const std::vector<float> losses = by_hand(w, a, b, x, wanted);
    // Prints: step   by hand   ht::lora
    // Prints:    0     0.803      0.803
    // Prints:   20     0.033      0.033
    std::printf("step   by hand   ht::lora\n");
    for (int step = 0; step < steps; ++step) {
        const auto loss = model.loss(tape, tape.constant(inputs), tape.constant(targets));
        tape.backward(loss, acc);
        auto grads = acc.take();
        optimizer.step(grads);
        if (step % 20 == 0 || step == steps - 1)
            std::printf("%4d   %7.3f   %8.3f\n", step, static_cast<double>(losses[static_cast<std::size_t>(step)]), static_cast<double>(loss.item()));
    }
    // Prints: 448 numbers are trained, 3072 are frozen
    // Prints: merged: 0.000
    std::size_t trained = 0, frozen = 0;
    for (const ht::store_entry& e : model.parameters().entries()) (e.frozen ? frozen : trained) += e.count;
    std::printf("%zu numbers are trained, %zu are frozen\n", trained, frozen);
    ht::merge_adapters(model);  // W + s B A: from now on one product
    ht::inference eval{device};
    std::printf("merged: %.3f\n", static_cast<double>(model.loss(eval, eval.constant(inputs), eval.constant(targets)).item()));
    return 0;
}
