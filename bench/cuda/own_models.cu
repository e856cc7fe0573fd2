// SPDX-License-Identifier: MIT
/// \file
/// Operations of models of one's own: reductions along axes, gathers, copies of other strides, rotary embedding, norms and
/// pooling of images as fractions of a copy's bandwidth; convolutions in operations a second; AdamW with 8-bit moments.
/// bench/peers/torch_gpu.py has the same shapes.
// compile: with --full, at most 150 kernels.
#include <halftone/exec/cuda/sort.cuh>
#include <halftone/kernel/optimizer_step/eight_bit/device.hpp>

#include "measure.cuh"

namespace bench {

namespace {

using bf16 = ht::bfloat16;

/// As many tensors as are needed so that the cache does not hold them.
template <class T, int Rank>
class rotated {
  public:
    rotated(ht::cuda& gpu, const ht::shape<Rank>& shape, int sets, std::uint32_t seed) {
        for (int i = 0; i < sets; ++i) all_.push_back(random_tensor<T, Rank>(gpu, shape, seed + static_cast<std::uint32_t>(i)));
    }
    const ht::tensor<T, Rank>& operator[](int i) const { return all_[static_cast<std::size_t>(i) % all_.size()]; }

  private:
    std::vector<ht::tensor<T, Rank>> all_;
};

/// One GPU, what is measured, and where the rows go.
struct bench_case {
    ht::cuda& gpu;
    const settings& s;
    const peaks& p;
    listener& to;

