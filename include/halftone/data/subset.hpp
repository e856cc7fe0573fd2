// SPDX-License-Identifier: MIT
/// \file
/// Parts of a data set: PyTorch's Subset and random_split.
///
///     const ht::random_split parts{texts.size(), 0.1, seed};               // a tenth held out
///     const ht::subset training{texts, parts.training}, held_out{texts, parts.held_out};
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/data/shuffle.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The numbers of the samples for training and of the others, each ascending.
struct random_split {
    std::vector<extent> training, held_out;

    /// Chooses `fraction` of `size` samples at random, rounded down; the choice is a function of the three numbers. Throws
    /// argument_error for a fraction outside [0, 1), and data_error if a part would be empty, unless the fraction is 0.
    random_split(extent size, double fraction, std::uint64_t seed) {
        if (!(fraction >= 0.0 && fraction < 1.0)) {
            fail<argument_error>("random_split: ", fraction,
                                 " of the samples held out; expected 0 or more and less than 1");
        }
        const auto count = static_cast<extent>(static_cast<double>(size) * fraction);
        if (size < 1) fail<data_error>("random_split: no samples");
        if (fraction > 0 && count < 1) fail<data_error>("random_split: ", fraction, " of ", size, " samples is none");
        std::vector<bool> is_held_out(static_cast<std::size_t>(size), false);
        const shuffled_order order(size, seed, 0xffffffff);  // an epoch that no run reaches
        for (extent i = 0; i < count; ++i) is_held_out[static_cast<std::size_t>(order[i])] = true;
        for (extent i = 0; i < size; ++i) (is_held_out[static_cast<std::size_t>(i)] ? held_out : training).push_back(i);
    }
};

/// Some samples of a source: a map_source (data_loader.hpp).
template <class Source>
class subset {
  public:
    /// The source must outlive it. Throws argument_error for an index that the source does not have.
    subset(const Source& source, std::vector<extent> indices) : source_(&source), indices_(std::move(indices)) {
        for (const extent i : indices_) {
            if (i < 0 || i >= static_cast<extent>(source.size()))
                fail<argument_error>("subset: sample ", i, " of ", source.size());
        }
    }

    extent size() const { return static_cast<extent>(indices_.size()); }
    decltype(auto) operator[](extent index) const { return (*source_)[indices_[static_cast<std::size_t>(index)]]; }
    /// The length of a sample, if the source has lengths.
    extent length(extent index) const
        requires requires(const Source& s) { s.length(extent{0}); }
    {
        return source_->length(indices_[static_cast<std::size_t>(index)]);
    }

  private:
    const Source* source_;
    std::vector<extent> indices_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
