// SPDX-License-Identifier: MIT
/// \file
/// Documents of various lengths in rows of one length, without padding between them: a source of a data loader.
///
///     const ht::packed_rows rows{documents, {.length = 1024}};             // documents[i]: a ht::document
///     ht::data_loader loader{rows, {.batch_size = 8, .last = ht::last_batch::drop}, ht::collate_packed};
///     for (const ht::packed_batch& batch : loader) loss = model.loss(tape, batch);
///
/// A document of n tokens gives n - 1 predictions, of its tokens but the first, so that it takes n - 1 places. Each is in
/// exactly one row, whole, with attention and positions of its own (tensor/packed.hpp); only documents longer than a row,
/// or than the model's context, are divided. Rows are filled by best fit, the longest documents first: the order of the result depends on lengths
/// alone. Targets that do not count are -100: those of tokens that a document does not let be predicted, and those of the padding at a row's end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <halftone/data/batch_memory.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/data/data_error.hpp>
#include <halftone/data/document.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The sizes of packed rows.
struct packing_options {
    extent length = 1024;        ///< tokens in a row
    extent longest = 0;          ///< tokens in a document, the model's context at most; 0: length
    extent most_documents = 32;  ///< in a row, with those of the padding at its end; a row with fewer has empty ones
    std::int32_t padding = 0;    ///< the id at the end of rows that are not full
};

/// A row with its documents.
struct packed_row {
    std::vector<std::int32_t> tokens, targets;  ///< length of them
    std::vector<std::int32_t> offsets;          ///< most_documents + 1, from 0 to length
};

/// A map_source of rows (data_loader.hpp). `Documents` has size() and [index], which gives a document.
template <class Documents>
class packed_rows {
  public:
    /// Decides which document stands in which row. The documents must outlive it. Throws argument_error for sizes outside
    /// their range, and data_error for no documents, and one that has nothing to predict.
    packed_rows(const Documents& documents, const packing_options& options) : documents_(&documents), options_(options) {
        if (options_.longest == 0) options_.longest = options_.length;
        check();
        std::vector<piece> pieces;
        for (extent i = 0; i < static_cast<extent>(documents.size()); ++i) add(pieces, i);
        if (pieces.empty()) fail<data_error>("packed_rows: no documents");
        std::stable_sort(pieces.begin(), pieces.end(), [](const piece& a, const piece& b) { return a.size > b.size; });
        place(pieces);
    }

    const packing_options& options() const { return options_; }
    /// The number of rows.
    extent size() const { return static_cast<extent>(rows_.size()); }
    packed_row operator[](extent index) const {
        packed_row row;
        row.offsets.push_back(0);
        for (const piece& p : rows_[static_cast<std::size_t>(index)]) {
            const document d = (*documents_)[p.document];
            for (extent i = p.first; i < p.first + p.size; ++i) {
                row.tokens.push_back(d.tokens[static_cast<std::size_t>(i)]);
                row.targets.push_back(d.counts(i + 1) ? d.tokens[static_cast<std::size_t>(i + 1)] : ignored);
            }
            row.offsets.push_back(static_cast<std::int32_t>(row.tokens.size()));
        }
        for (extent used = row.offsets.back(); used < options_.length;) {  // the padding, in documents of its own
            used = std::min(used + options_.longest, options_.length);
            row.offsets.push_back(static_cast<std::int32_t>(used));
        }
        row.tokens.resize(static_cast<std::size_t>(options_.length), options_.padding);
        row.targets.resize(static_cast<std::size_t>(options_.length), ignored);
        row.offsets.resize(static_cast<std::size_t>(options_.most_documents) + 1,
                           static_cast<std::int32_t>(options_.length));
        return row;
    }
    /// The fraction of all places that documents take.
    double filled() const {
        extent used = 0;
        for (const auto& row : rows_) {
            for (const piece& p : row) used += p.size;
        }
        return static_cast<double>(used) / static_cast<double>(size() * options_.length);
    }

  private:
    static constexpr std::int32_t ignored = -100;

