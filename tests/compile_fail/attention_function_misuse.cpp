// SPDX-License-Identifier: MIT
// expect: halftone: attention: a score_mod takes (score, head, query, key) or (score, batch, head, query, key), a mask_mod (head, query, key) or (batch, head, query, key), all of them auto
// expect: halftone: attention: a function of (head, query, key) is a mask_mod and gives a condition, as key <= query; a score_mod takes (score, head, query, key)
// expect: halftone: attention: with functions of scores it has no second derivative
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

void attend(ht::tape<ht::cpu>& tape, ht::tape<ht::cpu, ht::double_backward_tape>& twice, const ht::variable<float, 4>& x) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::attention(tape, x, x, x, {}, [](auto score, auto head, auto query, auto key) { return score + head * (key - query); });
    ht::attention(tape, x, x, x, {}, [](auto, auto query, auto key) { return key <= query; });
    ht::attention(twice, x, x, x);
#else
    ht::attention(tape, x, x, x, {}, [](auto score, auto key) { return score + key; });
    ht::attention(tape, x, x, x, {}, [](auto, auto query, auto key) { return query + key; });
    ht::attention(twice, x, x, x, {}, ht::sliding_window{5});
#endif
}
