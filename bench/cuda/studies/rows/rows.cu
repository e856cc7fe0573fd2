// SPDX-License-Identifier: MIT
/// \file
/// Row kernels on a GPU, variant against variant; README.md says which, and what was predicted for each.
///
///     ./rows_study [PART OF A TITLE...]
///
/// With -DSTUDY_SHIPPED_ONLY the program calls only what the library offers, so that it compiles with the headers of other
/// commits, too.
#include <cstdio>
#include <cstring>
#include <string>

#include "../../measure.cuh"
#include "definition.cuh"
#ifndef STUDY_SHIPPED_ONLY
#include "several_rows.cuh"
#endif

namespace study {

using bench::random_tensor;
using ht::write_mode;

struct program {
    ht::cuda gpu{};
    bench::settings how{};
    std::vector<std::string> wanted{};
    double copied_a_second = 1;

    bool wants(const std::string& title) const {
        return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& part) {
                   return title.find(part) != std::string::npos;
               });
    }
    /// Times run(i), which moves `bytes`, alternating between sets of buffers, and counts what is wrong after run(0).
    template <class Run, class Check>
    void row(const std::string& title, int sets, double bytes, const Run& run, const Check& check) {
        if (!wants(title)) return;
        const bench::timing t = bench::measure(gpu, how, sets, [&](int i) { run(i % sets); });
        run(0);
        gpu.synchronize();
        std::printf("| %-64s | %8.2f | %8.2f | %8.2f | %5.0f | %5.1f | %u |\n", title.c_str(), 1e6 * t.median,
                    1e6 * t.p10, 1e6 * t.p90, bytes / t.median / 1e9, 100 * bytes / t.median / copied_a_second,
                    check());
        std::fflush(stdout);
    }
};

std::string text_of(extent rows, extent width) { return std::to_string(rows) + "x" + std::to_string(width); }

void measure_copy(program& p) {
    constexpr extent count = extent{1} << 29;
    const auto from = random_tensor<float, 1>(p.gpu, {count}, 1);
    const ht::tensor<float, 1> to(p.gpu.memory(), {count});
    const bench::timing t = bench::measure(p.gpu, p.how, 1, [&](int) {
        ht::map(
            p.gpu, [](auto x) { return x; }, from, to);
    });
    p.copied_a_second = 2 * sizeof(float) * static_cast<double>(count) / t.median;
    std::printf("%s, copy %.0f GB/s\n\n", p.gpu.properties().name, p.copied_a_second / 1e9);
    std::printf("| %-64s | %8s | %8s | %8s | %5s | %5s | wrong |\n", "what", "us", "p10", "p90", "GB/s", "%");
    std::printf("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
}

/// What memory gives for so many elements, to a kernel without sums: one tensor read and one written; two and one.
void bench_ceilings(program& p, extent rows, extent width) {
    const extent count = rows * width;
    const int sets = bench::sets_for(p.gpu, p.how, 6 * static_cast<double>(count));
    std::vector<ht::tensor<bf16, 1>> x, y, z;
    for (int i = 0; i < sets; ++i) {
        x.push_back(random_tensor<bf16, 1>(p.gpu, {count}, static_cast<std::uint32_t>(i)));
        y.push_back(random_tensor<bf16, 1>(p.gpu, {count}, static_cast<std::uint32_t>(i) + 9));
        z.push_back(random_tensor<bf16, 1>(p.gpu, {count}, 1));
    }
    const auto k = [](int i) { return static_cast<std::size_t>(i); };
    const auto right = [] { return 0u; };
    p.row(
        "x copied " + text_of(rows, width), sets, 4.0 * static_cast<double>(count),
        [&](int i) {
            ht::map(
                p.gpu, [](auto a) { return a; }, x[k(i)], z[k(i)]);
        },
        right);
    p.row(
        "x + y " + text_of(rows, width), sets, 6.0 * static_cast<double>(count),
        [&](int i) {
            ht::map(
                p.gpu, [](auto a, auto b) { return a + b; }, x[k(i)], y[k(i)], z[k(i)]);
        },
        right);
}

#ifndef STUDY_SHIPPED_ONLY
/// A kernel that waits for the one before it on the GPU itself: its blocks start while that one's last blocks run
/// (programmatic dependent launch).
template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, ht::detail::min_blocks_of<Kernel>())
    dependent_entry(const __grid_constant__ Kernel kernel) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    kernel(ht::detail::cuda_thread{});
}
enum class launches { in_order, dependent };

