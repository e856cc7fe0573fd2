// SPDX-License-Identifier: MIT
/// \file
/// Makes the names of `detail` visible in the namespaces of instruction sets, in which SIMD bodies are.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {
// Whether bodies chosen by cpu::select_compiled are compiled for a set: for each, but in tests of what is made of kernels, which may
// define HALFTONE_TEST_ONE_SET as the one that this processor has. That is a third of the code.
#if defined(HALFTONE_TEST_ONE_SET)
inline constexpr bool is_compiled_set = false;
#else
inline constexpr bool is_compiled_set = true;
#endif
}  // namespace detail
#if defined(HALFTONE_TEST_ONE_SET)
namespace HALFTONE_TEST_ONE_SET {
inline constexpr bool is_compiled_set = true;
}
#endif
namespace portable {
using namespace detail;
}
#if defined(__x86_64__)
namespace avx2 {
using namespace detail;
}
namespace avx512 {
using namespace detail;
}
namespace avx512_bf16 {
using namespace detail;
}
namespace amx {
using namespace detail;
}
#endif

}  // namespace HALFTONE_ABI
}  // namespace halftone
