// SPDX-License-Identifier: MIT
// expect: halftone: this function computes in float, which does not hold all numbers of this type of your own
#include <halftone/kernel/topk/device.hpp>

namespace ht = halftone;

namespace own_number_wide_on_a_gpu {
struct fixed {
    int code;
    explicit fixed(double);
    fixed() = default;
    operator double() const;
};
}  // namespace own_number_wide_on_a_gpu
template <>
struct halftone::number_traits<own_number_wide_on_a_gpu::fixed> : halftone::fixed_format<7, 24> {
    static constexpr const char* name = "fixed";
};
#if defined(HALFTONE_TEST_RIGHT)
using own_number_of_a_gpu = float;
#else
using own_number_of_a_gpu = own_number_wide_on_a_gpu::fixed;
#endif
void own_number_as_kernels_read_it(const ht::simt::vec<own_number_of_a_gpu, 4>& x) {
    ht::kernel::on_device::to_float(x);
}
