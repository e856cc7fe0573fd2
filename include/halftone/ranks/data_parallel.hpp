// SPDX-License-Identifier: MIT
/// \file
/// Data parallel training: each rank has the whole model and some rows of each batch, and the gradients of all ranks are
/// added before the optimizer reads them. The loop of amp.hpp changes in two lines:
///
///     ht::accumulator acc{model};
///     ht::data_parallel ranks{device, comm, acc};                              // rank 0's parameters are copied to all
///     for (const auto& batch : loader) {                                       // this rank's rows
///         tape.backward(scaler.scale(model.loss(tape, batch) / ranks), acc);   // a part of the loss of all ranks
///         auto grads = scaler.unscale(acc.take());                             // the sum over ranks, the same bits on all
///         ht::clip_grad_norm(grads, 1.0f);
///         optimizer.step(grads);
///         scaler.update();
///     }
///
///     ht::data_parallel ranks{device, comm, acc, {.micro_batches = 4}};        // gradient accumulation: 4 passes a window
///     auto loss = model.loss(tape, micro) * ranks.share_of(tape, micro, batch);     // targets are counted on all ranks
///     ht::check_equal(comm, model);                                            // now and then: do the ranks agree?
///
/// take() returns the sums; nothing is to be called for them, and nothing is exchanged before the last pass of a window.
/// While that one runs, gradients are exchanged as soon as they are complete (ranks/gradient_progress.hpp), in buckets, each
/// a range of a slab, in the order in which rank 0 completed them in the first window; in the first window itself, and
/// with `micro_batches` of 0, all are exchanged in take(). They travel in the policy's type `reduce`. A loss that is not a
/// part of that of all ranks throws state_error: its gradients would count as many times as there are ranks.
///
/// Sums come before unscale(): norm, clipping, found_inf, skipped steps and the loss scale follow from the same bits on
/// all ranks, and so do parameters. A gradient that is infinite or NaN on one rank, or overflows in the wire type, is not
/// finite on any. Also the same on all ranks after take(): which parameters were reached, so that all optimizers update
/// the same ones; the amaxes of delayed scaling, each the largest of all ranks; and layers' states, such as running
/// statistics, which are rank 0's, as in PyTorch's DistributedDataParallel.
///
/// Numeric contract: one more rounding of each rank's gradient, to `reduce`, if that is narrower than `accumulate`, and
/// the tree of ranks/reduce.hpp; the bits depend on the number of ranks, but not on bucket_bytes, the order of buckets or
/// the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halftone/autodiff/engine/rank_loss.hpp>
#include <halftone/ranks/agreement.hpp>
#include <halftone/ranks/check_equal.hpp>
#include <halftone/ranks/gradient_progress.hpp>
#include <halftone/ranks/gradient_ranges.hpp>
#include <halftone/scale/accumulator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How gradients are exchanged; the same on all ranks.
struct data_parallel_options {
    /// Backward passes in each window, of which the last one is accompanied by the exchange; 0: not known, all gradients are
    /// exchanged in take().
    int micro_batches = 1;
    /// Gradients that are exchanged at once; PyTorch's bucket_cap_mb. Rounded to whole granules of the store.
    std::size_t bucket_bytes = std::size_t{25} << 20;
};

/// What data_parallel has exchanged.
struct data_parallel_counts {
    std::int64_t windows = 0;
    std::int64_t buckets = 0;     ///< in all windows
    std::int64_t overlapped = 0;  ///< of these: begun before take()
    std::size_t sent_bytes = 0;   ///< gradients that this rank sent
};