template <class Kernel>
void launch(ht::cuda& gpu, launches how, const Kernel& kernel) {
    if (how == launches::in_order) return gpu.launch(kernel);
    constexpr std::size_t shared_bytes = (Kernel::shared_bytes + 15) / 16 * 16;
    const grid_shape grid = kernel.grid();
    using ht::detail::cuda_check;
    if (shared_bytes > 48 * 1024) {
        cuda_check(cudaFuncSetAttribute(dependent_entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(shared_bytes)),
                   "cudaFuncSetAttribute");
    }
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t of{};
    of.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
    of.blockDim = dim3(Kernel::threads);
    of.dynamicSmemBytes = shared_bytes;
    of.stream = gpu.stream();
    of.attrs = &attribute;
    of.numAttrs = 1;
    cuda_check(cudaLaunchKernelEx(&of, dependent_entry<Kernel>, kernel), "cudaLaunchKernelEx");
}

/// A kernel of which a multiprocessor should hold this number of blocks.
template <class Kernel, int Blocks>
struct with_blocks : Kernel {
    static constexpr int min_blocks = Blocks;
};
#endif

class layer_norms {
  public:
    layer_norms(program& with, extent of_rows, extent of_width) : p(with), rows(of_rows), width(of_width) {
        for (int i = 0; i < sets; ++i) {
            const auto seed = static_cast<std::uint32_t>(i);
            x.push_back(random_tensor<bf16, 2>(p.gpu, {rows, width}, seed));
            out.push_back(random_tensor<bf16, 2>(p.gpu, {rows, width}, seed));
            dy.push_back(random_tensor<bf16, 2>(p.gpu, {rows, width}, seed + 77));
        }
        define_layer_norm<<<blocks(rows), definition_threads, 0, p.gpu.stream()>>>(
            x[0].data(), gain.data(), bias.data(), want.data(), mean.data(), rstd.data(), width);
    }
    void forward() {
        using layer_norm = ht::kernel::layer_norm<ht::cuda>;
        forward_row("as it ships", [&](std::size_t i) {
            layer_norm::forward<bf16, float, bf16>(p.gpu, {.x = x[i].const_view(),
                                                           .gain = gain.const_view(),
                                                           .bias = bias.const_view(),
                                                           .y = out[i].view(),
                                                           .mean = mean.view(),
                                                           .rstd = rstd.view()});
        });
#ifndef STUDY_SHIPPED_ONLY
        if (width <= 1024) {
            several<4, 1>("a row a warp", launches::in_order);
            several<4, 2>("2 rows a warp", launches::in_order);
            several<4, 4>("4 rows a warp", launches::in_order);
            several<3, 2>("2 rows a warp, 3 vectors a lane", launches::in_order);
            several<4, 1>("a row a warp, dependent launches", launches::dependent);
            several<4, 2>("2 rows a warp, dependent launches", launches::dependent);
        } else {
            blockwise<128, 4>("128 threads");
            blockwise<256, 2>("256 threads");
        }
#endif
    }
    void backward() {
        define_layer_norm_dx<<<blocks(rows), definition_threads, 0, p.gpu.stream()>>>(
            x[0].data(), dy[0].data(), gain.data(), mean.data(), rstd.data(), want.data(), width);
        define_layer_norm_sums<<<blocks(width), definition_threads, 0, p.gpu.stream()>>>(
            x[0].data(), dy[0].data(), mean.data(), rstd.data(), want_dgain.data(), want_dbias.data(), rows, width);
        using layer_norm = ht::kernel::layer_norm<ht::cuda>;
        backward_row("as it ships", [&](std::size_t i) {
            layer_norm::backward<bf16, float, bf16, float>(p.gpu, {.x = x[i].const_view(),
                                                                   .gain = gain.const_view(),
                                                                   .dy = dy[i].const_view(),
                                                                   .mean = mean.const_view(),
                                                                   .rstd = rstd.const_view(),
                                                                   .dx = out[i].view(),
                                                                   .dgain = dgain.view(),
                                                                   .dbias = dbias.view(),
                                                                   .parameter_mode = write_mode::overwrite});
        });
#ifndef STUDY_SHIPPED_ONLY
        if (width <= 1024) {
            pieces<32, 4, 1, 2>("8 warps, a row in flight", 256);
            pieces<32, 4, 2, 2>("8 warps, 2 rows in flight", 256);
            pieces<32, 4, 3, 2>("8 warps, 3 rows in flight", 256);
            pieces<32, 4, 2, 2>("8 warps, 2 rows in flight, 128 pieces", 128);
            pieces<32, 3, 2, 2>("8 warps, 2 rows in flight, 3 vectors a lane", 256);
            pieces<128, 1, 3, 4>("128 threads, 3 rows in flight", 256);
            pieces<128, 1, 3, 4>("128 threads, 3 rows in flight, 512 pieces", 512);
            pieces<32, 4, 2, 2>("8 warps, 2 rows in flight, dependent launches", 256, launches::dependent);
            pieces<32, 4, 2, 2>("8 warps, 2 rows in flight, rows alone", 256, launches::in_order, false);
        } else {
            pieces<256, 2, 1, 2>("256 threads, a row in flight", 256);
            pieces<256, 2, 2, 2>("256 threads, 2 rows in flight", 256);
            pieces<256, 2, 3, 2>("256 threads, 3 rows in flight", 256);
            pieces<256, 2, 1, 3>("256 threads, a row in flight, 3 blocks, 396 pieces", 396);
            pieces<256, 2, 2, 2>("256 threads, 2 rows in flight, 264 pieces", 264);
            pieces<128, 4, 2, 2>("128 threads, 2 rows in flight", 256);
            pieces<512, 1, 3, 1>("512 threads, 3 rows in flight", 132);
            pieces<256, 2, 2, 2>("256 threads, 2 rows in flight, rows alone", 256, launches::in_order, false);
        }
#endif
    }

