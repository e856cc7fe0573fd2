// SPDX-License-Identifier: MIT
/// \file
/// The numbers of a checkpoint's tensors: whether they are those of a program's, and how they become them. Tensors of a number
/// type of a user's own are bytes (U8, with the bytes of a number as another axis), and the file's metadata has the type's name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/io/weights.hpp>
#include <halftone/number/value_traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// How the elements of a tensor are stored.
struct stored_numbers {
    dtype type = dtype::f32;
    std::vector<extent> shape;  ///< of a user's own type with the axis of its bytes
    std::string own{};          ///< the name of a user's own type

    bool operator==(const stored_numbers&) const = default;

    std::vector<extent> shape_of_numbers() const { return {shape.begin(), shape.end() - (own.empty() ? 0 : 1)}; }
    std::size_t bytes_of_number() const { return own.empty() ? size_of(type) : static_cast<std::size_t>(shape.back()); }
    std::string words() const {
        const std::string numbers = own.empty() ? name(type) : sentence(own, " of ", bytes_of_number(), " bytes");
        return numbers + ' ' + shape_text(shape_of_numbers());
    }
};

/// How the tensor with this name is stored in a file with this metadata.
inline stored_numbers numbers_in(const std::map<std::string, std::string>& metadata, const std::string& tensor,
                                 dtype type, const std::vector<extent>& shape) {
    const auto own = metadata.find(number_key(tensor));
    if (own == metadata.end() || type != dtype::u8 || shape.empty()) return {type, shape};
    return {type, shape, own->second};
}

/// Traits of number types of a user's own, by their names.
class own_number_list {
  public:
    void add(const value_traits* t) {
        if (t != nullptr && t->is_own && find(t->name) == nullptr) types_.push_back(t);
    }
    const value_traits* find(std::string_view name) const {
        for (const value_traits* t : types_) {
            if (name == t->name) return t;
        }
        return nullptr;
    }

  private:
    std::vector<const value_traits*> types_;
};

/// The traits of such numbers; nullptr for those that are none, or of a type that is not known.
inline const value_traits* traits_of(const stored_numbers& n, const own_number_list& known) {
    if (n.own.empty()) return is_float(n.type) ? &traits_of(n.type) : nullptr;
    const value_traits* const t = known.find(n.own);
    return t != nullptr && t->bytes == n.bytes_of_number() ? t : nullptr;
}
/// Numbers as those of another type, each rounded once. Both have traits.
inline void convert_numbers(const stored_numbers& there, const std::byte* from, const stored_numbers& here,
                            std::byte* to, std::size_t count, const own_number_list& known) {
    if (there.own.empty() && here.own.empty()) return halftone::convert(there.type, from, here.type, to, count);
    if (here.own.empty()) return convert_from(*known.find(there.own), from, here.type, to, count);
    if (there.own.empty()) return convert_to(*known.find(here.own), there.type, from, to, count);
    std::vector<double> wide(count);
    known.find(there.own)->to_doubles(from, count, wide.data());
    known.find(here.own)->from_doubles(wide.data(), count, to);
}

/// What is wrong with a file's tensors, seen by those of a part.
struct tensor_faults {
    name_list missing, unexpected, differing, unknown, lost;

    /// Whether tensors in these forms fit, perhaps after a conversion; notes what does not.
    bool fits(const std::string& tensor, const stored_numbers& there, const stored_numbers& here, bool converts,
              const own_number_list& known) {
        if (there == here) return true;
        const bool is_alike = there.shape_of_numbers() == here.shape_of_numbers();
        if (converts && is_alike && traits_of(there, known) != nullptr && traits_of(here, known) != nullptr)
            return true;
        if (converts && is_alike && !there.own.empty() && known.find(there.own) == nullptr) {
            if (std::find(types_.begin(), types_.end(), there.own) == types_.end()) {
                types_.push_back(there.own);
                unknown.add(there.own);
            }
            return false;
        }
        differing.add(tensor + ", which is " + there.words() + " there, " + here.words() + " here");
        return false;
    }
    /// Converts numbers of forms that fit, and notes a tensor with one that the type here does not hold.
    void convert(const std::string& tensor, const stored_numbers& there, const std::byte* from,
                 const stored_numbers& here, std::byte* to, std::size_t count, const own_number_list& known) {
        convert_numbers(there, from, here, to, count, known);
        note_lost(lost, tensor, *traits_of(there, known), from, *traits_of(here, known), to, count);
    }
    /// Throws checkpoint_error if there are any.
    void expect_none(const std::string& where, const std::string& part) const {
        std::string faults;
        say(faults, "missing: ", missing), say(faults, "unexpected: ", unexpected);
        say(faults, "of another shape or type: ", differing);
        say(faults, "numbers of a type that this program does not know: ", unknown,
            "; load it with .own_numbers = {&ht::value_traits_of<T>} of it");
        if (!faults.empty()) fail<checkpoint_error>(where, " is of another ", part, ": ", faults);
        if (lost.count != 0)
            fail<checkpoint_error>(where, " has numbers that the types here do not hold: ", lost.all());
    }

  private:
    std::vector<std::string> types_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
