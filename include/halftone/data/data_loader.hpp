// SPDX-License-Identifier: MIT
/// \file
/// Batches out of a data set, made in the background: PyTorch's DataLoader.
///
///     ht::data_loader loader{images, {.batch_size = 64, .num_workers = 2, .seed = 1}, collate};
///     for (int epoch = 0; epoch < 10; ++epoch) {
///         for (const my_batch& batch : loader) train(batch);                // each sample once, in an order of this epoch
///     }
///     const ht::loader_position at = loader.position();                    // between any two batches
///     again.resume(at);                                                    // the same remaining batches
///
///     ht::data_loader loader{images, options, crop_and_flip, collate};      // with a transform, called by the workers
///     ht::data_loader loader{gpu, images, options, collate};                // batches in the GPU's memory
///     ht::trainer{...}.train(loader);                                      // the batches of steps 0, 1, ...
///
/// A source is a map, with size() and [index], which workers call at the same time; or a stream, with start(epoch) and
/// next(), which gives a std::optional and which one worker calls at a time. A transform is a function of a sample, or of
/// a sample and its place. collate(std::span<const Sample>, ht::batch_memory&) makes a batch, whose views are of memory
/// that it takes from the second argument.
///
/// The order of the samples is a function of seed and epoch: batch b of an epoch has the same samples for any number of
/// workers, and each of `world_size` ranks gets an equal part of it, in the order of the ranks. A batch is valid until
/// the next call of next(). Its host memory is written again only after that, and, with a GPU, after the copy to the
/// GPU has finished.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <halftone/data/batch_memory.hpp>
#include <halftone/data/device_batch.hpp>
#include <halftone/data/loader_options.hpp>
#include <halftone/data/loader_order.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A data set with numbered samples. Several threads call [] at the same time.
template <class Source>
concept map_source = requires(const Source& source, extent index) {
    source.size();
    source[index];
};

/// A data set that is read from its beginning to its end. next() gives a std::optional, empty at the end, behind which it is not
/// called before start(epoch), which begins an epoch. One thread calls them at a time.
template <class Source>
concept stream_source = requires(Source& source, std::uint32_t epoch) {
    source.start(epoch);
    source.next().has_value();
    *source.next();
};

/// The transform of a loader that was given none.
struct no_transform {
    /// The sample.
    template <class Sample>
    Sample&& operator()(Sample&& sample) const {
        return std::forward<Sample>(sample);
    }
};

namespace detail {

template <class Source>
decltype(auto) sample_of(Source& source) {
    if constexpr (map_source<Source>) {
        return std::as_const(source)[extent{0}];
    } else {
        return *source.next();
    }
}
template <class Transform, class Sample>
decltype(auto) transformed(const Transform& transform, Sample&& sample, const sample_place& place) {
    if constexpr (std::is_invocable_v<const Transform&, Sample&&, const sample_place&>) {
        return transform(std::move(sample), place);
    } else {
        return transform(std::move(sample));
    }
}

}  // namespace detail

/// `Device`: ht::cpu's batches stay in host memory.
template <class Source, class Transform, class Collate, class Device = detail::no_device>
class data_loader {
    static_assert(map_source<Source> || stream_source<Source>,
                  "halftone: data_loader: the source is neither a map, with size() and [index] const, nor a stream, with "
                  "start(epoch) and next(), which gives a std::optional");
    static constexpr bool is_map = map_source<Source>;
    using raw_sample = std::decay_t<decltype(detail::sample_of(std::declval<Source&>()))>;

  public:
    /// What collate takes a span of.
    using sample_type = std::decay_t<decltype(detail::transformed(
        std::declval<const Transform&>(), std::declval<raw_sample>(), std::declval<const sample_place&>()))>;
    using batch_type =
        std::decay_t<std::invoke_result_t<const Collate&, std::span<const sample_type>, batch_memory&>>;

    /// The source must outlive the loader. Workers start with the first call of next(). Throws argument_error for options
    /// outside their range, and data_error for a source without samples, or without a complete batch if the last one is
    /// dropped.
    data_loader(Source& source, const loader_options& options, Transform transform, Collate collate)
        : data_loader(nullptr, source, options, std::move(transform), std::move(collate)) {}
    /// A loader whose batches are in the memory of a device, which only next() uses, and which must outlive the loader.
    /// The batch's type has with_views, as ht::language_batch has.
    data_loader(Device& device, Source& source, const loader_options& options, Transform transform, Collate collate)
        : data_loader(&device, source, options, std::move(transform), std::move(collate)) {}
    data_loader(Source& source, const loader_options& options, Collate collate)
        requires std::is_same_v<Transform, no_transform>
        : data_loader(source, options, no_transform{}, std::move(collate)) {}
    data_loader(Device& device, Source& source, const loader_options& options, Collate collate)
        requires std::is_same_v<Transform, no_transform>
        : data_loader(device, source, options, no_transform{}, std::move(collate)) {}
    data_loader(const data_loader&) = delete;
    data_loader& operator=(const data_loader&) = delete;
    /// Waits for the samples that workers are making at this moment.
    ~data_loader() { end_workers(); }