  private:
    static unsigned blocks(extent count) { return static_cast<unsigned>(count); }

    template <class Run>
    void forward_row(const std::string& what, const Run& run) {
        p.row(
            "layer_norm forward " + text_of(rows, width) + " " + what, sets, 4 * elements,
            [&](int i) { run(static_cast<std::size_t>(i)); },
            [&] { return wrong_of(p.gpu, out[0].data(), want.data(), rows * width, 0.004f, 1e-5f); });
    }
    template <class Run>
    void backward_row(const std::string& what, const Run& run, bool with_sums = true) {
        p.row(
            "layer_norm backward " + text_of(rows, width) + " " + what, sets, 6 * elements,
            [&](int i) { run(static_cast<std::size_t>(i)); },
            [&] {
                unsigned wrong = wrong_of(p.gpu, out[0].data(), want.data(), rows * width, 0.004f, 3e-5f);
                if (!with_sums) return wrong;
                wrong += wrong_of(p.gpu, dgain.data(), want_dgain.data(), width, 1e-5f, 2e-3f);
                return wrong + wrong_of(p.gpu, dbias.data(), want_dbias.data(), width, 1e-5f, 2e-3f);
            });
    }
#ifndef STUDY_SHIPPED_ONLY
    template <int Held, int Rows>
    void several(const std::string& what, launches how) {
        forward_row(what, [&, how](std::size_t i) {
            launch(p.gpu, how,
                   several_rows_kernel<bf16, float, bf16, 8, Held, Rows>{{x[i].data(), rows * width},
                                                                         {gain.data(), width},
                                                                         {bias.data(), width},
                                                                         {out[i].data(), rows * width},
                                                                         {mean.data(), rows},
                                                                         {rstd.data(), rows},
                                                                         rows,
                                                                         width,
                                                                         1e-5f});
        });
    }
    template <int Threads, int Held>
    void blockwise(const std::string& what) {
        forward_row(what, [&](std::size_t i) {
            p.gpu.launch(norm_kernel<true, bf16, float, bf16, 8, Threads, Held>{
                .x = {x[i].data(), rows * width},
                .gain = {gain.data(), width},
                .bias = {bias.data(), width},
                .y = {out[i].data(), rows * width},
                .mean = {mean.data(), rows},
                .rstd = {rstd.data(), rows},
                .rows = rows,
                .width = width,
                .x_stride = width,
                .y_stride = width,
                .epsilon = 1e-5f,
                .limits = {ht::kernel::sum_depth(width), 1e-5f}});
        });
    }
    template <int Threads, int Held, int Stages, int Blocks>
    void pieces(const std::string& what, extent most, launches how = launches::in_order, bool with_sums = true) {
        using kernel =
            with_blocks<norm_piece_kernel<norm_row<true>, bf16, float, bf16, 8, Threads, Held, Stages>, Blocks>;
        const extent each = (rows + most - 1) / most, count = (rows + each - 1) / each, floats = count * width;
        float *const first = partials.data(), *const second = first + floats;
        backward_row(
            what,
            [&, how](std::size_t i) {
                const norm_gradients<bf16, float, bf16> all{.x = {x[i].data(), rows * width},
                                                            .gain = {gain.data(), width},
                                                            .dy = {dy[i].data(), rows * width},
                                                            .mean = {mean.data(), rows},
                                                            .rstd = {rstd.data(), rows},
                                                            .dx = {out[i].data(), rows * width},
                                                            .rows = rows,
                                                            .width = width,
                                                            .x_stride = width,
                                                            .dy_stride = width,
                                                            .dx_stride = width,
                                                            .mode = write_mode::overwrite};
                launch(p.gpu, how, kernel{{all, {rows, each, count}, {first, floats}, {second, floats}}});
                if (!with_sums) return;
                launch(p.gpu, how,
                       add_partials_kernel<float>{{first, floats},
                                                  {second, floats},
                                                  count,
                                                  width,
                                                  {dgain.data(), width},
                                                  {dbias.data(), width},
                                                  write_mode::overwrite});
            },
            with_sums);
    }
#endif

