// SPDX-License-Identifier: MIT
// expect: halftone: a number type is copied byte by byte, and left as it is in new memory
// expect-first: halftone: a number type is copied byte by byte, and left as it is in new memory
// never: halftone: this policy lacks the role
// never: halftone: this policy keeps numbers in a type that only products read
#include <halftone/policy/check.hpp>

namespace ht = halftone;

namespace own_number_with_a_destructor {
struct mine {
    unsigned short code;
    explicit mine(float);
    mine() = default;
    operator float() const;
#if !defined(HALFTONE_TEST_RIGHT)
    ~mine() { code = 0; }
#endif
};
}  // namespace own_number_with_a_destructor
template <>
struct halftone::number_traits<own_number_with_a_destructor::mine> : halftone::ieee_format<10, -29, 32> {
    static constexpr const char* name = "mine";
};
struct own_policy : ht::amp_fp16 {
    using param = own_number_with_a_destructor::mine;
};
static_assert(ht::check_policy<own_policy>());
