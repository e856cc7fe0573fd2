// SPDX-License-Identifier: MIT
/// \file
/// ZeRO: a model whose optimizer state, gradients and parameters are divided among ranks, as ranges of the store's slabs.
/// The loop of amp.hpp changes in two lines:
///
///     ht::shard sharded{device, model, comm, ht::zero3{"h.*"}};      // first: before accumulators and optimizers
///     ht::accumulator acc{sharded};
///     ht::adamw optimizer{device, sharded, {.lr = 3e-4}};
///     tape.backward(scaler.scale(model.loss(tape, batch) / sharded), acc);         // this rank's rows
///     auto grads = scaler.unscale(acc.take());                       // sums over ranks; each rank has its range
///     ht::clip_grad_norm(grads, 1.0f);                               // the norm of all ranges
///     optimizer.step(grads);                                         // updates the range, and gathers what must be whole
///
/// A model that is made while an ht::defer_parameters{device} exists takes no memory before it is divided, so that no rank ever
/// has all of it; its seed is then the same on all ranks.
///
/// The device is named because sums are its kernels' work, and a model does not know its device. Freeze parameters first,
/// and make the model with the same seed on all ranks: rank 0's parameters are copied to the others.
///
/// Layout (memory/store_run.hpp): the parameters of a unit and storage types are a run, padded so that all ranks have equal
/// pieces of it, multiples of 256 elements; padding() tells how much that adds. What a rank has of a run:
///
///                      zero1          zero2          zero3, in a unit         zero3, the rest
///     moments          its piece      its piece      its piece                its piece
///     gradients        all            its piece *    its piece *              its piece *
///     masters          all            all            its piece                its piece **
///     copies           all            all            its piece ***            all
///
///     * all, from the first gradient of a window until the sums: of a unit, when the last backward pass has left it; of the
///       rest, in take()   ** all, if kernels read them   *** and, for all units together, all of two: the one that is called,
///       and the one that is on its way
///
/// So with zero3 a unit's parameters can be read only while the list calls it. All ranks must then call the same layers in
/// the same order, also for evaluation.
///
/// Numeric contract: gradients are added by the tree of ranks/reduce.hpp in the type `reduce` of each layer's policy.
/// Updates are elementwise, and random numbers of stochastic rounding belong to elements, not to places. The norm is an
/// exact sum (scale/exact_sum.hpp) of the sums of squares of 256 elements each, counted from each parameter's first. So
/// all strategies give the same bits at a number of ranks.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halftone/autodiff/engine/rank_loss.hpp>
#include <halftone/policy/model.hpp>
#include <halftone/ranks/agreement.hpp>
#include <halftone/ranks/check_equal.hpp>
#include <halftone/ranks/check_pass.hpp>
#include <halftone/ranks/communicator.hpp>
#include <halftone/ranks/on_all_ranks.hpp>
#include <halftone/ranks/reduce.hpp>
#include <halftone/ranks/unit_gather.hpp>
#include <halftone/ranks/zero.hpp>
#include <halftone/scale/exact_sum.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How gradients are added; the same on all ranks.
struct shard_options {
    /// Backward passes in each window, of which the last one is accompanied by the sums of units; 0: not known, all are added
    /// in take().
    int micro_batches = 1;
    /// Gradients that are added at once, in fp32: parameters of a unit, or of the rest, are divided into runs of so many
    /// bytes, unless a single parameter has more.
    std::size_t bucket_bytes = std::size_t{25} << 20;
};

namespace detail {

/// The sum of a run over ranks, which has begun.
class sum_under_way {
  public:
    sum_under_way() = default;
    sum_under_way(const sum_under_way&) = delete;
    sum_under_way& operator=(const sum_under_way&) = delete;
    virtual ~sum_under_way() = default;
    virtual void finish() = 0;
};
template <class Sum>
class sum_of_run final : public sum_under_way {
  public:
    sum_of_run(Sum sum, gradient_slabs& slabs, std::size_t run) : sum_(std::move(sum)), slabs_(&slabs), run_(run) {}
    void finish() override {
        sum_.wait();
        slabs_->drop_whole(run_);
    }

