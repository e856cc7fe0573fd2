// SPDX-License-Identifier: MIT
/// \file
/// The namespaces of instruction sets, in which SIMD bodies are: the names of `detail` are visible there. A set that is not compiled
/// (config.hpp) is another name of the one that is, so that `cpu::select` is given the same three names everywhere.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {}
#if HALFTONE_PORTABLE
namespace portable {
using namespace detail;
}
#endif
#if HALFTONE_AVX2
namespace avx2 {
using namespace detail;
}
#endif
#if HALFTONE_AVX512
namespace avx512 {
using namespace detail;
}
#endif
#if HALFTONE_AVX512_BF16
namespace avx512_bf16 {
using namespace detail;
}
#endif
#if HALFTONE_AMX
namespace amx {
using namespace detail;
}
#endif

#if !HALFTONE_PORTABLE && HALFTONE_AVX512
namespace portable = avx512;
namespace avx2 = avx512;
#elif !HALFTONE_PORTABLE
namespace portable = avx2;
namespace avx512 = avx2;
#elif !HALFTONE_AVX2
namespace avx2 = portable;
namespace avx512 = portable;
#endif

}  // namespace HALFTONE_ABI
}  // namespace halftone

/// The bodies of that name of all instruction sets, for `cpu::select`: HALFTONE_EACH_SET(sum_piece<E, X>).
#define HALFTONE_EACH_SET(...) &portable::__VA_ARGS__, &avx2::__VA_ARGS__, &avx512::__VA_ARGS__
