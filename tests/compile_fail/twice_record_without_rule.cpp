// SPDX-License-Identifier: MIT
// expect: halftone: tape: this operation cannot be differentiated twice, since its backward pass is not made of operations on the tape
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

/// y = x, by a record of one's own.
struct passed {
    using operation = ht::op::add;
    ht::gradient_of<float, 1> dx, dy;

    template <class Tape>
    void backward(Tape& tape) {
        ht::detail::pass_gradient(tape, dy, dx);
        tape.finish(dy);
    }
#if defined(HALFTONE_TEST_RIGHT)
    template <class Tape>
    void differentiate(Tape& tape) const {
        if (tape.has(dy)) tape.give(dx, tape.take(dy));
    }
#endif
};

void record(ht::tape<ht::cpu, ht::double_backward_tape>& tape, const ht::variable<float, 1>& x, const ht::variable<float, 1>& y) {
    tape.record(passed{ht::gradient_of(x), ht::gradient_of(y)});
}
