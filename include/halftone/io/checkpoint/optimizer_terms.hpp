// SPDX-License-Identifier: MIT
/// \file
/// What a program made an optimizer with: its learning rate, schedule, weight decay, and the groups' own ones. A checkpoint has
/// them beside the present rate, so that a program that resumes it with others is told so.
///
///     {"lr": 0.001, "weight_decay": 0.1, "schedule": "cosine", "warmup_steps": 2, "h.0.norm.gain: weight_decay": 0}
#pragma once

#include <map>
#include <string>

#include <halftone/io/strict_json.hpp>
#include <halftone/io/weights.hpp>
#include <halftone/optim/optimizer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Whose learning rate, schedule and weight decay a run goes on with when it is resumed.
enum class resume_arguments {
    saved,    ///< the checkpoint's: a program that makes its optimizer with others is refused
    program,  ///< the program's, which the checkpoint's make way for
};
/// For {.resume_with = ht::saved_arguments}: the default.
inline constexpr resume_arguments saved_arguments = resume_arguments::saved;
/// For {.resume_with = ht::program_arguments}.
inline constexpr resume_arguments program_arguments = resume_arguments::program;

namespace detail {

inline const char* name(schedule s) {
    constexpr const char* names[] = {"constant", "linear", "cosine", "polynomial", "warmup_stable_decay"};
    return names[static_cast<int>(s)];
}
inline const char* name(rate_curve c) {
    constexpr const char* names[] = {"linear", "cosine", "one_minus_sqrt"};
    return names[static_cast<int>(c)];
}

/// The numbers of a schedule that its rates depend on, but for the steps of the whole run, which may be others.
inline void add_schedule(nlohmann::json& terms, const schedule_options& s) {
    terms["schedule"] = name(s.shape);
    if (s.warmup_steps > 0) {
        terms["warmup_steps"] = s.warmup_steps;
    } else if (s.warmup_ratio > 0) {
        terms["warmup_ratio"] = s.warmup_ratio;
    }
    if (s.shape != schedule::constant) terms["final_ratio"] = s.final_ratio;
    if (s.shape == schedule::polynomial) terms["power"] = s.power;
    if (s.shape != schedule::warmup_stable_decay) return;
    terms["decay_steps"] = s.decay_steps;
    terms["warmup_type"] = name(s.warmup_type);
    terms["decay_type"] = name(s.decay_type);
}

template <class Optimizer>
nlohmann::json terms_of(const Optimizer& optimizer) {
    nlohmann::json terms{{"lr", optimizer.made_with_lr()}, {"weight_decay", optimizer.made_with_weight_decay()}};
    add_schedule(terms, optimizer.schedule());
    optimizer.visit_rates([&](const std::string& path, const kernel::group_rates& r) {
        if (r.lr_share == 0) terms[path + ": lr"] = r.fixed_lr;
        if (r.lr_share != 0 && r.lr_share != 1) terms[path + ": lr_scale"] = r.lr_share;
        if (r.weight_decay != optimizer.made_with_weight_decay()) terms[path + ": weight_decay"] = r.weight_decay;
    });
    return terms;
}

/// The terms in which a checkpoint differs from a program: "lr was 0.001 there, and is 0.0001 here". Throws checkpoint_error
/// for terms that are none.
inline name_list differing_terms(const nlohmann::json& there, const nlohmann::json& here) {
    const auto is_term = [](const nlohmann::json& j) { return j.is_number() || j.is_string(); };
    bool are_terms = there.is_object();
    for (const auto& [key, value] : there.items()) are_terms = are_terms && is_term(value);
    if (!are_terms) fail<checkpoint_error>("checkpoint: what the optimizer was made with is no object of numbers and texts");
    std::map<std::string, const char*> keys;  // with what an optimizer has that does not say it
    for (const nlohmann::json* terms : {&there, &here}) {
        for (const auto& [key, value] : terms->items()) keys[key] = key.find(": ") == std::string::npos ? "none" : "the optimizer's";
    }
    name_list differing;
    for (const auto& [key, unsaid] : keys) {
        const auto text = [&, k = key, u = unsaid](const nlohmann::json& terms) {
            if (!terms.contains(k)) return std::string(u);
            return terms[k].is_string() ? terms[k].get<std::string>() : terms[k].dump();
        };
        const bool is_same = there.contains(key) && here.contains(key) && there[key] == here[key];
        if (!is_same) differing.add(key + " was " + text(there) + " there, and is " + text(here) + " here");
    }
    return differing;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