  private:
    Sum sum_;
    gradient_slabs* slabs_;
    std::size_t run_;
};

template <class... Storages>
constexpr bool any_sparse(types<Storages...>) {
    return (has_sparse_gradient<Storages> || ...);
}

}  // namespace detail

/// A model whose parameters are divided among the ranks of a communicator, as Strategy (ranks/zero.hpp) says. It is a model
/// for accumulators and optimizers; device, model and communicator must outlive it, and it must outlive their use.
template <class Device, class Model, class Strategy>
class shard final : public detail::store_sharding {
    static_assert(!detail::any_sparse(signatures_of<Model>{}),
                  "halftone: shard: this model has a table with a sparse gradient (ht::nn::sparse_embedding), whose rows are "
                  "not the same ones on all ranks and cannot be added: take ht::nn::embedding, whose table has a dense "
                  "gradient");

  public:
    using sharding_strategy = Strategy;

    /// Collective. Copies rank 0's parameters to the others, and divides them. Throws argument_error for a unit that is no
    /// layer of a list, and if ranks give different models or options; state_error for a model that has been sharded before, communication_error and out_of_memory.
    shard(Device& device, Model& model, communicator& comm, Strategy strategy, const shard_options& how = {})
        : device_(&device), model_(&model), comm_(&comm), strategy_(std::move(strategy)), options_(how) {
        if (how.micro_batches < 0)
            fail<argument_error>("shard: micro_batches is ", how.micro_batches, "; expected 0 or more");
        if (how.bucket_bytes == 0) fail<argument_error>("shard: bucket_bytes is 0; expected 1 or more");
        store& parameters = model.parameters();
        if (!parameters.is_waiting()) parameters.check_committed();
        if (parameters.is_divided()) fail<state_error>("shard: this model has been sharded before; one ht::shard divides it");
        units_ = detail::find_units(parameters, strategy_.units);
        check_options();
        if (parameters.is_waiting()) {
            detail::check_same_layout(comm, parameters);
        } else {
            detail::broadcast_parameters(comm, parameters);
        }
        detail::run_options options;
        options.stage = stage();
        options.rank = rank();
        options.ranks = ranks();
        options.units = units_.of_entry;
        options.most = how.bucket_bytes / sizeof(float);
        try {
            parameters.divide(*this, options);
            take_memory();
        } catch (...) {
            parameters.forget_sharding();
            throw;
        }
    }
    ~shard() override { model_->parameters().forget_sharding(); }

