// Shared by all devices in host memory: allocation that is counted and limited, and a synchronous stream.
#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/device/control_group.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

namespace detail {

/// Bytes that this process may use: the smallest of the machine's memory, the limits of its control groups, and what remains of `ulimit -v`
/// and `ulimit -d`.
[[nodiscard]] std::size_t host_memory_available();

/// Maps a new unnamed file as memory.
///   throws  memory_error when the folder has no room for it
[[nodiscard]] void* map_new_file(const std::string& folder, std::size_t bytes, memory_role role);

}  // namespace detail

/// An opened device in host memory. A handle: copies share the tally and the limit.
class host_context {
 public:
  /// `memory_limit` in bytes; 0: what the machine, the control groups and ulimit allow.
  explicit host_context(std::size_t memory_limit);

  host_context() : host_context(0) {}

  /// A context for dry runs; see device/dry_run.hpp.
  struct dry_run_t {};
  explicit host_context(dry_run_t);
  [[nodiscard]] bool is_dry_run() const { return shared_->is_dry_run; }
  /// What the dry run counted.
  [[nodiscard]] dry_record& record() const { return shared_->record; }

  /// Aligned to a cache line; from 2 MiB on, to huge pages. The contents are uninitialized.
  ///   throws  memory_error when the limit would be exceeded or the system refuses
  [[nodiscard]] void* allocate(std::size_t bytes, memory_role role) const;

  void release(void* memory, std::size_t bytes, memory_role role) const;

  /// From now on, memory that this handle and its copies allocate for these roles is in files of a folder, and does not count against the
  /// limit. The files are unnamed: they disappear when their memory is released and when the process ends.
  ///   folder  empty: TMPDIR, or /tmp if that is not set
  void keep_in_files(memory_role_set roles, std::string folder);
  /// Bytes in files, by role.
  [[nodiscard]] memory_count memory_in_files() const { return shared_->in_files.count(); }
  /// Prefetch hint: this memory will be read soon, so the system may start to load it from its file.
  void will_read(const void* memory, std::size_t bytes) const;

  [[nodiscard]] memory_count memory() const { return shared_->tally.count(); }
  [[nodiscard]] std::size_t memory_limit() const { return shared_->limit; }

 private:
  struct shared {
    memory_tally tally, in_files;
    std::size_t limit = 0;
    bool is_dry_run = false;
    unreal_addresses addresses;
    dry_record record;
  };
  struct files {
    memory_role_set roles{};
    std::string folder{};
  };
  std::shared_ptr<shared> shared_;
  files files_{};
};

/// A stream in host memory completes each operation before it returns, so there is never anything to wait for. The stream of a dry-run
/// context only counts.
class host_stream {
 public:
  struct event {
    void synchronize() const {}
  };

  host_stream() = default;
  explicit host_stream(const host_context& device) : opened_(device.is_dry_run() ? std::make_shared<host_context>(device) : nullptr) {}

  void copy_from_host(void* to, const void* from, std::size_t bytes) const;
  void copy_to_host(void* to, const void* from, std::size_t bytes) const;
  void copy_within(void* to, const void* from, std::size_t bytes) const;
  void fill_zero(void* to, std::size_t bytes) const;
  void synchronize() const;
  /// The record of a dry run; null on a stream that does the work.
  [[nodiscard]] dry_record* counts() const { return opened_ ? &opened_->record() : nullptr; }
  [[nodiscard]] event record() const { return {}; }
  void wait(event) const {}

 protected:
  // for streams with their own copy functions
  [[nodiscard]] bool copy_is_counted(std::size_t bytes) const { return is_counted("copy", 2 * bytes); }
  [[nodiscard]] bool zeros_are_counted(std::size_t bytes) const { return is_counted("fill_zero", bytes); }

 private:
  [[nodiscard]] bool is_counted(std::string_view what, std::size_t bytes) const;
  static void copy(void* to, const void* from, std::size_t bytes);

  std::shared_ptr<host_context> opened_{};  // kept open in a dry run
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/device/host_impl.hpp>
#endif
