// SPDX-License-Identifier: MIT
/// \file
/// Built into two shared libraries for different architectures, so that the same kernels are in both. LIBRARY is the
/// namespace of its function.
#include <cmath>
#include <cstdint>
#include <vector>

#include <halftone/exec/cuda/sort.cuh>
#include <halftone/kernel.cuh>
#include <halftone/tensor/tensor.hpp>

#include "library.hpp"

namespace ht = halftone;

namespace LIBRARY {

/// "works", or what is wrong.
std::string try_gpu() try {
    constexpr ht::extent rows = 3, width = 40;
    ht::cuda gpu;
    const ht::tensor<ht::bfloat16, 2> x(gpu.memory(), {rows, width});
    const ht::tensor<float, 2> y(gpu.memory(), {rows, width});
    const ht::tensor<float, 1> gain(gpu.memory(), {width});
    std::vector<ht::bfloat16> in(rows * width);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = ht::bfloat16(i % 2 == 0 ? 3.0f : 5.0f);  // mean 4, variance 1
    gpu.memory().write(x.data(), in.data(), in.size() * sizeof in[0]);
    gpu.fill(gain.data(), width, 2.0f);
    // One kernel that has the same name in both libraries, and one that only this library has.
    ht::kernel::layer_norm<ht::cuda>::forward<ht::bfloat16, float, float>(
        gpu, {.x = x.const_view(), .gain = gain.const_view(), .y = y.view(), .epsilon = 0});
    ht::map(gpu, [](auto v) { return v + 1.0f; }, y, y);
    std::vector<float> out(rows * width);
    gpu.memory().read(out.data(), y.data(), out.size() * sizeof out[0]);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const float want = i % 2 == 0 ? -1.0f : 3.0f;
        if (std::fabs(out[i] - want) > 1e-5f) return "element " + std::to_string(i) + " is " + std::to_string(out[i]);
    }

    // Kernels of CUB's, which both libraries have as well: the gradient of an embedding sorts its rows. Its tokens are
    // 2, 0, 2.
    const ht::tensor<std::int32_t, 1> tokens(gpu.memory(), {rows});
    const ht::tensor<float, 2> table(gpu.memory(), {rows, width});
    const std::vector<std::int32_t> ids{2, 0, 2};
    gpu.memory().write(tokens.data(), ids.data(), ids.size() * sizeof ids[0]);
    ht::kernel::embedding<ht::cuda>::backward<float, float>(gpu, {.tokens = tokens.const_view(),
                                                                  .dy = y.const_view(),
                                                                  .dtable = table.view(),
                                                                  .mode = ht::write_mode::overwrite});
    std::vector<float> sums(rows * width);
    gpu.memory().read(sums.data(), table.data(), sums.size() * sizeof sums[0]);
    const float times[rows] = {1, 0, 2};
    for (std::size_t i = 0; i < sums.size(); ++i) {
        if (sums[i] != times[i / width] * out[i])
            return "gradient " + std::to_string(i) + " is " + std::to_string(sums[i]);
    }
    return "works";
} catch (const ht::cuda_error& e) {
    return std::string("no usable GPU: ") + e.what();
}

}  // namespace LIBRARY
