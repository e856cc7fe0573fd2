// SPDX-License-Identifier: MIT
/// \file
/// Parameters as a file of weights has them: names, transposes, pieces and number types, and their values there and back.
///
///     detail::stored_pieces(entry, options)                         // the tensors that a parameter is stored in
///     detail::convert_to(own, dtype::bf16, from, to, count)         // a file's numbers as values of the parameter's type
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <halftone/io/lost_numbers.hpp>
#include <halftone/io/tensor_files.hpp>
#include <halftone/memory/store.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The name of a parameter in a file, by its path in the model. An empty name: the file does not have it.
using weight_names = std::function<std::string(const std::string& path)>;
/// Whether a file stores the transpose of a parameter, by its path in the model; only matrices can be.
using weight_transposes = std::function<bool(const std::string& path)>;
/// One of several tensors of a file that are a parameter together, and how many of the parameter's rows it has.
struct weight_piece {
    std::string name;
    extent rows = 0;
};
/// The tensors of a file whose rows, one behind the other, are those of a parameter, by its path in the model: q_proj, k_proj and
/// v_proj, say, of a product that halftone computes as one. None: `names` tells.
using weight_pieces = std::function<std::vector<weight_piece>(const std::string& path)>;

/// Which of a model's parameters are saved or loaded: what adapters are is in memory/adapters.hpp.
enum class weights_of {
    all,
    base,     ///< without adapters
    trained,  ///< those that are not frozen; of a model with adapters all but its base, and layers' states
};

namespace detail {

/// Whether a parameter's values are what codes of a block format stand for: floats.
inline bool is_in_codes(const store_group& g, const store_entry& e) {
    return g.coding != nullptr && e.master == store_entry::nowhere;
}
/// The number type of a parameter's values: of its masters or, if it has none, of its copies.
inline const value_traits& saved_type(const store_group& g, const store_entry& e) {
    return *(e.master == store_entry::nowhere ? g.copy_type : g.param_type);
}
/// The type in a file of values of these traits; for a user's own type that of unsigned integers as wide.
inline dtype saved_dtype(const value_traits& t) {
    if (t.is_own) return t.bytes == 1 ? dtype::u8 : t.bytes == 2 ? dtype::u16 : dtype::u32;
    return static_cast<dtype>(dtype_of_number(t.name));
}
/// The key in a file's metadata of the name of a tensor's number type, where that is a user's own.
inline std::string number_key(const std::string& tensor) { return "halftone.number." + tensor; }
/// The name of a user's own number type that a file's tensor has; empty: it has one of safetensors.
template <class Files>
std::string own_type_of(const Files& files, const tensor_info& t) {
    const auto found = files.metadata().find(number_key(t.name));
    return found == files.metadata().end() ? std::string() : found->second;
}

/// Values of a parameter's type as numbers of a file's, each rounded once.
inline void convert_from(const value_traits& own, const std::byte* from, dtype type, std::byte* to, std::size_t count) {
    if (!own.is_own) return convert(saved_dtype(own), from, type, to, count);
    if (type == saved_dtype(own)) {
        std::copy_n(from, count * own.bytes, to);
        return;
    }
    std::vector<double> wide(count);
    own.to_doubles(from, count, wide.data());
    convert(dtype::f64, reinterpret_cast<const std::byte*>(wide.data()), type, to, count);
}
/// The inverse.
inline void convert_to(const value_traits& own, dtype type, const std::byte* from, std::byte* to, std::size_t count) {
    if (!own.is_own) return convert(type, from, saved_dtype(own), to, count);
    std::vector<double> wide(count);
    convert(type, from, dtype::f64, reinterpret_cast<std::byte*>(wide.data()), count);
    own.from_doubles(wide.data(), count, to);
}

/// Copies the values of a parameter, or of a part of it, to host memory: its masters, joined if they are split, or, if it
/// has none, its copies.
inline void read_values(const store& parameters, const store_entry& e, std::size_t first, std::size_t count, std::byte* to) {
    const store_group& g = parameters.groups()[e.group];
    memory_resource& memory = parameters.memory();
    if (!parameters.is_here(e, first, count))
        fail<state_error>("weights: ", e.path, " is sharded, and this rank has a part of it only; ht::shard's read() gathers it");
    if (is_in_codes(g, e)) {
        parameters.read_coded(e, first, count, reinterpret_cast<float*>(to));
    } else if (e.master == store_entry::nowhere) {
        memory.read(to, g.copy.data() + (e.copy + first) * g.copy_bytes, count * g.copy_bytes);
    } else if (g.split == nullptr) {
        memory.read(to, g.master.data() + (e.master + first) * g.param_bytes, count * g.param_bytes);
    } else {
        std::vector<bfloat16> nearest(count);
        std::vector<bfloat16_remainder> rest(count);
        memory.read(nearest.data(), g.copy.data() + (e.copy + first) * g.copy_bytes, count * sizeof(bfloat16));
        memory.read(rest.data(), g.master.data() + (e.master + first) * g.param_bytes, count * sizeof(bfloat16_remainder));
        for (std::size_t i = 0; i < count; ++i) {
            const float joined = halftone::join(float_halves{nearest[i], rest[i]});
            std::memcpy(to + i * sizeof joined, &joined, sizeof joined);
        }
    }
}
/// Calls f; of a model that is divided among ranks it throws on all ranks if f does so on one. `what` names the call.
template <class F>
void on_ranks_of(const store& parameters, const char* what, const F& f) {
    store_sharding* const ranks = parameters.sharding_if_any();
    return ranks == nullptr ? f() : ranks->on_all(what, f);
}
/// Whether this rank writes the files of a model: the only one, or the first of those among which it is divided.
inline bool is_writer(const store& parameters) {
    return parameters.sharding_if_any() == nullptr || parameters.sharding_if_any()->is_first();
}

/// Reads values of parameters. Where ranks have a piece each it gathers a whole one, which is collective, and of a parameter in codes it
/// copies all codes to host memory: once for calls that follow each other.
class value_reader {
  public:
    explicit value_reader(const store& parameters) : parameters_(&parameters) {}
    void operator()(std::size_t index, std::size_t first, std::size_t count, std::byte* to) {
        const store_entry& e = parameters_->entries()[index];
        const store_group& g = parameters_->groups()[e.group];
        if (is_in_codes(g, e)) {
            if (held_ != index) values_ = parameters_->codes_of(e), held_ = index;
            return g.coding->decode(values_.data(), e.count, first, count, reinterpret_cast<float*>(to));
        }
        if (!is_in_pieces(e)) return read_values(*parameters_, e, first, count, to);
        const std::size_t each = saved_type(parameters_->groups()[e.group], e).bytes;
        if (held_ != index) {
            values_.resize(e.count * each);
            parameters_->sharding()->read_whole(index, values_.data());
            held_ = index;
        }
        std::memcpy(to, values_.data() + first * each, count * each);
    }

