// SPDX-License-Identifier: MIT
/// \file
/// One parameter as a layer holds it: its place in a store. memory/store.hpp, which defines its members, is what a
/// program includes.
///
///     ht::parameter<ht::storage_signature<P, ht::op::linear>, 2> weight;      // (out, in), made by store.add
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/tensor/split_view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

class store;

/// One parameter, by its place in the store. Copies refer to the same parameter: that is how weights are tied.
template <class Storage, int Rank>
class parameter {
  public:
    using storage = Storage;
    using compute = typename Storage::compute;
    using param = typename Storage::param;
    static constexpr int rank = Rank;
    /// A master in two halves has no place where it stands as a float; to_host puts it together.
    using master_view = std::conditional_t<Storage::is_split, split_view<Rank>, view<param, Rank>>;

    parameter() = default;
    parameter(halftone::store& owner, std::size_t entry, const halftone::shape<Rank>& shape)
        : store_(&owner), entry_(entry), shape_(shape) {}

    halftone::store& owner() const { return *store_; }
    /// The parameter's index in its store, by which accumulators and optimizers find it.
    std::size_t entry() const { return entry_; }
    const halftone::shape<Rank>& shape() const { return shape_; }

    /// What kernels read. Throws state_error before the store's commit.
    const_view<compute, Rank> values() const;
    /// What the optimizer updates; after a change by hand call the store's refresh(). Throws state_error before commit,
    /// and for a frozen parameter that kept its copy only. A split master can be read, to_host(device, master()), and
    /// assigned to.
    master_view master() const;
    /// Puts values out of host memory, row by row, in the place of the parameter's, and rounds its copy again. Throws
    /// shape_error where their number is another, and state_error as master() does.
    void assign(std::span<const param> values) const;
    /// Whether store::freeze has named it: it gets no gradient and no moments.
    bool is_frozen() const;

  private:
    halftone::store* store_ = nullptr;
    std::size_t entry_ = 0;
    halftone::shape<Rank> shape_{};
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
