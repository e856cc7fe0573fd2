// SPDX-License-Identifier: MIT
/// \file
/// pick.hpp without instructions that permute across two vectors.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/conv2d/implicit/planes.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// The first of each two of n pairs, of which the last may have only one; else zeros.
struct even_one_by_one {
    static HALFTONE_INLINE f32 take(const float* from, int n) {
        float all[f32::lanes] = {};
        for (int i = 0; i < n; ++i) all[i] = from[2 * i];
        return load(static_cast<const float*>(all));
    }
};
/// The words of a column_vector, one by one unless they are adjacent.
class word_by_word {
  public:
    explicit word_by_word(const kernel::implicit_cpu::column_vector& v) : of_(&v) {}
    bool is_adjacent() const { return of_->is == kernel::implicit_cpu::column_vector::form::adjacent; }
    HALFTONE_INLINE f32 take(const float* from) const {
        from += of_->base;
        if (is_adjacent()) return load(from);
        float all[f32::lanes];
        for (int i = 0; i < f32::lanes; ++i) all[i] = from[of_->at[i]];
        return load(static_cast<const float*>(all));
    }

  private:
    const kernel::implicit_cpu::column_vector* of_;
};
/// The lanes of a vector in another order.
class lane_by_lane {
  public:
    lane_by_lane(const std::int32_t* number, extent taps) : number_(number), taps_(taps) {}
    HALFTONE_INLINE f32 take(f32 all) const {
        float from[f32::lanes], to[f32::lanes] = {};
        store(static_cast<float*>(from), all);
        for (extent i = 0; i < taps_; ++i) to[i] = from[number_[i]];
        return load(static_cast<const float*>(to));
    }

  private:
    const std::int32_t* number_;
    extent taps_;
};

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