    program& p;
    extent rows, width;
    double elements = static_cast<double>(rows * width);
    int sets = bench::sets_for(p.gpu, p.how, 6 * elements);
    std::vector<ht::tensor<bf16, 2>> x{}, out{}, dy{};
    ht::tensor<float, 1> gain = random_tensor<float, 1>(p.gpu, {width}, 3),
                         bias = random_tensor<float, 1>(p.gpu, {width}, 4), dgain{p.gpu.memory(), {width}},
                         dbias{p.gpu.memory(), {width}}, mean{p.gpu.memory(), {rows}}, rstd{p.gpu.memory(), {rows}},
                         want_dgain{p.gpu.memory(), {width}}, want_dbias{p.gpu.memory(), {width}},
                         partials{p.gpu.memory(), {2 * 512 * width}};
    ht::tensor<float, 2> want{p.gpu.memory(), {rows, width}};
};

class softmaxes {
  public:
    softmaxes(program& with, extent of_rows, extent of_width) : p(with), rows(of_rows), width(of_width) {}

    void forward() {
        define_softmax<<<static_cast<unsigned>(rows), definition_threads, 0, p.gpu.stream()>>>(x.data(), want.data(),
                                                                                               width);
        forward_row("as it ships", [&] {
            ht::kernel::softmax<ht::cuda>::forward<bf16, bf16>(p.gpu, {.x = x.const_view(), .y = y.view()});
        });
#ifndef STUDY_SHIPPED_ONLY
        forward_with<256, 8, 1>("256 threads, 8 vectors");
        forward_with<512, 4, 1>("512 threads, 4 vectors");
        forward_with<512, 4, 2>("512 threads, 4 vectors, 2 blocks");
        forward_with<1024, 2, 1>("1024 threads, 2 vectors");
        forward_with<1024, 2, 2>("1024 threads, 2 vectors, 2 blocks");
        forward_with<256, 0, 1>("256 threads, streamed");
        forward_with<1024, 0, 1>("1024 threads, streamed");
#endif
    }
    /// Of the y that forward has left.
    void backward() {
        define_softmax_dx<<<static_cast<unsigned>(rows), definition_threads, 0, p.gpu.stream()>>>(y.data(), dy.data(),
                                                                                                  want.data(), width);
        backward_row("as it ships", [&] {
            ht::kernel::softmax<ht::cuda>::backward<bf16, bf16>(
                p.gpu, {.y = y.const_view(), .dy = dy.const_view(), .dx = dx.view()});
        });
#ifndef STUDY_SHIPPED_ONLY
        backward_with<512, 4, 1>("512 threads, 4 vectors, in shared memory");
        backward_with<1024, 2, 1>("1024 threads, 2 vectors, in shared memory");
        backward_with<256, 0, 1>("256 threads, streamed");
        backward_with<1024, 0, 1>("1024 threads, streamed");
#endif
    }

