// SPDX-License-Identifier: MIT
/// \file
/// Ranges of a GPU's addresses whose pages get memory later, by CUDA's virtual memory calls: for arenas that grow
/// without moving.
///
///     detail::device_pages pages(device);
///     const address_range all = pages.reserve();                      // addresses only
///     if (pages.commit(all.data, pages.granularity())) ...            // memory for the first page
#pragma once

#include <map>

#include <halftone/exec/cuda/current_device.cuh>
#include <halftone/exec/cuda/driver.cuh>
#include <halftone/memory/resource.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// All calls are the driver's, and of the host alone: before memory is returned, the caller waits for the work that
/// uses it.
class device_pages {
  public:
    /// Throws cuda_error if the driver lacks a function.
    explicit device_pages(int device) : device_(device) {
        what_.type = CU_MEM_ALLOCATION_TYPE_PINNED;  // as all of a GPU's memory is
        what_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        what_.location.id = device;
        CUdevice handle{};
        int supported = 0;
        if (driver_function<decltype(&cuDeviceGet)>("cuDeviceGet", 2000)(&handle, device) != CUDA_SUCCESS ||
            driver_function<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute", 2000)(
                &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, handle) != CUDA_SUCCESS ||
            supported == 0 ||
            driver_function<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity", 10020)(
                &granularity_, &what_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS)
            granularity_ = 0;
    }

    /// The size of a page; 0 if the GPU has no such ranges.
    std::size_t granularity() const { return granularity_; }

    /// Reserves as many addresses as the GPU has memory; {nullptr, 0} if there are none.
    address_range reserve() {
        const current_device here(device_);
        std::size_t free = 0, all = 0;
        cuda_check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
        all = (all / granularity_ + 1) * granularity_;
        CUdeviceptr at{};
        if (reserve_(&at, all, granularity_, 0, 0) != CUDA_SUCCESS) return {};
        return {reinterpret_cast<std::byte*>(at), all};
    }
    /// Memory for pages of a range; false if there is none.
    bool commit(std::byte* at, std::size_t bytes) {
        const current_device here(device_);
        CUmemGenericAllocationHandle memory{};
        if (create_(&memory, bytes, &what_, 0) != CUDA_SUCCESS) return false;
        CUmemAccessDesc access{};
        access.location = what_.location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (map_(place(at), bytes, 0, memory, 0) != CUDA_SUCCESS) {
            free_(memory);
            return false;
        }
        if (set_access_(place(at), bytes, &access, 1) != CUDA_SUCCESS) {
            unmap_(place(at), bytes);
            free_(memory);
            return false;
        }
        committed_.insert_or_assign(at, page_run{bytes, memory});
        return true;
    }
    /// Returns pages that one call of commit() gave.
    void decommit(std::byte* at) noexcept {
        const auto found = committed_.find(at);
        if (found == committed_.end()) return;
        unmap_(place(at), found->second.bytes);
        free_(found->second.memory);
        committed_.erase(found);
    }
    /// Returns a range with all its memory.
    void release(const address_range& range) noexcept {
        const current_device here(device_);
        for (auto each = committed_.lower_bound(range.data);
             each != committed_.end() && each->first < range.data + range.bytes;)
            decommit((each++)->first);
        free_addresses_(place(range.data), range.bytes);
    }

  private:
    struct page_run {
        std::size_t bytes;
        CUmemGenericAllocationHandle memory;
    };

    static CUdeviceptr place(const std::byte* at) { return reinterpret_cast<CUdeviceptr>(at); }

    int device_;
    CUmemAllocationProp what_{};
    std::size_t granularity_ = 0;
    std::map<std::byte*, page_run> committed_;
    decltype(&cuMemAddressReserve) reserve_ =
        driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve", 10020);
    decltype(&cuMemAddressFree) free_addresses_ =
        driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree", 10020);
    decltype(&cuMemCreate) create_ = driver_function<decltype(&cuMemCreate)>("cuMemCreate", 10020);
    decltype(&cuMemRelease) free_ = driver_function<decltype(&cuMemRelease)>("cuMemRelease", 10020);
    decltype(&cuMemMap) map_ = driver_function<decltype(&cuMemMap)>("cuMemMap", 10020);
    decltype(&cuMemUnmap) unmap_ = driver_function<decltype(&cuMemUnmap)>("cuMemUnmap", 10020);
    decltype(&cuMemSetAccess) set_access_ = driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess", 10020);
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
