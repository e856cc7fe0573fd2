// SPDX-License-Identifier: MIT
/// \file
/// Convolution on the CPU against its definition.
#include <halftone/exec/measure.hpp>
#include <halftone/kernel/conv2d/cpu.hpp>

#include "kernel/conv2d/checks.hpp"
#include "support/each_cpu.hpp"

namespace kernel_conv2d_tests {

using namespace conv2d_checks;

TEST_CASE("unfold and fold: as defined") {
    support::for_each_cpu([](ht::cpu& device) {
        unfolds<float, float>(device);
        unfolds<bfloat16, bfloat16>(device);
        unfolds<double, double>(device);
    });
}

TEST_CASE("conv2d, conv2d_input, conv2d_weight: exact on small whole numbers") {
    support::for_each_cpu([](ht::cpu& device) {
        exact<ht::full_fp32, float, float, float>(device);
        exact<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device);
        exact<ht::full_fp64, double, double, double>(device);
    });
}

TEST_CASE("conv2d, conv2d_input, conv2d_weight: within bounds") {
    support::for_each_cpu([](ht::cpu& device) {
        within_bounds<ht::full_fp32, float, float, float>(device);
        within_bounds<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device);
        within_bounds<ht::amp_fp16, float16, float16, float16>(device);
    });
}

TEST_CASE("conv2d: an image that is unfolded by rows, and whose gradient is folded by channels") {
    ht::cpu device{{.threads = 2}};
    support::comparison unused;
    check_case<ht::full_fp32, float, float, float>(device, large, true, unused);
    check_case<ht::full_fp64, double, double, double>(device, large, true, unused);
    const auto p = large.problem();
    const auto cut = ht::detail::conv2d_pieces::of(ht::detail::conv2d_limits_of<ht::cpu>, p, p.depth() * 8);
    CHECK((cut.images == 1 && cut.rows > 1 && cut.rows < p.window.down.positions));
    // Scratch memory is as the contract states: for doubles a matrix of at most 8 MiB, and packed operands; else no matrix.
    const ht::view<double, 4> xs(nullptr, large.x), ws(nullptr, large.weight()), ys(nullptr, p.result());
    const auto with_matrix = ht::workspace_bytes(
        device, [&](auto& d) { ht::conv2d_weight<ht::full_fp64>(d, xs, ys, ws, large.options); });
    CHECK(with_matrix >= std::size_t{7} << 20);
    CHECK(with_matrix <= std::size_t{12} << 20);
    if (!ht::detail::is_implicit<float, float, float, float>(device, p)) return;
    const ht::view<float, 4> x(nullptr, large.x), w(nullptr, large.weight()), y(nullptr, p.result());
    const auto forward = ht::workspace_bytes(
        device, [&](auto& d) { ht::conv2d<ht::full_fp32>(d, x, w, ht::view<float, 1>{}, y, large.options); });
    const auto of_input = ht::workspace_bytes(
        device, [&](auto& d) { ht::conv2d_input<ht::full_fp32>(d, w, y, x, large.options); });
    const auto of_weight = ht::workspace_bytes(
        device, [&](auto& d) { ht::conv2d_weight<ht::full_fp32>(d, x, y, w, large.options); });
    CHECK(forward <= std::size_t{1} << 20);
    CHECK(of_input <= std::size_t{1} << 20);
    CHECK(of_weight <= std::size_t{4} << 20);
}

/// y, dx and dw of some images, for comparisons of bits.
std::vector<std::vector<float>> results(ht::cpu& device, extent images) {
    const conv2d_case t{{images, 6, 12, 12}, 8, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2}};
    support::random data(3);
    const auto w = data.normals<float>(t.weight().size()), x = data.normals<float>(8 * 6 * 144),
               dy = data.normals<float>(8 * 8 * 36);
    const auto p = t.problem();
    std::vector<std::vector<float>> all{std::vector<float>(static_cast<std::size_t>(p.result().size())),
                                        std::vector<float>(static_cast<std::size_t>(t.x.size())),
                                        std::vector<float>(w.size())};
    const ht::const_view<float, 4> in(x.data(), t.x), weight(w.data(), t.weight()), g(dy.data(), p.result());
    ht::conv2d<ht::full_fp32>(device, in, weight, ht::view<float, 1>{}, ht::view<float, 4>(all[0].data(), p.result()),
                              t.options);
    ht::conv2d_input<ht::full_fp32>(device, weight, g, ht::view<float, 4>(all[1].data(), t.x), t.options);
    ht::conv2d_weight<ht::full_fp32>(device, in, g, ht::view<float, 4>(all[2].data(), t.weight()), t.options);
    return all;
}

TEST_CASE("conv2d: the same bits at one and at two threads, and in a batch of any size") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    const auto all = results(one, 8), again = results(two, 8), alone = results(two, 1);
    CHECK(all == again);
    for (std::size_t which = 0; which < 2; ++which) {
        const auto end = all[which].begin() + static_cast<std::ptrdiff_t>(alone[which].size());
        CHECK(alone[which] == std::vector<float>(all[which].begin(), end));
    }
}

TEST_CASE("conv2d: wrong shapes and options") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
}

}  // namespace kernel_conv2d_tests
