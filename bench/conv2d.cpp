// SPDX-License-Identifier: MIT
/// \file
/// Times convolutions of ResNet-18's layers on the CPU, compared with PyTorch's, which are oneDNN's: forward, and the gradients of the
/// input and of the weight, each alone, in GFLOP/s and as a fraction of the peak from registers.
///
///     bench_conv2d --json conv2d.json --torch python3 --filter fp32
///     bench_conv2d --quick --images 1                       the smallest of them alone
///
/// Images are (images, channels, height, width), contiguous, as in PyTorch by default; "torch channels_last" has the same numbers
/// with the channels last in memory, images and weights, which PyTorch recommends for convolutions. A layer has no bias, since a
/// batch norm follows. Operations are counted as 2 for each product of the definition, padding included, in each pass.

#include <support/program.hpp>
#include <support/random.hpp>

#include <halftone/kernel/conv2d/cpu.hpp>
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

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    bool quick = false;
    int images = 8;
    CLI::App app{"Times convolutions on the CPU, compared with PyTorch's."};
    app.add_flag("--quick", quick, "one layer alone");
    app.add_option("--images", images, "in a batch")->check(CLI::PositiveNumber);
    return bench::run_program("bench_conv2d", app, o, argc, argv, [&](const bench::session& s) {
        s.report.note("operations", "2 for each product of the definition, padding included, in each pass");
        runner<ht::full_fp32, float> fp32(s, "fp32", "float32");
        runner<ht::amp_bf16, ht::bfloat16> bf16(s, "bf16", "bfloat16");
        for (const shape& each : shapes(images, quick)) fp32.run(each);
        for (const shape& each : shapes(images, quick)) bf16.run(each);
    });
}
