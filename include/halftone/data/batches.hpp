// SPDX-License-Identifier: MIT
/// \file
/// Batches for language models: windows of a corpus, random ones for training and consecutive ones for evaluation.
///
///     ht::language_data data{ht::token_view{corpus}, {.context = 128, .held_out = 0.1, .seed = 1}};
///     for (std::uint32_t step = 0; step < steps; ++step) {
///         const ht::language_batch batch = data.sample(step, 32);            // 32 windows of the training part
///         for (const ht::language_batch& micro : batch.split(4)) loss = model.loss(tape, micro);   // 8 each
///     }
///     for (ht::extent first = 0; first < data.windows(); first += 32) {
///         const ht::language_batch batch = data.window(first, 32);           // of the held-out part, in order
///     }
///
/// The windows of step s depend on the seed and s alone: not on earlier steps, nor on how rows are split. In a run of
/// num_train_epochs an epoch has each of the training part's consecutive windows once, in an order of its own. A batch is a
/// view of memory that the data owns and reuses: it is valid until the next one is made.
#pragma once

#include <vector>

#include <halftone/data/shuffle.hpp>
#include <halftone/data/tokens.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/tensor/packed.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

class micro_batches;

/// Token ids and, for each of them, the id that follows.
struct language_batch {
    const_view<std::int32_t, 2> tokens{};   // (batch, time)
    const_view<std::int32_t, 2> targets{};  // (batch, time)

    extent rows() const { return tokens.extent_of(0); }
    /// The number of tokens.
    extent size() const { return tokens.size(); }
    /// The batch with f(view) in place of each view: a captured step copies it to its own memory in this way.
    template <class Function>
    language_batch with_views(const Function& f) const {
        return {f(tokens), f(targets)};
    }
    /// Rows [first, first + count).
    language_batch part(extent first, extent count) const {
        const shape<2> s{count, tokens.extent_of(1)};
        return {{tokens.data() + first * s[1], s}, {targets.data() + first * s[1], s}};
    }
    /// The batch's rows as `count` micro-batches of equal size. Throws argument_error if `count` does not divide the
    /// rows. If some targets are -100, the mean of the micro-batches' mean losses is not the batch's: multiply each
    /// loss by ht::share_of(tape, micro, batch) (autodiff/engine/share.hpp).
    micro_batches split(extent count) const;
};

/// Documents of various lengths in one row, without padding (tensor/packed.hpp). The target at the end of a document
/// may be -100.
struct packed_batch {
    const_view<std::int32_t, 2> tokens{};   // (1, time)
    const_view<std::int32_t, 2> targets{};  // (1, time)
    packed documents{};

    extent rows() const { return tokens.extent_of(0); }
    extent size() const { return tokens.size(); }
    /// For a trainer without gradient accumulation: the batch itself. Throws argument_error for another count than 1.
    std::vector<packed_batch> split(extent count) const {
        if (count != 1) fail<argument_error>("split: packed documents into ", count, " micro-batches; expected 1");
        return {*this};
    }
    /// The batch with f(view) in place of each view: a captured step copies it to its own memory in this way.
    template <class Function>
    packed_batch with_views(const Function& f) const {
        return {f(tokens), f(targets), documents.with_views(f)};
    }
};

/// A range of micro-batches of equal size.
class micro_batches {
  public:
    /// Iterates over micro-batches.
    class iterator {
      public:
        iterator(const language_batch& whole, extent first, extent rows) : whole_(whole), first_(first), rows_(rows) {}
        language_batch operator*() const { return whole_.part(first_, rows_); }
        iterator& operator++() {
            first_ += rows_;
            return *this;
        }
        friend bool operator==(const iterator& a, const iterator& b) { return a.first_ == b.first_; }

      private:
        language_batch whole_;
        extent first_, rows_;
    };

    micro_batches(const language_batch& whole, extent rows) : whole_(whole), rows_(rows) {}
    iterator begin() const { return {whole_, 0, rows_}; }
    iterator end() const { return {whole_, whole_.rows(), rows_}; }

  private:
    language_batch whole_;
    extent rows_;
};

inline micro_batches language_batch::split(extent count) const {
    if (count < 1 || rows() < 1 || rows() % count != 0) {
        fail<argument_error>("split: ", rows(), " rows into ", count,
                             " micro-batches; expected a number of them that divides the rows");
    }
    return {*this, rows() / count};
}

/// How a text is divided into batches.
struct language_options {
    extent context = 128;       ///< tokens in a window
    extent vocabulary = 256;    ///< ids are below it; checked when the data is opened
    double held_out = 0.1;      ///< the fraction at the end of the corpus that training never sees
    extent most_windows = 0;    ///< windows of the held-out part, evenly distributed; 0: all
    std::uint64_t seed = 0;
};

