// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <random>

#include "../command_line.hpp"
#include "data.hpp"

namespace {

/// Some documents of a file.
struct some_documents {
    const ht::chat_data& all;
    std::vector<ht::extent> which;

    ht::extent size() const { return static_cast<ht::extent>(which.size()); }
    ht::document operator[](ht::extent i) const { return all[which[static_cast<std::size_t>(i)]]; }
};

constexpr ht::extent most_documents = 32;  // in a row

std::vector<ht::packed_row> rows_of(const some_documents& documents, ht::extent length) {
    const ht::packed_rows rows{documents, {.length = length, .most_documents = most_documents}};
    std::vector<ht::packed_row> all;
    for (ht::extent i = 0; i < rows.size(); ++i) all.push_back(rows[i]);
    return all;
}

/// The numbers 0 to n - 1 in an order of its own for each seed, the same on every machine.
std::vector<ht::extent> shuffled(std::size_t n, std::uint64_t seed) {
    std::vector<ht::extent> order(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<ht::extent>(i);
    std::mt19937_64 engine(seed);
    for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[engine() % i]);
    return order;
}

/// A conversation up to its last answer, and the answer.
question question_of(const ht::document& d) {
    std::size_t end = d.tokens.size();
    while (end > 0 && !d.counts(static_cast<ht::extent>(end - 1))) --end;
    std::size_t begin = end;
    while (begin > 0 && d.counts(static_cast<ht::extent>(begin - 1))) --begin;
    const auto at = [&](std::size_t i) { return d.tokens.begin() + static_cast<std::ptrdiff_t>(i); };
    return {ids(at(0), at(begin)), ids(at(begin), at(end))};
}

}  // namespace

tuning_batch::tuning_batch(std::vector<const ht::packed_row*> rows) : of(std::move(rows)) {
    if (of.empty()) return;
    const std::size_t length = of[0]->tokens.size(), documents_of_row = of[0]->offsets.size() - 1;
    const std::size_t count = of.size() * length;
    memory = std::make_shared<ids>(2 * count + of.size() * documents_of_row + 1);
    std::int32_t *const first = memory->data(), *const offsets = first + 2 * count;
    for (std::size_t r = 0; r < of.size(); ++r) {
        std::copy(of[r]->tokens.begin(), of[r]->tokens.end(), first + r * length);
        std::copy(of[r]->targets.begin(), of[r]->targets.end(), first + count + r * length);
        for (std::size_t i = 0; i <= documents_of_row; ++i)
            offsets[r * documents_of_row + i] = of[r]->offsets[i] + static_cast<std::int32_t>(r * length);
    }
    const ht::shape<2> one_row{1, static_cast<ht::extent>(count)};
    tokens = {first, one_row}, targets = {first + count, one_row};
    documents = {ht::const_view<std::int32_t, 1>{
        offsets, ht::shape<1>{static_cast<ht::extent>(of.size() * documents_of_row) + 1}}};
}

std::vector<tuning_batch> tuning_batch::split(ht::extent count) const {
    if (count < 1 || rows() % count != 0)
        ht::fail<ht::argument_error>("split: ", rows(), " rows into ", count, " micro-batches");
    std::vector<tuning_batch> parts;
    for (auto at = of.begin(); at != of.end(); at += rows() / count)
        parts.emplace_back(std::vector<const ht::packed_row*>(at, at + rows() / count));
    return parts;
}

tuning_data tuning_data::of_sizes(ht::extent rows, ht::extent length, ht::extent longest) {
    const auto n = static_cast<std::size_t>(length);
    ht::packed_row row{ids(n), ids(n), {}};
    for (ht::extent i = 0; i <= most_documents; ++i)
        row.offsets.push_back(static_cast<std::int32_t>(std::min(i * longest, length)));
    row.offsets.back() = static_cast<std::int32_t>(length);
    return {std::vector<ht::packed_row>(static_cast<std::size_t>(rows), row), 0};
}

tuning_batch tuning_data::sample(std::uint32_t step, ht::extent rows) const {
    std::vector<const ht::packed_row*> chosen;
    std::vector<ht::extent> order;
    const std::size_t n = rows_.size();
    for (ht::extent i = 0; i < rows; ++i) {
        const std::size_t at =
            static_cast<std::size_t>(step) * static_cast<std::size_t>(rows) + static_cast<std::size_t>(i);
        if (order.empty() || at % n == 0) order = shuffled(n, seed_ + at / n);
        chosen.push_back(&rows_[static_cast<std::size_t>(order[at % n])]);
    }
    return tuning_batch(std::move(chosen));
}

tuning_batch tuning_data::window(ht::extent first, ht::extent rows) const {
    std::vector<const ht::packed_row*> chosen;
    for (ht::extent i = first; i < std::min(first + rows, windows()); ++i)
        chosen.push_back(&rows_[static_cast<std::size_t>(i)]);
    return tuning_batch(std::move(chosen));
}

conversations read_conversations(const ht::tokenizer& tokenizer, const std::filesystem::path& file,
                                 const reading& how) {
    ht::chat_data_options chat = how.chat;
    chat.most_tokens = how.length;
    const ht::chat_data all{tokenizer, file, chat};
    const auto n = static_cast<std::size_t>(all.size());
    if (n < 2)
        ht::fail<ht::data_error>(file.string(),
                                 " has one conversation; expected two or more, of which one is held out");
    std::vector<ht::extent> order = shuffled(n, how.seed);
    const auto held =
        std::clamp<std::size_t>(static_cast<std::size_t>(std::lround(how.held_out * static_cast<double>(n))), 1, n - 1);
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(held);
    const some_documents held_out{all, {order.begin(), middle}}, training{all, {middle, order.end()}};
    conversations made{{rows_of(training, how.length), how.seed}, {rows_of(held_out, how.length), how.seed}, {}};
    for (ht::extent i = 0; i < held_out.size() && made.questions.size() < how.most_questions; ++i) {
        if (held_out[i].size() < how.length || all.cut() == 0) made.questions.push_back(question_of(held_out[i]));
    }
    made.lines = all.size(), made.lines_held_out = held_out.size(), made.cut = all.cut(), made.tokens = all.tokens();
    made.longest = all.longest() - 1;
    return made;
}
