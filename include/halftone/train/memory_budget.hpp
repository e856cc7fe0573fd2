// SPDX-License-Identifier: MIT
/// \file
/// A memory budget of a trainer: of the measures that the user allows, the cheapest combination whose plan fits.
///
///     ht::trainer trainer{device, model, {.per_device_train_batch_size = 16, .max_steps = 1000,
///                                         .memory = {.budget = std::size_t{200} << 20}}};
///     trainer.train(data);                                       // the peak of device.memory().usage() is within it
///     std::cout << trainer.budget()->text << '\n';
///
/// The measures, with what they cost:
///
/// micro-batches of fewer rows, and more of them: every product reads its weights once more a micro-batch. Not of a model with
///     states, such as the running statistics of batch norm, which normalises by the rows of a micro-batch
/// the first n blocks are computed again in the backward pass: their forward pass once more
/// logits are computed again in the backward pass: the head's product once more
/// moments in 8 bits, by adamw_8bit or another optimizer's form in 8 bits: nothing, but other bits, and so only if asked for
///
/// Time is counted in multiplications, so that the choice, and with it the bits of a run, depends on shapes alone. Blocks
/// are alike, and of equally many the first ones save the most: their values are computed again after those of later
/// blocks have been freed. More blocks never need more memory, so that their least number is found by bisection.
///
/// ht::cheapest_within (observe/memory/plan.hpp) chooses among any candidates of your own.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <halftone/nn/model.hpp>
#include <halftone/train/training_arguments.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How a run stays within its memory budget.
struct memory_choice {
    extent micro_batch = 0;        ///< rows of a micro-batch
    extent accumulation = 1;       ///< micro-batches in a step
    int recomputed_blocks = 0;     ///< the first ones, which are computed again in the backward pass
    bool keeps_logits = true;      ///< false: logits are computed again in the backward pass
    bool eight_bit_moments = false;  ///< true: adamw_8bit in place of adamw, say
    double more_operations = 0;    ///< what it adds, as a fraction of the run's operations as asked for
    std::size_t budget_bytes = 0;
    std::size_t peak_bytes = 0;    ///< the run's peak by its plan
    std::string text;              ///< the choice, its peak and its cost in a line
};

/// Nothing that the user allows keeps a run within its memory budget: says by how much, and what would.
struct budget_error : out_of_memory {
    budget_error(const std::string& what, std::size_t least, std::size_t budget)
        : out_of_memory(what), least_bytes(least), budget_bytes(budget) {}
    std::size_t least_bytes;   ///< the least peak of all allowed ways
    std::size_t budget_bytes;  ///< the budget given
};

