// Definitions of host.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/device/control_group.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/host.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE std::size_t host_memory_available() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGE_SIZE);
  std::size_t available = pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) : ~std::size_t{0};
  available = std::min(available, control_group_memory());
  unsigned long long addresses = 0, data = 0;  // in use, in pages                                      [proc(5), statm]
  if (std::sscanf(read_system_file("/proc/self/statm").c_str(), "%llu %*u %*u %*u %*u %llu", &addresses, &data) != 2) return available;
  for (const auto& [resource, taken] : {std::pair{RLIMIT_AS, addresses}, {RLIMIT_DATA, data}}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const std::size_t used = static_cast<std::size_t>(taken) * static_cast<std::size_t>(page);
    available = std::min(available, limit.rlim_cur > used ? static_cast<std::size_t>(limit.rlim_cur) - used : 0);
  }
  return available;
}

XTRAIN_INLINE void* map_new_file(const std::string& folder, std::size_t bytes, memory_role role) {
  const auto refuse = [&](const char* what, int why) {
    fail<memory_error>("offload: ", name_of(role), " must fit a file in '", folder, "'; ", what, " of ", bytes_text(bytes),
                       " failed: ", std::strerror(why));
  };
  std::string path = folder + "/xtrain-XXXXXX";
  const int file = ::mkstemp(path.data());
  if (file < 0) refuse("making one", errno);
  ::unlink(path.c_str());
  // allocate the blocks now: writing to a disk that has become full would kill the process
  int failed = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* const memory = failed != 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (failed == 0 && memory == MAP_FAILED) failed = errno;
  ::close(file);
  if (memory == MAP_FAILED) refuse("one", failed);
  return memory;
}

}  // namespace detail

XTRAIN_INLINE host_context::host_context(std::size_t memory_limit) : shared_(std::make_shared<shared>()) {
  shared_->limit = memory_limit != 0 ? memory_limit : detail::host_memory_available();
}

XTRAIN_INLINE host_context::host_context(dry_run_t) : shared_(std::make_shared<shared>()) {
  shared_->limit = ~std::size_t{0};
  shared_->is_dry_run = true;
}

XTRAIN_INLINE void* host_context::allocate(std::size_t bytes, memory_role role) const {
  if (shared_->is_dry_run) {
    shared_->tally.add(role, bytes);
    return shared_->addresses.next(bytes);
  }
  if (files_.roles.has(role)) {
    void* const memory = detail::map_new_file(files_.folder, bytes, role);
    shared_->in_files.add(role, bytes);
    return memory;
  }
  const std::size_t used = shared_->tally.total();
  require<memory_error>(bytes <= shared_->limit && used <= shared_->limit - bytes, "device memory: ", name_of(role), " needs ",
                        bytes_text(bytes), " more; ", bytes_text(used), " of ", bytes_text(shared_->limit), " are in use");
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  const std::size_t alignment = bytes >= huge_page ? huge_page : 64;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  require<memory_error>(memory != nullptr, "device memory: ", name_of(role), " needs ", bytes_text(bytes), "; the system has no more");
#ifdef MADV_HUGEPAGE
  if (alignment == huge_page) ::madvise(memory, rounded, MADV_HUGEPAGE);  // only advice: failure costs speed, not correctness
#endif
  shared_->tally.add(role, bytes);
  return memory;
}

XTRAIN_INLINE void host_context::release(void* memory, std::size_t bytes, memory_role role) const {
  if (files_.roles.has(role)) {
    ::munmap(memory, bytes);
    return shared_->in_files.remove(role, bytes);
  }
  if (!shared_->is_dry_run) std::free(memory);
  shared_->tally.remove(role, bytes);
}

XTRAIN_INLINE void host_context::keep_in_files(memory_role_set roles, std::string folder) {
  if (shared_->is_dry_run) return;
  if (folder.empty()) {
    const char* const temporary = std::getenv("TMPDIR");
    folder = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  }
  files_ = {roles, std::move(folder)};
}

XTRAIN_INLINE void host_context::will_read(const void* memory, std::size_t bytes) const {
  if (!shared_->is_dry_run) will_be_read({static_cast<const std::byte*>(memory), bytes});
}

XTRAIN_INLINE void host_stream::copy_from_host(void* to, const void* from, std::size_t bytes) const {
  if (dry_record* const record = counts()) record->bytes_from_host += static_cast<double>(bytes);
  else copy(to, from, bytes);
}

XTRAIN_INLINE void host_stream::copy_to_host(void* to, const void* from, std::size_t bytes) const {
  if (dry_record* const record = counts()) {
    record->bytes_to_host += static_cast<double>(bytes);
    if (bytes != 0) std::memset(to, 0, bytes);
  } else {
    copy(to, from, bytes);
  }
}

XTRAIN_INLINE void host_stream::copy_within(void* to, const void* from, std::size_t bytes) const {
  if (!copy_is_counted(bytes)) copy(to, from, bytes);
}

XTRAIN_INLINE void host_stream::fill_zero(void* to, std::size_t bytes) const {
  if (!zeros_are_counted(bytes) && bytes != 0) std::memset(to, 0, bytes);
}

XTRAIN_INLINE void host_stream::synchronize() const {
  if (dry_record* const record = counts()) ++record->synchronisations;
}

XTRAIN_INLINE bool host_stream::is_counted(std::string_view what, std::size_t bytes) const {
  dry_record* const record = counts();
  if (record != nullptr) record->count(what, 0, static_cast<double>(bytes));
  return record != nullptr;
}

XTRAIN_INLINE void host_stream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace xtrain
