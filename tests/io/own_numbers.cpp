// SPDX-License-Identifier: MIT
/// \file
/// Checkpoints and weights of models whose parameters have a number type that the library does not know.
#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/io/weights.hpp>

#include "io/run.hpp"
#include "support/own_numbers.hpp"
#include "support/temporary_folder.hpp"

namespace io_own_numbers_tests {

namespace ht = halftone;
using keeping::run;

using own_run = run<support::pure_e6m9, keeping::by_adamw>;
/// Parameters of another type of as many bytes.
struct fixed_parameters : support::fixed_operands {
    using param = support::fixed16;
    static constexpr ht::rounding param_rounding = ht::rounding::stochastic;
};

std::string refusal(const auto& f) {
    try {
        f();
    } catch (const ht::error& e) {
        return e.what();
    }
    return "nothing was thrown";
}

TEST_CASE("checkpoint: a number type of a user's own is resumed with the same bits, and known by its name") {
    const support::temporary_folder folder;
    own_run whole, first;
    for (int i = 0; i < 6; ++i) whole.step(i);
    for (int i = 0; i < 3; ++i) first.step(i);
    first.save(folder.path(), 3);
    own_run second;
    second.load(folder.path() / "checkpoint-3");
    for (int i = 3; i < 6; ++i) second.step(i);
    CHECK(second.bytes() == whole.bytes());

    run<ht::with_param<support::pure_e6m9, ht::float16>, keeping::by_adamw> other;
    other.step(0);
    const std::string before = other.bytes();
    const std::string why = refusal([&] { other.load(folder.path() / "checkpoint-3"); });
    CAPTURE(why);
    CHECK(why.find("param is float16_e6m9 there, float16 here") != std::string::npos);
    CHECK(other.bytes() == before);
}

/// Bytes, shapes and types of a file's tensors.
std::string contents(const std::filesystem::path& path) {
    const ht::safetensors_file file(path);
    std::string all;
    for (const ht::tensor_info& t : file.tensors()) {
        std::string bytes(static_cast<std::size_t>(t.bytes), '\0');
        file.read(t, bytes.data());
        all += t.name + ht::name(t.type) + bytes;
    }
    return all;
}

TEST_CASE("safetensors: a number type of a user's own is written with its name, and loaded with its bits") {
    const support::temporary_folder folder;
    own_run trained;
    for (int i = 0; i < 3; ++i) trained.step(i);
    const auto file = folder.path() / "own.safetensors", again = folder.path() / "again.safetensors";
    ht::save_weights(trained.model, file);
    const ht::safetensors_file written(file);
    for (const ht::tensor_info& t : written.tensors()) {
        CHECK(t.type == ht::dtype::u16);
        CHECK(written.metadata().at("halftone.number." + t.name) == "float16_e6m9");
    }
    own_run other;
    ht::load_weights(other.model, file);
    ht::save_weights(other.model, again);
    CHECK(contents(file) == contents(again));

    // In a folder of several files, and as the transposes.
    const auto matrices = [&](const std::string& path) { return path.find("weight") != std::string::npos; };
    ht::save_weights(trained.model, folder.path() / "parts", {.max_shard_bytes = 400, .transposed = matrices});
    own_run third;
    ht::load_weights(third.model, folder.path() / "parts", {.transposed = matrices});
    ht::save_weights(third.model, again);
    CHECK(contents(file) == contents(again));
}

TEST_CASE("safetensors: a number type of a user's own is refused under another, and converted to and from the library's") {
    const support::temporary_folder folder;
    own_run trained;
    for (int i = 0; i < 3; ++i) trained.step(i);
    const auto own = folder.path() / "own.safetensors", wide = folder.path() / "wide.safetensors",
               again = folder.path() / "again.safetensors";
    ht::save_weights(trained.model, own);
    run<ht::amp_fp16, keeping::by_adamw> of_library;
    const std::string before = of_library.bytes();
    CHECK(refusal([&] { ht::load_weights(of_library.model, own); }).find(", which is float16_e6m9 there") != std::string::npos);
    CHECK(of_library.bytes() == before);
    run<fixed_parameters, keeping::by_adamw> of_other;
    CHECK(refusal([&] { ht::load_weights(of_other.model, own); }).find(", which is float16_e6m9 there") != std::string::npos);

    // Without the name these are integers.
    const ht::safetensors_file file(own);
    std::vector<ht::tensor_source> nameless;
    for (const ht::tensor_info& t : file.tensors())
        nameless.push_back({t.name, t.type, t.shape, [&file, t](std::byte* to, std::size_t first, std::size_t count) {
                                std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes));
                                file.read(t, bytes.data());
                                std::copy_n(bytes.data() + first, count, to);
                            }});
    ht::write_safetensors(again, nameless);
    CHECK(refusal([&] { ht::load_weights(trained.model, again); }).find(", which is U16 there") != std::string::npos);

    for (const ht::dtype type : {ht::dtype::f32, ht::dtype::f64}) {
        CAPTURE(ht::name(type));
        ht::save_weights(trained.model, wide, {.type = type});
        const ht::safetensors_file written(wide);
        CHECK(written.metadata().size() == 1);  // {"format": "pt"}
        for (const ht::tensor_info& t : written.tensors()) CHECK(t.type == type);
        own_run other;
        ht::load_weights(other.model, wide);
        ht::save_weights(other.model, again);
        CHECK(contents(own) == contents(again));
        ht::load_weights(of_library.model, wide);
    }
    // Metadata of a file with the names do not make floats numbers of that type.
    ht::save_weights(trained.model, wide, {.type = ht::dtype::f32, .metadata = file.metadata()});
    ht::load_weights(of_library.model, wide);
}

