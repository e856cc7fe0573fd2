// SPDX-License-Identifier: MIT
/// \file
/// The parameter store: the memory of a model's parameters.
///
/// Parameters with the same storage types (policy/model.hpp: `storage`) form a group: one slab of masters and, if
/// kernels read another type, one slab of rounded copies. Gradients and moments are separate slabs with the same
/// layout, so that an optimizer updates a group in one pass. Layers hold handles, never pointers. If the policy splits
/// masters (with_split_master), copies are the masters' upper halves, and the slab of masters holds the lower halves.
///
///     ht::store parameters{device.memory()};
///     auto weight = parameters.add<ht::at<P, "fc">, ht::op::linear>("weight", ht::shape<2>{out, in}, {.deviation = 0.02f});
///     parameters.commit(seed);                  // allocates the memory and fills it; bytes() is known earlier
///     weight.values()                           // what kernels read: view<const compute, 2>
///
/// Numeric contract: initial values depend only on the seed, the order of `add` and the element's index; under every
/// policy they are the same up to the rounding to `param`.
// Longer than 600 lines because the bodies of its functions stand apart from their declarations.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/adapters.hpp>
#include <halftone/memory/amax_history.hpp>
#include <halftone/memory/largest_layers.hpp>
#include <halftone/memory/masters.hpp>
#include <halftone/memory/parameter.hpp>
#include <halftone/memory/read_latch.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/memory/sharding.hpp>
#include <halftone/memory/store_entry.hpp>
#include <halftone/memory/store_run.hpp>
#include <halftone/policy/model.hpp>
#include <halftone/policy/path.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The parameters of a model, grouped by their storage types: masters, rounded copies, and the layout that gradients
/// and moments follow. Layers add their parameters, then commit() allocates the memory and fills it. The resource must
/// live longer than the store.
class store final : public detail::capture_dependency {
  public:
    /// Parameters begin at multiples of this many elements, so that no vector of elements spans two parameters.
    static constexpr std::size_t granule = 64;
    static constexpr std::size_t nowhere = store_entry::nowhere;

    using entry = store_entry;
    using group = store_group;

    explicit store(memory_resource& memory)
        : detail::capture_dependency(&memory.capture_dependencies(),
                                     "the layout of parameters has changed, since some were frozen"),
          memory_(&memory),
          adapters_(memory) {}
    store(const store&) = delete;
    store& operator=(const store&) = delete;
    ~store() { await_readers(); }

    /// Adds a parameter for a layer with policy P; its operation Op determines how it is stored, Computes is the
    /// operation that reads it. Throws state_error after commit, shape_error, argument_error for invalid initial
    /// values, and out_of_memory if the parameters would not fit into any machine's memory. `most_rows` limits the rows
    /// of a sparse gradient; 0: it grows with the windows.
    template <class P, class Op, class Computes = Op, int Rank>
    parameter<storage_signature<P, Op>, Rank> add(const char* leaf, const shape<Rank>& shape, const initial& values,
                                                  extent most_rows = 0) {
        using types = storage_signature<P, Op>;
        static_assert(!has_sparse_gradient<types> || Rank == 2,
                      "halftone: store: a sparse gradient is one of a table's rows: this parameter's rank is not 2");
        const std::size_t index = add_entry(path_of<P>, layout_of<types>, leaf, shape, values, most_rows);
        if constexpr (Rank == 2) amaxes_.add<P, Computes>(index, entries_[index].path);
        return {*this, index, shape};
    }

    /// Adds the weight (out, in) of a linear layer, whose copy may be in blocks of a format (role `copy`). Throws as add does, and
    /// shape_error for rows that are no whole number of blocks.
    template <class P, class Op>
    parameter<weight_signature<P, Op>, 2> add_weight(const char* leaf, const shape<2>& shape, const initial& values) {
        using types = weight_signature<P, Op>;
        const std::size_t index = add_entry(path_of<P>, layout_of<types>, leaf, shape, values, 0);
        if constexpr (coded<types>) check_blocks(entries_[index]);
        amaxes_.add<P, Op>(index, entries_[index].path);
        return {*this, index, shape};
    }

