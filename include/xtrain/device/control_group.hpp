// The memory and CPU limits of the control groups (cgroups, version 1 and 2) that contain this process, at any nesting depth.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace xtrain::detail {

/// Contents of a file that the kernel generates on each read (/proc, /sys); empty when it cannot be read.
[[nodiscard]] std::string read_system_file(const std::string& path);

/// Splits a text at a separator.
[[nodiscard]] std::vector<std::string_view> parts_of(std::string_view text, char separator);

/// The cgroup folders of one controller ("memory", "cpu") that apply to this process: its own group, then each parent group.
///   root   prefix of every path that is read; for tests
[[nodiscard]] std::vector<std::string> control_groups(std::string_view controller, const std::string& root = {});

/// The smallest memory limit of these groups in bytes; the largest std::size_t if there is none.
[[nodiscard]] std::size_t control_group_memory(const std::string& root = {});

/// The smallest CPU quota of these groups in processors, rounded up; the largest std::size_t if there is none.
[[nodiscard]] std::size_t control_group_processors(const std::string& root = {});

}  // namespace xtrain::detail

#ifndef XTRAIN_LIBRARY
#include <xtrain/device/control_group_impl.hpp>
#endif
