// SPDX-License-Identifier: MIT
// expect: halftone: these parameters (role `param`) have so few bits that an optimizer's updates round away
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::pure_bf16;
#else
using policy = ht::with_param<ht::amp_bf16, ht::bfloat16>;
#endif

void make(ht::cpu& device, small::model<policy>& model) { ht::adamw optimizer{device, model}; }
