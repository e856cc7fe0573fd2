// SPDX-License-Identifier: MIT
// expect: halftone: watched tapes, and with them numerics reports, the search for an overflow and shadow runs
#include <halftone/amp.hpp>
#include <halftone/observe/numerics/numerics.hpp>

namespace ht = halftone;

namespace own_number_watched {
struct mine {
    unsigned short code;
    explicit mine(float);
    mine() = default;
    operator float() const;
};
}  // namespace own_number_watched
template <>
struct halftone::number_traits<own_number_watched::mine> : halftone::ieee_format<10, -29, 32> {
    static constexpr const char* name = "mine";
};
#if defined(HALFTONE_TEST_RIGHT)
using own_number_watched_policy = ht::amp_fp16;
#else
using own_number_watched_policy = ht::with_output<ht::amp_fp16, own_number_watched::mine>;
#endif
auto watches(ht::tape<ht::cpu, ht::watched_tape>& tape, const ht::nn::linear<ht::at<own_number_watched_policy, "fc">>& fc, const ht::variable<float, 2>& x) {
    return fc(tape, x);
}
