// A library of the user's CANN, found by name at run time.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <compare>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/text.hpp>

namespace xtrain {

/// Release of CANN. Rules of operators change with it.
struct cann_version {
  int major = 0, minor = 0, patch = 0;  ///< 0.0.0: unknown; the oldest release's rules then hold
  friend constexpr auto operator<=>(const cann_version&, const cann_version&) = default;
  /// "version=9.1.0", the first such number in a text.
  [[nodiscard]] static cann_version in(std::string_view text);
  /// XTRAIN_CANN_VERSION, or what the files of an installation say.
  [[nodiscard]] static cann_version of_installation();
  [[nodiscard]] std::string text() const { return major == 0 ? "unknown" : concat(major, ".", minor, ".", patch); }
};

/// Loaded, and never unloaded: its threads may run until the process ends.
class npu_library {
 public:
  /// Looks where the loader looks (LD_LIBRARY_PATH), then in the installations that the environment names, then in the usual folders.
  [[nodiscard]] static npu_library open(std::string_view name);

  [[nodiscard]] explicit operator bool() const { return handle_ != nullptr; }
  /// With its folder, as the loader says; the name alone if it does not.
  [[nodiscard]] const std::string& file() const { return file_; }
  /// Why it could not be loaded.
  [[nodiscard]] const std::string& why() const { return why_; }
  /// Null if it has no such function.
  template <class F>
  [[nodiscard]] F* function(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<F*>(::dlsym(handle_, name));
  }

 private:
  void* handle_ = nullptr;
  std::string file_{}, why_{};
};

namespace detail {

/// Folders of installations of CANN, the first first.
[[nodiscard]] inline std::vector<std::string> cann_folders() {
  std::vector<std::string> all;
  for (const char* const variable : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"})
    if (const char* const value = std::getenv(variable); value != nullptr && *value != '\0') all.emplace_back(value);
  for (const char* const usual : {"/usr/local/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest"}) all.emplace_back(usual);
  return all;
}

}  // namespace detail

inline cann_version cann_version::in(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (const std::size_t at = text.find("ersion="); at != std::string_view::npos) text.remove_prefix(at);
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!is_digit(text[at])) continue;
    int parts[3] = {0, 0, 0};
    std::size_t part = 0, next = at;
    for (; next < text.size(); ++next) {
      if (is_digit(text[next]) && parts[part] < 10000) parts[part] = 10 * parts[part] + (text[next] - '0');
      else if (part < 2 && text[next] == '.' && next + 1 < text.size() && is_digit(text[next + 1])) ++part;
      else break;
    }
    if (part >= 1 && parts[0] >= 5) return {parts[0], parts[1], parts[2]};
    at = next;
  }
  return {};
}
inline cann_version cann_version::of_installation() {
  if (const char* const said = std::getenv("XTRAIN_CANN_VERSION"); said != nullptr && *said != '\0') return in(said);
  for (const std::string& folder : detail::cann_folders())
    for (const char* const name : {"/version.cfg", "/version.info", "/ascend_toolkit_install.info", "/aarch64-linux/ascend_toolkit_install.info",
                                   "/x86_64-linux/ascend_toolkit_install.info", "/compiler/version.info"}) {
      std::FILE* const file = std::fopen((folder + name).c_str(), "r");
      if (file == nullptr) continue;
      char text[2048];
      const std::size_t bytes = std::fread(text, 1, sizeof text, file);
      (void)std::fclose(file);
      if (const cann_version found = in({text, bytes}); found.major != 0) return found;
    }
  return {};
}

inline npu_library npu_library::open(std::string_view name) {
  npu_library found;
  const auto attempt = [&](const std::string& file) {
    found.handle_ = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_GLOBAL);  // CANN's libraries look for each other's symbols
    if (found.handle_ == nullptr) {
      const char* const why = ::dlerror();
      if (found.why_.empty()) found.why_ = concat(file, " cannot be loaded: ", why == nullptr ? "no reason given" : why);
      return false;
    }
    link_map* map = nullptr;
    found.file_ = ::dlinfo(found.handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && *map->l_name != '\0' ? map->l_name : file;
    found.why_.clear();
    return true;
  };
  if (attempt(std::string(name))) return found;
  for (const std::string& folder : detail::cann_folders())
    if (attempt(concat(folder, "/lib64/", name))) return found;
  return found;
}

}  // namespace xtrain
