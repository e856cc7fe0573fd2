// SPDX-License-Identifier: MIT
/// \file
/// The kernels of convolutions on a GPU are those that their plans name: of many shapes, types, passes and architectures, launched on a
/// device that runs none.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include <doctest/doctest.h>

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/conv2d/device.hpp>
#include <halftone/number.hpp>
#include <halftone/policy.hpp>

#include "kernel/conv2d/device_choices.hpp"
#include "kernel/matmul/launch_writer.hpp"
#include "support/random.hpp"
#include "support/recording_device.hpp"

namespace emulator_kernel_conv2d_plan_tests {

namespace ht = halftone;
namespace gpu = ht::kernel::on_device;
using ht::extent;
using ht::detail::conv2d_pass, ht::detail::conv2d_problem;

/// The launches of a pass, in the letters of tests/kernel/conv2d/device_choices.hpp.
struct launches {
    conv2d_problem p;
    std::string piece = "i";  ///< the first one
    extent products = 0;
    std::string copies{}, first{};  ///< of a product

    std::string text() const { return piece + " " + std::to_string(products) + "*" + first; }
};
struct writer {
    launches* all;

    template <class Kernel>
    void operator()(const Kernel& k) const {
        note_product(k, 1);
    }
    template <class Kernel>
    void operator()(const gpu::each_matrix_kernel<Kernel>& k) const {
        note_product(k.first, k.batch.count);
    }
    template <class Word, int N, gpu::run_access Access>
    void operator()(const gpu::unfold_runs_kernel<Word, N, Access>& k) const {
        const extent channels = all->p.group_channels(), image = k.matrix.rows * all->p.window.across.positions;
        note_piece(k.matrix.columns / image, k.matrix.rows, channels);
    }
    template <class Word>
    void operator()(const gpu::each_kernel<ht::kernel::unfold_element<Word>>&) const {
        FAIL("no shape here is so large that it is unfolded by 64-bit indices");
    }
    template <class T, class X, class Int>
    void operator()(const gpu::each_kernel<ht::kernel::fold_element<T, X, Int>>& k) const {
        note_piece(k.work.columns / all->p.positions(), all->p.window.down.positions, k.work.channels);
    }

  private:
    void note_piece(extent images, extent rows, extent channels) const {
        if (all->piece == "i")
            all->piece =
                conv2d_test::piece_text(images, rows, all->p.window.down.positions, channels, all->p.group_channels());
    }
    template <class Kernel>
    void note_product(const Kernel& k, extent matrices) const {
        std::string text;
        matmul_test::launch_writer{&text, false}(k);
        if (text == "c") all->copies = text;
        if (text.empty() || text == "c") return;
        if (all->first.empty()) all->first = all->copies + text;
        all->products += matrices;
    }
};

/// A tensor without gaps at an address where no memory is.
template <class T>
ht::view<T, 4> tensor_at(std::uintptr_t number, const ht::shape<4>& of) {
    return {reinterpret_cast<T*>(number << 44), of};
}

/// Runs a pass, and compares what was launched with the plan of the same shape.
template <class P, class T>
void launches_its_plan(const gpu::matmul_types& types, const ht::simt::architecture& on, const ht::shape<4>& of_x,
                       const ht::shape<4>& of_weight, const ht::conv2d_options& options, conv2d_pass pass,
                       bool has_bias) {
    const auto p = conv2d_problem::of("test", of_x, of_weight, options);
    launches launched{p};
    support::recording_device device{on, true, writer{&launched}};
    const auto x = tensor_at<T>(1, of_x), weight = tensor_at<T>(2, of_weight), y = tensor_at<T>(3, p.result());
    const ht::view<float, 4> dweight = tensor_at<float>(4, of_weight);
    const ht::view<T, 1> bias(has_bias ? reinterpret_cast<T*>(std::uintptr_t{1} << 40) : nullptr, {p.outputs});
    const auto call = [&]<class D>(D& d) {
        if (pass == conv2d_pass::forward) return ht::conv2d<P>(d, x, weight, bias, y, options);
        if (pass == conv2d_pass::input_gradient) return ht::conv2d_input<P>(d, weight, y, x, options);
        ht::conv2d_weight<P>(d, x, y, dweight, options);
    };
    call(device);
    // The device's twin takes the same plan, and so the same scratch memory.
    CHECK(ht::workspace_bytes(device, call) == device.scratch().peak());
    gpu::conv2d_call planned = gpu::dense_conv2d(p, pass, types, *ht::simt::target_named("sm_80"), has_bias);
    planned.on.version = on.version, planned.on.has_wgmma = device.has_wgmma_code();
    INFO(types.name, " ", of_x, " ", of_weight, " stride ", options.stride, " padding ", options.padding, " groups ",
         options.groups, " pass ", static_cast<int>(pass), " sm_", on.version);
    CHECK(launched.text() == conv2d_test::choice_of(planned));
}

template <class P, class T>
void launch_plans(const gpu::matmul_types& types) {
    support::random data{11};
    const auto one_of = [&data](const auto& all) { return all[data.below(static_cast<int>(std::size(all)))]; };
    const extent images[] = {1, 2, 8, 64}, channels[] = {1, 3, 8, 24, 64, 256}, sizes[] = {1, 7, 14, 28, 56, 112},
                 windows[] = {1, 1, 3, 5}, groups[] = {1, 1, 1, 2, 8};
    const int versions[] = {80, 86, 90, 90, 100, 120};
    for (int i = 0; i < 1500; ++i) {
        const extent number = one_of(groups), window = one_of(windows), size = std::max(window, one_of(sizes));
        const extent each = one_of(channels), each_output = one_of(channels);
        const bool is_depthwise = number > 1 && data.below(4) == 0;
        const ht::shape<4> x{one_of(images), is_depthwise ? number : number * each, size, size};
        const ht::shape<4> weight{number * each_output, x[1] / number, window, window};
        const extent stride = 1 + data.below(2),
                     padding = window == 1 ? data.below(8) / 7 : data.below(2) * (window / 2);
        const conv2d_pass passes[] = {conv2d_pass::forward, conv2d_pass::input_gradient, conv2d_pass::weight_gradient};
        launches_its_plan<P, T>(types, ht::simt::architecture_of(one_of(versions)), x, weight,
                                {.stride = {stride, stride}, .padding = {padding, padding}, .groups = number},
                                one_of(passes), data.below(2) == 0);
    }
}

TEST_CASE("a convolution on a GPU launches what its plan says") {
    SUBCASE("bf16") { launch_plans<ht::amp_bf16, ht::bfloat16>(gpu::named_conv2d_types[0]); }
    SUBCASE("fp16") { launch_plans<ht::amp_fp16, ht::float16>(gpu::named_conv2d_types[1]); }
    SUBCASE("tf32") { launch_plans<ht::tf32, float>(gpu::named_conv2d_types[2]); }
    SUBCASE("fp32") { launch_plans<ht::full_fp32, float>(gpu::named_conv2d_types[3]); }
}

}  // namespace emulator_kernel_conv2d_plan_tests