namespace detail {

/// The part of data_parallel that does not depend on types: buckets, and when they are exchanged.
class bucket_schedule : public gradient_progress {
  public:
    bucket_schedule(communicator& comm, window& w, const data_parallel_options& options)
        : gradient_progress(w, comm.size(), options.micro_batches), comm_(&comm), ranges_of_(gradients()) {
        if (options.micro_batches < 0)
            fail<argument_error>("data_parallel: micro_batches is ", options.micro_batches, "; expected 0 or more");
        if (options.bucket_bytes == 0) fail<argument_error>("data_parallel: bucket_bytes is 0; expected 1 or more");
        checksum own;
        own.add(options.micro_batches), own.add(options.bucket_bytes), own.add(w.parts.size());
        if (const rank_difference d = first_difference(comm, "options of data_parallel", {own.value()}); d.rank >= 0)
            fail<argument_error>("data_parallel: micro_batches, bucket_bytes or the number of models on rank ", d.rank,
                                 " is not that of rank 0");
        for (std::size_t p = 0; p < parts(); ++p) broadcast_parameters(comm, slabs(p).owner());
        for (std::size_t p = 0; p < parts(); ++p) broadcast_amaxes(slabs(p).owner().amaxes());
    }

    communicator& comm() const { return *comm_; }
    const data_parallel_counts& counts() const { return counts_; }

  protected:
    /// Adds a bucket of elements [first, end) of the gradient slab of a group.
    void add(std::unique_ptr<summed_range> range, std::size_t part, std::size_t group, std::size_t first, std::size_t end) {
        const auto& entries = slabs(part).owner().entries();
        std::size_t gradients = 0;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            const store::entry& e = entries[i];
            if (e.group != group || e.frozen || e.gradient >= end || e.gradient + e.count <= first) continue;
            ranges_of_[number(part, i)].push_back(buckets_.size());
            ++gradients;
        }
        order_.push_back(static_cast<std::uint32_t>(buckets_.size()));
        buckets_.push_back({std::move(range), gradients, gradients});
    }
    /// Once all buckets are there: the memory for those that are exchanged at the same time.
    void take_memory(memory_resource& memory) {
        std::size_t bytes = 0;
        for (const bucket& b : buckets_) bytes = std::max(bytes, b.range->memory_bytes());
        for (std::size_t i = 0; i < std::min(under_way, buckets_.size()); ++i)
            memory_.emplace_back(memory, bytes, memory_kind::gradient);
    }

  private:
    struct bucket {
        std::unique_ptr<summed_range> range;
        std::size_t gradients, left;  ///< those in it; those that are not complete yet
    };
    /// Buckets that have begun and not finished: one sends pieces, one sums, and one has just come.
    static constexpr std::size_t under_way = 3;

    void complete(std::size_t gradient) override {
        for (const std::size_t b : ranges_of_[gradient]) --buckets_[b].left;
        while (is_ordered_ && begun_ < buckets_.size() && next(begun_).left == 0) begin_next(), ++counts_.overlapped;
    }
    void finish() override {
        if (comm_->size() == 1) return;
        while (begun_ < buckets_.size()) begin_next();
        if (begun_ > 0) next(begun_ - 1).range->gather();
        for (std::size_t i = begun_ < under_way ? 0 : begun_ - under_way + 1; i < begun_; ++i) next(i).range->finish();
        begin_anew();
        ++counts_.windows;
        for (std::size_t p = 0; p < parts(); ++p) {
            agree_on_reached(*comm_, slabs(p));
            slabs(p).forget_squares();
            slabs(p).set_of_ranks();
            agree_on_amaxes(*comm_, slabs(p).owner().amaxes());
            agree_on_states(*comm_, slabs(p).owner());
        }
        if (!std::exchange(is_ordered_, true)) put_in_order();
    }
    void cancel() noexcept override {
        for (bucket& b : buckets_) b.range->drop();
        begin_anew();
    }

