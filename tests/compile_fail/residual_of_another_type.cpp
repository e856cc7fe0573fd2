// SPDX-License-Identifier: MIT
// expect: halftone: a residual is added to an output of another type; give both the same `output` in the recipe
#include <halftone/amp.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::amp_bf16;
#else
using mine = ht::recipe<ht::amp_bf16, ht::rule<"h.0", ht::full_fp32>>;
#endif
auto loss(const ht::nn::gpt<mine>& model, ht::tape<ht::cpu>& tape, ht::const_view<std::int32_t, 2> tokens) { return model.logits(tape, tokens); }