namespace detail {

/// A run as asked for, and what may be changed about it.
struct budget_question {
    extent rows, accumulation;  ///< of a micro-batch; micro-batches in a step
    extent length;              ///< tokens in a row
    nn::token_work work;        ///< no blocks: nothing is known of the model
    bool has_logits;            ///< whether logits may be kept or not
    bool has_wide_moments;      ///< whether moments could be in 8 bits, and are not
    memory_measures may;
    bool has_states = false;    ///< whether a forward pass changes the model, so that smaller micro-batches change the run
};

/// What a plan tells about a way to run.
struct budget_plan {
    bool fits = false;
    std::size_t peak_bytes = 0;
};

/// The fixed cost of a micro-batch: every product reads its weights and adds to their gradients once more, which weighs as
/// much as the work of so many tokens.
inline constexpr double tokens_of_a_micro_batch = 16;

/// The operations of a step, relative to the question's own, less 1.
inline double more_operations(const budget_question& q, const memory_choice& way) {
    const double forward = q.work.blocks == 0 ? 1 : q.work.blocks * q.work.block + q.work.head;
    const double tokens = static_cast<double>(q.rows * q.accumulation * q.length);
    const auto cost = [&](double again, extent accumulation) {
        return (3 * forward + again) * tokens +
               3 * forward * tokens_of_a_micro_batch * static_cast<double>(accumulation);
    };
    const double again = way.recomputed_blocks * q.work.block + (way.keeps_logits ? 0 : q.work.head);
    return cost(again, way.accumulation) / cost(0, q.accumulation) - 1;
}

/// "micro-batches of 4 in place of 16, the first 3 of 12 blocks computed again"; empty: nothing is changed.
inline std::string budget_words(const budget_question& q, const memory_choice& way) {
    std::string text;
    const auto add = [&text](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
    if (way.micro_batch != q.rows) add(sentence("micro-batches of ", way.micro_batch, " in place of ", q.rows));
    if (way.recomputed_blocks != 0)
        add(sentence("the first ", way.recomputed_blocks, " of ", q.work.blocks, " blocks computed again"));
    if (!way.keeps_logits) add("logits computed again");
    if (way.eight_bit_moments) add("moments in 8 bits");
    return text;
}

/// The ways that compute no block again, the cheapest first.
inline std::vector<memory_choice> ways_without_blocks(const budget_question& q) {
    std::vector<memory_choice> ways;
    for (extent rows = q.rows; rows >= 1; --rows) {
        if (q.rows % rows != 0 || (rows != q.rows && !q.may.micro_batches)) continue;
        for (const bool keeps_logits : {true, false}) {
            if (!keeps_logits && !(q.has_logits && q.may.logits)) continue;
            for (const bool eight_bit_moments : {false, true}) {
                if (eight_bit_moments && !(q.has_wide_moments && q.may.eight_bit_moments)) continue;
                memory_choice way;
                way.micro_batch = rows;
                way.accumulation = q.accumulation * (q.rows / rows);
                way.keeps_logits = keeps_logits;
                way.eight_bit_moments = eight_bit_moments;
                way.more_operations = more_operations(q, way);
                ways.push_back(way);
            }
        }
    }
    std::stable_sort(ways.begin(), ways.end(), [](const memory_choice& a, const memory_choice& b) {
        return a.more_operations < b.more_operations;
    });
    return ways;
}

/// The least number of blocks with which `way` fits, by bisection; the way with all of them if it does not fit at all.
template <class PlanOf>
std::pair<memory_choice, budget_plan> with_least_blocks(const budget_question& q, memory_choice way, const PlanOf& plan_of) {
    const auto of = [&](int blocks) {
        way.recomputed_blocks = blocks;
        way.more_operations = more_operations(q, way);
        return plan_of(way);
    };
    budget_plan plan = of(0);
    if (plan.fits || q.work.blocks == 0 || !q.may.recomputation) return {way, plan};
    int none = 0, all = q.work.blocks;
    plan = of(all);
    memory_choice fitting = way;
    while (plan.fits && all - none > 1) {
        const int middle = none + (all - none) / 2;
        const budget_plan tried = of(middle);
        if (tried.fits) {
            all = middle, plan = tried, fitting = way;
        } else {
            none = middle;
        }
    }
    return {fitting, plan};
}

/// A choice and whether it fits; if not, it is the one with the least peak.
struct budget_answer {
    memory_choice way{};
    bool fits = false;
};

/// The cheapest way whose plan_of(way), a budget_plan, fits.
template <class PlanOf>
budget_answer cheapest_measures(const budget_question& q, const PlanOf& plan_of) {
    std::optional<memory_choice> best, least;
    for (const memory_choice& without : ways_without_blocks(q)) {
        if (best && without.more_operations >= best->more_operations) break;
        auto [way, plan] = with_least_blocks(q, without, plan_of);
        way.peak_bytes = plan.peak_bytes;
        if (plan.fits && (!best || way.more_operations < best->more_operations)) best = way;
        if (!least || way.peak_bytes < least->peak_bytes) least = way;
    }
    return best ? budget_answer{*best, true} : budget_answer{*least, false};
}

/// What would let a run fit for which nothing that is allowed suffices.
inline std::string budget_remedies(const budget_question& q) {
    std::string text;
    const auto add = [&text](const char* what) { text += std::string(text.empty() ? "" : ", ") + what; };
    if (q.has_states && q.rows > 1) {
        add("a smaller per_device_train_batch_size, by which the model's states become others");
    } else if (!q.may.micro_batches && q.rows > 1) {
        add("allowing smaller micro-batches");
    }
    if (!q.may.recomputation && q.work.blocks != 0) add("allowing blocks to be computed again");
    if (!q.may.logits && q.has_logits) add("allowing logits to be computed again");
    add("shorter rows");
    if (q.has_wide_moments && !q.may.eight_bit_moments) add("moments in 8 bits");
    add("a policy of fewer bytes a parameter");
    return text;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