    bucket& next(std::size_t i) { return buckets_[order_[i]]; }
    void begin_anew() noexcept {
        begun_ = 0;
        for (bucket& b : buckets_) b.left = b.gradients;
    }
    /// All ranks do this in the same order, so that their collectives meet: bucket i begins, sums of the one before it
    /// begin to travel, and the one before that is finished, which leaves its memory to the next.
    void begin_next() {
        const std::size_t i = begun_++;
        const buffer& memory = memory_[i % memory_.size()];
        next(i).range->begin({memory.data(), memory.bytes()});
        if (i >= 1) next(i - 1).range->gather();
        if (i >= 2) next(i - 2).range->finish();
        ++counts_.buckets;
        counts_.sent_bytes += next(i).range->sent_bytes();
    }
    /// From the next window on, buckets are exchanged in the order in which rank 0 completed them.
    void put_in_order() {
        const std::vector<std::size_t> last = order();
        std::vector<std::size_t> position(gradients(), gradients()), completed(buckets_.size(), 0);
        for (std::size_t i = 0; i < last.size(); ++i) position[last[i]] = i;
        for (std::size_t g = 0; g < gradients(); ++g) {
            for (const std::size_t b : ranges_of_[g]) completed[b] = std::max(completed[b], position[g]);
        }
        std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) { return completed[a] < completed[b]; });
        if (!order_.empty())
            comm_->broadcast("order of gradients", order_.data(), order_.size() * sizeof order_[0], 0);
    }

    void broadcast_amaxes(const amax_histories& amaxes) {
        if (amaxes.size() == 0 || comm_->size() == 1) return;
        comm_->broadcast("amax records", amaxes.records(), static_cast<std::size_t>(amaxes.size()) * sizeof(amax_record), 0);
        comm_->broadcast("amax histories", amaxes.history(), static_cast<std::size_t>(amaxes.windows()) * sizeof(std::uint32_t),
                         0);
    }

    communicator* comm_;
    std::vector<buffer> memory_;   // before those who use it
    std::vector<bucket> buckets_;
    std::vector<std::uint32_t> order_;                  // indices of buckets, as they are exchanged
    std::vector<std::vector<std::size_t>> ranges_of_;   // by gradient: the buckets that it is in
    std::size_t begun_ = 0;                             // of order_, in this window
    bool is_ordered_ = false;
    data_parallel_counts counts_;
};

template <class Models>
struct sums_rows;
template <class... Models>
struct sums_rows<types<Models...>> {
    template <class... Storages>
    static constexpr bool any(types<Storages...>) {
        return (has_sparse_gradient<Storages> || ...);
    }
    static constexpr bool value = (any(signatures_of<Models>{}) || ...);
};

}  // namespace detail

/// Adds the losses of the current step of all ranks, in a loss_meter before its end_step(), or an outlier_guard before its
/// watch(): the step's loss is then that of the batch of all ranks. Collective. On a GPU it waits for the device.
template <class Losses>
void add_up(communicator& comm, Losses& losses) {
    const step_losses own = losses.step();
    losses.set_step({all_reduce_sum(comm, "losses", own.sum), all_reduce_sum(comm, "weights of losses", own.weight)});
}

/// Adds the gradients of an accumulator over the ranks of a communicator. Device, communicator and accumulator must outlive
/// it; one for each accumulator.
template <class Device, class Accumulator>
class data_parallel;

template <class Device, class Kind, class... Models>
class data_parallel<Device, accumulator<Kind, types<Models...>>> final : private detail::bucket_schedule {
    static_assert(!detail::sums_rows<types<Models...>>::value,
                  "halftone: data_parallel: a model has a table with a sparse gradient (ht::nn::sparse_embedding), whose rows "
                  "are not the same ones on all ranks and cannot be added: take ht::nn::embedding, whose table has a dense "
                  "gradient");

  public:
    /// Collective. Copies rank 0's parameters to all others. Throws argument_error on all ranks if models or options are
    /// not the same, state_error within a window of the accumulator, and communication_error.
    data_parallel(Device& device, communicator& comm, accumulator<Kind, types<Models...>>& acc,
                  const data_parallel_options& options = {})
        : detail::bucket_schedule(comm, acc.window(), options), accumulator_(&acc) {
        acc.listen(this);
        std::size_t part = 0;
        if (comm.size() > 1) (add_part(device, part++, options, signatures_of<Models>{}), ...);
        take_memory(device.memory());
    }
    ~data_parallel() override { accumulator_->listen(nullptr); }

