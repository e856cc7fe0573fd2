// SPDX-License-Identifier: MIT
/// \file
/// The rules of observe/lint/policy_lint.hpp for a model with run-time sizes: which of its sums are too long for the
/// type in which they are computed, and which numbers do not fit their types.
///
///     for (const ht::lint_finding& f : ht::lint(model, {.rows = 8192, .micro_batches = 512})) std::cout << f << '\n';
///
///     h.0.mlp.up.weight (linear): 512 micro-batches add up in bfloat16, whose 8 significant bits count 256 terms of equal size: 50% are lost
///
/// Only paths, shapes and types are used; for a model without findings the list is empty. The lengths of sums follow
/// from the shapes of parameters; for layers without parameters from the layer: `extent head_size() const` if its
/// operation is attention, `extent classes, width` for a head with a tied table.
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
#include <halftone/observe/lint/policy_lint.hpp>
#include <halftone/policy/model.hpp>
#include <halftone/policy/operations.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a model's type does not say about its training; with 0 the corresponding rules are skipped.
struct lint_options {
    std::uint64_t rows = 0;  ///< rows of a micro-batch in a layer (tokens): the terms of a weight's gradient
    std::uint64_t micro_batches = 0;  ///< number of micro-batches in a step
    double loss_scale = 0;            ///< the largest possible loss scale
    std::uint64_t loss_terms = 1;     ///< number of terms in the loss, a mean
    double largest_activation = 0, largest_weight = 0;
    std::uint64_t sequence = 0;  ///< queries and keys of attention's longest sequence
    // For 8-bit tensors: the smallest numbers that should not become zero, and the largest factor by which an amax
    // grows from one window to the next.
    double smallest_activation = 0, largest_gradient = 0, smallest_gradient = 0, amax_growth = 0;
};

/// The rule of a finding.
enum class lint_rule {
    sum_length,     ///< a sum has more terms of equal size than its type can count
    micro_batches,  ///< more micro-batches are added than the gradient buffers' type can count
    loss_scale,     ///< the gradient at the loss exceeds its type's range
    product_range,  ///< products may exceed the range of the results' type
    state_range,    ///< squares of gradients underflow in the moments' type
    scaled_range,   ///< 8-bit operands underflow or saturate
};

/// The rule in words, such as "sum length".
constexpr const char* name(lint_rule r) {
    constexpr const char* names[] = {"sum length",    "micro-batches", "loss scale",
                                     "product range", "state range",   "scaled range"};
    return names[static_cast<int>(r)];
}

