// SPDX-License-Identifier: MIT
/// \file
/// Adapters (memory/adapters.hpp) in files of their own, and added to the weights that they adapt.
///
///     ht::save_adapters(model, "adapter.safetensors");       // a few megabytes: lora_A and lora_B, by the model's paths
///     ht::load_adapters(model, "adapter.safetensors");       // into a model with the same ones
///     ht::merge_adapters(model);                             // W += scale B A: the model then is a plain one
///     ht::save_pretrained(model, "tuned", {.like = folder});
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/io/weights.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/memory/adapters.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

inline void expect_adapters(const char* function, const store& parameters) {
    if (parameters.adapters().all().empty())
        fail<state_error>(function, ": the model has no adapters; it gets them while an ht::add_adapters exists");
    if (parameters.adapters().are_merged())
        fail<state_error>(function, ": the adapters are a part of the weights since they were merged");
}

/// The key in a file's metadata of what the adapter at a path is multiplied by.
inline std::string scale_key(const std::string& path) { return "halftone.lora_scale." + path; }

/// The values of some of a matrix's rows, as float or double.
template <class T>
std::vector<T> rows_of(const store& parameters, std::size_t index, extent first, extent rows) {
    const store_entry& e = parameters.entries()[index];
    const value_traits& own = saved_type(parameters.groups()[e.group], e);
    const auto count = static_cast<std::size_t>(rows * e.width);
    std::vector<std::byte> values(count * own.bytes);
    read_values(parameters, e, static_cast<std::size_t>(first * e.width), count, values.data());
    std::vector<T> numbers(count);
    if constexpr (std::is_same_v<T, double>) {
        own.to_doubles(values.data(), count, numbers.data());
    } else {
        own.widen(values.data(), count, numbers.data());
    }
    return numbers;
}

/// W += scale B A, some rows at a time, with the product in T; the sum with W is rounded once.
template <class T>
void merge(cpu& device, store& parameters, const store_adapter& adapter) {
    const store_entry& e = parameters.entries()[adapter.weight];
    const value_traits& own = saved_type(parameters.groups()[e.group], e);
    const std::vector<T> a = rows_of<T>(parameters, adapter.a, adapter.first_rank, adapter.rank);
    constexpr extent at_once = 1 << 22;  // elements in host memory
    const extent most = std::max<extent>(1, at_once / std::max<extent>(1, e.width));
    for (extent first = 0; first < adapter.rows; first += most) {
        const extent rows = std::min(most, adapter.rows - first), row = adapter.first_row + first;
        const std::vector<T> b = rows_of<T>(parameters, adapter.b, first, rows);
        std::vector<T> added(static_cast<std::size_t>(rows * e.width));
        product<T>(device, const_view<T, 2>(b.data(), {rows, adapter.rank}),
                   const_view<T, 2>(a.data(), {adapter.rank, e.width}), view<T, 2>(added.data(), {rows, e.width}),
                   write_mode::overwrite);
        std::vector<double> sums = rows_of<double>(parameters, adapter.weight, row, rows);
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += adapter.scale * static_cast<double>(added[i]);
        std::vector<std::byte> values(sums.size() * own.bytes);
        own.from_doubles(sums.data(), sums.size(), values.data());
        write_values(parameters, adapter.weight, static_cast<std::size_t>(row * e.width), sums.size(), values.data());
    }
}

}  // namespace detail

/// Writes all of a model with adapters but its base: A and B of each, also where they are frozen, parameters that are trained besides, and
/// layers' states. Formats, errors and ranks as save_weights; throws state_error for a model without adapters, and after ht::merge_adapters.
template <class Model>
void save_adapters(const Model& model, const std::filesystem::path& path, save_weights_options o = {}) {
    detail::expect_adapters("save_adapters", model.parameters());
    o.which = weights_of::trained;
    for (const auto& [at, scale] : detail::scales_of(model.parameters().adapters()))
        o.metadata[detail::scale_key(at)] = scale;
    save_weights(model.parameters(), path, o);
}
/// Reads them into a model with adapters of the same ranks at the same layers. Throws as load_weights does, safetensors_error if an
/// adapter is multiplied by another number (alpha / rank) than the file tells, and state_error as save_adapters.
template <class Model>
void load_adapters(Model& model, const std::filesystem::path& path, load_weights_options o = {}) {
    detail::expect_adapters("load_adapters", model.parameters());
    o.which = weights_of::trained;
    store& parameters = model.parameters();
    const tensor_files files(path);
    std::map<std::string, std::string> scales;
    for (const auto& [at, here] : detail::scales_of(parameters.adapters())) {
        const auto found = files.metadata().find(detail::scale_key(at));
        if (found != files.metadata().end()) scales[at] = found->second;
    }
    if (const std::string differs = detail::scale_difference(parameters.adapters(), scales); !differs.empty())
        fail<safetensors_error>("load_adapters: ", path.string(), " has adapters of another scale: ", differs);
    detail::load_weights_of(parameters, files, path.string(), o);
}

/// Adds each adapter to the weight that it adapts: W + scale B A, the product in fp32 (fp64 if W is), the sum rounded once to the type
/// in which the model has W. From then on layers leave the adapters out, and the model's files and checkpoints are those of a plain model. There is
/// no way back, as what was rounded off is lost: make another model, load the base and the adapters. Throws state_error for a model
/// without adapters, for one that ht::shard has divided, and when called twice. On a GPU the work is the host's.
template <class Model>
void merge_adapters(Model& model) {
    store& parameters = model.parameters();
    detail::expect_adapters("merge_adapters", parameters);
    parameters.check_committed();
    if (parameters.is_divided())
        fail<state_error>(
            "merge_adapters: the model is divided among ranks; save the adapters, and merge them in a model that is "
            "whole");
    for (const store_adapter& each : parameters.adapters().all()) {
        const store_entry& e = parameters.entries()[each.weight];
        const store_group& g = parameters.groups()[e.group];
        if (g.coding != nullptr)
            fail<state_error>(
                "merge_adapters: ", e.path, " is in blocks of ", g.coding->name,
                ", which would round the sum; save the adapters, and merge them in a model whose base has "
                "16 bits or more");
    }
    parameters.await_readers();
    cpu device;
    for (const store_adapter& each : parameters.adapters().all()) {
        const store_entry& e = parameters.entries()[each.weight];
        const value_traits& own = detail::saved_type(parameters.groups()[e.group], e);
        if (own.is_held_by_float()) {
            detail::merge<float>(device, parameters, each);
        } else {
            detail::merge<double>(device, parameters, each);
        }
    }
    parameters.refresh();
    parameters.adapters().set_merged();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
