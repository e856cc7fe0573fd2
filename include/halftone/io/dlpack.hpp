// SPDX-License-Identifier: MIT
/// \file
/// Tensors of other libraries without a copy, and ours for them, by DLPack's C structures (version 1.0, and those
/// without a version that came before).
///
///     const ht::dlpack_tensor<const float, 2> x(managed);        // what torch.utils.dlpack.to_dlpack's capsule holds
///     ht::matmul<ht::amp_bf16>(device, x.view(), w, y);          // x calls the owner's deleter in its destructor
///
///     ht::dl_managed_tensor_versioned* const out = ht::to_dlpack(y.view(), keep_alive);
///
/// The structures have the memory layout of those in dlpack.h, so a program that includes that header converts pointers
/// by reinterpret_cast. A Python extension puts the pointer into a capsule named "dltensor_versioned" (or "dltensor").
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include <halftone/io/dtype.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// DLPack's numbers of devices; others exist.
enum class dl_device_type : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };

/// DLDevice.
struct dl_device {
    dl_device_type type = dl_device_type::cpu;
    std::int32_t id = 0;
};
/// DLDataType.
struct dl_data_type {
    std::uint8_t code = 0, bits = 0;
    std::uint16_t lanes = 1;
};
/// DLTensor. Shape and strides are in elements; strides may be nullptr: row-major.
struct dl_tensor {
    void* data = nullptr;
    dl_device device{};
    std::int32_t ndim = 0;
    dl_data_type dtype{};
    std::int64_t* shape = nullptr;
    std::int64_t* strides = nullptr;
    std::uint64_t byte_offset = 0;
};
/// DLManagedTensor: a tensor and its owner, without a version.
struct dl_managed_tensor {
    dl_tensor tensor{};
    void* manager_ctx = nullptr;
    void (*deleter)(dl_managed_tensor*) = nullptr;
};
/// DLPackVersion.
struct dl_version {
    std::uint32_t major = 1, minor = 0;
};
/// DLManagedTensorVersioned: a tensor and its owner.
struct dl_managed_tensor_versioned {
    dl_version version{};
    void* manager_ctx = nullptr;
    void (*deleter)(dl_managed_tensor_versioned*) = nullptr;
    std::uint64_t flags = 0;  ///< 1: the elements may only be read
    dl_tensor tensor{};
};

namespace detail {

inline constexpr std::uint64_t dl_read_only = 1;

/// DLDataTypeCode: int 0, uint 1, float 2, bfloat 4, bool 6, and since 1.1 float8_e4m3fn 10 and float8_e5m2 12.
template <stored_type T>
constexpr dl_data_type dl_type_of() {
    constexpr auto bits = static_cast<std::uint8_t>(8 * sizeof(T));
    if constexpr (std::is_same_v<T, bool>) return {6, 8, 1};
    else if constexpr (std::is_integral_v<T>) return {static_cast<std::uint8_t>(std::is_signed_v<T> ? 0 : 1), bits, 1};
    else if constexpr (std::is_same_v<T, bfloat16>) return {4, 16, 1};
    else if constexpr (std::is_same_v<T, float8_e4m3>) return {10, 8, 1};
    else if constexpr (std::is_same_v<T, float8_e5m2>) return {12, 8, 1};
    else return {2, bits, 1};
}

/// A managed tensor with what it points to, in one block that its deleter frees.
template <class Managed, int Rank>
struct dl_block {
    Managed managed{};
    std::int64_t shape[Rank == 0 ? 1 : Rank]{}, strides[Rank == 0 ? 1 : Rank]{};
    std::shared_ptr<void> owner;
};

template <class Managed, class T, int Rank>
Managed* make_dlpack(const view<T, Rank>& values, std::shared_ptr<void> owner, dl_device device) {
    using block = dl_block<Managed, Rank>;
    auto made = std::make_unique<block>();
    made->owner = std::move(owner);
    for (int axis = 0; axis < Rank; ++axis) made->shape[axis] = values.extent_of(axis), made->strides[axis] = values.stride_of(axis);
    made->managed.tensor = {const_cast<void*>(static_cast<const void*>(values.data())), device, Rank,
                            dl_type_of<std::remove_const_t<T>>(), made->shape, made->strides, 0};
    made->managed.manager_ctx = made.get();
    made->managed.deleter = [](Managed* self) {
        if (self != nullptr) delete static_cast<block*>(self->manager_ctx);
    };
    return &made.release()->managed;
}

}  // namespace detail

/// A tensor for another library, which calls its deleter; `owner` is kept until then, and without one the memory must
/// outlive the other library's use of it. `device` says where the memory is. A view of const elements is marked as
/// read-only.
template <class T, int Rank>
    requires stored_type<std::remove_const_t<T>>
