// SPDX-License-Identifier: MIT
/// \file
/// Makes the names of `detail` visible in the namespaces of instruction sets, in which SIMD bodies are.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {}
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
