// SPDX-License-Identifier: MIT
/// \file
/// Layer and root mean square normalisation on the CPU against their definitions, and the definitions' gradients
/// against differences.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/norm/cpu.hpp>

#include "kernel/norm/checks.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace kernel_norm_tests {

using namespace norm_checks;

TEST_CASE_TEMPLATE("layer_norm, rms_norm: forward within its bound of the definition", M, all_float<layer_norm>,
                   mixed<layer_norm>, layer_widening, layer_narrow, all_float<rms_norm>, mixed<rms_norm>,
                   rms_widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) forward_within_bounds<M>(device, 3, width, M::N::epsilon);
        forward_within_bounds<M>(device, 5, 67, 1e-2f, 1, false);
        forward_within_bounds<M>(device, 61, 4097, 0.0f);
    });
}

TEST_CASE_TEMPLATE("layer_norm, rms_norm: backward within its bound of the definition", M, all_float<layer_norm>,
                   mixed<layer_norm>, layer_widening, all_float<rms_norm>, mixed<rms_norm>, rms_widening) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : support::widths) backward_within_bounds<M>(device, 3, width, write_mode::overwrite);
        backward_within_bounds<M>(device, 5, 67, write_mode::add);
        backward_within_bounds<M>(device, 301, 129, write_mode::overwrite);  // several pieces
        backward_within_bounds<M>(device, 301, 129, write_mode::add);
    });
}

TEST_CASE_TEMPLATE(
    "layer_norm, rms_norm: the same bits at one and at two threads, and no allocation after the first call", N,
    layer_norm, rms_norm) {
    support::for_each_set([](ht::isa set) {
        const operands<mixed<N>> one(333, 257, 1), two(333, 257, 1);
        for (const auto* o : {&one, &two}) {
            ht::cpu device{{.threads = o == &one ? 1 : 2, .instruction_set = set}};
            std::uint64_t allocations = 0;
            for (int round = 0; round < 4; ++round) {
                o->forward(device);
                o->backward(device, write_mode::overwrite);
                if (round == 1) allocations = device.memory().usage().allocations();
            }
            CHECK(device.memory().usage().allocations() == allocations);
        }
        CHECK(one.y.same_bits(two.y));
        CHECK(one.mean.same_bits(two.mean));
        CHECK(one.rstd.same_bits(two.rstd));
        CHECK(one.has_gradients_of(two));
    });
}

TEST_CASE_TEMPLATE("layer_norm, rms_norm: exact results, and no rows", N, layer_norm, rms_norm) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        what_is_exact<N>(device);
        no_rows_at_all<N>(device);
    });
}

TEST_CASE_TEMPLATE("layer_norm, rms_norm: the definition's gradients", N, layer_norm, rms_norm) {
    constexpr extent rows = 3, width = 5;
    const ht::shape<2> shape{rows, width};
    support::random data(11);
    doubles x = data.normals<double>(rows * width), gain = data.normals<double>(width),
            bias = data.normals<double>(width), dy = data.normals<double>(rows * width);
    doubles y(rows * width), mean(rows), rstd(rows), dx(rows * width), dgain(width), dbias(width);
    const auto matrix = [&](doubles& of) { return ht::view<double, 2>(of.data(), shape); };
    const auto vector = [](doubles& of) { return ht::view<double, 1>(of.data(), {static_cast<extent>(of.size())}); };
    const auto loss = [&](doubles at_x, doubles at_gain, doubles at_bias) {
        N::define(matrix(at_x), vector(at_gain), vector(at_bias), 1e-3, matrix(y), vector(mean), vector(rstd));
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
        return sum;
    };
    loss(x, gain, bias);
    N::define_backward(matrix(x), vector(gain), matrix(dy), vector(mean), vector(rstd), matrix(dx), vector(dgain),
                       vector(dbias));
    support::check_gradient([&](const doubles& at) { return loss(at, gain, bias); }, x, dx);
    support::check_gradient([&](const doubles& at) { return loss(x, at, bias); }, gain, dgain);
    if (N::centred) support::check_gradient([&](const doubles& at) { return loss(x, gain, at); }, bias, dbias);
}

TEST_CASE_TEMPLATE("layer_norm, rms_norm: wrong arguments", N, layer_norm, rms_norm) {
    ht::cpu device{{.threads = 1}};
    const operands<all_float<N>> o(3, 4, 1);
    const std::string name = N::name;
    const auto refused = [&]<class Error>(const Error*, const std::string& message, auto change) {
        auto a = o.forward_arguments();
        change(a);
        CHECK_THROWS_WITH_AS(N::template kernel<ht::cpu>::forward(device, a), (name + message).c_str(), Error);
    };
    const ht::shape_error* shape = nullptr;
    const ht::argument_error* argument = nullptr;
    refused(shape, ": gain is (3); expected (4)", [](auto& a) { a.gain = {a.gain.data(), {3}}; });
    refused(shape, ": y is (2, 4); expected (3, 4)", [](auto& a) { a.y = {a.y.data(), {2, 4}}; });
    refused(shape, ": x (3, 4) has gaps within its rows; its strides are (1, 3)", [](auto& a) {
        a.x = {a.x.data(), {3, 4}, {1, 3}};
    });
    refused(argument, ": epsilon is -0.5; expected 0 or more", [](auto& a) { a.epsilon = -0.5f; });
    auto a = o.backward_arguments(write_mode::add);
    a.rstd = {a.rstd.data(), {2}};
    CHECK_THROWS_WITH_AS(N::template kernel<ht::cpu>::backward(device, a),
                         (name + " backward: rstd is (2); expected (3)").c_str(), ht::shape_error);
    if constexpr (N::centred) {
        a.mean = {a.mean.data(), {2}};
        CHECK_THROWS_WITH_AS(N::template kernel<ht::cpu>::backward(device, a),
                             "layer_norm backward: mean is (2); expected (3)", ht::shape_error);
    }
}

}  // namespace kernel_norm_tests
