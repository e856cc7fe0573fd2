// SPDX-License-Identifier: MIT
/// \file
/// Times the optimizer's part of a training step on the CPU for GPT-2's number of parameters: the norm of the
/// gradients, then AdamW (or SGD) with fp32 masters and rounding of the copies that products read.
///
///     bench_optimizer --json optimizer.json --torch python3
///
/// Bytes are those that have to be moved: for AdamW with a 16-bit copy 30 a parameter (gradient, master and two moments
/// are read; master, moments and copy are written), for the norm 4. PyTorch's fused AdamW writes no copy: 28; its
/// clip_grad_norm_ reads the gradients once and scales them in another pass: 12. With moments in 8 bits 18 and a sixteenth:
/// of each moment a byte and the 256th part of a float are read and written; AdamW with moments in floats takes turns
/// with it. Adafactor: 26, for matrices of 4096 columns.
///
/// Muon's iteration for the matrices of GPT-2's twelve layers, by bf16 products: its rate compared with that of plain products
/// of its shapes, which is its upper limit.
#include <random>

#include <memory_bound/family.hpp>
#include <support/program.hpp>

#include <halftone/kernel/gradient_norm/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/optimizer_step/adafactor/cpu.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>
#include <halftone/kernel/optimizer_step/muon/orthogonal.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/number.hpp>

namespace {

namespace ht = halftone;
using ht::extent;
namespace kernel = ht::kernel;

/// Random numbers in memory of the device.
template <class T>
class slab {
  public:
    slab(ht::cpu& device, extent count, float deviation, unsigned seed)
        : memory_(device.memory(), static_cast<std::size_t>(count) * sizeof(T), ht::memory_kind::other), count_(count) {
        std::mt19937 engine(seed);
        std::normal_distribution<float> normal(0.0f, deviation);
        std::vector<float> some(65536);
        for (float& x : some) x = normal(engine);
        device.parallel_for((count + 65535) / 65536, [&](extent chunk) {
            for (extent i = chunk * 65536; i < std::min(count, (chunk + 1) * 65536); ++i)
                data()[i] = T(some[static_cast<std::size_t>((i * 40503 + chunk) % 65536)]);
        });
    }
    T* data() const { return reinterpret_cast<T*>(memory_.data()); }
    ht::view<T, 1> view() const { return {data(), {count_}}; }