    const loader_options& options() const { return options_; }
    /// The batches of an epoch. Of a map only.
    extent batches() const
        requires is_map
    {
        const extent rest = position_.size % options_.batch_size;
        return position_.size / options_.batch_size + (rest != 0 && options_.last == last_batch::keep ? 1 : 0);
    }

    /// The next batch of the epoch, valid until the next call; nullptr once at the end of each epoch. Throws sample_error
    /// if making the batch threw; the loader's position is before that batch, then.
    const batch_type* next() {
        release();
        slot& s = options_.num_workers == 0 ? make_here() : wait_for_worker();
        if (s.place.epoch != position_.epoch) {
            position_.epoch = s.place.epoch, position_.rows = 0;
            return nullptr;
        }
        if (s.error != nullptr) {
            const std::exception_ptr error = s.error;
            seek(position_);
            std::rethrow_exception(error);
        }
        const batch_type* batch = uploads_.take(*s.batch, s.copied);
        position_.rows += s.rows;
        is_holding_ = true;
        if (uploads_.leaves_host_memory) release();
        return batch;
    }

    /// Where the loader is: after the batch that next() gave last.
    const loader_position& position() const { return position_; }
    /// Continues there; its seed replaces that of the options. The number of workers and ranks may be another than that
    /// of the loader that was there, and so may the size of batches, except with bucket_batches. Throws argument_error
    /// for a position of a data set of another size, or outside of an epoch, and for one within an epoch of another order.
    void resume(const loader_position& at) {
        if (at.size != position_.size) {
            fail<argument_error>("data_loader: a position in a data set of ", at.size, " samples; this one has ",
                                 position_.size);
        }
        if (at.rows < 0 || (is_map && at.rows > at.size))
            fail<argument_error>("data_loader: a position after ", at.rows, " samples of ", at.size);
        if (is_map && at.rows != 0 && left(at) > 0) expect_order(at);
        loader_position here = begun_;
        here.seed = at.seed, here.epoch = at.epoch, here.rows = at.rows;
        seek(here);
    }
    /// What the order of the samples depends on, for a trainer that resumes a run: "32 samples, shuffled, seed 4".
    std::string order_text() const {
        const bool drops = is_map && options_.last == last_batch::drop && position_.size % options_.batch_size != 0;
        return detail::sentence(position_.size, " samples, ", detail::order_text(position_), ", seed ", position_.seed,
                                drops ? ", the last batch of an epoch dropped" : "");
    }
    /// sample() has the steps of epochs, as of_epoch() has.
    static constexpr bool steps_are_of_epochs = true;

    /// The batch of a step of ht::trainer: steps count batches through all epochs. A step that is not the next one makes
    /// the loader continue there. Throws argument_error unless `rows` are this rank's part of batch_size, and as next().
    batch_type sample(std::uint32_t step, extent rows)
        requires is_map
    {
        if (rows * options_.world_size != options_.batch_size) {
            fail<argument_error>("data_loader: a step takes ", rows, " rows on each of ", options_.world_size,
                                 " ranks; the loader's batch_size is ", options_.batch_size);
        }
        const extent epoch = batches();
        return batch_at(static_cast<std::uint32_t>(step / epoch), step % epoch * options_.batch_size);
    }
    /// The samples of an epoch: all, or those of complete batches if the last one is dropped.
    extent epoch_rows() const
        requires is_map
    {
        return options_.last == last_batch::drop ? batches() * options_.batch_size : position_.size;
    }
    /// The batch of an epoch that begins after its first `first` samples; as sample(). Throws argument_error unless it is of
    /// all ranks and has `rows` samples, and as next().
    batch_type of_epoch(std::uint32_t epoch, extent first, extent rows)
        requires is_map
    {
        const extent size = options_.batch_size;
        if (options_.world_size != 1 || first < 0 || first % size != 0 || rows != std::min(size, epoch_rows() - first)) {
            fail<argument_error>("data_loader: a step takes ", rows, " rows of an epoch from ", first, " on; the loader's "
                                 "batches have ", size, ", of ", options_.world_size, " ranks; expected a batch_size of a "
                                 "step's rows, and a world_size of 1");
        }
        return batch_at(epoch, first);
    }

