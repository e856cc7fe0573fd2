// SPDX-License-Identifier: MIT
/// \file
/// Memory-bound kernels: their bandwidth as a fraction of a copy's, which is measured in the same run.
// compile: with --full, at most 60 kernels.
#include "measure.cuh"

namespace bench {

gpu_description describe_gpu() {
    const ht::cuda gpu;
    int runtime = 0, driver = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
    return {gpu.properties().name, version(runtime), version(driver), gpu.architecture().version};
}

void check_gpu() {
    ht::cuda gpu;
    constexpr ht::extent count = 1 << 20;
    const ht::tensor<float, 1> x(gpu.memory(), {count}), y(gpu.memory(), {count});
    gpu.fill(x.data(), count, 2.5f);
    gpu.copy(y.data(), x.data(), count * sizeof(float));
    gpu.synchronize();
    float last = 0;
    gpu.memory().read(&last, y.data() + count - 1, sizeof last);
    if (last != 2.5f) ht::fail<ht::cuda_error>("a copy of 2.5 gave ", last);
}

double measure_copy(const settings& s) {
    ht::cuda gpu;
    const std::size_t bytes = s.is_tiny() ? 1 << 16 : std::min<std::size_t>(gpu.properties().totalGlobalMem / 8, std::size_t{2} << 30);
    const auto count = static_cast<ht::extent>(bytes / sizeof(float));
    const auto from = random_tensor<float, 1>(gpu, {count}, 1);
    const ht::tensor<float, 1> to(gpu.memory(), {count});
    // Whichever is faster: on an H100 CUDA's copy takes a quarter longer than a kernel does.
    const timing by_cuda = measure(gpu, s, 1, [&](int) { gpu.copy(to.data(), from.data(), bytes); }),
                 by_kernel = measure(gpu, s, 1, [&](int) { ht::map(gpu, [](auto x) { return x; }, from, to); });
    return 2 * static_cast<double>(bytes) / std::min(by_cuda.median, by_kernel.median);
}

namespace {

using bf16 = ht::bfloat16;

void bench_layer_norm(const settings& s, const peaks& p, listener& to, ht::extent rows, ht::extent width) {
    ht::cuda gpu;
    using layer_norm = ht::kernel::layer_norm<ht::cuda>;
    const double elements = static_cast<double>(rows * width);
    const std::string text = text_of(ht::shape<2>{rows, width});
    const int sets = sets_for(gpu, s, 6 * elements);
    struct buffers {
        ht::tensor<bf16, 2> x, y, dy, dx;
    };
    std::vector<buffers> all;
    for (int i = 0; i < sets; ++i) {
        const auto seed = static_cast<std::uint32_t>(i);
        all.push_back(
            {random_tensor<bf16, 2>(gpu, {rows, width}, seed), random_tensor<bf16, 2>(gpu, {rows, width}, seed),
             random_tensor<bf16, 2>(gpu, {rows, width}, seed + 77), random_tensor<bf16, 2>(gpu, {rows, width}, seed)});
    }
    const auto gain = random_tensor<float, 1>(gpu, {width}, 3), bias = random_tensor<float, 1>(gpu, {width}, 4);
    const auto dgain = random_tensor<float, 1>(gpu, {width}, 5), dbias = random_tensor<float, 1>(gpu, {width}, 6);
    const auto mean = random_tensor<float, 1>(gpu, {rows}, 7), rstd = random_tensor<float, 1>(gpu, {rows}, 8);
    timing t = measure(gpu, s, sets, [&](int i) {
        const buffers& b = all[static_cast<std::size_t>(i % sets)];
        layer_norm::forward<bf16, float, bf16>(gpu, {.x = b.x.const_view(), .gain = gain.const_view(), .bias = bias.const_view(), .y = b.y.view(), .mean = mean.view(), .rstd = rstd.view()});
    });
    to.on_row(
        make_row("layer_norm forward", text, "bf16, float gain", t, 4 * elements, p.copy_bytes, false));
    t = measure(gpu, s, sets, [&](int i) {
        const buffers& b = all[static_cast<std::size_t>(i % sets)];
        layer_norm::backward<bf16, float, bf16, float>(gpu, {.x = b.x.const_view(), .gain = gain.const_view(), .dy = b.dy.const_view(), .mean = mean.const_view(), .rstd = rstd.const_view(),
                                                             .dx = b.dx.view(), .dgain = dgain.view(), .dbias = dbias.view()});
    });
    to.on_row(make_row("layer_norm backward", text, "bf16, float gain", t, 6 * elements, p.copy_bytes,
                       false));
}

void bench_softmax(const settings& s, const peaks& p, listener& to, ht::extent rows, ht::extent width) {
    ht::cuda gpu;
    using softmax = ht::kernel::softmax<ht::cuda>;
    const double elements = static_cast<double>(rows * width);
    const std::string text = text_of(ht::shape<2>{rows, width});
    const int sets = sets_for(gpu, s, 4 * elements);
    std::vector<ht::tensor<bf16, 2>> x, y, dx;
    for (int i = 0; i < sets; ++i) {
        x.push_back(random_tensor<bf16, 2>(gpu, {rows, width}, static_cast<std::uint32_t>(i)));
        y.push_back(random_tensor<bf16, 2>(gpu, {rows, width}, static_cast<std::uint32_t>(i)));
        dx.push_back(random_tensor<bf16, 2>(gpu, {rows, width}, static_cast<std::uint32_t>(i)));
    }
    const auto at = [&](int i) { return static_cast<std::size_t>(i % sets); };
    timing t = measure(gpu, s, sets, [&](int i) {
        softmax::forward<bf16, bf16>(gpu, {.x = x[at(i)].const_view(), .y = y[at(i)].view()});
    });
    to.on_row(make_row("softmax forward", text, "bf16", t, 4 * elements, p.copy_bytes, false));
    t = measure(gpu, s, sets, [&](int i) {
        softmax::backward<bf16, bf16>(
            gpu, {.y = y[at(i)].const_view(), .dy = x[at(i)].const_view(), .dx = dx[at(i)].view()});
    });
    to.on_row(make_row("softmax backward", text, "bf16", t, 6 * elements, p.copy_bytes, false));
}

void bench_cross_entropy(const settings& s, const peaks& p, listener& to, ht::extent rows, ht::extent classes) {
    ht::cuda gpu;
    using cross_entropy = ht::kernel::cross_entropy<ht::cuda>;
    const double elements = static_cast<double>(rows * classes);
    const std::string text = text_of(ht::shape<2>{rows, classes});
    const int sets = sets_for(gpu, s, 4 * elements);
    std::vector<ht::tensor<bf16, 2>> x, dx;
    for (int i = 0; i < sets; ++i) {
        x.push_back(random_tensor<bf16, 2>(gpu, {rows, classes}, static_cast<std::uint32_t>(i)));
        dx.push_back(random_tensor<bf16, 2>(gpu, {rows, classes}, static_cast<std::uint32_t>(i)));
    }
    const ht::tensor<std::int32_t, 1> targets(gpu.memory(), {rows});
    std::vector<std::int32_t> host(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < host.size(); ++i)
        host[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(classes));
    gpu.memory().write(targets.data(), host.data(), host.size() * sizeof host[0]);
    const auto losses = random_tensor<float, 1>(gpu, {rows}, 1), maximum = random_tensor<float, 1>(gpu, {rows}, 2),
               sum = random_tensor<float, 1>(gpu, {rows}, 6);
    const auto loss = random_tensor<float, 1>(gpu, {1}, 3), count = random_tensor<float, 1>(gpu, {1}, 4),
               gradient = random_tensor<float, 1>(gpu, {1}, 5);
    const auto at = [&](int i) { return static_cast<std::size_t>(i % sets); };
    timing t = measure(gpu, s, sets, [&](int i) {
        cross_entropy::forward(gpu, ht::kernel::cross_entropy_forward<bf16>{.logits = x[at(i)].const_view(),
                                                                            .targets = targets.const_view(),
                                                                            .losses = losses.view(),
                                                                            .maximum = maximum.view(),
                                                                            .sum = sum.view(),
                                                                            .loss = loss.view(),
                                                                            .count = count.view()});
    });
    to.on_row(make_row("cross_entropy forward", text, "bf16", t, 2 * elements, p.copy_bytes, false));
    t = measure(gpu, s, sets, [&](int i) {
        cross_entropy::backward(gpu, ht::kernel::cross_entropy_backward<bf16, bf16>{.logits = x[at(i)].const_view(),
                                                                                    .targets = targets.const_view(),
                                                                                    .maximum = maximum.const_view(),
                                                                                    .sum = sum.const_view(),
                                                                                    .gradient = gradient.const_view(),
                                                                                    .count = count.const_view(),
                                                                                    .dlogits = dx[at(i)].view()});
    });
    to.on_row(make_row("cross_entropy backward", text, "bf16", t, 4 * elements, p.copy_bytes, false));
}

void bench_adamw(const settings& s, const peaks& p, listener& to, ht::extent count) {
    ht::cuda gpu;
    using ht::kernel::step_record, ht::kernel::gradient_record, ht::kernel::gradient_factors;
    const auto master = random_tensor<float, 1>(gpu, {count}, 1), gradient = random_tensor<float, 1>(gpu, {count}, 2);
    const auto first = random_tensor<float, 1>(gpu, {count}, 3);
    const auto copy = random_tensor<bf16, 1>(gpu, {count}, 4);
    const ht::tensor<float, 1> second(gpu.memory(), {count});
    gpu.fill(second.data(), count, 0.25f);
    const auto step = on_gpu(gpu, step_record{.steps = 3, .lr = 1e-4});
    const auto record = on_gpu(gpu, gradient_record{});
    const ht::kernel::optimizer_step_arguments<ht::kernel::adamw_rule, float, bf16, float, float> a{.master = master.view(), .copy = copy.view(), .gradient = gradient.const_view(), .moments = {first.view(), second.view()},
                                                                   .rates = {.weight_decay = 0.1}, .factors = &record.data()->factors, .step = step.data()};
    const timing t =
        measure(gpu, s, 1, [&](int) { ht::kernel::optimizer_step<ht::cuda>::run<ht::rounding::nearest_even>(gpu, a); });
    to.on_row(make_row("adamw", std::to_string(count), "float master, bf16 copy", t, 30 * static_cast<double>(count),
                       p.copy_bytes, false));
    const ht::tensor<std::int32_t, 1> found(gpu.memory(), {1});
    const timing n = measure(gpu, s, 1, [&](int) {
        ht::kernel::gradient_norm<ht::cuda>::add(gpu, gradient.const_view(), record.data(), found.data());
    });
    to.on_row(make_row("gradient_norm", std::to_string(count), "float", n, 4 * static_cast<double>(count), p.copy_bytes,
                       false));
}

void bench_map(const settings& s, const peaks& p, listener& to, ht::extent count) {
    ht::cuda gpu;
    const int sets = sets_for(gpu, s, 6.0 * static_cast<double>(count));
    std::vector<ht::tensor<bf16, 1>> x, y, z;
    for (int i = 0; i < sets; ++i) {
        x.push_back(random_tensor<bf16, 1>(gpu, {count}, static_cast<std::uint32_t>(i)));
        y.push_back(random_tensor<bf16, 1>(gpu, {count}, static_cast<std::uint32_t>(i) + 9));
        z.push_back(random_tensor<bf16, 1>(gpu, {count}, 1));
    }
    const timing t = measure(gpu, s, sets, [&](int i) {
        const auto k = static_cast<std::size_t>(i % sets);
        ht::map(gpu, [](auto a, auto b) { return a * b + 0.5f * ht::tanh(a); }, x[k], y[k], z[k]);
    });
    to.on_row(make_row("map x y + tanh(x) / 2", std::to_string(count), "bf16", t, 6.0 * static_cast<double>(count),
                       p.copy_bytes, false));
}

}  // namespace

void bench_rows(const settings& s, const peaks& p, listener& to) {
    if (is_wanted(s, "layer_norm")) {
        if (!s.is_once()) bench_layer_norm(s, p, to, s.pick(8192, 8192, 8), 768);
        if (s.is_all() || s.is_thin() || s.is_once()) bench_layer_norm(s, p, to, 16384, 4096);
    }
    if (is_wanted(s, "softmax")) {
        bench_softmax(s, p, to, s.pick(32768, 32768, 8), 1024);
        if (s.is_all() || s.is_thin()) bench_softmax(s, p, to, 8192, 16384);
    }
    if (is_wanted(s, "cross_entropy")) {
        bench_cross_entropy(s, p, to, s.pick(8192, 8192, 4), s.pick(50304, 50304, 512));
        if (s.is_all() || s.is_thin()) bench_cross_entropy(s, p, to, 8192, 50257);
    }
    if (is_wanted(s, "adamw")) bench_adamw(s, p, to, s.pick(124'439'808, 1 << 24, 1 << 12));
    if (is_wanted(s, "map")) bench_map(s, p, to, s.pick(1 << 26, 1 << 26, 1 << 12));
}

}  // namespace bench
