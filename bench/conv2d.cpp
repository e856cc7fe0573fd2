// SPDX-License-Identifier: MIT
/// \file
/// Times convolutions of ResNet-18's layers on the CPU, compared with PyTorch's, which are oneDNN's: forward, and the gradients of the
/// input and of the weight, each alone, in GFLOP/s and as a fraction of the peak from registers.
///
///     bench_conv2d --json conv2d.json --torch python3 --filter fp32
///     bench_conv2d --quick --images 1                       the smallest of them alone
///     bench_conv2d --plan 64x64x56x128x3 --padding 1 --device sm_90a      a GPU's plan, without one; times nothing
///
/// Images are (images, channels, height, width), contiguous, as in PyTorch by default; "torch channels_last" has the same numbers
/// with the channels last in memory, images and weights, which PyTorch recommends for convolutions. A layer has no bias, since a
/// batch norm follows. Operations are counted as 2 for each product of the definition, padding included, in each pass.

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <support/plans.hpp>
#include <support/program.hpp>
#include <support/random.hpp>

#include <halftone/kernel/conv2d/cpu.hpp>
#include <halftone/kernel/conv2d/device/explain.hpp>
#include <halftone/number.hpp>
#include <halftone/policy.hpp>

namespace {

namespace ht = halftone;
using ht::extent;

struct shape {
    extent images, channels, size, outputs, window, stride, padding, groups = 1;

    extent positions() const { return (size + 2 * padding - window) / stride + 1; }
    ht::shape<4> x() const { return {images, channels, size, size}; }
    ht::shape<4> weight() const { return {outputs, channels / groups, window, window}; }
    ht::shape<4> y() const { return {images, outputs, positions(), positions()}; }
    ht::conv2d_options options() const {
        return {.stride = {stride, stride}, .padding = {padding, padding}, .groups = groups};
    }
    double operations() const {
        return 2.0 * static_cast<double>(y().size()) * static_cast<double>(weight().size() / outputs);
    }
    std::string name() const {
        return std::to_string(images) + "x" + std::to_string(channels) + "x" + std::to_string(size) + "^2 to " +
               std::to_string(outputs) + ", " + std::to_string(window) + "^2" + (stride == 1 ? "" : " stride 2") +
               (groups == 1 ? "" : " groups " + std::to_string(groups));
    }
};

/// Every layer of ResNet-18 once, and MobileNet's pair of a depthwise one and one of a window of one element.
std::vector<shape> shapes(extent n, bool quick) {
    if (quick) return {{n, 512, 7, 512, 3, 1, 1}};
    return {{n, 3, 224, 64, 7, 2, 3},   {n, 64, 56, 64, 3, 1, 1},   {n, 64, 56, 128, 3, 2, 1},
            {n, 64, 56, 128, 1, 2, 0},  {n, 128, 28, 128, 3, 1, 1}, {n, 128, 28, 256, 3, 2, 1},
            {n, 128, 28, 256, 1, 2, 0}, {n, 256, 14, 256, 3, 1, 1}, {n, 256, 14, 512, 3, 2, 1},
            {n, 256, 14, 512, 1, 2, 0}, {n, 512, 7, 512, 3, 1, 1},  {n, 128, 28, 128, 3, 1, 1, 128},
            {n, 128, 28, 256, 1, 1, 0}};
}

template <class P, class T>
class runner {
  public:
    runner(const bench::session& with, const char* policy, const char* dtype)
        : with_(with), policy_(policy), dtype_(dtype) {}

    void run(const shape& s) {
        auto x = bench::random_values<T>(s.x().size(), 1), w = bench::random_values<T>(s.weight().size(), 2),
             dy = bench::random_values<T>(s.y().size(), 3);
        bench::values<T> y(dy.size()), dx(x.size());
        bench::values<float> dw(w.size());
        const ht::const_view<T, 4> of_x(x.data(), s.x()), of_w(w.data(), s.weight()), of_dy(dy.data(), s.y());
        time("conv2d forward", s, "forward", [&] {
            ht::conv2d<P>(with_.device, of_x, of_w, ht::view<T, 1>{}, ht::view<T, 4>(y.data(), s.y()), s.options());
        });
        if (s.channels > 3) {  // images take no gradient
            time("conv2d input gradient", s, "input", [&] {
                ht::conv2d_input<P>(with_.device, of_w, of_dy, ht::view<T, 4>(dx.data(), s.x()), s.options());
            });
        }
        time("conv2d weight gradient", s, "weight", [&] {
            ht::conv2d_weight<P>(with_.device, of_x, of_dy, ht::view<float, 4>(dw.data(), s.weight()), s.options());
        });
    }

  private:
    template <class Run>
    void time(const char* kernel, const shape& s, const char* pass, const Run& run) {
        const bench::case_name name{kernel, s.name(), policy_};
        if (!with_.report.wants(name)) return;
        std::vector<bench::contender> all{bench::local("halftone", run)};
        bench::json work{{"op", "conv2d"},         {"dtype", dtype_},      {"pass", pass},         {"images", s.images},
                         {"channels", s.channels}, {"size", s.size},       {"outputs", s.outputs}, {"window", s.window},
                         {"stride", s.stride},     {"padding", s.padding}, {"groups", s.groups}};
        with_.add_torch(all, work);
        work["channels_last"] = true;
        with_.add_torch(all, work, "torch channels_last");
        with_.tell_operations<T>(name, all, s.operations());
    }