    /// Times call(i), which moves `bytes` through memory.
    template <class Call>
    void bytes(const std::string& kernel, const std::string& shape, int sets, double bytes, const Call& call) const {
        to.on_row(make_row(kernel, shape, "bf16", measure(gpu, s, sets, call), bytes, p.copy_bytes, false));
    }
    int sets(double bytes) const { return sets_for(gpu, s, bytes); }
};

void bench_reductions(const bench_case& c, ht::extent rows, ht::extent width) {
    const double elements = static_cast<double>(rows * width);
    const int sets = c.sets(4 * elements);
    const ht::shape<2> shape{rows, width};
    const rotated<bf16, 2> x(c.gpu, shape, sets, 1), y(c.gpu, shape, sets, 100);
    const auto by_row = random_tensor<float, 1>(c.gpu, {rows}, 2), by_column = random_tensor<float, 1>(c.gpu, {width}, 3);
    const std::string text = text_of(shape);
    c.bytes("reduction, sum of rows", text, sets, 2 * elements,
            [&](int i) { ht::sum(c.gpu, x[i], ht::axes<1>, by_row); });
    c.bytes("reduction, sum of columns", text, sets, 2 * elements,
            [&](int i) { ht::sum(c.gpu, x[i], ht::axes<0>, by_column); });
    c.bytes("reduction, logsumexp of rows", text, sets, 2 * elements,
            [&](int i) { ht::logsumexp(c.gpu, x[i], ht::axes<1>, by_row); });
    c.bytes("reduction, cumsum of rows", text, sets, 4 * elements,
            [&](int i) { ht::cumsum(c.gpu, x[i], ht::axes<1>, y[i]); });
}

void bench_gather(const bench_case& c, ht::extent rows, ht::extent width) {
    const double elements = static_cast<double>(rows * width);
    const int sets = c.sets(4 * elements);
    const rotated<bf16, 2> x(c.gpu, {rows, width}, sets, 1), y(c.gpu, {rows, width}, sets, 100);
    const ht::tensor<std::int32_t, 1> index(c.gpu.memory(), {rows});
    std::vector<std::int32_t> host(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < host.size(); ++i)
        host[i] = static_cast<std::int32_t>(i * 2654435761u % static_cast<std::size_t>(rows));
    c.gpu.memory().write(index.data(), host.data(), host.size() * sizeof host[0]);
    const std::string text = text_of(ht::shape<2>{rows, width});
    const auto numbers = ht::as_view(index);
    c.bytes("gather, index_select", text, sets, 4 * elements,
            [&](int i) { ht::index_select(c.gpu, x[i], ht::axes<0>, numbers, y[i]); });
    c.bytes("gather, index_add", text, sets, 6 * elements, [&](int i) {
        ht::index_add(c.gpu, x[i], ht::axes<0>, numbers, y[i], ht::write_mode::add);
    });
}

void bench_copies(const bench_case& c, ht::extent batch, ht::extent time, ht::extent heads, ht::extent head_size) {
    const ht::shape<4> shape{batch, time, heads, head_size};
    const double elements = static_cast<double>(batch * time * heads * head_size);
    const int sets = c.sets(4 * elements);
    const rotated<bf16, 4> x(c.gpu, shape, sets, 1), y(c.gpu, shape, sets, 100);
    const std::string text = text_of(shape);
    const auto heads_first = [&](const ht::tensor<bf16, 4>& of) {
        return ht::const_view<bf16, 4>(of.data(), {batch, heads, time, head_size},
                                       {time * heads * head_size, head_size, heads * head_size, 1});
    };
    c.bytes("copy, heads before time", text, sets, 4 * elements, [&](int i) {
        ht::contiguous(c.gpu, heads_first(x[i]), ht::view<bf16, 4>(y[i].data(), {batch, heads, time, head_size}));
    });
    const ht::extent rows = batch * time, width = heads * head_size;
    c.bytes("copy, matrix transposed", text_of(ht::shape<2>{rows, width}), sets, 4 * elements, [&](int i) {
        ht::contiguous(c.gpu, ht::const_view<bf16, 2>(x[i].data(), {width, rows}, {1, width}),
                       ht::view<bf16, 2>(y[i].data(), {width, rows}));
    });
    const auto table = ht::rotary_table(c.gpu, time, head_size);
    c.bytes("rotary", text, sets, 4 * elements, [&](int i) { ht::rotary(c.gpu, x[i], table, y[i]); });
}

void bench_images(const bench_case& c, ht::extent images, ht::extent channels, ht::extent size) {
    const ht::shape<4> shape{images, channels, size, size}, half{images, channels, size / 2, size / 2};
    const double elements = static_cast<double>(images * channels * size * size);
    const int sets = c.sets(4 * elements);
    const rotated<bf16, 4> x(c.gpu, shape, sets, 1), y(c.gpu, shape, sets, 100);
    const auto vector = [&](std::uint32_t seed) { return random_tensor<float, 1>(c.gpu, {channels}, seed); };
    const auto running_mean = vector(1), running_var = vector(2), gain = vector(3), bias = vector(4), mean = vector(5),
               rstd = vector(6);
    const std::string text = text_of(shape);
    c.bytes("batch_norm, training", text, sets, 6 * elements, [&](int i) {
        ht::batch_norm(c.gpu, x[i], running_mean, running_var, gain, bias, y[i], mean, rstd, {.training = true});
    });
    const ht::tensor<bf16, 4> smaller(c.gpu.memory(), half);
    c.bytes("max_pool2d, 2x2", text, sets, 2.5 * elements,
            [&](int i) { ht::max_pool2d(c.gpu, x[i], {.kernel_size = 2, .stride = 2}, smaller); });
}

void bench_conv2d(const bench_case& c, ht::extent images, ht::extent channels, ht::extent size, ht::extent outputs,
                  ht::extent taps, ht::extent stride) {
    const ht::conv2d_options options{.stride = {stride, stride}, .padding = {taps / 2, taps / 2}};
    const ht::extent positions = (size + 2 * (taps / 2) - taps) / stride + 1;
    const double flops = 2.0 * static_cast<double>(images * outputs * positions * positions * channels * taps * taps);
    const int sets =
        c.sets(2.0 * static_cast<double>(images * (channels * size * size + outputs * positions * positions)));
    const rotated<bf16, 4> x(c.gpu, {images, channels, size, size}, sets, 1),
        y(c.gpu, {images, outputs, positions, positions}, sets, 100);
    const auto weight = random_tensor<bf16, 4>(c.gpu, {outputs, channels, taps, taps}, 7);
    const auto bias = random_tensor<bf16, 1>(c.gpu, {outputs}, 8);
    const std::string text = text_of(ht::shape<4>{images, channels, size, size})
                                 .append(", ").append(std::to_string(outputs))
                                 .append(" of ").append(text_of(ht::shape<2>{taps, taps}))
                                 .append(", stride ").append(std::to_string(stride));
    const auto add = [&](const char* kernel, const auto& call) {
        c.to.on_row(make_row(kernel, text, "bf16", measure(c.gpu, c.s, sets, call), flops, c.p.bf16_flops, true));
    };
    add("conv2d forward", [&](int i) { ht::conv2d<ht::amp_bf16>(c.gpu, x[i], weight, bias, y[i], options); });
    add("conv2d input gradient", [&](int i) { ht::conv2d_input<ht::amp_bf16>(c.gpu, weight, y[i], x[i], options); });
    add("conv2d weight gradient", [&](int i) { ht::conv2d_weight<ht::amp_bf16>(c.gpu, x[i], y[i], weight, options); });
}

void bench_adamw_8bit(const bench_case& c, ht::extent count) {
    namespace kernel = ht::kernel;
    const auto master = random_tensor<float, 1>(c.gpu, {count}, 1), gradient = random_tensor<float, 1>(c.gpu, {count}, 2);
    const auto copy = random_tensor<bf16, 1>(c.gpu, {count}, 4);
    const ht::shape<1> blocks{kernel::eight_bit_blocks(count)};
    const ht::tensor<std::uint8_t, 1> first(c.gpu.memory(), {count}), second(c.gpu.memory(), {count});
    const ht::tensor<float, 1> first_max(c.gpu.memory(), blocks), second_max(c.gpu.memory(), blocks);
    for (const auto& codes : {first.data(), second.data()}) c.gpu.fill(codes, count, std::uint8_t{0});
    for (const auto& largest : {first_max.data(), second_max.data()}) c.gpu.fill(largest, blocks[0], 0.0f);
    const auto step = on_gpu(c.gpu, kernel::step_record{.steps = 3, .lr = 1e-4});
    const auto record = on_gpu(c.gpu, kernel::gradient_record{});
    const auto maps = on_gpu(c.gpu, kernel::make_dynamic_maps());
    const kernel::eight_bit_step_arguments<kernel::adamw_rule, float, bf16, float> a{
        .step = {.master = master.view(), .copy = copy.view(), .gradient = gradient.const_view(),
                 .rates = {.weight_decay = 0.1}, .factors = &record.data()->factors, .step = step.data()},
        .codes = {first.view(), second.view()},
        .absmax = {first_max.view(), second_max.view()},
        .maps = maps.data()};
    const timing t = measure(c.gpu, c.s, 1, [&](int) {
        kernel::eight_bit_step<ht::cuda>::run<ht::rounding::nearest_even>(c.gpu, a);
    });
    c.to.on_row(make_row("adamw_8bit", std::to_string(count), "float master, bf16 copy, 8-bit moments", t,
                         18 * static_cast<double>(count), c.p.copy_bytes, false));
}

}  // namespace

void bench_own_models(const settings& s, const peaks& p, listener& to) {
    ht::cuda gpu;
    const bench_case c{gpu, s, p, to};
    if (is_wanted(s, "reduction")) bench_reductions(c, s.pick(16384, 4096, 8), s.pick(4096, 1024, 64));
    if (is_wanted(s, "gather")) bench_gather(c, s.pick(16384, 4096, 8), s.pick(4096, 1024, 64));
    if (is_wanted(s, "copy") || is_wanted(s, "rotary")) bench_copies(c, s.pick(16, 4, 2), s.pick(1024, 256, 8), 32, 128);
    if (is_wanted(s, "pool") || is_wanted(s, "batch_norm")) bench_images(c, s.pick(64, 8, 2), 64, s.pick(112, 56, 8));
    if (is_wanted(s, "conv2d")) {
        const ht::extent images = s.pick(64, 8, 1);
        bench_conv2d(c, images, 64, s.pick(56, 56, 8), 64, 3, 1);
        if (s.is_all() || s.is_thin()) {
            bench_conv2d(c, images, 128, 28, 128, 3, 1);
            bench_conv2d(c, images, 256, 14, 512, 1, 2);
            bench_conv2d(c, images, 512, 7, 512, 3, 1);
        }
    }
    if (is_wanted(s, "adamw_8bit")) bench_adamw_8bit(c, s.pick(124'439'808, 1 << 24, 1 << 12));
}

}  // namespace bench
