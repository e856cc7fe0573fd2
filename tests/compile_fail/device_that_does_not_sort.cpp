// SPDX-License-Identifier: MIT
// expect: halftone: embedding: the gradient of a table sorts its rows, and this device's sort is not included: include <halftone/exec/cuda/sort.cuh> for ht::cuda
#include <halftone/kernel/embedding/device.hpp>

namespace ht = halftone;

struct gpu {
    static constexpr bool runs_simt_kernels = true;
    ht::workspace& scratch();
    template <class Kernel>
    void launch(const Kernel& kernel);
    template <class T>
    void fill(T* to, ht::extent n, T value);
};
#if defined(HALFTONE_TEST_RIGHT)
template <class Key, class Value>
void sort_pairs(gpu& device, const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values,
                ht::extent count, int bits);
#endif

void gradient(gpu& device, const ht::kernel::embedding_backward<float, float>& a) {
    ht::kernel::embedding<gpu>::backward(device, a);
}
