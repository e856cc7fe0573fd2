// SPDX-License-Identifier: MIT
/// \file
/// Policies in kernels. With nvcc (-x cu) the kernels below are real, and the generated stubs must be correct for policies and
/// paths as template arguments.
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/policy.hpp>

namespace ht = halftone;

namespace {

using mine = ht::recipe<ht::amp_bf16, ht::rule<"*.norm", ht::full_fp32>>;

template <class P>
HALFTONE_HD constexpr int bytes_of_an_operand() {
    static_assert(ht::check_policy<P>());
    return static_cast<int>(sizeof(typename ht::resolve<P>::compute));
}

#if defined(__CUDACC__)

template <class R>
__global__ void resolved(int* out) {
    *out = bytes_of_an_operand<R>() + (ht::needs_scaling<R> ? 100 : 0);
}

template <class P>
__global__ void by_path(int* out) {
    *out = bytes_of_an_operand<P>();
}

int run(void (*kernel)(int*)) {
    int* out = nullptr;
    if (cudaMallocManaged(&out, sizeof(int)) != cudaSuccess) return -1;
    *out = -1;
    kernel<<<1, 1>>>(out);
    const int result = cudaDeviceSynchronize() == cudaSuccess ? *out : -1;
    cudaFree(out);
    return result;
}

#endif

}  // namespace

static_assert(bytes_of_an_operand<ht::at<mine, "norm">>() == 4 && bytes_of_an_operand<ht::at<mine, "fc">>() == 2);

#if defined(__CUDACC__)
TEST_CASE("kernels take policies and paths") {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        MESSAGE("not checked: kernels by path (there is no GPU)");
        return;
    }
    CHECK(run(resolved<ht::amp_fp16>) == 102);
    CHECK(run(resolved<ht::resolve<ht::at<mine, "norm">>>) == 4);
    CHECK(run(by_path<ht::at<mine, "norm">>) == 4);
    CHECK(run(by_path<ht::at<ht::at<mine, "h">, "fc">>) == 2);
}
#endif
