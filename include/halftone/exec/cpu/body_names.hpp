// SPDX-License-Identifier: MIT
/// \file
/// Bodies stand in the namespaces of their instruction sets, and name what is in `detail` as they name what users may call.
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