/// Windows of a text as batches: random ones of its training part, and consecutive ones of the held-out part. A batch
/// is in memory of this object and valid until the next one is made.
class language_data {
  public:
    /// The tokens' memory must outlive this object. Throws data_error if a part has no complete window, or a token is
    /// outside the vocabulary; argument_error for options outside their range.
    language_data(const token_view& tokens, const language_options& options)
        : options_(options), parts_(hold_out(tokens, options.held_out)) {
        if (options.context < 1)
            fail<argument_error>("data: a context of ", options.context, "; expected 1 token or more");
        if (options.vocabulary < 1)
            fail<argument_error>("data: a vocabulary of ", options.vocabulary, "; expected 1 id or more");
        if (options.most_windows < 0)
            fail<argument_error>("data: ", options.most_windows, " windows at most; expected 0 (all of them) or more");
        check_length("text", tokens);
        check_length("training part", parts_.training);
        if (options.held_out > 0) check_length("held-out part", parts_.validation);
        check_tokens(tokens, options.vocabulary);
    }

    const language_options& options() const { return options_; }
    const token_view& training() const { return parts_.training; }
    const token_view& validation() const { return parts_.validation; }

    /// sample() draws its rows at random, so that none is left out or comes twice by the size of a step.
    static constexpr bool draws_at_random = true;
    /// What the order of an epoch depends on, for a trainer that resumes a run: "400 windows of 8 tokens, seed 4".
    std::string order_text() const {
        return detail::sentence(epoch_rows(), " windows of ", options_.context, " tokens, seed ", options_.seed);
    }
    /// The batch of a step: `rows` windows at uniformly random places of the training part. Throws argument_error for
    /// no rows, shape_error and out_of_memory for too many.
    language_batch sample(std::uint32_t step, extent rows) {
        const auto places = static_cast<std::uint64_t>(parts_.training.size() - options_.context);
        prepare(rows);
        for (extent row = 0; row < rows; ++row) {
            const philox::block random = random_block(options_.seed, step, stream, static_cast<std::uint64_t>(row));
            // The modulo's deviation from a uniform distribution is at most places / 2^64.
            fill(parts_.training, static_cast<extent>((std::uint64_t{random[0]} << 32 | random[1]) % places), row);
        }
        return batch(rows);
    }

    /// The windows of an epoch: the consecutive ones of the training part, without the tokens behind the last one.
    extent epoch_rows() const { return (parts_.training.size() - 1) / options_.context; }
    /// `rows` windows of an epoch from number `first` of its order on. Throws argument_error for ones that it does not have, and
    /// as sample().
    language_batch of_epoch(std::uint32_t epoch, extent first, extent rows) {
        if (first < 0 || rows < 1 || rows > epoch_rows() - first)
            fail<argument_error>("data: ", rows, " windows from ", first, " on of an epoch of ", epoch_rows());
        prepare(rows);
        const shuffled_order order(epoch_rows(), options_.seed, epoch);
        for (extent row = 0; row < rows; ++row) fill(parts_.training, order[first + row] * options_.context, row);
        return batch(rows);
    }

    /// The number of windows of the held-out part. They do not overlap.
    extent windows() const {
        const extent all = places();
        return options_.most_windows == 0 ? all : std::min(options_.most_windows, all);
    }
    /// `rows` windows of the held-out part from number `first` on; fewer at the end.
    language_batch window(extent first, extent rows) {
        rows = std::min(rows, windows() - first);
        if (first < 0 || rows < 1) fail<argument_error>("data: windows from ", first, " on; there are ", windows());
        prepare(rows);
        const extent stride = places() / windows() * options_.context;
        for (extent row = 0; row < rows; ++row) fill(parts_.validation, (first + row) * stride, row);
        return batch(rows);
    }

  private:
    /// Philox's tensor number for data; those of a model's tensors count up from zero.
    static constexpr std::uint32_t stream = 0x80000000;

    /// The number of consecutive windows in the held-out part.
    extent places() const {
        return parts_.validation.size() == 0 ? 0 : (parts_.validation.size() - 1) / options_.context;
    }

    void check_length(const char* what, const token_view& tokens) const {
        if (tokens.size() > options_.context) return;
        fail<data_error>("data: the ", what, " has ", tokens.size(), " tokens; a context of ", options_.context,
                         " needs ", static_cast<std::uint64_t>(options_.context) + 1, " or more");
    }

    void prepare(extent rows) {
        if (rows < 1) fail<argument_error>("data: a batch of ", rows, " rows; expected 1 or more");
        check_shape("data", shape<2>{rows, options_.context});
        const auto size = static_cast<std::size_t>(rows * options_.context);
        if (tokens_.size() >= size) return;
        try {
            targets_.resize(size), tokens_.resize(size);
        } catch (const std::exception&) {  // bad_alloc or length_error
            fail<out_of_memory>("data: no memory for a batch of ", rows, " rows of ", options_.context, " tokens");
        }
    }
    void fill(const token_view& from, extent first, extent row) {
        from.copy(first, options_.context, tokens_.data() + row * options_.context);
        from.copy(first + 1, options_.context, targets_.data() + row * options_.context);
    }
    language_batch batch(extent rows) const {
        const shape<2> s{rows, options_.context};
        return {{tokens_.data(), s}, {targets_.data(), s}};
    }

    language_options options_;
    token_split parts_;
    std::vector<std::int32_t> tokens_, targets_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
