// SPDX-License-Identifier: MIT
/// \file
/// A user-defined model: gated recurrent units (Cho et al. 2014), one cell called for each step of a sequence.
///
/// It shows: a layer that calls another one repeatedly and carries a state; all of a cell's pointwise work as one map. It
/// learns which of four symbols came first in the sequence. Its gradients through all steps are compared with finite
/// differences in double.
#include <vector>

#include <halftone/observe/check_gradients.hpp>

#include "train.hpp"

constexpr ht::extent symbols = 4, length = 8, width = 24;
constexpr ht::extent rows = 32;  // of a batch

template <class P>
struct gru {
    ht::nn::linear<ht::at<P, "input">> input;
    ht::nn::linear<ht::at<P, "hidden">> hidden;

    gru(ht::store& s, ht::extent features) : input{s, features, 3 * width}, hidden{s, width, 3 * width} {}
    auto operator()(auto&& ctx, const auto& x) const {  // (rows, time, features) to the last state, (rows, width)
        const auto given = input(ctx, x);               // for all steps in one product
        auto h = ht::zeros<typename ht::resolve<P>::output>(ctx, ht::shape<2>{x.shape()[0], width});
        for (ht::extent t = 0; t < x.shape()[1]; ++t) {
            const auto [xr, xz, xn] = ht::chunk<3>(ctx, ht::select(ctx, given, ht::axes<1>, t), ht::axes<-1>);
            const auto [hr, hz, hn] = ht::chunk<3>(ctx, hidden(ctx, h), ht::axes<-1>);
            const auto cell = [](auto x_r, auto x_z, auto x_n, auto h_r, auto h_z, auto h_n, auto before) {
                const auto reset = ht::sigmoid(x_r + h_r);
                const auto keep = ht::sigmoid(x_z + h_z);
                return (1 - keep) * ht::tanh(x_n + reset * h_n) + keep * before;
            };
            h = ht::map(ctx, cell, xr, xz, xn, hr, hz, hn, h);  // one kernel forward, and one backward
        }
        return h;
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.input, self.hidden); }
};

template <class P>
struct reader : ht::nn::model {
    using policy = P;
    gru<ht::at<P, "gru">> cells;
    ht::nn::linear<ht::at<P, "head">> head;

    explicit reader(auto& device) : model{device}, cells{parameters(), symbols}, head{parameters(), width, symbols} {
        commit(*this, 7);
    }
    auto operator()(auto&& ctx, const auto& x) const { return head(ctx, cells(ctx, x)); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.cells, self.head); }
};

struct texts {
    std::vector<float> symbol = std::vector<float>(rows * length * symbols);  // one-hot rows of the symbols
    std::vector<std::int32_t> first;

    explicit texts(int step) {
        draws random(step);
        for (std::size_t place = 0; place < symbol.size(); place += symbols) {
            const int s = random.below(symbols);
            symbol[place + static_cast<std::size_t>(s)] = 1;
            if (place % (length * symbols) == 0) first.push_back(s);
        }
    }
};

template <class P>
void learn(auto& device, const char* name) {
    reader<P> model{device};
    train<texts>(device, name, model, 100, 1e-2, [&](auto& tape, const auto& batch) {
        const auto x = tape.to_device(ht::const_view<float, 3>(batch.symbol.data(), {rows, length, symbols}));
        return ht::cross_entropy(tape, model(tape, x), ht::const_view<std::int32_t, 1>(batch.first.data(), {rows}));
    });
}

/// The gradients of every 31st parameter, for two rows of three steps.
void check(auto& device) {
    reader<ht::full_fp64> model{device};
    draws random(0);
    ht::host_tensor<double, 3> x({2, 3, symbols});
    for (double& number : x) number = static_cast<double>(random.between(-1, 1));
    const auto report = ht::check_gradients(device, {.every = 31}, model, [&](auto& tape) {
        return model(tape, tape.to_device(x.view()));
    });
    std::printf("gradients: %s\n", report.agrees() ? "as differences in double say" : report.text().c_str());
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) {
        check(device);
        // Prints: gradients: as differences in double say
        learn<ht::amp_bf16>(device, "bf16");
        // Prints: bf16: loss 1.
        // Prints: less than a tenth of that
        learn<ht::amp_fp16>(device, "fp16");
        // Prints: fp16: loss 1.
        // Prints: less than a tenth of that
    });
}