  private:
    ht::buffer memory_;
    extent count_;
};

/// Newton and Schulz's iteration over twelve (rows, columns), compared with plain products of the same shapes.
void run_newton_schulz(const bench::session& with, const bench::options& o, extent rows, extent columns) {
    ht::cpu& device = with.device;
    constexpr extent layers = 12;
    const ht::newton_schulz_options how;
    const bench::case_name name{"newton-schulz", "12x" + std::to_string(rows) + "x" + std::to_string(columns), "amp_bf16"};
    if (!with.report.wants(name)) return;
    const extent least = std::min(rows, columns), most = std::max(rows, columns);
    const slab<ht::bfloat16> first(device, layers * rows * columns, 1.0f, 1), second(device, layers * rows * columns, 1.0f, 2);
    const slab<ht::bfloat16> grams(device, 2 * layers * least * least, 0.02f, 3);
    const ht::shape<3> shape{layers, rows, columns}, square{layers, least, least};
    const ht::view<ht::bfloat16, 3> x(first.data(), shape), y(second.data(), shape), g(grams.data(), square),
        h(grams.data() + square.size(), square);
    ht::detail::orthogonal_records records;
    const auto iterate = [&] { ht::detail::orthogonalize<ht::amp_bf16>(device, x, y, grams.data(), how, &records); };
    const auto multiply = [&] {
        for (int i = 0; i < how.steps; ++i) {
            if (rows <= columns) {
                ht::batched_matmul<ht::amp_bf16>(device, x, ht::transpose(x), g);
                ht::batched_matmul<ht::amp_bf16>(device, g, g, h);
                ht::batched_matmul<ht::amp_bf16>(device, h, x, y);
            } else {
                ht::batched_matmul<ht::amp_bf16>(device, ht::transpose(x), x, g);
                ht::batched_matmul<ht::amp_bf16>(device, g, g, h);
                ht::batched_matmul<ht::amp_bf16>(device, x, h, y);
            }
        }
    };
    const auto timings = bench::compare({bench::local("halftone", iterate), bench::local("plain products", multiply)}, o);
    const double flops = 2.0 * how.steps * static_cast<double>(layers * least * least) * static_cast<double>(2 * most + least);
    with.report.add(name, timings, flops, "GFLOP/s", flops / timings[1].seconds, "plain products of the same shapes, in turn");
}

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    extent count = 124475904;  // GPT-2 with its vocabulary padded to 50,304
    o.rounds = 9;
    CLI::App app{"Times an optimizer's step on the CPU, compared with PyTorch."};
    app.add_option("--parameters", count, "number of parameters")->check(CLI::Range(extent{64}, extent{1} << 32))->capture_default_str();
    return bench::run_program("bench_optimizer", app, o, argc, argv, [&](const bench::session& with) {
        ht::cpu& device = with.device;
        bench::report& report = with.report;
        bench::torch_peer* const torch = with.torch;
        count = count / 64 * 64;
        const slab<float> master(device, count, 0.02f, 1), gradient(device, count, 1e-3f, 2), first(device, count, 1e-3f, 3);
        const slab<float> second(device, count, 0.0f, 4);
        const slab<ht::bfloat16> copy(device, count, 0.02f, 1);
        kernel::gradient_record record;
        std::int32_t found_inf = 0;
        const kernel::step_record step{.steps = 1000, .skipped = 0, .lr = 3e-4, .multiplier = 1, .skips = 0};

        const auto norm = [&] {
            record = {};
            kernel::begin_pass(record);
            kernel::gradient_norm<ht::cpu>::add(device, ht::const_view<float, 1>(gradient.view()), &record, &found_inf);
            kernel::end_pass(record);
            kernel::clip_by_norm(record, 1.0f);
        };
        const auto adamw = [&](auto copies) {
            using copy_type = typename decltype(copies)::value_type;
            kernel::optimizer_step<ht::cpu>::run<ht::rounding::nearest_even>(
                device, kernel::optimizer_step_arguments<kernel::adamw_rule, float, copy_type, float, float>{
                            .master = master.view(),
                            .copy = copies,
                            .gradient = gradient.view(),
                            .moments = {first.view(), second.view()},
                            .rule = {},
                            .rates = {.fixed_lr = 0, .lr_share = 1, .weight_decay = 0.1},
                            .factors = &record.factors,
                            .step = &step,
                            .key = {}});
        };
        const slab<std::uint8_t> codes(device, count, 0.0f, 5), more_codes(device, count, 0.0f, 6);
        const extent blocks = kernel::eight_bit_blocks(count);
        const slab<float> absmax(device, blocks, 0.0f, 7), more_absmax(device, blocks, 0.0f, 8);
        const kernel::dynamic_maps maps = kernel::make_dynamic_maps();
        const auto adamw_8bit = [&] {
            kernel::eight_bit_step<ht::cpu>::run<ht::rounding::nearest_even>(
                device, kernel::eight_bit_step_arguments<kernel::adamw_rule, float, ht::bfloat16, float>{
                            .step = {.master = master.view(),
                                     .copy = copy.view(),
                                     .gradient = gradient.view(),
                                     .rates = {.fixed_lr = 0, .lr_share = 1, .weight_decay = 0.1},
                                     .factors = &record.factors,
                                     .step = &step},
                            .codes = {codes.view(), more_codes.view()},
                            .absmax = {absmax.view(), more_absmax.view()},
                            .maps = &maps});
        };
        const auto sgd = [&] {
            kernel::optimizer_step<ht::cpu>::run<ht::rounding::nearest_even>(
                device, kernel::optimizer_step_arguments<kernel::sgd_rule, float, ht::bfloat16, float, float>{
                            .master = master.view(),
                            .copy = copy.view(),
                            .gradient = gradient.view(),
                            .moments = {first.view()},
                            .rule = {.momentum = 0.9},
                            .rates = {.fixed_lr = 0, .lr_share = 1, .weight_decay = 0.1},
                            .factors = &record.factors,
                            .step = &step,
                            .key = {}});
        };
        constexpr extent columns = 4096;
        const slab<float> row_variances(device, count / columns + 1, 0.0f, 5), column_variances(device, columns, 0.0f, 6);
        kernel::adafactor_record found;
        const auto adafactor = [&] {
            const extent rows = count / columns, n = rows * columns;
            if (rows == 0) return;
            kernel::adafactor_step<ht::cpu>::run<ht::rounding::nearest_even>(
                device, kernel::adafactor_arguments<float, ht::bfloat16, float>{
                            .step = {.master = {master.data(), {n}},
                                     .copy = {copy.data(), {n}},
                                     .gradient = {gradient.data(), {n}},
                                     .rule = {},
                                     .rates = {.fixed_lr = 0, .lr_share = 1, .weight_decay = 0.1},
                                     .factors = &record.factors,
                                     .step = &step,
                                     .key = {}},
                            .shape = {rows, columns},
                            .rows = {row_variances.data(), {rows}},
                            .columns = column_variances.view(),
                            .record = &found});
        };
        // The machine's speed drifts, so the copy takes its turns in each case.
        const extent copied = std::min(extent{1} << 28, 8 * count);
        const bench::operands<std::byte> from(device, 1, copied), to(device, 1, copied);
        const std::string shape = std::to_string(count);
        const auto run = [&](const char* kernel, const char* policy, double bytes, const auto& work, const char* peer, const bench::json& asked,
                             const std::vector<bench::contender>& peers = {}) {
            const bench::case_name name{kernel, shape, policy};
            if (!report.wants(name)) return;
            std::vector<bench::contender> all{bench::local("halftone", work)};
            const auto half = static_cast<extent>(bytes / 2) * count;
            all.push_back(bench::local("copy", [&, half] {
                for (extent left = half; left > 0; left -= copied)
                    bench::copy_bytes(device, to(0), from(0), std::min(left, copied), true);
            }));
            if (torch != nullptr && peer != nullptr) {
                bench::json question = {{"op", peer}, {"count", count}};
                question.update(asked);
                all.push_back(torch->contender("torch", question));
            }
            all.insert(all.end(), peers.begin(), peers.end());
            const auto timings = bench::compare(all, o);
            report.add(name, timings, bytes * static_cast<double>(count), "GB/s", bytes * static_cast<double>(count) / timings[1].seconds,
                       "copy of as many bytes, in turn");
            if (torch != nullptr) torch->clear();
        };
        run("norm and adamw", "bf16 copy", 34, [&] { norm(), adamw(copy.view()); }, "adamw", {{"clip", true}});
        run("adamw, norm known", "bf16 copy", 30, [&] { adamw(copy.view()); }, "adamw", {{"clip", true}});
        run("adamw", "bf16 copy", 30, [&] { adamw(copy.view()); }, "adamw", {{"clip", false}});
        run("adamw, 8-bit state", "bf16 copy", 18 + 16.0 / 256, adamw_8bit, nullptr, bench::json::object(),
            {bench::local("adamw", [&] { adamw(copy.view()); })});
        run("adamw", "fp32", 28, [&] { adamw(ht::view<float, 1>{}); }, "adamw", {{"clip", false}});
        run("gradient norm", "fp32", 4, norm, "clip", bench::json::object());
        run("sgd, momentum", "bf16 copy", 22, sgd, "sgd", bench::json::object());
        run("adafactor", "bf16 copy", 26, adafactor, nullptr, bench::json::object());
        run_newton_schulz(with, o, 2304, 768);
        run_newton_schulz(with, o, 768, 768);
        run_newton_schulz(with, o, 768, 3072);
    });
}
