// SPDX-License-Identifier: MIT
/// \file
/// A program with its own memory and stream that uses two kernels: one fused product on its __half pointers, and one
/// pointwise operation of its own, an ordinary lambda.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <halftone/kernel.cuh>

namespace ht = halftone;

namespace {

void check(cudaError_t code, const char* what) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "own_project: %s: %s\n", what, cudaGetErrorString(code));
    std::exit(3);
}
#define CHECK(call) check((call), #call)

/// The project's own memory management.
template <class T>
T* upload(const std::vector<T>& values) {
    T* p = nullptr;
    CHECK(cudaMalloc(&p, values.size() * sizeof(T)));
    CHECK(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

std::vector<__half> numbers(std::size_t count, unsigned seed) {
    std::vector<__half> values;
    while (values.size() < count) {
        seed = seed * 1664525 + 1013904223;
        values.push_back(__float2half(static_cast<float>(seed >> 8) / (1 << 23) - 1));  // -1 to 1
    }
    return values;
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

constexpr int batch = 64, width = 96, hidden = 200;

/// All that halftone does here: y = a sigmoid(a / 2) of a = gelu(x w' + b). Views describe the project's memory and own
/// nothing; the kernels are launched on the project's stream, and nothing waits for them.
void hidden_layer(ht::cuda& gpu, const __half* x, const __half* w, const __half* b, __half* y) {
    const ht::view rows(x, ht::shape<2>{batch, width}), weights(w, ht::shape<2>{hidden, width});
    const ht::view bias(b, ht::shape<1>{hidden});
    const ht::view out(y, ht::shape<2>{batch, hidden});
    ht::matmul<ht::amp_fp16>(gpu, rows, ht::transpose(weights), out, ht::bias_gelu{bias});  // one kernel
    ht::map(gpu, [k = 0.5f](auto a) { return a * ht::sigmoid(k * a); }, out, out);          // and one more, in place
}

}  // namespace

int main() try {
    const auto x = numbers(batch * width, 1), w = numbers(hidden * width, 2), b = numbers(hidden, 3);
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    __half *x_gpu = upload(x), *w_gpu = upload(w), *b_gpu = upload(b),
           *y_gpu = upload(std::vector<__half>(batch * hidden));
    std::string name;
    {
        ht::cuda gpu{stream};  // uses the project's stream, which has to outlive it
        name = gpu.description();
        hidden_layer(gpu, x_gpu, w_gpu, b_gpu, y_gpu);
    }
    std::vector<__half> result(batch * hidden);
    CHECK(cudaMemcpyAsync(result.data(), y_gpu, result.size() * sizeof(__half), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));

    // y is rounded twice to 11 bits and its largest value is below 40; the error of the sums of 96 products is much
    // smaller.
    double worst = 0;
    for (int i = 0; i < batch; ++i) {
        for (int j = 0; j < hidden; ++j) {
            double sum = static_cast<double>(__half2float(b[j]));
            for (int k = 0; k < width; ++k)
                sum += static_cast<double>(__half2float(x[i * width + k])) *
                       static_cast<double>(__half2float(w[j * width + k]));
            const double a = gelu(sum), want = a / (1 + std::exp(-0.5 * a));
            worst = std::fmax(worst, std::fabs(static_cast<double>(__half2float(result[i * hidden + j])) - want) /
                                         std::fmax(1, std::fabs(want)));
        }
    }
    std::printf("%s: largest error %.1e\n", name.c_str(), worst);
    for (__half* p : {x_gpu, w_gpu, b_gpu, y_gpu}) CHECK(cudaFree(p));
    CHECK(cudaStreamDestroy(stream));
    return worst < 4 * 0x1p-11 ? 0 : 1;
} catch (const ht::error& e) {
    std::fprintf(stderr, "own_project: %s\n", e.what());
    return 3;
}
