// SPDX-License-Identifier: MIT
/// \file
/// Reads JSON from files that may be damaged or hostile: refuses names that occur twice in an object (nlohmann-json
/// would silently keep the last), deep nesting, text that is not UTF-8, and anything after the value, also behind a byte of 0, which
/// ends the text for nlohmann-json.
///
///     const nlohmann::ordered_json j = detail::parse_json<safetensors_error>("model.safetensors: its header", text);
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/io/io_error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Throws Error if a file begins as a pointer of Git LFS does, which a clone has in place of a large file.
template <class Error>
void refuse_lfs_pointer(const std::string& where, std::string_view begin) {
    if (begin.starts_with("version https://git-lfs"))
        fail<Error>(where, " is a pointer of Git LFS in place of the file, which git lfs pull fetches");
}

/// A name from a file as it stands in a sentence: at most 100 bytes, in one line.
inline std::string shown(std::string_view text) {
    std::string result(text.substr(0, 100));
    for (char& c : result) {
        if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
    }
    return text.size() > 100 ? result + "..." : result;
}

/// Hears of a text's values and names one by one, and throws Error for names that occur twice and for deep nesting. A parser of
/// nlohmann-json with a callback would look at all elements of an array again for each object in it.
template <class Error>
class json_checker : public nlohmann::json::json_sax_t {
  public:
    json_checker(const std::string& what, int most_depth) : what_(what), most_depth_(most_depth) {}

    bool null() override { return value(); }
    bool boolean(bool) override { return value(); }
    bool number_integer(number_integer_t) override { return value(); }
    bool number_unsigned(number_unsigned_t) override { return value(); }
    bool number_float(number_float_t, const string_t&) override { return value(); }
    bool string(string_t&) override { return value(); }
    bool binary(binary_t&) override { return value(); }
    bool start_object(std::size_t) override { return begin(); }
    bool end_object() override { return end(); }
    bool start_array(std::size_t) override { return begin(); }
    bool end_array() override { return end(); }
    bool key(string_t& name) override {
        if (!names_.back().insert(name).second) fail<Error>(what_, " has the name '", shown(name), "' twice");
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
        fail<Error>(what_, " is not valid JSON: ", e.what());
    }

  private:
    bool value() const {
        if (static_cast<int>(names_.size()) > most_depth_)
            fail<Error>(what_, " has values nested more than ", most_depth_, " deep");
        return true;
    }
    bool begin() {
        value();
        names_.emplace_back();
        return true;
    }
    bool end() {
        names_.pop_back();
        return true;
    }

    const std::string& what_;
    int most_depth_;
    std::vector<std::set<std::string>> names_;  ///< of each object and array that is open
};

/// Throws Error, which begins with `what`, for anything but one JSON value, objects and arrays nested `most_depth` deep
/// at most.
template <class Error>
nlohmann::json parse_json(const std::string& what, std::string_view text, int most_depth = 16) {
    using json = nlohmann::json;
    refuse_lfs_pointer<Error>(what, text);
    if (const auto zero = text.find('\0'); zero != text.npos)
        fail<Error>(what, " is not valid JSON: a byte of 0 at ", zero, " of ", text.size(), " bytes");
    json_checker<Error> check(what, most_depth);
    json::sax_parse(text.begin(), text.end(), &check);
    try {
        return json::parse(text.begin(), text.end());
    } catch (const json::exception& e) {
        fail<Error>(what, " is not valid JSON: ", e.what());
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
