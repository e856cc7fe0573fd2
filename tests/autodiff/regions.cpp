// SPDX-License-Identifier: MIT
/// \file
/// Free operations in regions, and custom operations, on the CPU.
#include <halftone/autodiff/double_backward/double_backward.hpp>

#include "autodiff/region_checks.hpp"
#include "support/gradient_check.hpp"

namespace autodiff_regions_tests {

namespace ht = halftone;
using region_checks::values;
using support::guarded;

TEST_CASE("regions: an operation's types and values, forward and backward, are those of the region it was called in") {
    ht::cpu device{{.threads = 1}};
    region_checks::types_and_values(device);
}

TEST_CASE("matmul, linear, cat and stack of variables") {
    ht::cpu device{{.threads = 2}};
    region_checks::products(device);
    region_checks::joined(device);
    region_checks::joined_lists(device);
}

TEST_CASE("apply: custom operations") {
    ht::cpu device{{.threads = 1}};
    region_checks::own_operations(device);
}

TEST_CASE("apply: an operation without a rule follows its region, forward and backward") {
    ht::cpu device{{.threads = 1}};
    region_checks::operations_without_rule(device);
}

TEST_CASE("apply: cast_inputs casts inputs that are not double, whatever the other inputs are") {
    ht::cpu device{{.threads = 1}};
    region_checks::casts_beside_doubles(device);
}

template <class P>
struct one_layer : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit one_layer(auto& device, int out) : model{device}, fc{parameters(), 2, out} { commit(*this, 7); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

TEST_CASE("linear: the bias is read where the weight is, from the copy or from the master") {
    ht::cpu device{{.threads = 1}};
    const float fine = region_checks::fine;
    one_layer<ht::amp_bf16> model(device, 1);
    support::set(model.fc.weight, std::vector<double>{static_cast<double>(fine), 0});
    support::set(model.fc.bias, std::vector<double>{static_cast<double>(fine)});
    const guarded<float> ones(std::vector<float>{1, 1});
    const guarded<double> twos(std::vector<double>{1, 1});
    ht::inference eval{device};
    const auto x = eval.constant(ones.view(ht::shape<2>{1, 2}));
    const auto& weight = model.fc.weight;
    const auto& bias = model.fc.bias;
    const auto region = ht::autocast<ht::amp_bf16>(eval);
    CHECK(values(device, ht::linear(region, x, weight, bias).view()) == std::vector<double>{2});
    CHECK(values(device, model.fc(eval, x).view()) == std::vector<double>{2});
    const std::vector<double> exact{2.0078125};
    CHECK(values(device, ht::linear(eval, x, weight, bias).view()) == exact);
    CHECK(values(device, ht::linear<float>(region, x, weight, bias).view()) == exact);
    CHECK(values(device, ht::linear(ht::autocast<ht::full_fp32>(region), x, weight, bias).view()) == exact);
    const auto wide = ht::linear(region, eval.constant(twos.view(ht::shape<2>{1, 2})), weight, bias);
    static_assert(std::is_same_v<decltype(wide), const ht::variable<double, 2>>);
    CHECK(values(device, wide.view()) == exact);
    CHECK(values(device, ht::linear<double>(region, x, weight, bias).view()) == exact);
}

TEST_CASE("linear: weight and bias are each a variable or a parameter") {
    ht::cpu device{{.threads = 1}};
    one_layer<ht::amp_bf16> model(device, 2);
    const std::vector<double> w{1, 2, -3, 4}, b{5, -6};
    support::set(model.fc.weight, w);
    support::set(model.fc.bias, b);
    const guarded<float> in(std::vector<float>{1, 2, 3, -1, 0, 2}), weights(std::vector<float>{1, 2, -3, 4}),
        biases(std::vector<float>{5, -6});
    const auto check = [&](auto& tape) {
        const auto region = ht::autocast<ht::amp_bf16>(tape);
        const auto x = tape.constant(in.view(ht::shape<2>{3, 2}));
        const auto weight = tape.leaf(weights.view(ht::shape<2>{2, 2}));
        const auto bias = tape.leaf(biases.view(ht::shape<1>{2}));
        const std::vector<double> y{10, -1, 6, -19, 9, 2};
        support::gradient_sink sink(model.parameters());
        const auto of_bias = ht::linear(region, x, weight, model.fc.bias);
        const auto of_weight = ht::linear(region, x, model.fc.weight, bias);
        static_assert(std::is_same_v<decltype(of_bias), const ht::variable<ht::bfloat16, 2>>);
        static_assert(std::is_same_v<decltype(of_weight), const ht::variable<ht::bfloat16, 2>>);
        static_assert(
            std::is_same_v<decltype(ht::linear<float>(region, x, model.fc.weight, bias)), ht::variable<float, 2>>);
        CHECK(values(device, of_bias.view()) == y);
        CHECK(values(device, of_weight.view()) == y);
        tape.backward(ht::sum(tape, ht::add(tape, ht::sum<float>(tape, of_bias), ht::sum<float>(tape, of_weight))),
                      sink);
        const std::vector<double> dw{4, 3, 4, 3}, db{3, 3};
        CHECK(sink.of(model.fc.weight) == dw);
        CHECK(sink.of(model.fc.bias) == db);
        CHECK(values(device, tape.gradient(weight)) == dw);
        CHECK(values(device, tape.gradient(bias)) == db);
    };
    ht::tape tape{device};
    check(tape);
    ht::tape twice{device, ht::double_backward};
    check(twice);
}

TEST_CASE("a weight is not cast where it is used: the store's copy is read, and nothing of its size is kept") {
    ht::cpu device{{.threads = 1}};
    region_checks::gated<ht::amp_bf16> model(device);
    ht::tape tape{device};
    const guarded<float> in(std::vector<float>{1, 0, 0});
    const auto x = tape.constant(in.view(ht::shape<2>{1, 3}));
    const auto live = [&] { return tape.memory().live(); };
    const auto use = [&] { return ht::linear(ht::autocast<ht::amp_bf16>(tape), x, model.fc.weight, model.fc.bias); };
    const std::size_t before = live();
    const auto first = use();
    const std::size_t result = live() - before;
    std::vector<decltype(use())> more;
    for (int i = 0; i < 5; ++i) more.push_back(use());
    CHECK(live() - before == 6 * result);  // of each use its result is left
    CHECK(result <= ht::block_alignment);
    // The layer reads the copy's bits, not the master's.
    auto* const copy = const_cast<ht::bfloat16*>(model.fc.weight.values().data());
    for (int i = 0; i < 9; ++i) copy[i] = ht::bfloat16(static_cast<float>(i));
    CHECK(values(device, use().view()) == std::vector<double>{0, 3, 6});
    static_assert(
        std::is_same_v<decltype(ht::as_variable<ht::bfloat16>(tape, model.fc.weight)), ht::variable<ht::bfloat16, 2>>);
    CHECK(ht::as_variable<ht::bfloat16>(tape, model.fc.weight).view().data() == copy);
    CHECK(ht::as_variable(tape, model.fc.weight).view().data() == model.fc.weight.master().data());

    // A value read without a recording tape is not reused by a recording one in place of the weight.
    tape.clear();
    ht::inference eval{device};
    const auto seen = eval.constant(in.view(ht::shape<2>{1, 3}));
    ht::linear(ht::autocast<ht::amp_bf16>(eval), seen, model.fc.weight, model.fc.bias);
    support::gradient_sink sink(model.parameters());
    tape.backward(ht::sum<float>(tape, use()), sink);
    CHECK(sink.of(model.fc.weight) == std::vector<double>{1, 0, 0, 1, 0, 0, 1, 0, 0});
}

TEST_CASE("apply, linear and as_variable: gradients of parameters add up in the accumulator") {
    using region_checks::doubles;
    ht::cpu device{{.threads = 1}};
    const guarded<float> in(std::vector<float>{1, 2, -3, 4, -1, 5, 2, 2, -1});
    const doubles x = region_checks::as_doubles(in), w{1, -2, 3, 2, 0, -1, 4, 1, 1}, bias{1, -1, 2};
    region_checks::gated<ht::full_fp32> model(device);
    support::set(model.fc.weight, w);
    support::set(model.fc.bias, bias);
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = ht::sum(tape, model.output(tape, tape.constant(in.view(ht::shape<2>{3, 3}))));
    CHECK(static_cast<double>(loss.item()) == region_checks::sum_of_output(x, w, bias));
    tape.backward(loss, sink);
    // All numbers are small integers and halves, so that the gradients are exact.
    support::check_gradient([&](const doubles& at) { return region_checks::sum_of_output(x, at, bias); }, w,
                            sink.of(model.fc.weight));
    support::check_gradient([&](const doubles& at) { return region_checks::sum_of_output(x, w, at); }, bias,
                            sink.of(model.fc.bias));
}

}  // namespace autodiff_regions_tests
