// SPDX-License-Identifier: MIT
/// \file
/// The handle by which a layer refers to one parameter in a store. memory/store.hpp defines its members: include that.
///
///     ht::parameter<ht::storage_signature<P, ht::op::linear>, 2> weight;      // (out, in), made by store.add
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <halftone/config.hpp>
#include <halftone/tensor/coded_matrix.hpp>
#include <halftone/tensor/split_view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

class store;
struct store_entry;
struct store_group;

namespace detail {

template <class Storage, int Rank>
struct values_view_of {
    using type = const_view<typename Storage::compute, Rank>;
};
template <class Storage>
    requires requires { typename Storage::format; }
struct values_view_of<Storage, 2> {
    using type = coded_matrix<typename Storage::format>;
};

}  // namespace detail

/// One parameter, as a handle into a store. Copies of the handle refer to the same parameter, so that weights can be
/// tied.
template <class Storage, int Rank>
class parameter {
  public:
    using storage = Storage;
    using compute = typename Storage::compute;
    using param = typename Storage::param;
    static constexpr int rank = Rank;
    /// A split master is not stored as a float anywhere; to_host joins its halves.
    using master_view = std::conditional_t<Storage::is_split, split_view<Rank>, view<param, Rank>>;

    /// What kernels read.
    using values_view = typename detail::values_view_of<Storage, Rank>::type;

    parameter() = default;
    parameter(halftone::store& owner, std::size_t entry, const halftone::shape<Rank>& shape)
        : store_(&owner), entry_(entry), shape_(shape) {}

    halftone::store& owner() const { return *store_; }
    /// The parameter's index in its store, under which accumulators and optimizers find it.
    std::size_t entry() const { return entry_; }
    const halftone::shape<Rank>& shape() const { return shape_; }

    /// The copy that kernels read: numbers, or the codes and scales of a block format. Throws state_error before the store's commit.
    values_view values() const;
    /// The master, which the optimizer updates; after writing to it, call the store's refresh(). Throws state_error
    /// before commit, and for a frozen parameter that kept only its copy. A split master can be read with
    /// to_host(device, master()) and written with assign().
    master_view master() const;
    /// Replaces the parameter's values by values from host memory, in row-major order, and rounds its copy again.
    /// Throws shape_error if the number of values differs from the parameter's, and state_error as master() does.
    void assign(std::span<const param> values) const;
    /// Whether store::freeze has frozen it: it then has no gradient and no moments.
    bool is_frozen() const;

  private:
    const_view<compute, Rank> plain_values(const store_entry& e, const store_group& g) const;

    halftone::store* store_ = nullptr;
    std::size_t entry_ = 0;
    halftone::shape<Rank> shape_{};
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
