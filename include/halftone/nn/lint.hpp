// SPDX-License-Identifier: MIT
/// \file
/// The rules of policy/lint.hpp over a model as it is: which of its sums are too long for the type they are made in,
/// and which numbers do not fit.
///
///     for (const ht::lint_finding& f : ht::lint(model, {.rows = 8192, .micro_batches = 512})) std::cout << f << '\n';
///
///     h.0.mlp.up.weight (linear): 512 micro-batches add up in bfloat16, whose 8 significant bits count 256 terms of equal size: 50% are lost
///
/// Looks at paths, shapes and types alone; a model without findings prints nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/store.hpp>
#include <halftone/policy/lint.hpp>
#include <halftone/policy/model.hpp>

namespace halftone::inline HALFTONE_ABI {

/// What a model does not know of its training; 0: nothing is said about it.
struct lint_options {
    std::uint64_t rows = 0;  ///< rows of a micro-batch as a layer sees them (tokens): terms of a weight's gradient
    std::uint64_t micro_batches = 0;  ///< of a step
    double loss_scale = 0;            ///< the largest that may come
    std::uint64_t loss_terms = 1;     ///< terms that the loss is a mean of
    double largest_activation = 0, largest_weight = 0;
};

enum class lint_rule {
    sum_length,     ///< a sum has more terms than its accumulator can count
    micro_batches,  ///< more micro-batches add up than the buffers of gradients can count
    loss_scale,     ///< gradients begin beyond what their type holds
    product_range,  ///< products reach what the results' type cannot hold
    state_range,    ///< squares of gradients vanish in the moments' type
};

constexpr const char* name(lint_rule r) {
    constexpr const char* names[] = {"sum length", "micro-batches", "loss scale", "product range", "state range"};
    return names[static_cast<int>(r)];
}

struct lint_finding {
    std::string path;             ///< of the parameter whose operation it is
    const char* operation = "";
    lint_rule rule{};
    const char* type = "";        ///< that is too narrow
    std::uint64_t terms = 0;      ///< of the sum
    int significand_bits = 0;
    double lost = 0;              ///< share of terms of equal size that is lost; 0 for questions of range
    double reached = 0, limit = 0;  ///< the number in question, and the largest (of `state_range`: the least) that fits
    std::string sentence;         ///< all of it in words, without path and operation
};

inline std::ostream& operator<<(std::ostream& out, const lint_finding& f) {
    return out << f.path << " (" << f.operation << "): " << f.sentence;
}

namespace detail {

inline std::string rounded_text(double x) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", x);
    return text;
}

/// How exactly the path of a layer's type names the layer of a parameter: not at all, as one of many ("h.*.fc"), as the
/// last of them ("h.last.fc"), by its number.
inline int exactness(const std::string& pattern, const std::string& parameter, const store& parameters) {
    const std::size_t dot = parameter.rfind('.');
    const std::string path = parameter.substr(0, dot == std::string::npos ? 0 : dot);
    if (pattern == path) return 3;
    // A pattern covers what is below it, too; a layer's own parameters lie right there.
    const auto depth = [](const std::string& p) { return std::count(p.begin(), p.end(), '.'); };
    if (depth(pattern) == depth(path) && path_matches(pattern.c_str(), path.c_str())) return 1;
    const std::size_t at = pattern.find("last.");
    if (at == std::string::npos || path.compare(0, at, pattern, 0, at) != 0) return 0;
    const std::size_t end = path.find('.', at);
    if (end == std::string::npos || path.compare(end, std::string::npos, pattern, at + 4) != 0) return 0;
    const std::string next = path.substr(0, at) + std::to_string(std::atoi(path.c_str() + at) + 1) + ".";
    for (const store::entry& e : parameters.entries()) {
        if (e.path.compare(0, next.size(), next) == 0) return 0;
    }
    return 2;
}

class linter {
  public:
    linter(const lint_options& options, const store& parameters)
        : options_(options), parameters_(&parameters), best_(parameters.entries().size()) {}

    std::vector<lint_finding> findings;

    /// Beforehand for every layer: which of them names a parameter best.
    template <class Layer>
    void claim() {
        if constexpr (parameter_owner<Layer>) {
            for (std::size_t i = 0; i < best_.size(); ++i)
                best_[i] = std::max(best_[i], exactness(path<Layer>(), parameters_->entries()[i].path, *parameters_));
        }
    }

