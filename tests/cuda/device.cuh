// SPDX-License-Identifier: MIT
/// \file
/// A GPU on which the tests of tests/kernel run as on a CPU: its work is complete when a call returns.
#pragma once

#include <halftone/kernel.cuh>

namespace support {

class waiting_cuda : public halftone::cuda {
  public:
    using cuda::cuda;

    template <class Kernel>
    void launch(const Kernel& kernel) {
        cuda::launch(kernel);
        synchronize();
    }
    template <class Function>
    void run(const Function& f) {
        cuda::run(f);
        synchronize();
    }
    template <class T>
    void fill(T* to, halftone::extent n, T value) {
        cuda::fill(to, n, value);
        synchronize();
    }
    void copy(void* to, const void* from, std::size_t bytes) {
        cuda::copy(to, from, bytes);
        synchronize();
    }
};

}  // namespace support
