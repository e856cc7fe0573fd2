// SPDX-License-Identifier: MIT
/// \file
/// Times the head of a language model on the CPU, a linear layer with cross-entropy whose logits are not stored, compared with
/// PyTorch, which stores them: the forward pass, and both passes.
///
///     bench_linear_cross_entropy --json linear_cross_entropy.json --torch python3 --filter bf16
///
/// Operations are counted as those of the necessary products: one forward, three in both passes. The fourth, by which
/// halftone recomputes the logits, is not counted.

#include <halftone/kernel/linear_cross_entropy/cpu.hpp>
#include <halftone/number.hpp>
#include <halftone/policy.hpp>

#include <support/program.hpp>
#include <support/random.hpp>

namespace {

namespace ht = halftone;
using ht::extent;

struct shape {
    extent rows, width, classes;
};
/// GPT-2's batches of 256 and of 1024 tokens, with its vocabulary as it is and padded to whole vectors, and a
/// vocabulary of bytes.
constexpr shape shapes[] = {{256, 768, 50304}, {1024, 768, 50304}, {256, 768, 50257}, {4096, 384, 256}};

template <class T>
void run(const bench::session& with, const char* policy, const char* dtype) {
    ht::cpu& device = with.device;
    using head = ht::kernel::linear_cross_entropy<ht::cpu>;
    for (const shape& s : shapes) {
        for (const bool both : {false, true}) {
            const bench::case_name name{"linear_cross_entropy",
                                        std::to_string(s.rows) + "x" + std::to_string(s.width) + "x" + std::to_string(s.classes) + (both ? " both" : " forward"),
                                        policy};
            if (!with.report.wants(name)) continue;
            const auto x = bench::random_values<T>(s.rows * s.width, 1, 1), w = bench::random_values<T>(s.classes * s.width, 2, 0.05f);
            const auto targets = bench::random_classes(s.rows, s.classes, 3);
            bench::values<T> dx(x.size());
            bench::values<float> dw(w.size()), losses(targets.size()), maximum(targets.size()), sum(targets.size());
            float loss = 0, count = 0;
            const float gradient = 1;
            const ht::const_view<T, 2> vx(x.data(), {s.rows, s.width}), vw(w.data(), {s.classes, s.width});
            const ht::kernel::linear_cross_entropy_rows rows{.targets = {targets.data(), {s.rows}},
                                                             .losses = {losses.data(), {s.rows}},
                                                             .maximum = {maximum.data(), {s.rows}},
                                                             .sum = {sum.data(), {s.rows}},
                                                             .loss = {&loss, {1}},
                                                             .count = {&count, {1}}};
            std::vector<bench::contender> all;
            all.push_back(bench::local("halftone", [&] {
                head::forward<T, T>(device, vx, vw, rows);
                if (!both) return;
                head::backward<T, T, T>(device, vx, vw, rows, ht::const_view<float, 1>(&gradient, {1}),
                                        ht::kernel::gradient_result<T>{{dx.data(), {s.rows, s.width}}},
                                        ht::kernel::gradient_result<float>{{dw.data(), {s.classes, s.width}}});
            }));
            with.add_torch(all, {{"op", "linear_cross_entropy"}, {"dtype", dtype}, {"pass", both ? "both" : "forward"},
                                 {"rows", s.rows}, {"width", s.width}, {"classes", s.classes}});
            const double product = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.width) * static_cast<double>(s.classes);
            with.tell_operations<T>(name, all, both ? 3 * product : product);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    CLI::App app{"Times a linear layer with cross-entropy on the CPU, forward and backward, compared with PyTorch."};
    return bench::run_program("bench_linear_cross_entropy", app, o, argc, argv, [&](const bench::session& s) {
        run<ht::bfloat16>(s, "bf16", "bfloat16");
        run<float>(s, "fp32", "float32");
    });
}
