// SPDX-License-Identifier: MIT
// expect: shadow_twin: this model is not a template of a policy alone, so that its type in fp32 cannot be derived; name that type yourself: my_model<ht::full_fp32> twin{...};
#include <halftone/observe/shadow/shadow.hpp>

namespace ht = halftone;

template <class P, int Width>
struct network {};
template <class P>
struct plain_network {};

#if defined(HALFTONE_TEST_RIGHT)
using twin = ht::shadow_twin<plain_network<ht::amp_bf16>>;
#else
using twin = ht::shadow_twin<network<ht::amp_bf16, 3>>;
#endif