    /// Adds a state of a layer with policy P, which the layer keeps between passes, such as running statistics
    /// (PyTorch's buffers). It is fp32 under every policy, or fp64 if the policy stores parameters in fp64. It has no
    /// gradient, and optimizers skip it; a layer writes to its master(), and it is read and assigned like a frozen
    /// parameter. Throws as add does.
    template <class P, int Rank>
    parameter<state_signature<P>, Rank> add_state(const char* leaf, const shape<Rank>& shape, const initial& values) {
        const std::size_t index =
            add_entry(path_of<P>, layout_of<state_signature<P>>, leaf, shape, values, 0, entry_kind::state);
        return {*this, index, shape};
    }

    /// Adds a matrix of a layer's adapter, which has policy P; Op is the operation that computes it. Throws as add does.
    template <class P, class Op>
    parameter<storage_signature<P, Op>, 2> add_adapter(const char* leaf, const shape<2>& shape, const initial& values) {
        using types = storage_signature<P, Op>;
        const std::size_t index = add_entry(path_of<P>, layout_of<types>, leaf, shape, values, 0, entry_kind::adapter);
        amaxes_.add<P, Op>(index, entries_[index].path);
        return {*this, index, shape};
    }
    /// The model's adapters, and the options from which they follow.
    detail::adapter_list& adapters() { return adapters_; }
    const detail::adapter_list& adapters() const { return adapters_; }
    /// The path of a layer with policy P, or of a part of it.
    template <class P>
    std::string layer_path(const char* part = "") const {
        std::string path = run_time_path(path_of<P>.text().data, part);
        if (*part == 0 && !path.empty()) path.pop_back();
        return path;
    }

    /// While an object of this class exists, component `position` (from 0) of layers' paths is replaced by this index
    /// if the layer's type has '*' or "last" there. A list of layers constructs one for each of its layers, so that a
    /// parameter's path is the same under every recipe.
    class indexed {
      public:
        indexed(store& owner, int position, int index) : owner_(&owner) { owner.indices_.push_back({position, index}); }
        indexed(const indexed&) = delete;
        indexed& operator=(const indexed&) = delete;
        ~indexed() { owner_->indices_.pop_back(); }

      private:
        store* owner_;
    };

    /// Allocates the memory and fills it. Within an ht::defer_parameters neither is done before the store is divided among ranks, or
    /// weights are loaded. Throws out_of_memory, and state_error when called twice.
    void commit(std::uint64_t seed = 0);
    /// Allocates the memory of parameters that wait, and gives those that are_wanted(index) chooses their initial values; the others
    /// are to be written. Nothing happens if they do not wait. Throws out_of_memory.
    void end_waiting(const std::function<bool(std::size_t index)>& are_wanted);
    /// Whether commit() has been called, and the parameters wait for being divided or loaded: they have no values until then.
    bool is_waiting() const { return is_waiting_; }
    /// The seed of commit().
    std::uint64_t seed() const { return seed_; }
    /// Whether commit() has been called: parameters have values from then on, and none can be added.
    bool is_committed() const { return committed_; }

    /// Writes `count` values from host memory, of type `param`, to an entry's elements from `first` on, those of them
    /// that this rank holds. Split masters are written with their copies; in all other cases, and if the store is
    /// sharded, call refresh() afterwards.
    void write(std::size_t index, std::size_t first, const std::byte* values, std::size_t count);
    /// Writes values likewise, and those rounded to the copies: refresh() is not needed afterwards, unless the store is divided.
    void write_with_copies(std::size_t index, std::size_t first, const std::byte* values, std::size_t count);

    /// Writes all values of a weight whose copy is codes of a block format (role `copy`): the codes, and the master, if it has one.
    void write_coded(std::size_t index, const float* values);
    /// Copies such codes to host memory.
    std::vector<std::byte> codes_of(const entry& e) const;
    /// Reads the numbers that such codes stand for.
    void read_coded(const entry& e, std::size_t first, std::size_t count, float* to) const;

    /// Rounds all masters to their copies again; to be called after masters were written to. Split masters need no
    /// rounding. If the store is sharded, all ranks call it.
    void refresh();
    /// Rounds one parameter's master to its copy again, by its index in the store.
    void refresh(std::size_t index);

