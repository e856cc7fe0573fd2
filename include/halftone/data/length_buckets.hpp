// SPDX-License-Identifier: MIT
/// \file
/// Sequences of various lengths as batches of few shapes: each batch is padded to the next of a few lengths, the
/// buckets, so that there is one CUDA graph, and one plan of memory, for each of them.
///
///     ht::bucketed_data data{sequences, ht::length_buckets::powers_of_two(32, 1024), {.vocabulary = 256}};
///     ht::trainer trainer{device, model, {.per_device_train_batch_size = 16, .max_steps = 1000}};
///     trainer.train(data);                        // makes memory ready for the largest bucket before the first step
///
/// A sequence of n + 1 tokens gives n tokens and their targets. Behind them, up to the bucket's length, tokens are
/// `padding` and targets -100, which no loss counts; causal attention lets no token see what is behind it. So the loss
/// and its gradients are those of the sequences without padding. All rows of a batch are of one bucket, as with
/// transformers' group_by_length: the padding is less than the distance to the next smaller bucket.
#pragma once

#include <algorithm>
#include <concepts>
#include <utility>
#include <vector>

#include <halftone/data/batches.hpp>
#include <halftone/data/document.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The lengths to which sequences are padded.
class length_buckets {
  public:
    /// Throws argument_error for no lengths, a length below 1, and lengths that do not ascend.
    explicit length_buckets(std::vector<extent> lengths) : lengths_(std::move(lengths)) {
        if (lengths_.empty()) fail<argument_error>("length_buckets: no lengths; expected one or more");
        extent before = 0;
        for (const extent length : lengths_) {
            if (length <= before) {
                fail<argument_error>("length_buckets: ", length, " behind ", before,
                                     "; expected lengths of 1 or more, in ascending order");
            }
            before = length;
        }
    }
    /// Multiples of `step`, the last one at least `largest`. Throws argument_error for numbers below 1.
    static length_buckets multiples_of(extent step, extent largest) {
        if (step < 1 || largest < 1)
            fail<argument_error>("length_buckets: multiples of ", step, " up to ", largest, "; expected 1 or more");
        std::vector<extent> lengths;
        for (extent length = step; lengths.empty() || lengths.back() < largest; length += step) lengths.push_back(length);
        return length_buckets(std::move(lengths));
    }
    /// `smallest`, twice as much, and so on, the last one at least `largest`. Throws argument_error for numbers below 1.
    static length_buckets powers_of_two(extent smallest, extent largest) {
        if (smallest < 1 || largest < 1)
            fail<argument_error>("length_buckets: from ", smallest, " to ", largest, "; expected 1 or more");
        std::vector<extent> lengths{smallest};
        while (lengths.back() < largest) lengths.push_back(2 * lengths.back());
        return length_buckets(std::move(lengths));
    }

    /// The lengths to which sequences are padded, in ascending order.
    const std::vector<extent>& lengths() const& { return lengths_; }
    std::vector<extent> lengths() && { return std::move(lengths_); }
    extent largest() const { return lengths_.back(); }
    /// The number of the smallest bucket for sequences of this length. Throws argument_error if there is none.
    std::size_t bucket_of(extent length) const {
        const auto found = std::lower_bound(lengths_.begin(), lengths_.end(), length);
        if (length < 1 || found == lengths_.end())
            fail<argument_error>("length_buckets: a length of ", length, "; the largest bucket has ", largest());
        return static_cast<std::size_t>(found - lengths_.begin());
    }
    /// The length to which sequences of this length are padded. Throws as bucket_of().
    extent padded(extent length) const { return lengths_[bucket_of(length)]; }

  private:
    std::vector<extent> lengths_;
};

/// How sequences become batches.
struct bucketed_options {
    extent vocabulary = 256;   ///< ids are below it; checked when the data is opened
    std::int32_t padding = 0;  ///< the id in place of tokens that a sequence does not have
    std::uint64_t seed = 0;
};

/// Sequences of various lengths as training data. The batch of a step has rows of one bucket: a sequence that is
/// uniformly random chooses it, and the other rows are uniformly random ones of the same bucket. A batch depends on the
/// seed and the step alone. It is in memory of this object and valid until the next one is made.
class bucketed_data {
  public:
    /// The tokens' memory must outlive this object. Throws data_error for no sequences, for one of fewer than 2 tokens
    /// or of more than the largest bucket's length plus one, and for a token outside the vocabulary.
    bucketed_data(std::vector<token_view> sequences, length_buckets buckets, const bucketed_options& options = {})
        : bucketed_data(std::move(sequences), {}, std::move(buckets), options) {}
    /// documents[0] to documents[documents.size() - 1], a ht::document each: targets of tokens that are not to be predicted are -100.
    /// Throws as the other, and data_error for a document of which nothing is to be predicted.
    template <class Documents>
        requires requires(const Documents& documents) {
            { documents[extent{0}] } -> std::convertible_to<document>;
        }
    explicit bucketed_data(const Documents& documents, length_buckets buckets, const bucketed_options& options = {})
        : bucketed_data(views_of(documents), documents_of(documents), std::move(buckets), options) {}

    const length_buckets& buckets() const { return buckets_; }