  private:
    bool is_in_pieces(const store_entry& e) const {
        if (parameters_->sharding_if_any() == nullptr) return false;
        const store_run& r = parameters_->runs()[e.run];
        return !(r.master.is_there() ? r.master : r.copy).is_whole;
    }
    const store* parameters_;
    std::size_t held_ = store_entry::nowhere;
    std::vector<std::byte> values_{};
};

/// The inverse: values of the saved type; of a parameter in codes all of them. The store's copies are refreshed by the caller.
inline void write_values(store& parameters, std::size_t index, std::size_t first, std::size_t count,
                         const std::byte* values) {
    const store_entry& e = parameters.entries()[index];
    const store_group& g = parameters.groups()[e.group];
    if (e.master != store_entry::nowhere) return parameters.write(index, first, values, count);
    if (is_in_codes(g, e)) return parameters.write_coded(index, reinterpret_cast<const float*>(values));
    parameters.memory().write(g.copy.data() + (e.copy + first) * g.copy_bytes, values, count * g.copy_bytes);
}

/// Values of a part of a parameter, with its copies, unless ranks gather these.
inline void write_loaded(store& parameters, std::size_t index, const element_range& part, const std::byte* values) {
    if (parameters.entries()[index].master == store_entry::nowhere)
        return write_values(parameters, index, part.first, part.count, values);
    parameters.write_with_copies(index, part.first, values, part.count);
}

/// The transpose of a row-major matrix of elements of so many bytes.
inline std::vector<std::byte> transposed_bytes(const std::byte* from, std::size_t rows, std::size_t columns, std::size_t element) {
    std::vector<std::byte> to(rows * columns * element);
    constexpr std::size_t side = 32;  // of the squares that are copied one by one: both stay in L1
    for (std::size_t r0 = 0; r0 < rows; r0 += side) {
        for (std::size_t c0 = 0; c0 < columns; c0 += side) {
            for (std::size_t r = r0; r < std::min(rows, r0 + side); ++r) {
                for (std::size_t c = c0; c < std::min(columns, c0 + side); ++c)
                    std::memcpy(to.data() + (c * rows + r) * element, from + (r * columns + c) * element, element);
            }
        }
    }
    return to;
}
/// Whether `transposed` names this parameter. Throws argument_error for one that is no matrix.
inline bool is_stored_transposed(const weight_transposes& transposed, const store_entry& e) {
    if (!transposed || !transposed(e.path)) return false;
    if (e.shape.size() != 2) fail<argument_error>("weights: ", e.path, " is no matrix, and has no transpose");
    return true;
}
/// The shape of a parameter in a file.
inline std::vector<extent> shape_in_file(const store_entry& e, bool is_transposed) {
    return is_transposed ? std::vector<extent>{e.shape[1], e.shape[0]} : std::vector<extent>(e.shape.begin(), e.shape.end());
}

/// A list of names in a sentence: at most eight.
struct name_list {
    std::string text;
    std::size_t count = 0;
    void add(const std::string& name) {
        if (++count <= 8) text += (count == 1 ? "" : ", ") + shown(name);
    }
    std::string all() const { return count <= 8 ? text : text + " and " + std::to_string(count - 8) + " more"; }
};

/// Adds a list of names to a sentence of faults, unless it is empty.
inline void say(std::string& faults, const char* what, const name_list& list, const char* remedy = "") {
    if (list.count != 0) faults += (faults.empty() ? "" : "; ") + std::string(what) + list.all() + remedy;
}

/// Adds a tensor to a list if it has a number that was lost when its numbers were converted.
inline void note_lost(name_list& lost, const std::string& tensor, const value_traits& there, const std::byte* from,
                      const value_traits& here, const std::byte* to, std::size_t count) {
    if (const auto x = first_lost(there, from, here, to, count))
        lost.add(sentence(tensor, ", ", *x, " for a ", here.name));
}

/// A tensor of a file that is a parameter, or consecutive rows of one.
struct stored_piece {
    std::string name;
    std::vector<extent> shape;         ///< in the file
    std::size_t first = 0, count = 0;  ///< the parameter's elements
    bool is_transposed = false;
};
/// The tensors of a file that a parameter is stored in; none: the file does not have it. `Options` are those of saving or of
/// loading. Throws argument_error for pieces that have not as many rows as the parameter.
template <class Options>
std::vector<stored_piece> stored_pieces(const store& parameters, const store_entry& e, const Options& o) {
    const adapter_list& adapters = parameters.adapters();
    if (e.is_adapter && (o.which == weights_of::base || adapters.are_merged())) return {};
    if (o.which == weights_of::trained && (adapters.all().empty() ? e.frozen : e.is_base)) return {};
    const auto parts = o.pieces ? o.pieces(e.path) : std::vector<weight_piece>{};
    if (parts.empty()) {
        const std::string named = o.names ? o.names(e.path) : e.path;
        if (named.empty()) return {};
        const bool is_transposed = is_stored_transposed(o.transposed, e);
        return {{named, shape_in_file(e, is_transposed), 0, e.count, is_transposed}};
    }
    const extent rows = e.shape.size() == 0 ? 1 : e.shape[0];
    const std::size_t each = rows == 0 ? 0 : e.count / static_cast<std::size_t>(rows);
    std::vector<stored_piece> pieces;
    extent row = 0;
    for (const weight_piece& part : parts) {
        std::vector<extent> shape(e.shape.begin(), e.shape.end());
        if (!shape.empty()) shape[0] = part.rows;
        pieces.push_back(
            {part.name, shape, static_cast<std::size_t>(row) * each, static_cast<std::size_t>(part.rows) * each});
        row += part.rows;
    }
    if (row != rows) fail<argument_error>("weights: the pieces of ", e.path, " have ", row, " rows of ", rows);
    return pieces;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
