// SPDX-License-Identifier: MIT
/// \file
/// Sums over ranks by their pairwise tree, as ranks/reduce.hpp has it, of some elements.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// sum[i] = the sum over ranks of pieces[rank * stride + i], rounded to Wire and then to T.
template <class Wire, class T>
void add_ranks(extent count, int ranks, const Wire* pieces, extent stride, T* sum) {
    const auto add = [&](extent j, int, auto n) __attribute__((always_inline)) {
        f32 partial[13];           // partial[k]: of 2^k ranks
        partial[0] = splat(0.0f);  // compilers do not know that there is a rank
        for (int rank = 0; rank < ranks; ++rank) {
            f32 x = load(pieces + rank * stride + j, n);
            int level = 0;
            for (; (rank >> level & 1) != 0; ++level) x = partial[level] + x;
            partial[level] = x;
        }
        int level = 0;
        while ((ranks >> level & 1) == 0) ++level;
        f32 total = partial[level];
        for (++level; ranks >> level != 0; ++level) {
            if ((ranks >> level & 1) != 0) total = partial[level] + total;
        }
        if constexpr (std::is_same_v<Wire, float> || std::is_same_v<Wire, T>) {
            store(sum + j, total, n);
        } else {
            Wire rounded[f32::lanes];
            store(rounded, total, n);
            store(sum + j, load(rounded, n), n);
        }
    };
    for_vectors(count, add);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