dl_managed_tensor_versioned* to_dlpack(const view<T, Rank>& values, std::shared_ptr<void> owner = {}, dl_device device = {}) {
    auto* const made = detail::make_dlpack<dl_managed_tensor_versioned>(values, std::move(owner), device);
    if (std::is_const_v<T>) made->flags = detail::dl_read_only;
    return made;
}
/// A view as a DLPack structure for libraries from before DLPack 1.0. The view is of mutable elements: the structure
/// cannot say otherwise.
template <stored_type T, int Rank>
dl_managed_tensor* to_dlpack_unversioned(const view<T, Rank>& values, std::shared_ptr<void> owner = {}, dl_device device = {}) {
    return detail::make_dlpack<dl_managed_tensor>(values, std::move(owner), device);
}

/// A tensor of another library, as a view of T, which is const for one that may only be read. It owns the tensor: its
/// destructor calls the other library's deleter.
template <class T, int Rank>
    requires stored_type<std::remove_const_t<T>>
class dlpack_tensor {
  public:
    /// Takes the tensor. Throws argument_error for another type or rank, where T is not const for elements that may only
    /// be read and for strides by which one appears twice, as those of torch's expand, for a version of DLPack beyond 1,
    /// and for addresses that are not aligned; the caller then owns the tensor as before.
    explicit dlpack_tensor(dl_managed_tensor_versioned* managed) {
        if (managed == nullptr) fail<argument_error>("dlpack: no tensor");
        if (managed->version.major != 1)
            fail<argument_error>("dlpack: a structure of version ", managed->version.major, '.', managed->version.minor,
                                 "; expected 1.x");
        if ((managed->flags & detail::dl_read_only) != 0 && !std::is_const_v<T>)
            fail<argument_error>("dlpack: the tensor may only be read; take it as a dlpack_tensor<const T, Rank>");
        take(managed->tensor);
        end_ = managed;
        release_ = [](void* m) {
            auto* const each = static_cast<dl_managed_tensor_versioned*>(m);
            if (each->deleter != nullptr) each->deleter(each);
        };
    }
    explicit dlpack_tensor(dl_managed_tensor* managed) {
        if (managed == nullptr) fail<argument_error>("dlpack: no tensor");
        take(managed->tensor);
        end_ = managed;
        release_ = [](void* m) {
            auto* const each = static_cast<dl_managed_tensor*>(m);
            if (each->deleter != nullptr) each->deleter(each);
        };
    }
    dlpack_tensor(const dlpack_tensor&) = delete;
    dlpack_tensor& operator=(const dlpack_tensor&) = delete;
    dlpack_tensor(dlpack_tensor&& other) noexcept
        : view_(other.view_), device_(other.device_), end_(std::exchange(other.end_, nullptr)), release_(other.release_) {}
    ~dlpack_tensor() {
        if (end_ != nullptr) release_(end_);
    }

    /// The elements, valid as long as this object.
    const halftone::view<T, Rank>& view() const { return view_; }
    /// The device in whose memory the elements are.
    dl_device device() const { return device_; }

  private:
    void take(const dl_tensor& t) {
        constexpr dl_data_type type = detail::dl_type_of<std::remove_const_t<T>>();
        if (t.dtype.code != type.code || t.dtype.bits != type.bits || t.dtype.lanes != 1) {
            fail<argument_error>("dlpack: the type has code ", static_cast<int>(t.dtype.code), " and ",
                                 static_cast<int>(t.dtype.bits), " bits in ", t.dtype.lanes, " lanes; expected code ",
                                 static_cast<int>(type.code), " and ", static_cast<int>(type.bits), " bits");
        }
        if (t.ndim != Rank) fail<argument_error>("dlpack: ", t.ndim, " axes; expected ", Rank);
        shape<Rank> extents{}, strides{};
        extent step = 1;
        for (int axis = Rank - 1; axis >= 0; --axis) extents[axis] = t.shape[axis];
        check_shape("dlpack", extents);
        for (int axis = Rank - 1; axis >= 0; --axis) {
            strides[axis] = t.strides != nullptr ? t.strides[axis] : step;
            step *= extents[axis];
        }
        if (!std::is_const_v<T> && !halftone::view<T, Rank>(nullptr, extents, strides).shows_elements_once()) {
            fail<argument_error>("dlpack: the tensor ", extents, " is written to and overlaps itself; its strides are ",
                                 strides, "; take it as a dlpack_tensor<const T, Rank>, or a copy");
        }
        auto* const data = static_cast<char*>(t.data) + t.byte_offset;
        if (extents.size() != 0 && (t.data == nullptr || reinterpret_cast<std::uintptr_t>(data) % alignof(T) != 0))
            fail<argument_error>("dlpack: the elements' address is not aligned for ", alignof(T), " bytes");
        view_ = {reinterpret_cast<T*>(extents.size() == 0 ? nullptr : data), extents, strides};
        device_ = t.device;
    }

    halftone::view<T, Rank> view_{};
    dl_device device_{};
    void* end_ = nullptr;
    void (*release_)(void*) = nullptr;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