template <class P>
using run_of = run<P, keeping::by_adamw>;
const ht::load_checkpoint_options converting{.policy = ht::policy_change::convert};

/// All of a model's parameters as numbers.
std::vector<double> values_of(const auto& r) {
    std::vector<double> all;
    for (const ht::store_entry& e : r.model.parameters().entries()) {
        const ht::value_traits& own = ht::detail::saved_type(r.model.parameters().groups()[e.group], e);
        std::vector<std::byte> bytes(e.count * own.bytes);
        ht::detail::read_values(r.model.parameters(), e, 0, e.count, bytes.data());
        std::vector<double> values(e.count);
        own.to_doubles(bytes.data(), e.count, values.data());
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}
/// The values, each rounded to T.
template <class T>
std::vector<double> rounded(std::vector<double> values) {
    for (double& x : values) x = static_cast<double>(ht::detail::round_double<T>(x));
    return values;
}

TEST_CASE("checkpoint: converted to and from number types of a user's own, each number rounded once") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "checkpoint-3";
    run_of<support::amp_e6m9> floats;  // masters are floats
    for (int i = 0; i < 3; ++i) floats.step(i);
    floats.save(folder.path(), 3);
    own_run narrow;
    narrow.load(path, converting);
    CHECK(values_of(narrow) == rounded<support::float16_e6m9>(values_of(floats)));

    // And back: a program that has the type as another role knows it.
    narrow.step(3);
    narrow.save(folder.path(), 3);
    const auto info = floats.load(path, converting);
    CHECK(values_of(floats) == values_of(narrow));
    CHECK(info.notes.size() == 1);
}

TEST_CASE("checkpoint: converted to and from parameters that float does not hold") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "checkpoint-3";
    run<support::fixed_masters, keeping::by_muon> wide;
    run<support::pure_e6m9, keeping::by_muon> narrow;
    for (int i = 0; i < 3; ++i) wide.step(i);
    wide.save(folder.path(), 3);
    auto told = converting;
    told.own_numbers = {&ht::value_traits_of<support::fixed32>};
    narrow.load(path, told);
    CHECK(values_of(narrow) == rounded<support::float16_e6m9>(values_of(wide)));
    narrow.save(folder.path(), 3);
    wide.load(path, converting);
    CHECK(values_of(wide) == rounded<support::fixed32>(values_of(narrow)));
    run<ht::amp_fp16, keeping::by_muon> of_library;
    of_library.save(folder.path(), 3);
    wide.load(path, converting);
    CHECK(values_of(wide) == rounded<support::fixed32>(values_of(of_library)));
}

TEST_CASE(
    "checkpoint: a program that does not know a number type of the file is told it, and never takes its bytes for "
    "others") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "checkpoint-3";
    own_run saved;
    for (int i = 0; i < 3; ++i) saved.step(i);
    saved.save(folder.path(), 3);
    run_of<ht::amp_fp16> of_library;
    run_of<fixed_parameters> of_other;  // as many bytes
    const auto refuses = [&](auto& r) {
        const std::string before = r.bytes(), why = refusal([&] { r.load(path, converting); });
        CAPTURE(why);
        CHECK(why.find("numbers of a type that this program does not know: float16_e6m9; load it with .own_numbers") !=
              std::string::npos);
        CHECK(r.bytes() == before);
    };
    refuses(of_library);
    refuses(of_other);
    auto told = converting;
    told.own_numbers = {&ht::value_traits_of<support::float16_e6m9>};
    of_library.load(path, told);
    CHECK(values_of(of_library) == values_of(saved));
    of_other.load(path, told);
    CHECK(values_of(of_other) == rounded<support::fixed16>(values_of(saved)));
}

TEST_CASE("checkpoint: a number type that had another size under the same name is refused with both sizes") {
    ht::detail::tensor_faults faults;
    ht::detail::own_number_list known;
    known.add(&ht::value_traits_of<support::float16_e6m9>);
    const ht::detail::stored_numbers there{ht::dtype::u8, {3, 4}, "float16_e6m9"},
        here{ht::dtype::u8, {3, 2}, "float16_e6m9"};
    CHECK_FALSE(faults.fits("up.weight", there, here, true, known));
    CHECK(
        refusal([&] { faults.expect_none("a file", "model"); }) ==
        "a file is of another model: of another shape or type: up.weight, which is float16_e6m9 of 4 bytes (3) there, "
        "float16_e6m9 of 2 bytes (3) here");
}

