// SPDX-License-Identifier: MIT
/// \file
/// Conversations as what a trainer takes: rows of packed documents, in an order of each epoch; and as questions with answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <halftone/data/batches.hpp>
#include <halftone/data/chat_data.hpp>
#include <halftone/data/packing.hpp>

namespace ht = halftone;
using ids = std::vector<std::int32_t>;

/// Some rows, one after another as one. Micro-batches have some of them.
struct tuning_batch : ht::packed_batch {
    std::vector<const ht::packed_row*> of{};
    std::shared_ptr<ids> memory{};

    tuning_batch() = default;
    explicit tuning_batch(std::vector<const ht::packed_row*> rows);

    ht::extent rows() const { return static_cast<ht::extent>(of.size()); }
    std::vector<tuning_batch> split(ht::extent count) const;
    template <class Function>
    tuning_batch with_views(const Function& f) const {
        tuning_batch made = *this;
        static_cast<ht::packed_batch&>(made) = ht::packed_batch::with_views(f);
        return made;
    }
};

/// Rows for training and for evaluation.
class tuning_data {
  public:
    tuning_data(std::vector<ht::packed_row> rows, std::uint64_t seed) : rows_(std::move(rows)), seed_(seed) {}
    /// Rows that have nothing in them, of which a plan tells the memory: it depends on the tokens in a row, and in the longest document.
    static tuning_data of_sizes(ht::extent rows, ht::extent length, ht::extent longest);

    std::size_t size() const { return rows_.size(); }
    tuning_batch sample(std::uint32_t step, ht::extent rows) const;
    std::string order_text() const { return "packed rows in an order of each epoch"; }
    ht::extent windows() const { return static_cast<ht::extent>(rows_.size()); }
    tuning_batch window(ht::extent first, ht::extent rows) const;

  private:
    std::vector<ht::packed_row> rows_;
    std::uint64_t seed_;
};

/// The beginning of a conversation, and the answer to it that the data has.
struct question {
    ids prompt, answer;
};

/// A file's conversations, of which some are held out.
struct conversations {
    tuning_data training, held_out;
    std::vector<question> questions;  ///< of those that are held out: their last answers
    ht::extent lines = 0, lines_held_out = 0, cut = 0;
    ht::extent tokens = 0;
    ht::extent longest = 0;  ///< places in a row that the longest one takes
};

/// How they are read.
struct reading {
    ht::chat_data_options chat;
    ht::extent length = 512;  ///< tokens in a row; longer conversations are cut
    double held_out = 0.1;
    std::uint64_t seed = 0;
    std::size_t most_questions = 64;
};
/// Throws data_error for a file with a wrong line, and for one with fewer than two conversations.
conversations read_conversations(const ht::tokenizer& tokenizer, const std::filesystem::path& file, const reading& how);
