// SPDX-License-Identifier: MIT
/// \file
/// A model's weights in .safetensors files, by the paths of its parameters, both ways.
///
///     ht::save_weights(model, "model.safetensors");                 // masters: fp32 under every amp_ policy
///     ht::save_weights(model, "model", {.type = ht::dtype::bf16, .max_shard_bytes = 1'000'000'000});    // a folder
///     ht::load_weights(model, "model.safetensors");                 // all or nothing
///     ht::load_weights(model, "other", {.names = [](const std::string& path) { return "transformer." + path; }});
///
/// A file's numbers may have any floating-point type: they are converted to the parameters' types, each rounded once, and
/// the copies that kernels read are rounded from these. Names are the paths of the store ("h.0.attn.qkv.weight"), shapes
/// those of the layers; states of layers, such as running statistics, are included. A frozen parameter that kept only its
/// copy is saved as that.
///
/// Numbers of a type of a user's own are stored as unsigned integers of their bytes, U16 say, with the type's name in the
/// metadata: "halftone.number.h.0.attn.qkv.weight": "my_float16". They are loaded under that type alone, with their bits;
/// under another type, or without the name, they are refused. With `type` they are stored as such numbers.
///
/// Of a model that ht::shard divides among ranks, all of them call these functions. Loading, each reads its part of the files: of a
/// tensor the bytes of the elements whose masters it has, and of one that is stored transposed all, as these are spread over it. Saving, a
/// tensor at a time is gathered, and the first rank writes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/weights/load.hpp>
#include <halftone/io/weights/stored.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How weights are saved.
struct save_weights_options {
    std::optional<dtype> type = std::nullopt;  ///< a floating-point type for all; by default each parameter's own
    std::uint64_t max_shard_bytes = tensor_file_options{}.max_shard_bytes;  ///< the most bytes in a file of a folder
    std::map<std::string, std::string> metadata = detail::usual_metadata();  ///< {{"format", "pt"}}
    weight_names names{};            ///< by default the paths
    weight_transposes transposed{};  ///< by default none
    weight_pieces pieces{};          ///< by default each parameter is one tensor
    weights_of which = weights_of::all;
};

namespace detail {

/// Values of a parameter as the numbers of a tensor that is saved. Throws argument_error for one that this type does not hold.
inline void convert_to_save(const std::string& tensor, const value_traits& own, const std::byte* from, dtype type,
                            std::byte* to, std::size_t count) {
    convert_from(own, from, type, to, count);
    if (type == saved_dtype(own)) return;
    if (const auto x = first_lost(own, from, traits_of(type), to, count))
        fail<argument_error>("save_weights: ", shown(tensor), " has ", *x, ", which ", name(type), " does not hold");
}

/// Gives the bytes of a matrix's transpose, part after part. The transpose is made when the first one is asked for, and
/// freed after the last.
inline auto transposed_values(const std::shared_ptr<value_reader>& read, std::size_t index, const store_entry& e,
                              const std::string& tensor, const value_traits& own, dtype type) {
    return [read, index, &e, tensor, &own, type, all = std::make_shared<std::vector<std::byte>>()](
               std::byte* to, std::size_t first, std::size_t bytes) {
        if (all->empty()) {
            std::vector<std::byte> values(e.count * own.bytes), converted(e.count * size_of(type));
            (*read)(index, 0, e.count, values.data());
            convert_to_save(tensor, own, values.data(), type, converted.data(), e.count);
            *all = transposed_bytes(converted.data(), static_cast<std::size_t>(e.shape[0]),
                                    static_cast<std::size_t>(e.shape[1]), size_of(type));
        }
        std::memcpy(to, all->data() + first, bytes);
        if (first + bytes == all->size()) std::vector<std::byte>().swap(*all);
    };
}

inline std::vector<tensor_source> weight_sources(const store& parameters, const save_weights_options& o) {
    parameters.check_committed();
    if (o.type && !is_float(*o.type))
        fail<argument_error>("save_weights: type is ", name(*o.type), "; expected a floating-point type");
    std::vector<tensor_source> sources;
    const auto read = std::make_shared<value_reader>(parameters);
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        const store_entry& e = parameters.entries()[i];
        const value_traits& own = saved_type(parameters.groups()[e.group], e);
        const dtype type = o.type.value_or(saved_dtype(own));
        for (const stored_piece& piece : stored_pieces(parameters, e, o)) {
            if (piece.is_transposed) {
                sources.push_back(
                    {piece.name, type, piece.shape, transposed_values(read, i, e, piece.name, own, type)});
                continue;
            }
            const auto values_of_piece = [read, i, tensor = piece.name, &own, type, of_piece = piece.first](
                                             std::byte* to, std::size_t first, std::size_t bytes) {
                const std::size_t each = size_of(type), begin = of_piece + first / each, count = bytes / each;
                std::vector<std::byte> values(count * own.bytes);
                (*read)(i, begin, count, values.data());
                convert_to_save(tensor, own, values.data(), type, to, count);
            };
            sources.push_back({piece.name, type, piece.shape, values_of_piece});
        }
    }
    return sources;
}
/// The metadata of such a file: the user's, and the names of number types of a user's own.
inline std::map<std::string, std::string> weight_metadata(const store& parameters, const save_weights_options& o) {
    auto metadata = o.metadata;
    for (const store_entry& e : parameters.entries()) {
        const value_traits& own = saved_type(parameters.groups()[e.group], e);
        for (const stored_piece& piece : stored_pieces(parameters, e, o)) {
            metadata.erase(number_key(piece.name));  // of another file, whose metadata these may be
            if (own.is_own && !o.type) metadata[number_key(piece.name)] = own.name;
        }
    }
    return metadata;
}

