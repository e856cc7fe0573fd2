// SPDX-License-Identifier: MIT
// expect: halftone: an optimizer with moments in 8 bits steps over floats, which do not hold these parameters
// never: halftone: an optimizer's step with 8-bit state: the kernels of this device are not included
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

namespace own_number_wide_in_eight_bit_step {
struct fixed {
    int code;
    HALFTONE_HD explicit fixed(double);
    fixed() = default;
    HALFTONE_HD operator double() const;
};
}  // namespace own_number_wide_in_eight_bit_step
template <>
struct halftone::number_traits<own_number_wide_in_eight_bit_step::fixed> : halftone::fixed_format<7, 24> {
    static constexpr const char* name = "fixed";
};
using own_number_wide_model = small::model<ht::with_param<ht::amp_bf16, own_number_wide_in_eight_bit_step::fixed>>;

void own_number_wide_step(ht::cpu& device, own_number_wide_model& model) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::adamw optimizer{device, model};
#else
    ht::adamw_8bit optimizer{device, model};
#endif
    ht::accumulator acc{model, ht::unscaled};
    optimizer.step(acc.take());
}
