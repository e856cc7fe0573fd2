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
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/data/shuffle.hpp>
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
    /// The same batch with f(view) in place of each view: a captured step copies it to its own memory in this way.
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
    /// The same rows as `count` micro-batches of equal size. Throws argument_error if `count` does not divide the rows.
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
    /// Encodes texts[i].text with labels texts[i].label for i from 0 to texts.size() - 1; neither texts nor vocabulary
    /// are used afterwards. Throws argument_error for options outside their range, and data_error if a part has no text.
    template <class Texts, class Vocabulary>
    labelled_data(const Texts& texts, const Vocabulary& vocabulary, const labelled_data_options& options)
        : options_(options) {
        const auto rows = static_cast<extent>(texts.size());
        check(rows);
        check_shape("labelled_data", shape<2>{rows, options.length});
        all_.ids.assign(static_cast<std::size_t>(rows * options.length), Vocabulary::padding);
        for (extent row = 0; row < rows; ++row) {
            const auto ids = vocabulary.encode(texts[row].text, options.length);
            std::copy(ids.begin(), ids.end(), all_.ids.begin() + row * options.length);
            all_.lengths.push_back(static_cast<std::int32_t>(ids.size()));
            all_.labels.push_back(texts[row].label);
        }
        divide(rows);
    }

    const labelled_data_options& options() const { return options_; }
    /// The number of texts for training: an epoch.
    extent training() const { return static_cast<extent>(training_.size()); }

    /// The batch of a step: `rows` texts; the last ones of an epoch and the first of the next may be in one batch.
    /// Throws argument_error for no rows.
    labelled_batch sample(std::uint32_t step, extent rows) {
        prepare(rows);
        const auto first = static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(rows);
        const auto epoch_rows = static_cast<std::uint64_t>(training());
        for (extent row = 0; row < rows; ++row) {
            const std::uint64_t place = first + static_cast<std::uint64_t>(row);
            const shuffled_order order(training(), options_.seed, static_cast<std::uint32_t>(place / epoch_rows));
            fill(training_[static_cast<std::size_t>(order[static_cast<extent>(place % epoch_rows)])], row);
        }
        return batch(rows);
    }

    /// The number of held-out texts.
    extent windows() const { return static_cast<extent>(held_out_.size()); }
    /// `rows` held-out texts from number `first` on; fewer at the end.
    labelled_batch window(extent first, extent rows) {
        rows = std::min(rows, windows() - first);
        if (first < 0 || rows < 1)
            fail<argument_error>("labelled_data: held-out texts from ", first, " on; there are ", windows());
        prepare(rows);
        for (extent row = 0; row < rows; ++row) fill(held_out_[static_cast<std::size_t>(first + row)], row);
        return batch(rows);
    }

  private:
    struct rows_of_ids {
        std::vector<std::int32_t> ids, labels, lengths;
    };

    void check(extent rows) const {
        if (options_.length < 2)
            fail<argument_error>("labelled_data: a length of ", options_.length, "; expected 2 or more");
        if (!(options_.held_out >= 0.0 && options_.held_out < 1.0)) {
            fail<argument_error>("labelled_data: ", options_.held_out,
                                 " of the texts held out; expected 0 or more and less than 1");
        }
        if (rows < 1) fail<data_error>("labelled_data: no texts");
    }

    /// The held-out texts are the first of a shuffled order that no epoch has; both parts stay in the texts' order.
    void divide(extent rows) {
        const auto count = static_cast<extent>(static_cast<double>(rows) * options_.held_out);
        if (options_.held_out > 0 && count < 1)
            fail<data_error>("labelled_data: ", options_.held_out, " of ", rows, " texts is none");
        std::vector<bool> is_held_out(static_cast<std::size_t>(rows), false);
        const shuffled_order order(rows, options_.seed, 0xffffffff);
        for (extent i = 0; i < count; ++i) is_held_out[static_cast<std::size_t>(order[i])] = true;
        for (extent row = 0; row < rows; ++row)
            (is_held_out[static_cast<std::size_t>(row)] ? held_out_ : training_).push_back(row);
    }

    void prepare(extent rows) {
        if (rows < 1) fail<argument_error>("labelled_data: a batch of ", rows, " rows; expected 1 or more");
        check_shape("labelled_data", shape<2>{rows, options_.length});
        const auto count = static_cast<std::size_t>(rows);
        if (now_.labels.size() >= count) return;
        now_.ids.resize(count * static_cast<std::size_t>(options_.length));
        now_.lengths.resize(count), now_.labels.resize(count);
    }
    void fill(extent from, extent row) {
        std::copy_n(all_.ids.begin() + from * options_.length, options_.length,
                    now_.ids.begin() + row * options_.length);
        now_.lengths[static_cast<std::size_t>(row)] = all_.lengths[static_cast<std::size_t>(from)];
        now_.labels[static_cast<std::size_t>(row)] = all_.labels[static_cast<std::size_t>(from)];
    }
    labelled_batch batch(extent rows) const {
        return {{now_.ids.data(), {rows, options_.length}}, {now_.labels.data(), {rows}}, {now_.lengths.data(), {rows}}};
    }

    labelled_data_options options_;
    rows_of_ids all_, now_;
    std::vector<extent> training_, held_out_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
