// SPDX-License-Identifier: MIT
// expect: halftone: the role `stream` of this policy, the type of the residual stream, is not a number type
#include <halftone/policy/category.hpp>

namespace ht = halftone;

struct mine : ht::amp_bf16 {
#if defined(HALFTONE_TEST_RIGHT)
    using stream = float;
#else
    using stream = int;
#endif
};
using found = ht::layer_stream<ht::at<mine, "embed">>;
