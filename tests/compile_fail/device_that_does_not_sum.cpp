// SPDX-License-Identifier: MIT
// expect: halftone: embedding_rows: the gradient of a table sorts its lookups and sums how many begin a row, and this device's sort is not included: include <halftone/exec/cuda/sort.cuh> for ht::cuda
#include <halftone/kernel/embedding_rows/device.hpp>

namespace ht = halftone;

struct gpu {
    static constexpr bool runs_simt_kernels = true;
    ht::workspace& scratch();
    template <class Kernel>
    void launch(const Kernel& kernel);
    template <class T>
    void fill(T* to, ht::extent n, T value);
    void copy(void* to, const void* from, std::size_t bytes);
};
template <class Key, class Value>
void sort_pairs(gpu& device, const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values,
                ht::extent count, int bits);
#if defined(HALFTONE_TEST_RIGHT)
template <class Count>
void inclusive_sum(gpu& device, Count* counts, ht::extent count);
#endif

void gradient(gpu& device, const ht::kernel::embedding_rows_backward<float, float>& a) {
    ht::kernel::embedding_rows<gpu>::add(device, a);
}
