// SPDX-License-Identifier: MIT
/// \file
/// A tensor as a watched tape (watched_tape.hpp) shows it: its operation, its pass, and its memory.
///
///     void on_tensor(const ht::watched_tensor& t) override {
///         ht::with_values(t, [&](const auto& values) { ... });     // a view with its element type
///     }
#pragma once

#include <string>
#include <tuple>

#include <halftone/exec/ranges.hpp>
#include <halftone/memory/amax_history.hpp>
#include <halftone/observe/watch/value_format.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a tensor is to its operation.
enum class tensor_role {
    value,               ///< the operation's result
    gradient,            ///< the gradient of an input that another operation gave
    parameter_gradient,  ///< the gradient of a parameter, as accumulated so far
    operand,             ///< an operand that its product reads in eight bits; shown before quantisation
};
/// The role in words: "value", "gradient", "parameter gradient" or "operand".
constexpr const char* name(tensor_role r) {
    constexpr const char* names[] = {"value", "gradient", "parameter gradient", "operand"};
    return names[static_cast<int>(r)];
}

/// Identifies an operation. Lives as long as the tape; two operations of one tape are the same if their addresses are.
struct watched_operation {
    std::string layer;      ///< "h.3.attn.qkv"; for a free operation the list's layer in which it is called, or empty
    std::string after;      ///< for a free operation: the last layer called before it; otherwise empty
    std::string operation;  ///< "linear"

    friend bool operator<(const watched_operation& a, const watched_operation& b) {
        return std::tie(a.layer, a.after, a.operation) < std::tie(b.layer, b.after, b.operation);
    }
};

namespace detail {

/// "h.1.mlp, mlp"; for a free operation "h.1, add (after h.1.attn.proj)".
inline std::string place_of(const watched_operation& o, const char* between = ", ") {
    std::string text = o.layer.empty() ? o.operation : o.layer + between + o.operation;
    if (!o.after.empty()) text += " (after " + o.after + ")";
    return text;
}
/// "gradient of weight": a parameter is named by its path below the layer if it belongs to it.
inline std::string gradient_text(const std::string& parameter, const std::string& layer) {
    const bool is_below = parameter.rfind(layer + ".", 0) == 0;
    return "gradient of " + (is_below ? parameter.substr(layer.size() + 1) : parameter);
}
/// Numbers in the device's memory, as floats on the host.
template <class Device>
std::vector<float> fetched_floats(Device& device, value_format format, const void* from, extent count) {
    const auto n = static_cast<std::size_t>(count);
    std::vector<std::byte> values(n * format->bytes);
    device.memory().read(values.data(), from, values.size());
    std::vector<float> floats(n);
    format->widen(values.data(), n, floats.data());
    return floats;
}

}  // namespace detail

/// An 8-bit tensor, as a product reads it.
struct watched_operand {
    scaled_tensor tensor{};
    value_format format{};                ///< its 8-bit type
    const void* values = nullptr;         ///< in the device's memory; as many as the tensor has
    const tensor_scale* scale = nullptr;  ///< in the device's memory
    scaling_rule rule{};
};

/// A tensor as it is shown to a listener: its operation, its role there, and its memory.
struct watched_tensor {
    const watched_operation* by;
    halftone::pass pass;
    int micro_batch;  ///< number of backward passes before in the step
    tensor_role role;
    const char*
        parameter;  ///< "h.3.attn.qkv.weight" for its gradient; for an operand the product's weight; or nullptr
    value_format format;
    const void* data;  ///< in the device's memory
    extent count;
    watched_operand operand{};
    const float* widened = nullptr;  ///< for a number type of a user's own: its values in float, exact, in the device's memory
};

/// Calls f with a view of the tensor in its element type; of floats for a number type of a user's own.
template <class Function>
void with_values(const watched_tensor& t, const Function& f) {
    const auto in = [&]<class T>(const T* data) { f(const_view<T, 1>(data, {t.count})); };
    if (t.widened != nullptr) return in(t.widened);
    if (t.format == value_format::float16) return in(static_cast<const float16*>(t.data));
    if (t.format == value_format::bfloat16) return in(static_cast<const bfloat16*>(t.data));
    in(static_cast<const float*>(t.data));  // the tensor itself is never 8-bit
}

/// Is shown each tensor in the order of the operations. The values are valid until the call returns, and for work on
/// the device that it launches, which runs before anything overwrites them.
class tensor_listener {
  public:
    tensor_listener() = default;
    tensor_listener(const tensor_listener&) = delete;
    tensor_listener& operator=(const tensor_listener&) = delete;
    virtual ~tensor_listener() = default;

    /// A result, a gradient, or an 8-bit operand.
    virtual void on_tensor(const watched_tensor& tensor) = 0;
    /// A variable that constant(), leaf() or to_device() made, in the same order; its operation is "input".
    virtual void on_input(const watched_tensor&) {}
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