    /// Freezes every parameter whose path the pattern matches (path_matches, policy/path.hpp): from now on it has no
    /// gradient and no moments, and no master if kernels read a copy (but see keep_master). Call it before accumulators
    /// and optimizers are constructed. Returns the number of parameters matched; throws state_error before commit.
    std::size_t freeze(const std::string& pattern);

    /// Keeps the parameter's master when it is frozen: for a layer that reads another layer's parameter (tied weights)
    /// in a wider type than the copy's.
    void keep_master(std::size_t entry) { entries_[entry].keeps_master = true; }

    /// All parameters, in the order in which they were added.
    const std::vector<entry>& entries() const { return entries_; }
    /// The groups of parameters that have the same storage types.
    const std::vector<group>& groups() const { return groups_; }
    std::vector<group>& groups() { return groups_; }
    memory_resource& memory() const { return *memory_; }
    /// The amax histories of the layers' 8-bit operands (delayed scaling).
    amax_histories& amaxes() { return amaxes_; }
    const amax_histories& amaxes() const { return amaxes_; }
    /// Tells the memory's listener of an entry's part of a slab of gradients, of `each` bytes an element, that has been
    /// allocated. `slab` is its first byte; nullptr: the address is not told.
    void tell_slab(memory_kind kind, const entry& e, std::size_t each, const std::byte* slab = nullptr) const {
        if (!e.frozen) tell_slab(kind, e, e.gradient, gradients_here(e), each, slab);
    }
    /// Tells the memory's listener of an entry's part of a slab of moments or averages, of `each` bytes an element.
    void tell_moments(const entry& e, std::size_t each, const std::byte* slab = nullptr) const {
        if (!e.frozen) tell_slab(memory_kind::moment, e, e.moment, updated_here(e), each, slab);
    }
    /// Waits for those who copy parameters or moments beside the program, such as a checkpoint that is saved in the
    /// background (io/checkpoint.hpp). Called before anything changes them; who writes through master() calls it, too.
    void await_readers() const { readers_.wait(); }
    /// Where such readers announce themselves.
    detail::read_latch& readers() { return readers_; }
    /// Whether averages are in place of the parameters (optim/average.hpp): nothing is to be saved then as the model's state.
    bool is_averaged() const { return is_averaged_; }
    /// Called by an optimizer that puts averages in place, or parameters back.
    void set_averaged(bool now) { is_averaged_ = now; }
    /// A number that changes whenever the layout of the gradient slabs does.
    unsigned layout() const { return layout_; }

    // ---- a store that is divided among ranks (ranks/shard.hpp)

    /// Divides the slabs among ranks, and keeps what this rank holds, or makes it if the parameters wait for this. `sharding` is called from then on. Throws
    /// state_error before commit, and for a store that is divided already.
    void divide(detail::store_sharding& sharding, const detail::run_options& options);
    /// The division ends: what is divided can no longer be read.
    void forget_sharding() { sharding_ = nullptr; }
    /// Whether the slabs are divided among ranks.
    bool is_divided() const { return !runs_.empty(); }
    /// Who is to be called for a store that is divided; nullptr for any other.
    detail::store_sharding* sharding() const;
    /// Who is to be called, or nullptr, also when the division has ended.
    detail::store_sharding* sharding_if_any() const { return sharding_; }
    /// The runs of parameters of a divided store; none of any other.
    const std::vector<store_run>& runs() const { return runs_; }
    /// The unit of an entry: 0 unless the store is divided and it belongs to one.
    std::size_t unit_of(std::size_t entry) const { return is_divided() ? runs_[entries_[entry].run].unit : 0; }
    /// The number of elements from an entry's first one to that of the entry after it.
    std::size_t room(const entry& e) const {
        return round_up(e.count, is_divided() ? detail::run_options::granule : granule);
    }
    /// The elements of an entry, with those of the gap after it, that this rank updates.
    element_range updated_here(const entry& e) const { return here(e, &store_run::moment); }
    /// The elements of an entry whose gradients this rank has after a window.
    element_range gradients_here(const entry& e) const { return here(e, &store_run::gradient); }
    /// The elements of an entry whose masters this rank has.
    element_range masters_here(const entry& e) const { return here(e, &store_run::master); }
    /// The elements of an entry, without the gap after it, whose values this rank sets: of masters or, if it has none, of copies.
    element_range values_here(const entry& e) const {
        const element_range part = here(e, e.master == nowhere ? &store_run::copy : &store_run::master);
        return {part.first, part.count == 0 ? 0 : std::min(part.count, e.count - part.first)};
    }
    /// Whether this rank has masters and copies of so many elements of an entry from `first` on. Throws as check_committed().
    bool is_here(const entry& e, std::size_t first, std::size_t count) const;

