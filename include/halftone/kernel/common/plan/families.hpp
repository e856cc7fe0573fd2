// SPDX-License-Identifier: MIT
/// \file
/// Plans that choose among families of kernels: a list of rules, in the order in which they are tried, becomes a list of families with
/// what speaks against each or how it computes the problem. The cheapest is chosen where ways have a cost, otherwise the first one that
/// applies. matmul/device/plan.hpp, attention/device/plan.hpp and conv2d/lowering/plan.hpp have such rules.
///
///     struct way { double cost; };
///     constexpr family_rule<family, way, problem> rules[] = {{family::fast, "fast", &against_fast, &plan_fast}, ...};
///     const auto plan = plan_by(rules, p);
///     plan.best().name;
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// A family and how it computes a problem.
template <class Family, class Way>
struct planned : Way {
    Family family{};
    const char* name = nullptr;
    const char* why_not = nullptr;  ///< what speaks against it; nullptr: it applies
};

/// Whether the cheapest family is chosen, not the first.
template <class Way>
concept has_cost = requires(const Way& w) {
    w.cost;
};

template <class Family, class Way, int Count>
struct family_plan {
    static constexpr int count = Count;

    planned<Family, Way> families[Count];
    int chosen = -1;  ///< -1: none applies

    constexpr const planned<Family, Way>& best() const { return families[chosen]; }
};

/// A family, its name, what speaks against it (nullptr: it applies), and how it computes a problem that it applies to.
template <class Family, class Way, class Problem>
struct family_rule {
    Family family;
    const char* name;
    const char* (*against)(const Problem&);
    Way (*plan)(const Problem&);
};

template <class Way>
constexpr bool is_better(const Way& a, const Way& b) {
    if constexpr (has_cost<Way>) {
        return a.cost < b.cost;
    } else {
        return false;
    }
}

/// The plan of a problem by these rules. The first of several ways that are equally good is chosen.
template <class Family, class Way, class Problem, int Count>
constexpr family_plan<Family, Way, Count> plan_by(const family_rule<Family, Way, Problem> (&rules)[Count],
                                                  const Problem& p) {
    family_plan<Family, Way, Count> plan;
    for (int i = 0; i < Count; ++i) {
        planned<Family, Way>& f = plan.families[i];
        f.family = rules[i].family, f.name = rules[i].name, f.why_not = rules[i].against(p);
        if (f.why_not != nullptr) continue;
        static_cast<Way&>(f) = rules[i].plan(p);
        if (plan.chosen < 0 || is_better<Way>(f, plan.best())) plan.chosen = i;
    }
    return plan;
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