inline bool is_one_file(const std::filesystem::path& path) { return path.extension() == ".safetensors"; }
/// Asks sources for what the writer of their files asks for, in the same order: what other ranks do meanwhile.
inline void follow_writer(const std::vector<tensor_source>& sources, const std::filesystem::path& path,
                          std::uint64_t most) {
    for (const auto& of_file :
         is_one_file(path) ? std::vector<std::vector<tensor_source>>{sources} : divide(sources, most))
        visit_pieces(in_file_order(of_file), [](const std::byte*, std::size_t) {});
}

}  // namespace detail

/// Writes the parameters of a store; see save_weights for a model.
inline void save_weights(const store& parameters, const std::filesystem::path& path, const save_weights_options& o = {}) {
    const auto sources = detail::weight_sources(parameters, o);
    const auto metadata = detail::weight_metadata(parameters, o);
    detail::on_ranks_of(parameters, "save_weights.write", [&] {
        if (!detail::is_writer(parameters)) return detail::follow_writer(sources, path, o.max_shard_bytes);
        if (detail::is_one_file(path)) return write_safetensors(path, sources, metadata);
        write_tensor_files(path, sources, {o.max_shard_bytes, metadata});
    });
}
/// Writes a model's parameters to a file *.safetensors, or to a folder of any other name (write_tensor_files). Replaces
/// earlier files when all is written. Throws io_error, and argument_error for numbers beyond the largest of options' type; earlier files
/// then stay. On a GPU it waits for the device.
template <class Model>
    requires requires(const Model& m) { m.parameters().entries(); }
void save_weights(const Model& model, const std::filesystem::path& path, const save_weights_options& o = {}) {
    save_weights(model.parameters(), path, o);
}

/// Reads the parameters of a store; see load_weights for a model.
inline void load_weights(store& parameters, const std::filesystem::path& path, const load_weights_options& o = {}) {
    detail::load_weights_of(parameters, tensor_files(path), path.string(), o);
}
/// Reads a model's parameters from a file, an index or a folder (tensor_files). All or nothing: throws io_error, or
/// safetensors_error with the names that are missing, unexpected, or of another shape or type, or that have a number which the
/// parameter's type does not hold, and the model is then as it was. Needs host memory for the parameters, unless one tensor is read at
/// a time. Optimizers keep their moments; construct them afterwards, or load a checkpoint (checkpoint.hpp) for all of a run. A model
/// that waits (ht::defer_parameters) has memory and values from then on; what the file lacks, its initial ones.
template <class Model>
    requires requires(Model& m) { m.parameters().refresh(); }
void load_weights(Model& model, const std::filesystem::path& path, const load_weights_options& o = {}) {
    load_weights(model.parameters(), path, o);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
