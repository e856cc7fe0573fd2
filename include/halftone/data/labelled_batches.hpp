// SPDX-License-Identifier: MIT
/// \file
/// Batches of labelled texts for nn::classifier: shuffled ones for training, and held-out ones in order.
///
///     const ht::labelled_text texts{"aclImdb/train"};
///     const ht::word_vocabulary words{texts, 10000};
///     ht::labelled_data data{texts, words, {.length = 128, .held_out = 0.1, .seed = 1}};
///     ht::nn::classifier<ht::amp_bf16> model{device, {.encoder = {.vocab_size = words.size()}, .num_labels = 2}};
///     ht::trainer{device, model, {.max_steps = 500}}.train(data);
///
/// Step s takes the next rows of a shuffled order of the training texts, in which each text comes once per epoch. The
/// rows of a step depend on the seed and s alone. Texts are cut to the length, shorter ones are padded; `lengths` tells
/// which ids are padding.
///
///     const ht::encoded_texts rows{texts, words, 128};                     // the same for a data loader, which pads less:
///     ht::data_loader loader{rows, {.batch_size = 32, .bucket_batches = 16}, ht::collate_padded{words.padding}};
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <halftone/data/batch_memory.hpp>
#include <halftone/data/data_error.hpp>
#include <halftone/data/shuffle.hpp>
#include <halftone/data/subset.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Rows of token ids with one label each.
struct labelled_batch {
    const_view<std::int32_t, 2> tokens{};   // (batch, time)
    const_view<std::int32_t, 1> labels{};   // (batch)
    const_view<std::int32_t, 1> lengths{};  // (batch); the tokens after the first lengths[b] of row b are padding

    extent rows() const { return tokens.extent_of(0); }
    /// The number of tokens, with padding.
    extent size() const { return tokens.size(); }
    /// The batch with f(view) in place of each view: a captured step copies it to its own memory in this way.
    template <class Function>
    labelled_batch with_views(const Function& f) const {
        return {f(tokens), f(labels), f(lengths)};
    }
    /// Rows [first, first + count).
    labelled_batch part(extent first, extent count) const {
        return {{tokens.data() + first * tokens.extent_of(1), {count, tokens.extent_of(1)}},
                {labels.data() + first, {count}},
                {lengths.data() + first, {count}}};
    }
    /// The batch's rows as `count` micro-batches of equal size. Throws argument_error if `count` does not divide the
    /// rows.
    std::vector<labelled_batch> split(extent count) const {
        if (count < 1 || rows() < 1 || rows() % count != 0) {
            fail<argument_error>("split: ", rows(), " rows into ", count,
                                 " micro-batches; expected a number of them that divides the rows");
        }
        std::vector<labelled_batch> parts;
        for (extent i = 0; i < count; ++i) parts.push_back(part(i * (rows() / count), rows() / count));
        return parts;
    }
};

/// The ids of a text, which are a part of the memory of the encoded_texts that it comes from, and its class.
struct labelled_ids {
    std::span<const std::int32_t> ids{};
    std::int32_t label = 0;
};

/// Labelled texts as ids: a map_source with lengths (data_loader.hpp).
class encoded_texts {
  public:
    /// Encodes texts[i].text with labels texts[i].label for i from 0 to texts.size() - 1, each to `longest` ids at most;
    /// neither texts nor vocabulary are used afterwards. Throws argument_error for a length below 2, and data_error for no
    /// texts.
    template <class Texts, class Vocabulary>
    encoded_texts(const Texts& texts, const Vocabulary& vocabulary, extent longest) {
        const auto rows = static_cast<extent>(texts.size());
        if (longest < 2) fail<argument_error>("encoded_texts: a length of ", longest, "; expected 2 or more");
        if (rows < 1) fail<data_error>("encoded_texts: no texts");
        for (extent row = 0; row < rows; ++row) {
            const auto ids = vocabulary.encode(texts[row].text, longest);
            ids_.insert(ids_.end(), ids.begin(), ids.end());
            ends_.push_back(ids_.size());
            labels_.push_back(texts[row].label);
        }
    }

    extent size() const { return static_cast<extent>(labels_.size()); }
    /// The number of ids of a text.
    extent length(extent index) const { return static_cast<extent>((*this)[index].ids.size()); }
    labelled_ids operator[](extent index) const {
        const auto i = static_cast<std::size_t>(index);
        const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
        return {std::span(ids_).subspan(begin, ends_[i] - begin), labels_[i]};
    }

  private:
    std::vector<std::int32_t> ids_;
    std::vector<std::size_t> ends_;
    std::vector<std::int32_t> labels_;
};

/// A data loader's function: rows as long as the longest, shorter ones padded.
struct collate_padded {
    std::int32_t padding = 0;

