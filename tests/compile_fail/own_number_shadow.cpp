// SPDX-License-Identifier: MIT
// expect: halftone: a shadow run judges this operation by the relative errors of its operands
#include <halftone/amp.hpp>
#include <halftone/observe/shadow/shadow.hpp>

namespace ht = halftone;

namespace own_number_shadow {
struct mine {
    unsigned short code;
    explicit mine(float);
    mine() = default;
    operator float() const;
};
struct texts {
    ht::const_view<std::int32_t, 2> tokens, targets;
};
}  // namespace own_number_shadow
template <>
struct halftone::number_traits<own_number_shadow::mine> : halftone::fixed_format<3, 12> {
    static constexpr const char* name = "mine";
};
#if defined(HALFTONE_TEST_RIGHT)
using own_number_shadow_policy = ht::with_compute<ht::full_fp32, ht::bfloat16>;
#else
using own_number_shadow_policy = ht::with_compute<ht::full_fp32, own_number_shadow::mine>;
#endif
auto shadowed(ht::cpu& device, ht::nn::gpt<own_number_shadow_policy>& model, ht::shadow_twin<ht::nn::gpt<own_number_shadow_policy>>& twin,
              const own_number_shadow::texts& b) {
    return ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) { return m.loss(tape, b); });
}