    /// The number of parameters, without padding and layers' states.
    std::size_t size() const;
    /// Bytes of masters and copies, also before commit.
    std::size_t bytes() const;

    /// The three layers with the most bytes of masters and copies, for messages: "embed 65536, h.0 49152, h.1 49152".
    std::string largest_layers() const { return detail::largest_layers(entries_, groups_); }

    /// The identity of a group: an address, a different one for each combination of storage types.
    template <class Storage>
    static const void* key_of() {
        return &layout_of<Storage>;
    }
    /// The index of the group with these storage types; `nowhere` if no parameter has them.
    template <class Storage>
    std::size_t find_group() const {
        return find_group(key_of<Storage>());
    }
    /// Throws state_error before commit(), and while parameters wait for being divided or loaded.
    void check_committed() const {
        if (is_waiting_)
            fail<state_error>(
                "store: its parameters wait for ht::shard or for weights, as the model was made while an "
                "ht::defer_parameters "
                "existed");
        if (!committed_)
            fail<state_error>("store: its parameters have no memory yet; call commit() once all layers are made");
    }

  private:
    template <class Storage>
    static constexpr detail::storage_layout make_layout() {
        constexpr bool has_copy = !std::is_same_v<typename Storage::param, typename Storage::compute>;
        detail::storage_layout l;
        l.has_sparse_gradients = has_sparse_gradient<Storage>;
        l.param_bytes = sizeof(typename Storage::master);
        l.copy_bytes = coded<Storage> ? 1 : has_copy ? sizeof(typename Storage::compute) : 0;
        l.accumulate_bytes = sizeof(typename Storage::accumulate);
        l.state_bytes = sizeof(typename Storage::state);
        l.param_type = &value_traits_of<typename Storage::param>;
        l.copy_type = &value_traits_of<typename Storage::compute>;
        l.state_type = &value_traits_of<typename Storage::state>;
        l.fill = &detail::fill_initial<typename Storage::param>;
        if constexpr (coded<Storage>) {
            l.coding = &detail::weight_coding_of<typename Storage::format>;
            l.copy_type = &value_traits_of<float>;
        } else if constexpr (Storage::is_split) {
            l.split = &detail::split_values;
        } else if constexpr (has_copy) {
            l.round = &detail::round_values<typename Storage::param, typename Storage::compute, Storage::copy_rounding>;
        }
        return l;
    }
    template <class Storage>
    static constexpr detail::storage_layout layout_of = make_layout<Storage>();

    std::size_t find_group(const void* key) const;
    std::size_t group_of(const detail::storage_layout& layout);