    /// sample() draws its rows at random, so that none is left out or comes twice by the size of a step.
    static constexpr bool draws_at_random = true;
    /// The batch of a step. Throws argument_error for no rows, shape_error and out_of_memory for too many.
    language_batch sample(std::uint32_t step, extent rows) {
        const std::size_t bucket = buckets_.bucket_of(sequences_[pick(step, 0, sequences_.size())].size() - 1);
        prepare(rows, bucket);
        const std::vector<std::size_t>& candidates = of_bucket_[bucket];
        for (extent row = 0; row < rows; ++row) fill(row, bucket, candidates[pick(step, row + 1, candidates.size())]);
        return batch(rows, bucket);
    }
    /// A batch of the largest bucket that has a sequence.
    language_batch largest(extent rows) {
        std::size_t bucket = of_bucket_.size() - 1;
        while (of_bucket_[bucket].empty()) --bucket;
        prepare(rows, bucket);
        for (extent row = 0; row < rows; ++row) fill(row, bucket, of_bucket_[bucket].front());
        return batch(rows, bucket);
    }
    /// The number of buckets that have sequences: of the shapes of batches with equally many rows.
    extent shapes() const {
        return std::count_if(of_bucket_.begin(), of_bucket_.end(), [](const auto& all) { return !all.empty(); });
    }

  private:
    bucketed_data(std::vector<token_view> sequences, std::vector<document> documents, length_buckets buckets,
                  const bucketed_options& options)
        : options_(options),
          buckets_(std::move(buckets)),
          sequences_(std::move(sequences)),
          documents_(std::move(documents)),
          of_bucket_(buckets_.lengths().size()) {
        if (options.padding < 0 || options.padding >= options.vocabulary) {
            fail<argument_error>("data: a padding of ", options.padding, "; the vocabulary has 0 to ",
                                 options.vocabulary - 1);
        }
        if (sequences_.empty()) fail<data_error>("data: no sequences");
        for (std::size_t i = 0; i < sequences_.size(); ++i) {
            const extent size = sequences_[i].size();
            if (size < 2 || size - 1 > buckets_.largest()) {
                fail<data_error>("data: sequence ", i, " has ", size, " tokens; expected 2 to ", buckets_.largest() + 1,
                                 ", one more than the largest bucket");
            }
            check_tokens(sequences_[i], options.vocabulary);
            check_counts(i);
            of_bucket_[buckets_.bucket_of(size - 1)].push_back(i);
        }
    }
    void check_counts(std::size_t i) const {
        if (documents_.empty()) return;
        const document& d = documents_[i];
        if (!d.predicted.empty() && d.predicted.size() != d.tokens.size())
            fail<data_error>("data: document ", i, " has ", d.predicted.size(), " marks of what is predicted for ",
                             d.tokens.size(), " tokens");
        if (!d.counts_any()) fail<data_error>("data: of document ", i, " nothing is to be predicted");
    }
    template <class Documents>
    static std::vector<document> documents_of(const Documents& documents) {
        std::vector<document> all;
        for (extent i = 0; i < static_cast<extent>(documents.size()); ++i) all.push_back(documents[i]);
        return all;
    }
    template <class Documents>
    static std::vector<token_view> views_of(const Documents& documents) {
        std::vector<token_view> all;
        for (extent i = 0; i < static_cast<extent>(documents.size()); ++i)
            all.emplace_back(document(documents[i]).tokens);
        return all;
    }

    /// Philox's tensor number for data; those of a model's tensors count up from zero.
    static constexpr std::uint32_t stream = 0x80000001;

    std::size_t pick(std::uint32_t step, extent draw, std::size_t count) const {
        const philox::block random = random_block(options_.seed, step, stream, static_cast<std::uint64_t>(draw));
        // The modulo's deviation from a uniform distribution is at most count / 2^64.
        return static_cast<std::size_t>((std::uint64_t{random[0]} << 32 | random[1]) % count);
    }
    void prepare(extent rows, std::size_t bucket) {
        const shape<2> s{rows, buckets_.lengths()[bucket]};
        if (rows < 1) fail<argument_error>("data: a batch of ", rows, " rows; expected 1 or more");
        check_shape("data", s);
        try {
            tokens_.assign(static_cast<std::size_t>(s.size()), options_.padding);
            targets_.assign(static_cast<std::size_t>(s.size()), ignored);
        } catch (const std::exception&) {  // bad_alloc or length_error
            fail<out_of_memory>("data: no memory for a batch of ", rows, " rows of ", s[1], " tokens");
        }
    }
    void fill(extent row, std::size_t bucket, std::size_t sequence) {
        const token_view& from = sequences_[sequence];
        const extent first = row * buckets_.lengths()[bucket];
        from.copy(0, from.size() - 1, tokens_.data() + first);
        from.copy(1, from.size() - 1, targets_.data() + first);
        if (documents_.empty()) return;
        for (extent i = 1; i < from.size(); ++i) {
            if (!documents_[sequence].counts(i)) targets_[static_cast<std::size_t>(first + i - 1)] = ignored;
        }
    }
    language_batch batch(extent rows, std::size_t bucket) const {
        const shape<2> s{rows, buckets_.lengths()[bucket]};
        return {{tokens_.data(), s}, {targets_.data(), s}};
    }

    static constexpr std::int32_t ignored = -100;  // as in PyTorch: a target that no loss counts

    bucketed_options options_;
    length_buckets buckets_;
    std::vector<token_view> sequences_;
    std::vector<document> documents_;  ///< those of the sequences, or none
    std::vector<std::vector<std::size_t>> of_bucket_;
    std::vector<std::int32_t> tokens_, targets_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
