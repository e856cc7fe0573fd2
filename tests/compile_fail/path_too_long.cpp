// SPDX-License-Identifier: MIT
// expect: halftone: a path holds at most 63 characters
#include <halftone/policy/path.hpp>

struct policy {};

#if defined(HALFTONE_TEST_RIGHT)
using layer = halftone::at<policy, "123456789.123456789.123456789.123456789.123456789.123456789.123">;
#else
using layer = halftone::at<policy, "123456789.123456789.123456789.123456789.123456789.123456789.1234">;
#endif
layer unused;