    /// Seconds that next() has waited for a batch, or made one itself.
    double waited() const { return waited_; }

    /// Iterates over the remaining batches of an epoch.
    class iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = batch_type;
        using difference_type = std::ptrdiff_t;
        using pointer = const batch_type*;
        using reference = const batch_type&;

        explicit iterator(data_loader* loader) : loader_(loader), batch_(loader->next()) {}
        reference operator*() const { return *batch_; }
        pointer operator->() const { return batch_; }
        iterator& operator++() {
            batch_ = loader_->next();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator& i, std::default_sentinel_t) { return i.batch_ == nullptr; }

      private:
        data_loader* loader_;
        const batch_type* batch_;
    };
    /// The remaining batches of this epoch: all of them, unless some were handed out or the loader was resumed.
    iterator begin() { return iterator(this); }
    std::default_sentinel_t end() { return {}; }

  private:
    data_loader(Device* device, Source& source, const loader_options& options, Transform transform, Collate collate)
        : source_(&source),
          options_((detail::check(options), options)),
          transform_(std::move(transform)),
          collate_(std::move(collate)),
          order_(options, size_of(source), length_of(source)),
          uploads_(device),
          slots_(static_cast<std::size_t>(options.num_workers) * static_cast<std::size_t>(options.prefetch_factor) + 1) {
        begun_ = loader_position{.seed = options.seed, .size = size_of(source)};
        if constexpr (is_map) begun_.order = options.order, begun_.bucket_batches = options.bucket_batches;
        if (begun_.bucket_batches != 0) begun_.batch_size = options.batch_size;
        position_ = taken_ = begun_;
        if constexpr (is_map) {
            if (position_.size < 1) fail<data_error>("data_loader: the source has no samples");
            if (batches() == 0) {
                fail<data_error>("data_loader: ", position_.size, " samples make no batch of ", options.batch_size,
                                 ", and smaller ones are dropped");
            }
        }
        for (slot& s : slots_) uploads_.prepare(s.memory);
    }

    /// A batch, before and after it is made.
    struct slot {
        sample_place place;              ///< of its first sample; `index` counts the epoch's samples here
        extent rows = 0;                 ///< its samples, of all ranks together
        std::vector<extent> indices;     ///< this rank's samples
        std::vector<raw_sample> raw;     ///< of a stream
        std::vector<sample_type> samples;
        batch_memory memory;
        std::optional<batch_type> batch;
        std::exception_ptr error;
        typename detail::batch_uploads<Device, batch_type>::event copied;  ///< passed when `memory` may be written
        bool is_ready = false;
    };

    static extent size_of(const Source& source) {
        if constexpr (is_map) {
            return static_cast<extent>(source.size());
        } else {
            return 0;
        }
    }
    std::function<extent(extent)> length_of(const Source& source) const {
        if constexpr (is_map && requires { source.length(extent{0}); }) {
            return [&source](extent index) { return static_cast<extent>(source.length(index)); };
        } else {
            if (options_.bucket_batches != 0) {
                fail<argument_error>("loader_options: bucket_batches is ", options_.bucket_batches,
                                     " for a source without length(index); expected 0");
            }
            return {};
        }
    }
    /// Throws argument_error for a position within an epoch of another order.
    void expect_order(const loader_position& at) const {
        const std::string there = detail::order_text(at), here = detail::order_text(begun_);
        if (there != here) {
            fail<argument_error>("data_loader: a position after ", at.rows, " samples of an epoch that is ", there,
                                 "; this loader's is ", here, ", and would give some of them twice");
        }
        if (options_.bucket_batches != 0 && at.rows % options_.batch_size != 0) {
            fail<argument_error>("data_loader: a position after ", at.rows, " samples, with batches of ",
                                 options_.batch_size, " that are sorted by length; expected a multiple of these");
        }
    }
    batch_type batch_at(std::uint32_t epoch, extent rows) {
        loader_position at = position_;
        at.epoch = epoch, at.rows = rows;
        const bool ends_here = position_.epoch + 1 == epoch && rows == 0 && left(position_) == 0;
        if (!(at == position_) && !ends_here) resume(at);
        const batch_type* batch = next();
        if (batch == nullptr) batch = next();
        return *batch;
    }
    /// The samples that are left to take at a position of an epoch.
    extent left(const loader_position& at) const {
        const extent rest = at.size - at.rows;
        return options_.last == last_batch::drop ? rest / options_.batch_size * options_.batch_size : rest;
    }

    // Taking: which samples a batch has. One thread at a time, in the order of the batches.

    void take(slot& s) {
        s.error = nullptr;
        s.indices.clear();
        s.raw.clear();
        try {
            if constexpr (is_map) {
                take_of_map(s);
            } else {
                take_of_stream(s);
            }
        } catch (...) {
            s.place.epoch = taken_.epoch;
            keep_error(s, taken_.rows + static_cast<extent>(s.raw.size()));
        }
    }
    void take_of_map(slot& s) {
        if (left(taken_) == 0) ++taken_.epoch, taken_.rows = 0, has_order_ = false;
        if (!has_order_) order_.begin(taken_.seed, taken_.epoch), has_order_ = true;
        s.place = {taken_.seed, taken_.epoch, taken_.rows};
        s.rows = std::min(options_.batch_size, left(taken_));
        const extent first = first_of(s.rows, options_.rank), end = first_of(s.rows, options_.rank + 1);
        order_.copy(taken_.rows + first, end - first, s.indices);
        taken_.rows += s.rows;
    }
    /// Where a rank's part of a batch begins.
    extent first_of(extent rows, int rank) const { return rows * rank / options_.world_size; }

    void take_of_stream(slot& s) {
        if (!has_order_) begin_stream();
        read_stream(s);
        if (s.rows == 0) {
            ++taken_.epoch, taken_.rows = 0;
            begin_stream();
            read_stream(s);
            if (s.rows == 0) {
                fail<data_error>("the stream has no ", options_.last == last_batch::drop ? "complete batch" : "samples",
                                 " in epoch ", taken_.epoch);
            }
        }
    }
    void begin_stream() {
        source_->start(taken_.epoch);
        has_order_ = true, has_ended_ = false;
        for (extent i = 0; i < taken_.rows && !has_ended_; ++i) has_ended_ = !source_->next().has_value();
    }
    void read_stream(slot& s) {
        s.place = {taken_.seed, taken_.epoch, taken_.rows};
        s.raw.clear();
        std::vector<raw_sample>& all = s.raw;
        while (!has_ended_ && static_cast<extent>(all.size()) < options_.batch_size && !is_cancelled()) {
            auto sample = source_->next();
            if (sample.has_value()) {
                all.push_back(std::move(*sample));
            } else {
                has_ended_ = true;  // a stream need not tell its end twice
            }
        }
        s.rows = static_cast<extent>(all.size());
        if (options_.last == last_batch::drop && s.rows < options_.batch_size) s.rows = 0;
        const extent first = first_of(s.rows, options_.rank), end = first_of(s.rows, options_.rank + 1);
        all.erase(all.begin() + end, all.end());
        all.erase(all.begin(), all.begin() + first);
        for (extent i = first; i < end; ++i) s.indices.push_back(taken_.rows + i);
        taken_.rows += s.rows;
    }

    // Making: the samples and the batch. Several threads at a time, each with a slot.

    bool is_cancelled() const { return is_cancelled_.load(std::memory_order_relaxed); }

    void make(slot& s) {
        if (s.error != nullptr) return;
        extent index = s.indices.empty() ? s.place.index : s.indices[0];
        try {
            s.copied.wait();
            s.samples.clear();
            for (std::size_t i = 0; i < s.indices.size(); ++i) {
                if (is_cancelled()) return;
                index = s.indices[i];
                const sample_place place{s.place.seed, s.place.epoch, index};
                if constexpr (is_map) {
                    s.samples.push_back(
                        detail::transformed(transform_, raw_sample(std::as_const(*source_)[index]), place));
                } else {
                    s.samples.push_back(detail::transformed(transform_, std::move(s.raw[i]), place));
                }
            }
            index = s.indices.empty() ? s.place.index : s.indices[0];
            s.memory.reset();
            s.batch.emplace(collate_(std::span<const sample_type>(s.samples), s.memory));
        } catch (...) {
            keep_error(s, index);
        }
    }
    static void keep_error(slot& s, extent index) {
        const auto cause = std::current_exception();
        std::string what = "an exception that is not a std::exception";
        try {
            throw;
        } catch (const std::exception& e) {
            what = e.what();
        } catch (...) {
        }
        s.error = std::make_exception_ptr(
            sample_error(detail::sentence("data_loader: sample ", index, " of epoch ", s.place.epoch, ": ", what), index,
                         s.place.epoch, cause));
    }

    // Workers.

    slot& slot_of(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }

    void work() {
        for (;;) {
            std::unique_lock turn(take_mutex_);
            std::unique_lock lock(mutex_);
            may_take_.wait(lock, [this] {
                return is_ending_ || (!is_cancelled() && next_ < released_ + static_cast<std::int64_t>(slots_.size()));
            });
            if (is_ending_) return;
            slot& s = slot_of(next_++);
            ++busy_;
            lock.unlock();
            take(s);
            turn.unlock();
            make(s);
            lock.lock();
            s.is_ready = true;
            --busy_;
            is_made_.notify_all();
        }
    }
    void start_workers() {
        if (!workers_.empty()) return;
        try {
            for (int i = 0; i < options_.num_workers; ++i) workers_.emplace_back([this] { work(); });
        } catch (const std::system_error& e) {
            const std::size_t started = workers_.size();
            end_workers();
            fail<state_error>("data_loader: worker ", started + 1, " of ", options_.num_workers, " cannot start: ",
                              e.what());
        }
    }
    void end_workers() noexcept {
        {
            const std::scoped_lock lock(mutex_);
            is_ending_ = true;
            is_cancelled_ = true;
        }
        may_take_.notify_all();
        for (std::thread& worker : workers_) worker.join();
        workers_.clear();
        is_ending_ = false;
        is_cancelled_ = false;
    }

    slot& make_here() {
        const timer waiting(waited_);
        slot& s = slots_[0];
        if (!s.is_ready) {
            take(s);
            make(s);
            s.is_ready = true;
        }
        return s;
    }
    slot& wait_for_worker() {
        start_workers();
        const timer waiting(waited_);
        std::unique_lock lock(mutex_);
        slot& s = slot_of(released_);
        is_made_.wait(lock, [&s] { return s.is_ready; });
        return s;
    }
    /// Gives the slot of the batch that was handed out back to the workers.
    void release() {
        if (!std::exchange(is_holding_, false)) return;
        {
            const std::scoped_lock lock(mutex_);
            slot_of(released_).is_ready = false;
            ++released_;
        }
        if (options_.num_workers > 1) {
            may_take_.notify_all();
        } else {
            may_take_.notify_one();
        }
    }

    /// Drops the batches that were made ahead, and continues with the one at the position.
    void seek(const loader_position& at) {
        {
            std::unique_lock lock(mutex_);
            is_cancelled_ = true;
            is_made_.wait(lock, [this] { return busy_ == 0; });
            for (slot& s : slots_) s.is_ready = false, s.error = nullptr;
            next_ = released_ = 0;
            is_holding_ = false;
            position_ = taken_ = at;
            has_order_ = false;
            is_cancelled_ = false;
        }
        may_take_.notify_all();
    }

    /// Adds the time of its scope.
    struct timer {
        explicit timer(double& seconds) : to(seconds) {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() { to += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); }
        double& to;
        std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    };

    Source* source_;
    loader_options options_;
    Transform transform_;
    Collate collate_;

    loader_position begun_;  ///< that of the options: the beginning of epoch 0

    // Of the thread that calls next().
    loader_position position_;
    bool is_holding_ = false;  ///< a batch that next() gave is in use
    double waited_ = 0;

    // Of the thread whose turn it is to take.
    std::mutex take_mutex_;
    detail::loader_order order_;
    loader_position taken_;
    bool has_order_ = false;  ///< the order or the stream has begun the epoch of taken_
    bool has_ended_ = false;  ///< the stream has told the end of that epoch

    detail::batch_uploads<Device, batch_type> uploads_;  // destroyed after the slots, which wait for its copies

    std::mutex mutex_;  // of all that follows
    std::condition_variable may_take_, is_made_;
    std::vector<slot> slots_;                ///< batch number n is in slot n modulo their number
    std::int64_t next_ = 0, released_ = 0;   ///< the next number to be made; the oldest that is needed
    int busy_ = 0;                           ///< workers that take or make
    bool is_ending_ = false;
    std::atomic<bool> is_cancelled_{false};  ///< what is being made is no longer wanted
    std::vector<std::thread> workers_;
};

template <class Source, class Collate>
data_loader(Source&, const loader_options&, Collate) -> data_loader<Source, no_transform, Collate>;
template <class Source, class Transform, class Collate>
data_loader(Source&, const loader_options&, Transform, Collate) -> data_loader<Source, Transform, Collate>;
template <class Device, class Source, class Collate>
data_loader(Device&, Source&, const loader_options&, Collate) -> data_loader<Source, no_transform, Collate, Device>;
template <class Device, class Source, class Transform, class Collate>
data_loader(Device&, Source&, const loader_options&, Transform, Collate)
    -> data_loader<Source, Transform, Collate, Device>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