    /// Places of a row that belong to tokens [first, first + size) of a document.
    struct piece {
        extent document, first, size;
    };

    void check() const {
        if (options_.length < 1 || options_.length > INT32_MAX)
            fail<argument_error>("packed_rows: rows of ", options_.length, " tokens; expected 1 to ", INT32_MAX);
        if (options_.longest < 1 || options_.longest > options_.length) {
            fail<argument_error>("packed_rows: documents of at most ", options_.longest, " tokens in a row of ",
                                 options_.length, "; expected 1 to as many");
        }
        const extent least = 1 + paddings(options_.length);
        if (options_.most_documents < least || options_.most_documents > INT32_MAX) {
            fail<argument_error>("packed_rows: at most ", options_.most_documents, " documents in a row of ",
                                 options_.length, " tokens; expected ", least, " or more");
        }
    }
    /// The documents that so many places of padding take.
    extent paddings(extent places) const { return detail::ceil_div(places, options_.longest); }

    void add(std::vector<piece>& pieces, extent index) const {
        const document d = (*documents_)[index];
        const auto tokens = static_cast<extent>(d.tokens.size());
        if (tokens < 2) {
            fail<data_error>("packed_rows: document ", index, " has ", tokens, " tokens; expected 2 or more, of which the "
                             "first predicts the second");
        }
        if (d.prompt < 0 || d.prompt >= tokens) {
            fail<data_error>("packed_rows: document ", index, " has a prompt of ", d.prompt, " tokens, of ", tokens,
                             "; expected fewer");
        }
        if (!d.predicted.empty() && (d.predicted.size() != d.tokens.size() || !d.counts_any())) {
            fail<data_error>("packed_rows: document ", index, " has ", d.predicted.size(),
                             " marks of what is predicted for ", tokens,
                             " tokens; expected as many, and one that is not 0 behind the first token");
        }
        for (extent first = 0; first < tokens - 1; first += options_.longest)
            pieces.push_back({index, first, std::min(options_.longest, tokens - 1 - first)});
    }
    /// Puts each piece in the row where it leaves the least room.
    void place(const std::vector<piece>& pieces) {
        std::multimap<extent, std::size_t> room;  // of rows that take another document
        for (const piece& p : pieces) {
            const auto found = room.lower_bound(p.size);
            std::size_t row = rows_.size();
            extent left = options_.length;
            if (found != room.end()) {
                left = found->first, row = found->second;
                room.erase(found);
            } else {
                rows_.emplace_back();
            }
            rows_[row].push_back(p);
            left -= p.size;
            const auto documents = static_cast<extent>(rows_[row].size());
            if (left > 0 && documents + 1 + paddings(left) <= options_.most_documents) room.emplace(left, row);
        }
    }

    const Documents* documents_;
    packing_options options_;
    std::vector<std::vector<piece>> rows_;
};

/// A data loader's function: packed rows, one after the other, as one row (1, rows x length). The number of documents is
/// the same for every batch of as many rows, so that its step can be captured.
inline packed_batch collate_packed(std::span<const packed_row> rows, batch_memory& memory) {
    if (rows.empty()) return {};
    const std::size_t length = rows[0].tokens.size(), documents = rows[0].offsets.size() - 1;
    const shape<2> s{1, static_cast<extent>(rows.size() * length)};
    const auto tokens = memory.make<std::int32_t>(s), targets = memory.make<std::int32_t>(s);
    const auto offsets = memory.make<std::int32_t>(shape<1>{static_cast<extent>(rows.size() * documents) + 1});
    for (std::size_t r = 0; r < rows.size(); ++r) {
        std::copy(rows[r].tokens.begin(), rows[r].tokens.end(), tokens.data() + r * length);
        std::copy(rows[r].targets.begin(), rows[r].targets.end(), targets.data() + r * length);
        for (std::size_t i = 0; i <= documents; ++i)
            offsets.data()[r * documents + i] = rows[r].offsets[i] + static_cast<std::int32_t>(r * length);
    }
    return {tokens, targets, {offsets}};
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
