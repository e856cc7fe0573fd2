// SPDX-License-Identifier: MIT
/// \file
/// The perceptron layer: one operation if its two products have the same types, two if rules give them different ones.
#include "nn/layers.hpp"

namespace nn_mlp_tests {

namespace ht = halftone;
using nn_test::alone;
using nn_test::input;
using strings = std::vector<std::string>;

TEST_CASE("nn::mlp: in fp32, one operation and two give the same values, and nearly the same gradients") {
    // Moments in another type: parameters of another group, while the arithmetic is the same.
    struct bf16_state : ht::full_fp32 {
        using state = ht::bfloat16;
    };
    using parted = ht::recipe<ht::full_fp32, ht::rule<"mlp.up", bf16_state>>;
    alone<ht::nn::mlp<ht::at<ht::full_fp32, "mlp">>> one(7, 19, ht::initial{.deviation = 0.4f},
                                                         ht::initial{.deviation = 0.3f});
    alone<ht::nn::mlp<ht::at<parted, "mlp">>> two(7, 19, ht::initial{.deviation = 0.4f},
                                                  ht::initial{.deviation = 0.3f});
    CHECK(one.paths() == strings{"mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"});
    CHECK(two.paths() == one.paths());
    REQUIRE(two.parameters.groups().size() == 2);

    struct listener : ht::range_listener {
        std::string text;
        void begin(const char* operation, ht::pass) override { text += std::string(operation) + " "; }
        void end() override {}
    };
    const input<float, 2> x(ht::shape<2>{5, 7});
    const auto step = [&](auto& f, listener& heard) {
        ht::tape tape{f.device};
        tape.listen(&heard);
        support::gradient_sink sink(f.parameters);
        const auto v = tape.leaf(x.view);
        const auto y = f.layer(tape, v, v);
        std::vector<std::vector<double>> all{support::doubles(y.view())};
        tape.backward(ht::sum(tape, y), sink);
        all.push_back(support::doubles(tape.gradient(v)));
        all.push_back(sink.of(f.layer.up.weight));
        all.push_back(sink.of(f.layer.down.bias));
        return all;
    };
    listener heard_one, heard_two;
    const auto a = step(one, heard_one), b = step(two, heard_two);
    CHECK(heard_one.text == "mlp sum sum mlp ");
    CHECK(heard_two.text == "linear gelu linear sum sum linear gelu linear ");
    CHECK(a[0] == b[0]);
    CHECK(a[3] == b[3]);
    for (std::size_t k = 1; k < 3; ++k) {
        for (std::size_t i = 0; i < a[k].size(); ++i) CHECK(a[k][i] == doctest::Approx(b[k][i]).epsilon(1e-4));
    }
}

/// The same layer on two streams, of T and of float, with the same numbers in both: it gives the streams' types, and
/// the one rounded is the other.
template <class P, class T>
void streams_keep_their_types(const std::string& operations) {
    alone<ht::nn::mlp<ht::at<P, "mlp">>> f(7, 19, ht::initial{.deviation = 0.4f}, ht::initial{.deviation = 0.3f});
    const input<float, 2> x(ht::shape<2>{5, 7});
    const input<T, 2> narrow(ht::shape<2>{5, 7}, 2);
    const std::vector<float> wide(narrow.values.begin(), narrow.values.end());
    struct listener : ht::range_listener {
        std::string text;
        void begin(const char* operation, ht::pass) override { text += std::string(operation) + " "; }
        void end() override {}
    } heard;
    ht::tape tape{f.device};
    tape.listen(&heard);
    const auto v = tape.leaf(x.view);
    const auto a = tape.leaf(narrow.view);
    const auto b = tape.leaf(ht::const_view<float, 2>(wide.data(), {5, 7}));
    const auto of_a = f.layer(tape, v, a);
    const auto of_b = f.layer(tape, v, b);
    static_assert(std::is_same_v<decltype(of_a), const ht::variable<T, 2>>);
    static_assert(std::is_same_v<decltype(of_b), const ht::variable<float, 2>>);
    CHECK(heard.text == operations + operations);
    for (int i = 0; i < 35; ++i) CHECK(of_a.view().data()[i].bits() == T(of_b.view().data()[i]).bits());

    // A gradient of ones is exact in both, and so both backward passes give the same.
    const auto gradients = [&](const auto& y, const auto& stream) {
        support::gradient_sink sink(f.parameters);
        tape.backward(ht::sum(tape, y), sink);
        CHECK(support::doubles(tape.gradient(stream)) == std::vector<double>(35, 1.0));
        return std::vector<std::vector<double>>{sink.of(f.layer.up.weight), sink.of(f.layer.up.bias),
                                                sink.of(f.layer.down.weight), sink.of(f.layer.down.bias)};
    };
    const auto first = gradients(of_a, a);
    CHECK(first[3] == std::vector<double>(7, 5.0));
    CHECK(first == gradients(f.layer(tape, v, b), b));
}

TEST_CASE("nn::mlp: gives the type of the residual stream that it adds to") {
    SUBCASE("amp_bf16") { streams_keep_their_types<ht::amp_bf16, ht::bfloat16>("mlp "); }
    SUBCASE("streams of fp32 and bf16, under fp32") { streams_keep_their_types<ht::full_fp32, ht::bfloat16>("mlp "); }
    SUBCASE("streams of fp32 and bf16, under fp16") { streams_keep_their_types<ht::amp_fp16, ht::bfloat16>("mlp "); }
    SUBCASE("two operations") {
        streams_keep_their_types<ht::recipe<ht::amp_bf16, ht::rule<"mlp.up", ht::full_fp32>>, ht::bfloat16>(
            "linear gelu linear ");
    }
}

TEST_CASE("nn::mlp: precision of single products") {
    using recipe = ht::recipe<ht::amp_bf16, ht::rule<"mlp.up", ht::full_fp32>>;
    const alone<ht::nn::mlp<ht::at<recipe, "mlp">>> f(7, 19);
    const input<ht::bfloat16, 2> x(ht::shape<2>{5, 7});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto v = ctx.constant(x.view);
    static_assert(std::is_same_v<decltype(f.layer.up(ctx, v)), ht::variable<float, 2>>);
    static_assert(std::is_same_v<decltype(f.layer(ctx, v, v)), ht::variable<ht::bfloat16, 2>>);
    CHECK(f.layer(ctx, v, v).shape() == ht::shape<2>{5, 7});
}

TEST_CASE("nn::mlp: without a residual it gives what one of zeros leaves, in down's output") {
    const alone<ht::nn::mlp<ht::at<ht::amp_bf16, "mlp">>> f(7, 19, ht::initial{.deviation = 0.4f},
                                                            ht::initial{.deviation = 0.3f});
    const input<ht::bfloat16, 2> x(ht::shape<2>{5, 7});
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device};
    const auto with = [&](const auto&... residual) {
        support::gradient_sink sink(const_cast<ht::store&>(f.parameters));
        const auto v = tape.leaf(x.view);
        const auto y = f.layer(tape, v, residual...);
        static_assert(std::is_same_v<decltype(y), const ht::variable<ht::bfloat16, 2>>);
        std::vector<std::vector<double>> all{support::doubles(y.view())};
        tape.backward(ht::sum(tape, y), sink);
        all.push_back(support::doubles(tape.gradient(v)));
        for (const std::vector<double>& slopes : {sink.of(f.layer.up.weight), sink.of(f.layer.up.bias),
                                                  sink.of(f.layer.down.weight), sink.of(f.layer.down.bias)})
            all.push_back(slopes);
        return all;
    };
    const auto alone_gives = with();
    CHECK(alone_gives == with(ht::zeros<ht::bfloat16>(tape, ht::shape<2>{5, 7})));
    CHECK(alone_gives[0] != std::vector<double>(35, 0.0));
}

}  // namespace nn_mlp_tests
