// SPDX-License-Identifier: MIT
// expect: halftone: this layer is given doubles, and its policy computes in fewer bits
// expect: halftone: this policy has double in some of the roles
// expect: halftone: some parameters of this model are doubles (ht::full_fp64), and optimizers step over floats
// expect: halftone: map: this map computes in double, and an opaque functor in it gives floats
// expect-nvcc: halftone: this layer is given doubles, and its policy computes in fewer bits
// expect-nvcc: halftone: this policy has double in some of the roles
// expect-nvcc: halftone: some parameters of this model are doubles (ht::full_fp64), and optimizers step over floats
#include <halftone/amp.hpp>

namespace ht = halftone;

struct clamp {
    HALFTONE_HD float operator()(float x) const { return x < 0 ? 0 : x; }
};
struct clamp_any {
    template <class T>
    HALFTONE_HD T operator()(T x) const {
        return x < 0 ? 0 : x;
    }
};

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::full_fp64;
using trained = ht::full_fp32;
using functor = clamp_any;
using layer = ht::full_fp64;
#else
using policy = ht::with_output<ht::amp_bf16, double>;
using trained = ht::full_fp64;
using functor = clamp;
using layer = ht::amp_bf16;
#endif
static_assert(ht::check_policy<policy>());
static_assert(ht::check_trainable<ht::nn::gpt<trained>>());

void use(ht::tape<ht::cpu>& tape, const ht::variable<double, 2>& x, const ht::nn::linear<layer>& fc,
         const ht::view<double, 2>& out) {
    fc(tape, x);
    ht::map(tape.device(), ht::opaque(functor{}), ht::as_const(x.view()), out);
}