    /// This rank's number, and how many there are.
    int rank() const { return comm().rank(); }
    int size() const { return comm().size(); }
    using detail::bucket_schedule::comm;
    /// What was exchanged so far.
    const data_parallel_counts& counts() const { return detail::bucket_schedule::counts(); }

    /// The share of all ranks' batches that is in `micro`, a part of this rank's `batch`, by what their losses are means over
    /// (autodiff/engine/share.hpp). Collective: the ranks' counts are added. On a GPU it waits for the device.
    template <class Context, class Micro, class Batch>
    rank_share share_of(Context&& context, const Micro& micro, const Batch& batch) const {
        return detail::share_of_ranks(comm(), context, micro, batch);
    }
    /// The share of all ranks' batches that is in this rank's batch, by what its loss is a mean over. Collective. On a GPU
    /// it waits for the device.
    template <class Context, class Batch>
    rank_share share_of(Context&& context, const Batch& batch) const {
        return share_of(context, batch, batch);
    }
    /// The share of `whole`, the batch of all ranks, that is in `micro`, where each rank knows all of it: nothing is
    /// exchanged.
    template <class Context, class Micro, class Whole>
    rank_share share_of_whole(Context&& context, const Micro& micro, const Whole& whole) const {
        return {halftone::share_of(context, micro, whole), size()};
    }
    /// A loss over the number of ranks, as a part of the loss of all of them, which have equally many rows.
    template <class Loss>
    friend auto operator/(const Loss& loss, const data_parallel& ranks) -> rank_loss<decltype(loss / 1.0)> {
        return {loss / static_cast<double>(ranks.size()), ranks.size()};
    }

    /// halftone::add_up for these ranks.
    template <class Losses>
    void add_up(Losses& losses) const {
        halftone::add_up(comm(), losses);
    }

  private:
    template <class... Storages>
    void add_part(Device& device, std::size_t part, const data_parallel_options& options, types<Storages...>) {
        (add_group<Storages>(device, part, options), ...);
    }
    /// Cuts the slab of a group into buckets.
    template <class Storage>
    void add_group(Device& device, std::size_t part, const data_parallel_options& options) {
        using T = typename Storage::accumulate;
        if constexpr (!has_sparse_gradient<Storage>) {
            const std::size_t group = slabs(part).owner().template find_group<Storage>();
            if (group == store::nowhere) return;
            const view<T, 1> slab = slabs(part).template group<Storage>(group);
            const auto all = static_cast<std::size_t>(slab.size());
            const std::size_t room = std::max(options.bucket_bytes / sizeof(T) / store::granule, std::size_t{1}) * store::granule;
            for (std::size_t first = 0; first < all; first += room) {
                const std::size_t end = std::min(first + room, all);
                const view<T, 1> values{slab.data() + first, {static_cast<extent>(end - first)}};
                add(std::make_unique<detail::summed_range_of<Device, T, typename Storage::reduce>>(
                        device, comm(), values, "gradients from " + path_at(part, group, first) + " on"),
                    part, group, first, end);
            }
        }
    }
    /// The parameter in which an element of a slab is.
    std::string path_at(std::size_t part, std::size_t group, std::size_t element) const {
        std::string path;
        for (const store::entry& e : slabs(part).owner().entries()) {
            if (e.group == group && !e.frozen && e.gradient <= element) path = e.path;
        }
        return path;
    }

    accumulator<Kind, types<Models...>>* accumulator_;
};

template <class Device, class Kind, class Models>
data_parallel(Device&, communicator&, accumulator<Kind, Models>&) -> data_parallel<Device, accumulator<Kind, Models>>;
template <class Device, class Kind, class Models>
data_parallel(Device&, communicator&, accumulator<Kind, Models>&, const data_parallel_options&)
    -> data_parallel<Device, accumulator<Kind, Models>>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