    template <class Layer>
    void look_at() {
        if constexpr (parameter_owner<Layer>) {
            const store& parameters = *parameters_;
            for (std::size_t i = 0; i < best_.size(); ++i) {
                const store::entry& e = parameters.entries()[i];
                const int exact = exactness(path<Layer>(), e.path, parameters);
                if (exact == 0 || exact != best_[i]) continue;
                const std::size_t stem = e.path.rfind('.') + 1;
                const bool is_weight = e.path.compare(stem, std::string::npos, "weight") == 0;
                for (const store::entry& bias : parameters.entries()) {
                    // Only what has a bias is told apart in rows and columns here.
                    if (is_weight && bias.path == e.path.substr(0, stem) + "bias" && bias.count > 0 &&
                        e.count % bias.count == 0)
                        look_at_product<Layer>(e.path, e.count / bias.count, bias.count);
                }
                look_at_gradients<Layer>(e.path);
            }
        }
    }

  private:
    template <class Layer>
    static std::string path() {
        return path_of<typename Layer::policy>.text().data;
    }
    template <class Layer>
    using roles_of = policy_within<typename Layer::policy, as_given>;
    template <class Layer>
    static constexpr const char* operation_name() {
        if constexpr (requires { operation_of<Layer>::name; }) {
            return operation_of<Layer>::name;
        } else {
            return "?";
        }
    }

    template <class T>
    void count(lint_rule rule, const std::string& path, const char* operation, std::uint64_t k,
               const std::string& what) {
        const double lost = lost_share<T>(k);
        if (lost == 0) return;
        constexpr int bits = number_traits<T>::significand_bits;
        findings.push_back({path, operation, rule, number_traits<T>::name, k, bits, lost, 0, 0,
                            std::to_string(k) + what + number_traits<T>::name + ", whose " + std::to_string(bits) +
                                " significant bits count " + std::to_string(countable_terms<T>) +
                                " terms of equal size: " + rounded_text(100 * lost) + "% are lost"});
    }
    template <class T>
    void fit(lint_rule rule, const std::string& path, const char* operation, std::uint64_t k, double reached,
             const std::string& what) {
        if (!(reached > number_traits<T>::max)) return;
        findings.push_back({path, operation, rule, number_traits<T>::name, k, number_traits<T>::significand_bits, 0,
                            reached, number_traits<T>::max,
                            what + rounded_text(reached) + ", and the largest " + number_traits<T>::name + " is " +
                                rounded_text(number_traits<T>::max)});
    }

    template <class Layer>
    void look_at_product(const std::string& path, std::uint64_t in, std::uint64_t out) {
        using roles = roles_of<Layer>;
        const char* const operation = operation_name<Layer>();
        count<typename roles::accum>(lint_rule::sum_length, path, operation, in,
                                     " products of the forward pass add up in ");
        count<typename roles::accum>(lint_rule::sum_length, path, operation, out,
                                     " products of the input's gradient add up in ");
        const double reached = static_cast<double>(in) * options_.largest_activation * options_.largest_weight;
        fit<typename roles::output>(lint_rule::product_range, path, operation, in, reached, "results can reach ");
    }

    template <class Layer>
    void look_at_gradients(const std::string& path) {
        using roles = roles_of<Layer>;
        const char* const operation = operation_name<Layer>();
        count<typename roles::accum>(lint_rule::sum_length, path, operation, options_.rows,
                                     " rows add up to a gradient in ");
        count<typename roles::accumulate>(lint_rule::micro_batches, path, operation, options_.micro_batches,
                                          " micro-batches add up in ");
        const double first = options_.loss_scale / static_cast<double>(options_.loss_terms);
        fit<typename roles::grad>(lint_rule::loss_scale, path, operation, options_.loss_terms, first,
                                  "gradients begin at up to ");
        using state = typename roles::state;
        if constexpr (narrow_range<state>) {
            const double least = std::sqrt(number_traits<state>::min_subnormal / 2);
            findings.push_back({path, operation, lint_rule::state_range, number_traits<state>::name, 0,
                                number_traits<state>::significand_bits, 0, least, number_traits<state>::min_subnormal,
                                "squares of gradients below " + rounded_text(least) + " are zero in moments of " +
                                    number_traits<state>::name});
        }
    }

    lint_options options_;
    const store* parameters_;
    std::vector<int> best_;
};

template <class... Layers>
void lint_layers(linter& l, types<Layers...>) {
    (l.claim<Layers>(), ...);
    (l.look_at<Layers>(), ...);
}

}  // namespace detail

/// What the types of a model cannot hold, parameter by parameter. Throws argument_error for a loss that is a mean of no
/// terms.
template <class Model>
std::vector<lint_finding> lint(const Model& model, const lint_options& options = {}) {
    if (options.loss_terms == 0) fail<argument_error>("lint: a loss of 0 terms; expected 1 or more");
    detail::linter l(options, model.parameters());
    detail::lint_layers(l, unique_t<layers_of<Model>>{});
    return std::move(l.findings);
}

}  // namespace halftone::inline HALFTONE_ABI
