// SPDX-License-Identifier: MIT
/// \file
/// The base class of a model: a store that its layers share, with the same paths and values as one made by hand.
#include <type_traits>

#include "nn/layers.hpp"

namespace nn_model_tests {

namespace ht = halftone;
using strings = std::vector<std::string>;

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;

    explicit network(ht::cpu& device, std::uint64_t seed = 7)
        : model{device}, up{parameters(), 3, 5}, norm{parameters(), 5} {
        commit(*this, seed);
    }
    auto operator()(auto&& ctx, const auto& x) const { return norm(ctx, up(ctx, x)); }
    void commit_again() { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.norm); }
};

// A model without a policy, and so without rules to check.
struct plain : ht::nn::model {
    ht::nn::linear<ht::at<ht::full_fp32, "fit">> fit;
    explicit plain(ht::cpu& device) : model{device}, fit{parameters(), 2, 1} { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fit); }
};

static_assert(!std::is_copy_constructible_v<network<ht::full_fp32>> &&
              !std::is_move_constructible_v<network<ht::full_fp32>>);
static_assert(!std::is_copy_assignable_v<network<ht::full_fp32>>);
static_assert(!std::is_constructible_v<ht::nn::model, ht::cpu&>);
static_assert(ht::layers_of<network<ht::amp_bf16>>::size == 3 && ht::layers_of<plain>::size == 1);

TEST_CASE("nn::model: the store of all its layers") {
    ht::cpu device{{.threads = 1}};
    network<ht::amp_bf16> model{device};
    const auto& same = model;
    CHECK(&same.parameters() == &model.parameters());
    strings paths;
    for (const auto& e : same.parameters().entries()) paths.push_back(e.path);
    CHECK(paths == strings{"up.weight", "up.bias", "norm.gain", "norm.bias"});
    CHECK(device.memory().usage().live() == model.parameters().bytes());
    // The same store, built by hand.
    ht::store by_hand{device.memory()};
    const ht::nn::linear<ht::at<ht::amp_bf16, "up">> up{by_hand, 3, 5};
    by_hand.commit(7);
    CHECK(support::doubles(up.weight.values()) == support::doubles(model.up.weight.values()));
    const network<ht::amp_bf16> other{device, 8};
    CHECK(support::doubles(other.up.weight.values()) != support::doubles(model.up.weight.values()));
    CHECK_THROWS_WITH_AS(model.commit_again(), "store: committed twice", ht::state_error);
}

TEST_CASE("nn::model: trains with an optimizer and an accumulator") {
    ht::cpu device{{.threads = 1}};
    plain model{device};
    ht::sgd optimizer{device, model, {.lr = 0.25}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const nn_test::input<float, 2> x(ht::shape<2>{8, 2});
    const auto loss = [&] {
        return ht::mean_squared_error(tape, model.fit(tape, tape.constant(x.view)),
                                      ht::const_view<float, 2>(x.values.data(), {8, 1}));
    };
    const float before = loss().item();
    for (int step = 0; step < 20; ++step) {
        tape.clear();
        tape.backward(loss(), acc);
        optimizer.step(acc.take());
    }
    CHECK(loss().item() < before / 2);
}

TEST_CASE("nn::model: too little memory is an error, and no memory stays allocated") {
    ht::cpu small{{.threads = 1, .memory_limit = 256}};
    CHECK_THROWS_AS(network<ht::full_fp32>{small}, ht::out_of_memory);
    CHECK(small.memory().usage().live() == 0);
}

}  // namespace nn_model_tests
