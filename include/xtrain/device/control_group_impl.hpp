// Definitions of control_group.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/device/control_group.hpp>

namespace xtrain::detail {

XTRAIN_INLINE std::string read_system_file(const std::string& path) {
  std::string text;
  if (std::FILE* file = std::fopen(path.c_str(), "re")) {
    char piece[4096];
    for (std::size_t n = 0; (n = std::fread(piece, 1, sizeof(piece), file)) > 0;) text.append(piece, n);
    std::fclose(file);
  }
  return text;
}

XTRAIN_INLINE std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    all.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

XTRAIN_INLINE std::vector<std::string> control_groups(std::string_view controller, const std::string& root) {
  const std::string own = read_system_file(root + "/proc/self/cgroup"), mounts = read_system_file(root + "/proc/self/mountinfo");
  const auto names = [&](std::string_view list) {
    const auto all = parts_of(list, ',');
    return std::find(all.begin(), all.end(), controller) != all.end();
  };
  std::vector<std::string> folders;
  for (const std::string_view mount : parts_of(mounts, '\n')) {
    // id parent device root folder options [more] - type source super-options                        [proc(5), mountinfo]
    const auto fields = parts_of(mount, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    const bool is_unified = dash[1] == "cgroup2";
    if (!is_unified && (dash[1] != "cgroup" || !names(dash[3]))) continue;
    for (const std::string_view line : parts_of(own, '\n')) {  // number:controllers:path
      const std::size_t first = line.find(':'), second = line.find(':', first + 1);
      if (second == std::string_view::npos) continue;
      const std::string_view controllers = line.substr(first + 1, second - first - 1);
      if (is_unified ? !controllers.empty() : !names(controllers)) continue;
      std::string path(line.substr(second + 1));
      if (fields[3] != "/" && path.starts_with(fields[3])) path.erase(0, fields[3].size());  // only a subtree is mounted
      if (path.starts_with("/..")) path.clear();                                             // the process is outside the visible subtree
      for (;;) {
        while (path.ends_with('/')) path.pop_back();
        folders.push_back(root + std::string(fields[4]) + path);
        if (path.empty()) break;
        path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
      }
    }
  }
  return folders;
}

XTRAIN_INLINE std::size_t control_group_memory(const std::string& root) {
  std::size_t least = ~std::size_t{0};
  for (const std::string& folder : control_groups("memory", root))
    for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
      const std::string text = read_system_file(folder + name);
      if (text.empty() || text[0] < '0' || text[0] > '9') continue;  // "max": no limit
      least = std::min<std::size_t>(least, std::strtoull(text.c_str(), nullptr, 10));
    }
  return least;
}

XTRAIN_INLINE std::size_t control_group_processors(const std::string& root) {
  std::size_t least = ~std::size_t{0};
  for (const std::string& folder : control_groups("cpu", root)) {
    std::string text = read_system_file(folder + "/cpu.max");  // "quota period"
    if (text.empty()) text = read_system_file(folder + "/cpu.cfs_quota_us") + ' ' + read_system_file(folder + "/cpu.cfs_period_us");
    long long quota = 0, period = 0;
    if (std::sscanf(text.c_str(), "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) continue;  // "max", or -1: no quota
    least = std::min(least, static_cast<std::size_t>((quota + period - 1) / period));
  }
  return least;
}

}  // namespace xtrain::detail