/// A type that is too narrow for how a layer uses it.
struct lint_finding {
    std::string path;  ///< path of the operation's parameter, or of the layer if it has none
    const char* operation = "";
    lint_rule rule{};
    const char* type = "";    ///< the type that is too narrow
    std::uint64_t terms = 0;  ///< number of terms of the sum
    int significand_bits = 0;
    double lost = 0;  ///< fraction of terms of equal size that is lost; 0 for rules about range
    /// The number in question, and the largest that fits; for `state_range`, and for underflow, the smallest.
    double reached = 0, limit = 0;
    std::string sentence;  ///< the finding in words, without path and operation
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

/// How specifically the path of a layer's type matches a parameter's path, in ascending order: not at all, as one of
/// many ("h.*.fc"), as the last ("h.last.fc"), by its number.
inline int exactness(const std::string& pattern, const std::string& parameter, const store& parameters) {
    const std::size_t dot = parameter.rfind('.');
    const std::string path = parameter.substr(0, dot == std::string::npos ? 0 : dot);
    if (pattern == path) return 3;
    // A pattern also matches everything below; a layer's own parameters are exactly one level below.
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

template <class Op>
inline constexpr bool is_in_fp32 = operation_category<Op>::value == category::fp32;
template <>
inline constexpr bool is_in_fp32<void> = false;

template <class Layer>
inline constexpr bool is_adapter_layer = requires {
    requires Layer::is_adapter;
};

class linter {
  public:
    linter(const lint_options& options, const store& parameters)
        : options_(options), parameters_(&parameters), best_(parameters.entries().size()) {
        for (const store::entry& e : parameters.entries()) paths_.push_back(e.path);
        // The adapters of parts of a layer's rows ("qkv.q.lora_B") are the layer's.
        for (const store_adapter& each : parameters.adapters().all()) {
            const std::string& weight = parameters.entries()[each.weight].path;
            paths_[each.b] = weight.substr(0, weight.rfind('.') + 1) + "lora_B";
        }
    }

    std::vector<lint_finding> findings;

    /// Computed in advance for every layer: which layer matches a parameter best.
    template <class Layer>
    void claim() {
        if constexpr (parameter_owner<Layer>) claim(path<Layer>());
    }

    template <class Layer>
    void look_at() {
        if constexpr (parameter_owner<Layer>) {
            for (const store::entry* e : claimed_by(path<Layer>())) {
                if (e->is_adapter != is_adapter_layer<Layer>) continue;  // an adapter has its layer's path
                using computes = typename computed_by<Layer>::type;
                if constexpr (is_in_fp32<computes>) {
                    count<sums_of<Layer>>(lint_rule::sum_length, e->path, operation_name<Layer>(), e->count,
                                          " numbers of a row add up in ");
                } else if constexpr (!is_of_kind<computes, operation_kind::embedding>) {
                    if (e->rows > 0) look_at_product<Layer>(e->path, size(e->width), size(e->rows));
                    if (e->rows > 0) look_at_operands<Layer>(e->path);
                }
                if (!e->frozen) look_at_gradients<Layer>(e->path);
            }
        }
    }

    /// Examines a layer of the model and the layers below it, by their types, parameters and members.
    template <class Layer>
    void walk(const Layer& layer) {
        if constexpr (halftone::layer<Layer>) {
            using computes = typename computed_by<Layer>::type;
            if constexpr (is_of_kind<computes, operation_kind::attention> && requires { layer.head_size(); }) {
                look_at_attention<Layer>(place_of(layer), size(layer.head_size()));
            } else if constexpr (is_of_kind<computes, operation_kind::linear_cross_entropy> && requires { layer.classes; }) {
                look_at_head<Layer>(path<Layer>(), size(layer.width), size(layer.classes));
            }
        }
        const children_of_layer below{this};
        if constexpr (requires { layer.each(below); }) {
            layer.each(below);
        } else if constexpr (visitable<const Layer>) {
            Layer::visit(layer, below);
        }
    }

  private:
    struct children_of_layer {
        linter* here;
        template <class... Children>
        void operator()(const Children&... children) const {
            (here->walk(children), ...);
        }
    };

    void claim(const std::string& pattern) {
        for (std::size_t i = 0; i < best_.size(); ++i)
            best_[i] = std::max(best_[i], exactness(pattern, paths_[i], *parameters_));
    }
    /// The parameters for which no other layer's path is a better match.
    std::vector<const store::entry*> claimed_by(const std::string& pattern) const {
        std::vector<const store::entry*> claimed;
        for (std::size_t i = 0; i < best_.size(); ++i) {
            const store::entry& e = parameters_->entries()[i];
            const int exact = exactness(pattern, paths_[i], *parameters_);
            if (exact != 0 && exact == best_[i]) claimed.push_back(&e);
        }
        return claimed;
    }

    static std::uint64_t size(extent n) { return static_cast<std::uint64_t>(n); }

    /// The layer's path as in its parameters' paths, with list indices.
    template <class Layer>
    std::string place_of(const Layer& layer) const {
        if constexpr (requires { layer.qkv.weight.entry(); }) {
            const std::string& inner = parameters_->entries()[layer.qkv.weight.entry()].path;
            return inner.substr(0, inner.rfind('.', inner.rfind('.') - 1));
        } else {
            return path<Layer>();
        }
    }

    template <class Layer>
    static std::string path() {
        return path_of<typename Layer::policy>.text().data;
    }
    template <class Layer>
    using roles_of = policy_within<typename Layer::policy, as_given>;
    template <class Layer>
    using sums_of = summed_in<typename Layer::policy>;
    template <class Layer>
    static constexpr const char* operation_name() {
        if constexpr (requires { computed_by<Layer>::type::name; }) {
            return computed_by<Layer>::type::name;
        } else {
            return "?";
        }
    }

    template <class T>
    void count(lint_rule rule, const std::string& path, const char* operation, std::uint64_t k, const char* what) {
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
             const char* what) {
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
        count<sums_of<Layer>>(lint_rule::sum_length, path, operation, in, " products of the forward pass add up in ");
        count<sums_of<Layer>>(lint_rule::sum_length, path, operation, out,
                              " products of the input's gradient add up in ");
        const double reached = static_cast<double>(in) * options_.largest_activation * options_.largest_weight;
        fit<typename roles::output>(lint_rule::product_range, path, operation, in, reached, "results can reach ");
    }

    /// Attention: scores, results, and the gradients of queries, keys and values.
    template <class Layer>
    void look_at_attention(const std::string& path, std::uint64_t head_size) {
        using accum = sums_of<Layer>;
        count<accum>(lint_rule::sum_length, path, op::attention::name, head_size, " products of a head add up in ");
        count<accum>(lint_rule::sum_length, path, op::attention::name, options_.sequence,
                     " times of a sequence add up in ");
    }

    /// A tied head: another layer's table, followed by cross-entropy.
    template <class Layer>
    void look_at_head(const std::string& path, std::uint64_t width, std::uint64_t classes) {
        using accum = sums_of<Layer>;
        look_at_product<Layer>(path, width, classes);
        count<accum>(lint_rule::sum_length, path, operation_name<Layer>(), classes, " exponentials add up in ");
        count<accum>(lint_rule::sum_length, path, operation_name<Layer>(), options_.rows,
                     " rows add up to a gradient in ");
    }

    /// The 8-bit operands of a weight's products.
    template <class Layer>
    void look_at_operands(const std::string& path) {
        using roles = roles_of<Layer>;
        using computes = typename computed_by<Layer>::type;
        if constexpr (!std::is_void_v<computes>) {
            using compute = compute_type<roles, computes>;
            if constexpr (eight_bit<compute>) {
                constexpr scaling_rule rule = scaling_of<roles>::rule;
                scale<compute>(rule, path, operation_name<Layer>(), "activations", options_.largest_activation,
                               options_.smallest_activation);
                if constexpr (eight_bit<grad_type<roles, computes>>) {
                    scale<grad_type<roles, computes>>(rule, path, operation_name<Layer>(), "gradients",
                                                      options_.largest_gradient, options_.smallest_gradient);
                }
                const double room = static_cast<double>(1 << rule.margin);
                if (rule.history > 0 && options_.amax_growth > room) {
                    report<compute>(path, operation_name<Layer>(), options_.amax_growth, room,
                                    "what grows by " + rounded_text(options_.amax_growth) +
                                        " from one window to the next is cut off at the largest " +
                                        number_traits<compute>::name + ": a margin of " + std::to_string(rule.margin) +
                                        " binades has room for " + rounded_text(room));
                }
            }
        }
    }
    template <class T>
    void scale(const scaling_rule& rule, const std::string& path, const char* operation, const std::string& what,
               double largest, double smallest) {
        using traits = number_traits<T>;
        const double least = largest / scaled_range<T>(rule);
        if (smallest > 0 && smallest <= least) {
            report<T>(path, operation, smallest, least,
                      what + " of " + rounded_text(smallest) + " are zero in " + traits::name +
                          " where the largest is " + rounded_text(largest) + ": so is all up to " +
                          rounded_text(least));
        }
        if (rule.history == 0) return;
        if (largest > traits::max) {
            report<T>(path, operation, largest, traits::max,
                      what + " of " + rounded_text(largest) +
                          " are cut off in the first window, which has no history "
                          "and a scale of 1: the largest " +
                          traits::name + " is " + rounded_text(traits::max));
        }
        if (largest > 0 && largest <= traits::min_subnormal / 2) {
            report<T>(path, operation, largest, traits::min_subnormal / 2,
                      what + " of up to " + rounded_text(largest) +
                          " are zero in the first window, which has no "
                          "history and a scale of 1: so is all up to " +
                          rounded_text(traits::min_subnormal / 2) + " in " + traits::name);
        }
    }
    template <class T>
    void report(const std::string& path, const char* operation, double reached, double limit, std::string sentence) {
        findings.push_back({path, operation, lint_rule::scaled_range, number_traits<T>::name, 0,
                            number_traits<T>::significand_bits, 0, reached, limit, std::move(sentence)});
    }

    template <class Layer>
    void look_at_gradients(const std::string& path) {
        using roles = roles_of<Layer>;
        const char* const operation = operation_name<Layer>();
        // All tokens of a micro-batch may be the same, so that their gradients are added to one row.
        constexpr bool is_table = is_of_kind<typename computed_by<Layer>::type, operation_kind::embedding>;
        count<sums_of<Layer>>(lint_rule::sum_length, path, operation, options_.rows,
                              is_table ? " tokens add up to a row's gradient in " : " rows add up to a gradient in ");
        count<typename roles::accumulate>(lint_rule::micro_batches, path, operation, options_.micro_batches,
                                          " micro-batches add up in ");
        const double first = options_.loss_scale / static_cast<double>(options_.loss_terms);
        fit<narrowest_gradient<typename Layer::policy>>(lint_rule::loss_scale, path, operation, options_.loss_terms,
                                                        first, "gradients begin at up to ");
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
    std::vector<std::string> paths_;  // by entries: the layer's, and the parameter's name
};

template <class... Layers>
void lint_layers(linter& l, types<Layers...>) {
    (l.claim<Layers>(), ...);
    (l.look_at<Layers>(), ...);
}

}  // namespace detail

/// What the types of a model cannot hold, parameter by parameter. Throws argument_error for a loss of 0 terms.
template <class Model>
std::vector<lint_finding> lint(const Model& model, const lint_options& options = {}) {
    if (options.loss_terms == 0) fail<argument_error>("lint: a loss of 0 terms; expected 1 or more");
    detail::linter l(options, model.parameters());
    detail::lint_layers(l, detail::unique_t<layers_of<Model>>{});
    l.walk(model);
    return std::move(l.findings);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