    /// The rows as one batch.
    labelled_batch operator()(std::span<const labelled_ids> rows, batch_memory& memory) const {
        const auto count = static_cast<extent>(rows.size());
        std::size_t longest = 0;
        for (const labelled_ids& row : rows) longest = std::max(longest, row.ids.size());
        const auto tokens = memory.make<std::int32_t>(shape<2>{count, static_cast<extent>(longest)});
        const auto labels = memory.make<std::int32_t>(shape<1>{count}), lengths = memory.make<std::int32_t>(shape<1>{count});
        std::int32_t* to = tokens.data();
        for (std::size_t i = 0; i < rows.size(); ++i, to += longest) {
            std::fill(std::copy(rows[i].ids.begin(), rows[i].ids.end(), to), to + longest, padding);
            labels.data()[i] = rows[i].label;
            lengths.data()[i] = static_cast<std::int32_t>(rows[i].ids.size());
        }
        return {tokens, labels, lengths};
    }
};

/// How labelled texts become batches.
struct labelled_data_options {
    extent length = 128;     ///< ids in a row, with the first, which is the vocabulary's `start`
    double held_out = 0;     ///< the fraction of the texts, chosen at random, that training never sees
    std::uint64_t seed = 0;
};

/// Labelled texts as batches: shuffled ones for training (sample), and the held-out ones in order (window). A batch is
/// in memory of this object and valid until the next one is made.
class labelled_data {
  public:
    /// Neither texts nor vocabulary, as of encoded_texts, are used afterwards. Throws argument_error for options outside
    /// their range, and data_error if a part has no text.
    template <class Texts, class Vocabulary>
    labelled_data(const Texts& texts, const Vocabulary& vocabulary, const labelled_data_options& options)
        : options_(options),
          all_(texts, vocabulary, options.length),
          padding_(Vocabulary::padding),
          parts_(all_.size(), options.held_out, options.seed) {}

    const labelled_data_options& options() const { return options_; }
    /// The number of texts for training: an epoch.
    extent training() const { return static_cast<extent>(parts_.training.size()); }

    /// The batch of a step: `rows` texts; the last ones of an epoch and the first of the next may be in one batch.
    /// Throws argument_error for no rows.
    labelled_batch sample(std::uint32_t step, extent rows) {
        prepare(rows);
        const auto first = static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(rows);
        const auto of_one = static_cast<std::uint64_t>(training());
        for (extent row = 0; row < rows; ++row) {
            const std::uint64_t place = first + static_cast<std::uint64_t>(row);
            fill_training(static_cast<std::uint32_t>(place / of_one), static_cast<extent>(place % of_one), row);
        }
        return batch(rows);
    }
    /// What the order of the texts depends on, for a trainer that resumes a run: "90 of 100 texts, seed 4".
    std::string order_text() const {
        return detail::sentence(training(), " of ", all_.size(), " texts, seed ", options_.seed);
    }
    /// The texts of an epoch: those for training.
    extent epoch_rows() const { return training(); }
    /// `rows` texts of an epoch from number `first` of its order on. Throws argument_error for ones that it does not have.
    labelled_batch of_epoch(std::uint32_t epoch, extent first, extent rows) {
        if (first < 0 || rows < 1 || rows > training() - first)
            fail<argument_error>("labelled_data: ", rows, " texts from ", first, " on of an epoch of ", training());
        prepare(rows);
        for (extent row = 0; row < rows; ++row) fill_training(epoch, first + row, row);
        return batch(rows);
    }

    /// The number of held-out texts.
    extent windows() const { return static_cast<extent>(parts_.held_out.size()); }
    /// `rows` held-out texts from number `first` on; fewer at the end.
    labelled_batch window(extent first, extent rows) {
        rows = std::min(rows, windows() - first);
        if (first < 0 || rows < 1)
            fail<argument_error>("labelled_data: held-out texts from ", first, " on; there are ", windows());
        prepare(rows);
        for (extent row = 0; row < rows; ++row) fill(parts_.held_out[static_cast<std::size_t>(first + row)], row);
        return batch(rows);
    }

  private:
    void prepare(extent rows) {
        if (rows < 1) fail<argument_error>("labelled_data: a batch of ", rows, " rows; expected 1 or more");
        check_shape("labelled_data", shape<2>{rows, options_.length});
        const auto count = static_cast<std::size_t>(rows);
        if (labels_.size() >= count) return;
        tokens_.resize(count * static_cast<std::size_t>(options_.length));
        lengths_.resize(count), labels_.resize(count);
    }
    void fill_training(std::uint32_t epoch, extent place, extent row) {
        const shuffled_order order(training(), options_.seed, epoch);
        fill(parts_.training[static_cast<std::size_t>(order[place])], row);
    }
    void fill(extent from, extent row) {
        const labelled_ids text = all_[from];
        std::int32_t* const to = tokens_.data() + row * options_.length;
        std::fill(std::copy(text.ids.begin(), text.ids.end(), to), to + options_.length, padding_);
        lengths_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(text.ids.size());
        labels_[static_cast<std::size_t>(row)] = text.label;
    }
    labelled_batch batch(extent rows) const {
        return {{tokens_.data(), {rows, options_.length}}, {labels_.data(), {rows}}, {lengths_.data(), {rows}}};
    }

    labelled_data_options options_;
    encoded_texts all_;
    std::int32_t padding_;
    random_split parts_;
    std::vector<std::int32_t> tokens_, labels_, lengths_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