    /// The store of the model's parameters.
    store& parameters() { return model_->parameters(); }
    const store& parameters() const { return std::as_const(*model_).parameters(); }
    /// The model itself.
    Model& model() const { return *model_; }
    communicator& comm() const { return *comm_; }
    const Strategy& strategy() const { return strategy_; }
    const shard_options& options() const { return options_; }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(*self.model_); }

    /// The names of the units; the first is "the rest".
    const std::vector<std::string>& units() const { return units_.names; }
    /// How the slabs are divided.
    const std::vector<store_run>& runs() const { return parameters().runs(); }
    /// The number of elements that equal pieces add to the model's parameters, on all ranks together.
    std::size_t padding() const {
        std::size_t n = 0;
        for (const store_run& r : runs()) n += r.count - r.used;
        return n;
    }
    /// How units were gathered so far (zero3).
    gather_counts counts() const { return gather_ ? gather_->counts() : gather_counts{}; }
    /// Bytes of the memory for the unit that is called and the one on its way (zero3).
    std::size_t gathered_bytes() const { return gather_ ? gather_->bytes() : 0; }

    /// The values of a parameter, in host memory: its masters, or its copies if it has no masters. Collective.
    template <class Storage, int Rank>
    auto read(const parameter<Storage, Rank>& p) const;

    /// A loss over the number of ranks, as a part of the loss of all of them, which have equally many rows.
    template <class Loss>
    friend auto operator/(const Loss& loss, const shard& ranks) -> rank_loss<decltype(loss / 1.0)> {
        return {loss / static_cast<double>(ranks.comm_->size()), ranks.comm_->size()};
    }
    /// The share of all ranks' batches that is in `micro`, a part of this rank's `batch`, by what their losses are means over
    /// (autodiff/engine/share.hpp). Collective: the ranks' counts are added. On a GPU it waits for the device.
    template <class Context, class Micro, class Batch>
    rank_share share_of(Context&& context, const Micro& micro, const Batch& batch) const {
        return detail::share_of_ranks(*comm_, context, micro, batch);
    }

    // ---- called by accumulators, gradients, optimizers and lists of layers

    void begin_pass(gradient_slabs& slabs, int number, int of) override {
        detail::check_pass({"shard", "sharded", comm_->size(), options_.micro_batches}, number, of);
        slabs_ = number == options_.micro_batches && comm_->size() > 1 ? &slabs : nullptr;
    }
    void complete(std::size_t unit) override {
        if (slabs_ == nullptr) return;
        for_each_run([&]<class Storage>(std::size_t run) {
            if (runs()[run].unit != unit || slabs_->is_sent(run)) return;
            slabs_->send(run);
            begin<Storage>(*slabs_, run);
        });
    }
    void reduce(gradient_slabs& slabs) override {
        slabs_ = nullptr;
        if (comm_->size() > 1 || stage() >= 2) {
            for_each_run([&]<class Storage>(std::size_t run) {
                if (!slabs.is_sent(run)) begin<Storage>(slabs, run);
            });
        }
        finish(0);
        slabs.drop_whole();
        if (comm_->size() == 1) return;
        slabs.forget_squares();
        detail::agree_on_reached(*comm_, slabs);
        detail::agree_on_amaxes(*comm_, parameters().amaxes());
        detail::agree_on_states(*comm_, parameters());
    }
    void cancel() noexcept override {
        slabs_ = nullptr;
        under_way_.clear();
    }
    element_range measured_here(std::size_t entry) const override {
        const store::entry& e = parameters().entries()[entry];
        return detail::part_of_rank(e, runs()[e.run], rank());
    }
    detail::found_squares unite(const detail::found_squares& own) override {
        detail::found_squares sum;
        for (const detail::found_squares& each : gather_values(*comm_, "norm of gradients", own)) {
            sum.squares.add(each.squares);
            sum.found = std::max(sum.found, each.found);
        }
        return sum;
    }
    void gather() override;

    void open(std::size_t unit, detail::unit_pass pass) override {
        if (gather_) gather_->open(unit, pass);
        current_ = unit;
    }
    void close(std::size_t, detail::unit_pass) override {
        if (gather_) gather_->close();
        current_ = 0;
    }
    std::size_t current() const override { return current_; }
    const std::byte* gathered(std::size_t entry) const override { return gather_->values(entry); }

    // ---- called by those who read and write files

    void read_whole(std::size_t entry, std::byte* to) const override;
    void on_all(const char* what, const std::function<void()>& f) override { detail::on_all_ranks(*comm_, what, f); }
    bool is_first() const override { return comm_->rank() == 0; }

  private:
    template <class Storage>
    using wire = typename Storage::reduce;

    /// Known at compile time, unless the strategy is ht::zero.
    int stage() const { return strategy_.stage; }
    std::size_t rank() const { return static_cast<std::size_t>(comm_->rank()); }
    std::size_t ranks() const { return static_cast<std::size_t>(comm_->size()); }

    /// Calls f.template operator()<Storage>(run) for each run of parameters that are trained.
    template <class F>
    void for_each_run(const F& f) const {
        for (std::size_t i = 0; i < runs().size(); ++i) {
            if (runs()[i].kind == store_run::content::trained) with_storage(runs()[i].group, f, i, signatures_of<Model>{});
        }
    }
    template <class F, class... Storages>
    void with_storage(std::size_t group, const F& f, std::size_t run, types<Storages...>) const {
        const void* const key = parameters().groups()[group].key;
        ((key == store::key_of<Storages>() ? f.template operator()<Storages>(run) : void()), ...);
    }

    void take_memory() {
        if (stage() >= 3) gather_.emplace(parameters(), *comm_, units_.names);
        std::size_t bytes = 0;
        for_each_run([&]<class Storage>(std::size_t run) {
            bytes = std::max(bytes, reduction_bytes<wire<Storage>>(*comm_, static_cast<extent>(runs()[run].count)));
        });
        if (comm_->size() > 1) sums_ = buffer(parameters().memory(), 2 * bytes, memory_kind::gradient);
    }

    void check_options() const {
        detail::checksum own;
        own.add(options_.micro_batches), own.add(options_.bucket_bytes), own.add(stage());
        // Initial values that each rank makes by itself are the same if what they follow from is.
        own.add(parameters().is_waiting());
        for (const store::entry& e : parameters().entries()) {
            if (parameters().is_waiting())
                own.add(parameters().seed()), own.add(e.values.mean), own.add(e.values.deviation),
                    own.add(e.values.bound);
        }
        for (const std::string& name : units_.names) own.add(name.c_str());
        if (const auto d = detail::first_difference(*comm_, "options of shard", {own.value()}); d.rank >= 0)
            fail<argument_error>(
                "shard: the strategy, its units or its options, or the seed of a model that waits for it, on rank ",
                d.rank, " are not those of rank 0");
    }

    /// Begins to add a run over ranks. Its memory is one half of sums_, so that it waits for the run before the last.
    template <class Storage>
    void begin(gradient_slabs& slabs, std::size_t run) {
        using T = typename Storage::accumulate;
        const store_run& r = runs()[run];
        const view<T, 1> all{reinterpret_cast<T*>(slabs.whole(run)), {static_cast<extent>(r.count)}};
        T* const mine = r.gradient.is_whole ? all.data() + rank() * r.piece
                                            : reinterpret_cast<T*>(slabs.slab(r.group)) + r.gradient.first;
        if (comm_->size() == 1) {
            device_->copy(mine, all.data(), r.piece * sizeof(T));
            return slabs.drop_whole(run);
        }
        finish(1);
        const std::size_t half = sums_.bytes() / 2;
        const std::span<std::byte> memory(sums_.data() + (begun_++ % 2) * half, half);
        const char* const what = units_.names[r.unit].c_str();
        if (stage() == 0) {
            keep(begin_all_reduce<wire<Storage>>(*device_, *comm_, what, all, memory), slabs, run);
        } else {
            const view<T, 1> piece{mine, {static_cast<extent>(r.piece)}};
            keep(begin_reduce_scatter<wire<Storage>>(*device_, *comm_, what, all, piece, memory), slabs, run);
        }
    }
    template <class Sum>
    void keep(Sum sum, gradient_slabs& slabs, std::size_t run) {
        under_way_.push_back(std::make_unique<detail::sum_of_run<Sum>>(std::move(sum), slabs, run));
    }
    /// Waits until no more than so many runs are under way.
    void finish(std::size_t left) {
        while (under_way_.size() > left) {
            const auto first = std::move(under_way_.front());
            under_way_.pop_front();
            first->finish();
        }
    }

    Device* device_;
    Model* model_;
    communicator* comm_;
    Strategy strategy_;
    detail::unit_list units_;
    std::optional<detail::unit_gather> gather_;
    shard_options options_;
    gradient_slabs* slabs_ = nullptr;  // within a window's last pass
    buffer sums_;                      // of two runs that are added
    std::size_t begun_ = 0;
    std::size_t current_ = 0;          // the unit that is open
    std::deque<std::unique_ptr<detail::sum_under_way>> under_way_;
};

