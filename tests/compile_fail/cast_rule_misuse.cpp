// SPDX-License-Identifier: MIT
// expect: halftone: the `cast_inputs` of this operation is not a number type
// expect: halftone: the `cast_rule` of this operation is not a category that is known at compile time
// expect: halftone: this operation states both `cast_inputs`, a type, and `cast_rule`, a category
// expect: halftone: the category of this operation is `stated`, and it states no type
// expect: halftone: this operation is not for low precision (its category is ht::category::banned); open a region with ht::autocast<ht::full_fp32>(ctx) around it
#include <halftone/autodiff/op/apply.hpp>
#include <halftone/kernel.hpp>

namespace ht = halftone;

struct doubled {
    static constexpr const char* name = "doubled";
    static auto forward(auto& ctx, const auto& x) { return ht::mul(ctx, x, 2); }
    static auto backward(auto& ctx, const auto& dy) { return ht::mul(ctx, dy, 2); }
};

struct banned : doubled {
    static constexpr ht::category cast_rule = ht::category::banned;
};

#if defined(HALFTONE_TEST_RIGHT)
struct to_no_number : doubled {
    using cast_inputs = float;
};
struct to_a_policy : doubled {
    using cast_inputs = ht::bfloat16;
};
struct rule_is_a_number : doubled {
    static constexpr ht::category cast_rule = ht::category::fp32;
};
struct rule_varies : doubled {
    static constexpr ht::category cast_rule = ht::category::fp32;
};
struct both : doubled {
    using cast_inputs = float;
};
struct of_no_type : both {};
#else
struct to_no_number : doubled {
    using cast_inputs = int;
};
struct to_a_policy : doubled {
    using cast_inputs = ht::amp_bf16;
};
struct rule_is_a_number : doubled {
    static constexpr int cast_rule = 2;
};
struct rule_varies : doubled {
    static inline ht::category cast_rule = ht::category::fp32;
};
struct both : doubled {
    using cast_inputs = float;
    static constexpr ht::category cast_rule = ht::category::low_precision;
};
struct of_no_type : doubled {
    static constexpr ht::category cast_rule = ht::category::stated;
};
#endif

void use(ht::tape<ht::cpu>& tape, const ht::variable<float, 1>& x) {
    const auto region = ht::autocast<ht::amp_fp16>(tape);
    ht::apply<to_no_number>(region, x);
    ht::apply<to_a_policy>(region, x);
    ht::apply<rule_is_a_number>(region, x);
    ht::apply<rule_varies>(region, x);
    ht::apply<both>(region, x);
    ht::apply<of_no_type>(region, x);
#if defined(HALFTONE_TEST_RIGHT)
    ht::apply<banned>(ht::autocast<ht::full_fp32>(region), x);
#else
    ht::apply<banned>(region, x);
#endif
}