    enum class entry_kind { parameter, state, adapter };
    /// The part of `add` that does not depend on types; returns the entry's index.
    template <int Rank>
    std::size_t add_entry(path_name path, const detail::storage_layout& layout, const char* leaf,
                          const shape<Rank>& shape, const initial& values, extent most_rows,
                          entry_kind kind = entry_kind::parameter) {
        if (committed_ || is_waiting_) fail<state_error>("store: ", leaf, " added after commit");
        check_shape("store", shape);
        detail::check_initial(leaf, values);
        if (most_rows < 0 || (most_rows > 0 && !layout.has_sparse_gradients)) {
            fail<argument_error>(
                "store: ", leaf, " with ", most_rows,
                " rows of gradient; expected 1 or more for a sparse gradient, or 0 for no limit");
        }
        const auto room = round_up(static_cast<std::size_t>(shape.size()), granule);
        if (room > most_elements - elements_) {
            fail<out_of_memory>("store: ", leaf, " ", shape, " after ", elements_,
                                " numbers of other parameters: more than memory can hold");
        }
        elements_ += room;
        entry e;
        e.path = run_time_path(path.text().data, leaf);
        e.group = group_of(layout);
        e.count = static_cast<std::size_t>(shape.size());
        e.values = values;
        if constexpr (Rank == 2) e.rows = shape[0], e.width = shape[1];
        for (int axis = 0; axis < Rank; ++axis) e.shape.push_back(shape[axis]);
        e.most_rows = most_rows;
        e.frozen = e.is_state = kind == entry_kind::state;
        e.is_adapter = kind == entry_kind::adapter;
        // So that the base has the initial values that it has without adapters.
        e.number = e.is_adapter ? first_of_adapters + adapter_entries_++
                                : static_cast<std::uint32_t>(entries_.size()) - adapter_entries_;
        place(e);
        entries_.push_back(std::move(e));
        ++layout_;
        return entries_.size() - 1;
    }

    /// Host memory through which parameters are copied to and from the device's.
    struct staging {
        static constexpr std::size_t elements = 4096;  // a multiple of 4: the generator returns 4 numbers at a time
        alignas(16) std::byte master[elements * sizeof(double)];
        alignas(16) std::byte copy[elements * sizeof(double)];
        alignas(16) std::byte rest[elements * sizeof(bfloat16_remainder)];
    };

    /// At most staging::elements elements if masters are split.
    void write(const group& g, const entry& e, std::size_t first, const std::byte* values, std::size_t count,
               staging& host);
    void round(const group& g, std::size_t master, std::size_t copy, std::size_t all, staging& host);

    /// Throws shape_error for rows of codes that are no whole number of blocks.
    void check_blocks(const entry& e) const;
    /// Gives an entry whose copy is codes its initial values.
    void fill_coded(const entry& e);
    /// Makes the codes of an entry, as a whole.
    void encode(const entry& e, const float* values);
    /// Makes the codes of an entry from its master, if it has one.
    void encode_master(const entry& e);

    std::string run_time_path(const char* path, const char* leaf) const;

    element_range here(const entry& e, const run_place store_run::*slab) const {
        return is_divided() ? detail::part_here(e, runs_[e.run], slab, rank_) : element_range{0, room(e)};
    }
    void tell_slab(memory_kind kind, const entry& e, std::size_t place, const element_range& part, std::size_t each,
                   const std::byte* slab) const;
    void refresh_runs();
    void take_memory();
    /// Gives the chosen entries their initial values, and the gaps after all of them zeros.
    void fill(const std::function<bool(std::size_t index)>& are_wanted);
    /// Gives the elements of an entry that this rank holds their initial values.
    void fill_here(std::size_t index, staging& host);
    /// Writes those of `count` elements from `first` on that are in a part of an entry.
    void write_part(const buffer& slab, std::size_t place, std::size_t each, const element_range& part,
                    std::size_t first, const std::byte* values, std::size_t count);

    /// Lays the slabs out in runs, and moves into the new ones what this rank holds.
    void keep_runs(const detail::run_options& options);
    /// Places a parameter in the slabs, after all parameters placed before.
    void place(entry& e);
    void lay_out();

    /// Tells the memory's listener of the bytes of an entry's master and copy, with the padding after them.
    void tell(const entry& e, std::ptrdiff_t sign) const;

    void drop_frozen_masters();

    /// Freezes what is neither of an adapter nor to be trained besides, before there is memory. Throws argument_error.
    void freeze_base();

    void move_master(const group& g, std::size_t before, std::byte* kept, const entry& e);

    memory_resource* memory_;
    std::vector<entry> entries_;
    std::vector<group> groups_;
    struct list_index {
        int position, index;
    };
    std::vector<list_index> indices_;
    // The largest number of elements of at most 16 bytes whose size in bytes fits into an std::int64_t.
    static constexpr std::size_t most_elements = INT64_MAX / 16;
    std::size_t elements_ = 0;
    unsigned layout_ = 0;
    bool is_averaged_ = false;
    std::vector<store_run> runs_;  // empty unless divided
    std::size_t rank_ = 0;
    detail::store_sharding* sharding_ = nullptr;
    amax_histories amaxes_;
    detail::adapter_list adapters_;
    static constexpr std::uint32_t first_of_adapters = 0x80000000;
    std::uint32_t adapter_entries_ = 0;
    detail::read_latch readers_;
    bool committed_ = false, is_waiting_ = false;
    std::uint64_t seed_ = 0;
};

