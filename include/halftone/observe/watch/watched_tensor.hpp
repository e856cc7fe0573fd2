// SPDX-License-Identifier: MIT
/// \file
/// A tensor as a watched tape (watched_tape.hpp) shows it: which operation's it is, in which pass, where it lies.
///
///     void on_tensor(const ht::watched_tensor& t) override {
///         ht::with_values(t, [&](const auto& values) { ... });     // a view in the type of its elements
///     }
#pragma once

#include <string>
#include <tuple>

#include <halftone/exec/ranges.hpp>
#include <halftone/memory/amax_history.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a tensor is to the operation that gave it.
enum class tensor_role {
    value,               ///< its result
    gradient,            ///< of what it read of other operations
    parameter_gradient,  ///< as accumulated so far
    operand,             ///< what a product of its reads in eight bits, scaled: shown as it was before
};
/// The role in words: "value", "gradient", "parameter gradient" or "operand".
constexpr const char* name(tensor_role r) {
    constexpr const char* names[] = {"value", "gradient", "parameter gradient", "operand"};
    return names[static_cast<int>(r)];
}

/// The types whose values are shown; those of eight bits, of operands.
enum class value_format { float32, float16, bfloat16, float8_e4m3, float8_e5m2 };

/// f(T{}), of the type that the format names.
template <class Function>
auto with_format(value_format format, const Function& f) {
    switch (format) {
        case value_format::float16:
            return f(float16{});
        case value_format::bfloat16:
            return f(bfloat16{});
        case value_format::float8_e4m3:
            return f(float8_e4m3{});
        case value_format::float8_e5m2:
            return f(float8_e5m2{});
        default:
            return f(float{});
    }
}
/// The format's number type: "bfloat16", say.
inline const char* name(value_format format) {
    return with_format(format, []<class T>(T) { return number_traits<T>::name; });
}

/// Which operation it was. Lives as long as the tape; two of one tape are the same where their addresses are.
struct watched_operation {
    std::string layer;      ///< "h.3.attn.qkv"; of a free operation the list's layer that it stands in, or empty
    std::string after;      ///< of a free operation: the last layer before it; else empty
    std::string operation;  ///< "linear"

    friend bool operator<(const watched_operation& a, const watched_operation& b) {
        return std::tie(a.layer, a.after, a.operation) < std::tie(b.layer, b.after, b.operation);
    }
};

namespace detail {

/// "h.1.mlp, mlp"; of a free operation "h.1, add (after h.1.attn.proj)".
inline std::string place_of(const watched_operation& o, const char* between = ", ") {
    std::string text = o.layer.empty() ? o.operation : o.layer + between + o.operation;
    if (!o.after.empty()) text += " (after " + o.after + ")";
    return text;
}
/// "gradient of weight": a parameter by its path below the layer, where it lies there.
inline std::string gradient_text(const std::string& parameter, const std::string& layer) {
    const bool is_below = parameter.rfind(layer + ".", 0) == 0;
    return "gradient of " + (is_below ? parameter.substr(layer.size() + 1) : parameter);
}

}  // namespace detail

/// A tensor in eight bits, as a product reads it.
struct watched_operand {
    scaled_tensor tensor{};
    value_format format{};                ///< of eight bits
    const void* values = nullptr;         ///< the device's memory, as many as the tensor has
    const tensor_scale* scale = nullptr;  ///< likewise
    scaling_rule rule{};
};

/// A tensor as a listener is shown it: whose it is, what it is to that operation, and where its values lie.
struct watched_tensor {
    const watched_operation* by;
    halftone::pass pass;
    int micro_batch;  ///< backward passes before this one in the step
    tensor_role role;
    const char*
        parameter;  ///< "h.3.attn.qkv.weight", whose gradient it is; of an operand, the product's weight; or nullptr
    value_format format;
    const void* data;  ///< the device's memory
    extent count;
    watched_operand operand{};
};

/// f(view of the tensor), in the type of its elements.
template <class Function>
void with_values(const watched_tensor& t, const Function& f) {
    const auto in = [&]<class T>(T) { f(const_view<T, 1>(static_cast<const T*>(t.data), {t.count})); };
    switch (t.format) {  // nothing is shown in eight bits alone
        case value_format::float16:
            return in(float16{});
        case value_format::bfloat16:
            return in(bfloat16{});
        default:
            return in(float{});
    }
}

/// Shown each tensor in the order of the operations. The values are there until the call returns, and work on the
/// device that it launches comes before whatever overwrites them.
class tensor_listener {
  public:
    tensor_listener() = default;
    tensor_listener(const tensor_listener&) = delete;
    tensor_listener& operator=(const tensor_listener&) = delete;
    virtual ~tensor_listener() = default;

    /// A result, a gradient, or an operand in eight bits.
    virtual void on_tensor(const watched_tensor& tensor) = 0;
    /// What constant(), leaf() and to_device() put onto the tape, in the same order: by no operation, "input".
    virtual void on_input(const watched_tensor&) {}
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