    const bench::session& with_;
    const char *policy_, *dtype_;
};

/// The convolution that --plan and its companions ask for.
struct planned_shape {
    bench::gpu_options gpu;
    extent stride = 1, padding = 0, groups = 1;

    static constexpr extent most = 1 << 20;
    /// Images, channels, height and width, outputs, and the window's height and width; empty if `text` names none.
    static std::vector<extent> numbers_of(const std::string& text) { return bench::numbers_named(text, 5, most); }

    /// Throws for options that do not fit the shape, and for more elements than an int64 counts.
    ht::detail::conv2d_problem problem() const {
        const std::vector<extent> n = numbers_of(gpu.shape);
        const shape s{n[0], n[1], n[2], n[3], n[4], stride, padding, groups};
        const auto times = [](std::initializer_list<extent> all) {
            double product = 1;
            for (const extent each : all) product *= static_cast<double>(each);
            return product;
        };
        const extent positions = s.size + 2 * padding + 1;  // or fewer
        const double elements =
            std::max({times({s.channels, s.window, s.window, positions, positions}),
                      times({s.images, s.outputs, positions, positions}), times({s.images, s.channels, s.size, s.size}),
                      times({s.outputs, s.channels, s.window, s.window})});
        if (elements > 0x1p56) throw std::invalid_argument("a tensor of " + gpu.shape + " has too many elements");
        return ht::detail::conv2d_problem::of(
            "conv2d", s.x(), {s.outputs, std::max<extent>(1, s.channels / groups), s.window, s.window}, s.options());
    }
    void print() const {
        using namespace ht::kernel::on_device;
        using ht::detail::conv2d_pass;
        constexpr std::pair<conv2d_pass, const char*> passes[] = {{conv2d_pass::forward, "forward"},
                                                                  {conv2d_pass::input_gradient, "input gradient"},
                                                                  {conv2d_pass::weight_gradient, "weight gradient"}};
        const auto p = problem();
        for (const matmul_types& t : named_conv2d_types) {
            if (!gpu.wants(t.name)) continue;
            for (const auto& [pass, name] : passes) {
                std::printf("%s, %s, %s stride %lld padding %lld groups %lld, %s\n%s", t.name, gpu.device.c_str(),
                            gpu.shape.c_str(), static_cast<long long>(stride), static_cast<long long>(padding),
                            static_cast<long long>(groups), name,
                            explain_plan(dense_conv2d(p, pass, t, gpu.target())).c_str());
            }
        }
    }
    /// --plan, --device, --types, and the convolution's options.
    void add(CLI::App& app) {
        CLI::Option* const plan =
            app.add_option("--plan", gpu.shape,
                           "measures nothing, but prints how a GPU computes a convolution of images x channels x size "
                           "(height and "
                           "width) x outputs x window, given as 64x64x56x128x3")
                ->check([](const std::string& text) {
                    return numbers_of(text).empty()
                               ? "expected images, channels, size, outputs and window, as 64x64x56x128x3, not " + text
                               : std::string();
                });
        plan->needs(gpu.add(app, plan, ht::kernel::on_device::named_conv2d_types));
        app.add_option("--stride", stride, "with --plan")->check(CLI::Range(extent{1}, most))->needs(plan);
        app.add_option("--padding", padding, "with --plan: zeros on each side")
            ->check(CLI::Range(extent{0}, most))
            ->needs(plan);
        app.add_option("--groups", groups, "with --plan: of channels")->check(CLI::Range(extent{1}, most))->needs(plan);
        app.final_callback([this, &app] {  // known before the peaks are measured, which takes seconds
            if (gpu.shape.empty()) return;
            bench::refuse_beside_plan(app, {"--plan", "--device", "--types", "--stride", "--padding", "--groups"});
            try {
                print();
            } catch (const std::exception& e) {
                throw CLI::ValidationError("--plan", e.what());
            }
            throw CLI::Success();
        });
    }
};

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    bool quick = false;
    int images = 8;
    CLI::App app{"Times convolutions on the CPU, compared with PyTorch's."};
    app.add_flag("--quick", quick, "one layer alone");
    app.add_option("--images", images, "in a batch")->check(CLI::PositiveNumber);
    planned_shape planned;
    planned.add(app);
    return bench::run_program("bench_conv2d", app, o, argc, argv, [&](const bench::session& s) {
        s.report.note("operations", "2 for each product of the definition, padding included, in each pass");
        runner<ht::full_fp32, float> fp32(s, "fp32", "float32");
        runner<ht::amp_bf16, ht::bfloat16> bf16(s, "bf16", "bfloat16");
        for (const shape& each : shapes(images, quick)) fp32.run(each);
        for (const shape& each : shapes(images, quick)) bf16.run(each);
    });
}