/// While an object of this class exists, models that are made on the device take no memory for their parameters until weights are
/// loaded (io/weights.hpp), so that no time goes into initial values that these replace; or until ht::shard divides them
/// (ranks/shard.hpp): each rank then makes the initial values of its pieces only. Until then a model can be frozen in parts, and
/// cannot be used for anything else.
///
///     const ht::defer_parameters until_loaded{device};
///     ht::nn::llama<ht::amp_bf16> model{device, sizes};
///     ht::load_pretrained(model, folder);
///
///     const ht::defer_parameters until_divided{device};
///     ht::nn::llama<ht::amp_bf16> model{device, sizes};
///     ht::shard sharded{device, model, comm, ht::zero3{"h.*"}};
class defer_parameters {
  public:
    template <class Device>
    explicit defer_parameters(Device& device) : memory_(&device.memory()) {
        memory_->defer_parameters(+1);
    }
    defer_parameters(const defer_parameters&) = delete;
    defer_parameters& operator=(const defer_parameters&) = delete;
    ~defer_parameters() { memory_->defer_parameters(-1); }

  private:
    memory_resource* memory_;
};

template <class Storage, int Rank>
auto parameter<Storage, Rank>::values() const -> values_view {
    store_->check_committed();
    const store::entry& e = store_->entries()[entry_];
    const store::group& g = store_->groups()[e.group];
    if constexpr (coded<Storage>)
        return {g.copy.data() + e.copy, shape_[0], shape_[1]};
    else
        return plain_values(e, g);
}
template <class Storage, int Rank>
const_view<typename Storage::compute, Rank> parameter<Storage, Rank>::plain_values(const store_entry& e,
                                                                                   const store_group& g) const {
    const bool copied = g.copy_bytes != 0;
    if (store_->is_divided()) {
        const store_run& run = store_->runs()[e.run];
        if (!(copied ? run.copy : run.master).is_whole)
            return {reinterpret_cast<const compute*>(store_->sharding()->gathered(entry_)), shape_};
    }
    const auto* slab = reinterpret_cast<const compute*>(copied ? g.copy.data() : g.master.data());
    return {slab + (copied ? e.copy : e.master), shape_};
}

template <class Storage, int Rank>
typename parameter<Storage, Rank>::master_view parameter<Storage, Rank>::master() const {
    store_->check_committed();
    const store::entry& e = store_->entries()[entry_];
    if (e.master == store::nowhere)
        fail<state_error>("store: ", e.path,
                          " is frozen and kept its rounded copy only; read it in that type, as a layer or "
                          "ht::as_variable<T> does");
    if (store_->is_divided() && !store_->runs()[e.run].master.is_whole)
        fail<state_error>("store: the master of ", e.path, " is sharded, and this rank has a part of it only; "
                          "ht::shard's read() gathers it");
    const auto slab = reinterpret_cast<typename Storage::master*>(store_->groups()[e.group].master.data()) + e.master;
    if constexpr (Storage::is_split) {
        return {values(), {slab, shape_}};
    } else {
        return {slab, shape_};
    }
}

template <class Storage, int Rank>
void parameter<Storage, Rank>::assign(std::span<const param> values) const {
    if (!store_->is_divided()) static_cast<void>(master());  // throws if it has none
    if (static_cast<extent>(values.size()) != shape_.size()) {
        fail<shape_error>("store: ", values.size(), " values for ", store_->entries()[entry_].path, ", which is ",
                          shape_);
    }
    store_->write(entry_, 0, reinterpret_cast<const std::byte*>(values.data()), values.size());
    store_->refresh(entry_);
}

template <class Storage, int Rank>
bool parameter<Storage, Rank>::is_frozen() const {
    return store_->entries()[entry_].frozen;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/store.body.hpp>
#endif