  private:
    template <class Run>
    void forward_row(const std::string& what, const Run& run) {
        p.row(
            "softmax forward " + text_of(rows, width) + " " + what, 1, 4 * elements, [&](int) { run(); },
            [&] { return wrong_of(p.gpu, y.data(), want.data(), rows * width, 0.005f, 0); });
    }
    template <class Run>
    void backward_row(const std::string& what, const Run& run) {
        p.row(
            "softmax backward " + text_of(rows, width) + " " + what, 1, 6 * elements, [&](int) { run(); },
            [&] { return wrong_of(p.gpu, dx.data(), want.data(), rows * width, 0.005f, 1e-9f); });
    }
#ifndef STUDY_SHIPPED_ONLY
    template <int Threads, int Held, int Blocks>
    void forward_with(const std::string& what) {
        using kernel = with_blocks<softmax_kernel<bf16, bf16, softmax_form::plain, 8, Threads, Held>, Blocks>;
        const extent all = rows * width;
        forward_row(what, [&] {
            p.gpu.launch(kernel{{{x.data(), all}, {y.data(), all}, rows, width, width, width, 1.0f}});
        });
    }
    template <int Threads, int Held, int Blocks>
    void backward_with(const std::string& what) {
        using kernel = with_blocks<softmax_backward_kernel<bf16, bf16, softmax_form::plain, 8, Threads, Held>, Blocks>;
        const extent all = rows * width;
        backward_row(what, [&] {
            p.gpu.launch(kernel{{{y.data(), all},
                                 {dy.data(), all},
                                 {dx.data(), all},
                                 rows,
                                 width,
                                 width,
                                 width,
                                 width,
                                 1.0f,
                                 write_mode::overwrite}});
        });
    }
#endif

    program& p;
    extent rows, width;
    double elements = static_cast<double>(rows * width);
    ht::tensor<bf16, 2> x = random_tensor<bf16, 2>(p.gpu, {rows, width}, 1),
                        dy = random_tensor<bf16, 2>(p.gpu, {rows, width}, 3), y{p.gpu.memory(), {rows, width}},
                        dx{p.gpu.memory(), {rows, width}};
    ht::tensor<float, 2> want{p.gpu.memory(), {rows, width}};
};

void run(program& p) {
    measure_copy(p);
    for (const auto& [rows, width] : {std::pair<extent, extent>{8192, 768}, {16384, 4096}}) {
        bench_ceilings(p, rows, width);
        layer_norms norms(p, rows, width);
        norms.forward();
        norms.backward();
    }
    softmaxes wide(p, 8192, 16384);
    wide.forward();
    wide.backward();
}

}  // namespace study

int main(int count, char** arguments) {
    try {
        study::program p{.how = {.seconds_each = 0.06}};
        p.wanted.assign(arguments + 1, arguments + count);
        study::run(p);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "rows_study: %s\n", e.what());
        return 1;
    }
    return 0;
}
