// SPDX-License-Identifier: MIT
/// \file
/// linear_cross_entropy on the emulated GPU.
#include <cstddef>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/linear_cross_entropy/device.hpp>
#include <halftone/tensor/tensor.hpp>

#include "emulator/damage.hpp"
#include "kernel/linear_cross_entropy/checks.hpp"

namespace emulator_kernel_linear_cross_entropy_tests {

using namespace linear_cross_entropy_checks;
namespace emulator = ht::emulator;
using head = ht::kernel::linear_cross_entropy<emulator::device>;
/// Chunks of 64 rows, the minimum.
using chunked_head = ht::kernel::linear_cross_entropy<emulator::device, 1>;

TEST_CASE_TEMPLATE("linear_cross_entropy on a GPU: loss and gradients within their bounds", M,
                   types<float, float, float>, types<bfloat16, bfloat16, bfloat16>, types<bfloat16, float, bfloat16>) {
    emulator::device device;
    within_bounds<M>(head{}, device, {2, 1, 3}, write_mode::overwrite);
    within_bounds<M>(head{}, device, {37, 19, 53}, write_mode::overwrite);
    within_bounds<M>(head{}, device, {24, 32, 40}, write_mode::add);
}

TEST_CASE("linear_cross_entropy on a GPU: rows in several chunks") {
    emulator::device device;
    REQUIRE(chunked_head::chunk_rows<float>(67, 5) == 64);
    REQUIRE(head::chunk_rows<float>(67, 5) == 67);
    for (const write_mode mode : {write_mode::overwrite, write_mode::add})
        within_bounds<types<float, float, float>>(chunked_head{}, device, {67, 3, 5}, mode);
}

TEST_CASE("linear_cross_entropy on a GPU: logits that are kept") {
    emulator::device device;
    the_same_if_kept<types<bfloat16, bfloat16, bfloat16>>(head{}, device, {21, 19, 37}, write_mode::add);
    the_same_if_kept<types<float, float, float>>(chunked_head{}, device, {67, 3, 5}, write_mode::overwrite);
}

TEST_CASE("linear_cross_entropy on a GPU: gradients that are not requested, and a batch without rows") {
    emulator::device device;
    less_than_everything(head{}, device);
}

TEST_CASE("linear_cross_entropy on a GPU: a target that is no class") {
    emulator::device device;
    run<types<float, float, float>> r({5, 4, 7});
    r.targets[2] = 7;
    r(head{}, device, 1, write_mode::overwrite);
    CHECK(std::isnan(r.loss[0]));
    CHECK(std::isnan(r.losses[2]));
    CHECK_FALSE(std::isnan(r.losses[1]));
    CHECK(std::isnan(r.dw[0]));
}

TEST_CASE("linear_cross_entropy on a GPU: memory that the host cannot read") {
    emulator::device device;
    const sizes s{67, 8, 19};
    const ht::shape<2> of_x{s.rows, s.width}, of_w{s.classes, s.width};
    const ht::shape<1> of_rows{s.rows}, one{1};
    const float seed = 8;
    const run<types<bfloat16, float, bfloat16>> want(s);
    want(chunked_head{}, device, seed, write_mode::overwrite);

    ht::memory_resource& memory = device.memory();
    const ht::tensor<bfloat16, 2> x(memory, of_x), w(memory, of_w), dx(memory, of_x);
    const ht::tensor<float, 2> dw(memory, of_w);
    const ht::tensor<float, 1> losses(memory, of_rows), maximum(memory, of_rows), sum(memory, of_rows),
        loss(memory, one), count(memory, one), gradient(memory, one);
    const ht::tensor<std::int32_t, 1> targets(memory, of_rows);
    memory.write(x.data(), want.x.data(), static_cast<std::size_t>(x.size()) * sizeof(bfloat16));
    memory.write(w.data(), want.w.data(), static_cast<std::size_t>(w.size()) * sizeof(bfloat16));
    memory.write(targets.data(), want.targets.data(), want.targets.size() * sizeof(std::int32_t));
    memory.write(gradient.data(), &seed, sizeof seed);
    const ht::kernel::linear_cross_entropy_rows rows{targets, losses, maximum, sum, loss, count};
    chunked_head::forward<bfloat16, float>(device, x.const_view(), w.const_view(), rows);
    chunked_head::backward<bfloat16, float, bfloat16>(device, x.const_view(), w.const_view(), rows,
                                                      gradient.const_view(), ht::kernel::gradient_result<bfloat16>{dx},
                                                      ht::kernel::gradient_result<float>{dw});
    const auto same = [&](const auto& there, const auto& here) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(there.size()) * sizeof(*there.data()));
        memory.read(bytes.data(), there.data(), bytes.size());
        return std::memcmp(bytes.data(), here.data(), bytes.size()) == 0;
    };
    CHECK(same(loss, want.loss));
    CHECK(same(count, want.count));
    CHECK(same(losses, want.losses));
    CHECK(same(maximum, want.maximum));
    CHECK(same(sum, want.sum));
    CHECK(same(dx, want.dx));
    CHECK(same(dw, want.dw));
}

}  // namespace emulator_kernel_linear_cross_entropy_tests