template <class Device, class Model, class Strategy>
shard(Device&, Model&, communicator&, Strategy) -> shard<Device, Model, Strategy>;
template <class Device, class Model, class Strategy>
shard(Device&, Model&, communicator&, Strategy, const shard_options&) -> shard<Device, Model, Strategy>;

template <class Device, class Model, class Strategy>
void shard<Device, Model, Strategy>::gather() {
    if (gather_) gather_->forget();
    if (stage() == 0 || comm_->size() == 1) return;
    std::vector<pending> under_way;
    const auto begin = [&](const char* what, const store_run& r, const buffer& slab, const run_place& p, std::size_t each) {
        if (!p.is_there() || !p.is_whole) return;
        std::byte* const all = slab.data() + p.first * each;
        under_way.push_back(comm_->begin_all_gather(what, all + rank() * r.piece * each, all, r.piece * each));
    };
    for (const store_run& r : runs()) {
        if (r.kind != store_run::content::trained) continue;
        const store::group& g = parameters().groups()[r.group];
        begin("parameters", r, g.master, r.master, g.param_bytes);
        if (g.coding == nullptr) begin("copies of parameters", r, g.copy, r.copy, g.copy_bytes);
    }
    for (pending& p : under_way) p.wait();
}

template <class Device, class Model, class Strategy>
void shard<Device, Model, Strategy>::read_whole(std::size_t entry, std::byte* to) const {
    const store::entry& e = parameters().entries()[entry];
    const store_run& r = runs()[e.run];
    const store::group& g = parameters().groups()[r.group];
    const auto read = [&](const buffer& slab, const run_place& at, std::size_t each, void* host) {
        const std::byte* from = slab.data() + (at.first + (at.is_whole ? e.in_run : 0)) * each;
        buffer all(parameters().memory(), at.is_whole ? 0 : r.count * each, memory_kind::other);
        if (!at.is_whole) {
            comm_->all_gather(e.path.c_str(), from, all.data(), r.piece * each);
            from = all.data() + e.in_run * each;
        }
        parameters().memory().read(host, from, e.count * each);
    };
    if (!r.master.is_there()) return read(g.copy, r.copy, g.copy_bytes, to);
    if (g.split == nullptr) return read(g.master, r.master, g.param_bytes, to);
    std::vector<bfloat16> nearest(e.count);
    std::vector<bfloat16_remainder> rest(e.count);
    read(g.copy, r.copy, sizeof(bfloat16), nearest.data());
    read(g.master, r.master, sizeof(bfloat16_remainder), rest.data());
    for (std::size_t i = 0; i < e.count; ++i) {
        const float joined = halftone::join(float_halves{nearest[i], rest[i]});
        std::memcpy(to + i * sizeof joined, &joined, sizeof joined);
    }
}

template <class Device, class Model, class Strategy>
template <class Storage, int Rank>
auto shard<Device, Model, Strategy>::read(const parameter<Storage, Rank>& p) const {
    using param = typename Storage::param;
    const auto count = static_cast<std::size_t>(p.shape().size());
    std::vector<param> host(count);
    if constexpr (coded<Storage>) {
        const store::entry& e = parameters().entries()[p.entry()];
        if (!runs()[e.run].master.is_there()) {
            std::vector<float> values(count);
            parameters().read_coded(e, 0, count, values.data());
            for (std::size_t i = 0; i < count; ++i) host[i] = static_cast<param>(values[i]);
            return host;
        }
    }
    if (runs()[parameters().entries()[p.entry()].run].master.is_there()) {
        read_whole(p.entry(), reinterpret_cast<std::byte*>(host.data()));
    } else {
        std::vector<typename Storage::compute> copies(count);
        read_whole(p.entry(), reinterpret_cast<std::byte*>(copies.data()));
        for (std::size_t i = 0; i < count; ++i) host[i] = static_cast<param>(static_cast<float>(copies[i]));
    }
    return host;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