/// A file with a model's parameters, one number of which is another.
template <class P>
void write_with(const std::filesystem::path& file, float number) {
    run_of<P> r;
    const ht::store_entry& e = r.model.parameters().entries()[0];
    std::vector<float> values(e.count, 0.5f);
    values[e.count - 1] = number;
    r.model.parameters().write(0, 0, reinterpret_cast<const std::byte*>(values.data()), e.count);
    ht::save_weights(r.model, file);
}
struct half_parameters : ht::amp_fp16 {
    using param = ht::float16;
    static constexpr ht::rounding param_rounding = ht::rounding::stochastic;
};

TEST_CASE(
    "load_weights and load_checkpoint: a number that a parameter's type does not hold is refused, of every type") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "floats.safetensors";
    const auto loads = [&]<class P>(std::type_identity<P>, float number, const char* why) {
        CAPTURE(number);
        CAPTURE(why);
        write_with<ht::full_fp32>(file, number);
        run_of<P> r;
        const std::string before = r.bytes(), said = refusal([&] { ht::load_weights(r.model, file); });
        CAPTURE(said);
        const std::string expected =
            "load_weights: " + file.string() + " has numbers that the types of parameters do not hold: up.weight, ";
        CHECK(said == (*why == 0 ? "nothing was thrown" : expected + why));
        CHECK((r.bytes() == before) == (*why != 0));
    };
    const float infinite = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::type_identity<fixed_parameters> fixed;
    loads(fixed, 7.9998f, "");  // the largest is 8 - 2^-12
    loads(fixed, 8, "8 for a fixed16");
    loads(fixed, -1e30f, "-1e+30 for a fixed16");
    loads(fixed, infinite, "inf for a fixed16");
    loads(fixed, nan, "nan for a fixed16");
    const std::type_identity<half_parameters> half;
    loads(half, 65519, "");
    loads(half, 65520, "65520 for a float16");
    loads(half, infinite, "");
    loads(half, nan, "");
    const std::type_identity<support::pure_e6m9> without_infinity;
    loads(without_infinity, 0x1p33f, "8.58993e+09 for a float16_e6m9");
    loads(without_infinity, infinite, "");  // a NaN, which shows as much
    loads(std::type_identity<ht::pure_bf16>{}, 3.4e38f, "3.4e+38 for a bfloat16");

    run_of<ht::full_fp32> wide;
    write_with<ht::full_fp32>(file, 65520);
    ht::load_weights(wide.model, file);
    wide.save(folder.path(), 3);
    run_of<half_parameters> narrow;
    const std::string before = narrow.bytes(),
                      said = refusal([&] { narrow.load(folder.path() / "checkpoint-3", converting); });
    CAPTURE(said);
    CHECK(said.find("numbers that the types here do not hold: up.weight, 65520 for a float16") != std::string::npos);
    CHECK(narrow.bytes() == before);
}

using wide_run = run<support::fixed_masters, keeping::by_muon>;

TEST_CASE("parameters that float does not hold: checkpoints and files keep their bits") {
    const support::temporary_folder folder;
    wide_run whole, first, second, third;
    for (int i = 0; i < 6; ++i) whole.step(i);
    for (int i = 0; i < 3; ++i) first.step(i);
    first.save(folder.path(), 3);
    second.load(folder.path() / "checkpoint-3");
    for (int i = 3; i < 6; ++i) second.step(i);
    CHECK(second.bytes() == whole.bytes());

    const auto own = folder.path() / "own.safetensors", again = folder.path() / "again.safetensors";
    ht::save_weights(first.model, own);
    CHECK(ht::safetensors_file(own).tensors()[0].type == ht::dtype::u32);
    ht::load_weights(third.model, own);
    ht::save_weights(third.model, again);
    CHECK(contents(own) == contents(again));
    // Doubles hold them, too.
    ht::save_weights(first.model, folder.path() / "doubles.safetensors", {.type = ht::dtype::f64});
    wide_run fourth;
    ht::load_weights(fourth.model, folder.path() / "doubles.safetensors");
    ht::save_weights(fourth.model, again);
    CHECK(contents(own) == contents(again));
}

TEST_CASE("safetensors: a double is rounded once to a number type of a user's own") {
    // Between 1 + 2^-10, a tie of two neighbours, and the next float: rounded to float first it would be the tie itself.
    const double x = 1 + 0x1p-10 + 0x1p-40;
    support::float16_e6m9 rounded;
    ht::detail::convert_to(ht::value_traits_of<support::float16_e6m9>, ht::dtype::f64, reinterpret_cast<const std::byte*>(&x),
                           reinterpret_cast<std::byte*>(&rounded), 1);
    CHECK(static_cast<float>(rounded) == 1 + 0x1p-9f);
}

}  // namespace io_own_numbers_tests
