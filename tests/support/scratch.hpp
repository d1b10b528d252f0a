// A temporary folder, and ways to make system calls fail.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

class scratch_folder {
 public:
  scratch_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "xtrain-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no scratch folder");
    path_ = pattern;
  }
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// File names in the folder, sorted.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      if (entry.path().filename() != ".lock") names.push_back(entry.path().filename().string());  // exists during a run
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

inline void put_file(const std::string& path, const std::string& contents) { std::ofstream(path, std::ios::binary) << contents; }
inline std::string get_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// While an object exists, no file grows beyond `bytes`.
class limited_file_size {
 public:
  explicit limited_file_size(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    previous_ = std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~limited_file_size() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, previous_);
  }
  limited_file_size(const limited_file_size&) = delete;
  limited_file_size& operator=(const limited_file_size&) = delete;

 private:
  rlimit before_{};
  void (*previous_)(int) = SIG_DFL;
};

/// A path of the shared test data, XTRAIN_TEST_DATA, or empty.
inline std::string test_data(const std::string& name) {
  const char* folder = std::getenv("XTRAIN_TEST_DATA");
  if (folder == nullptr || *folder == '\0') return {};
  const std::string path = std::string(folder) + "/" + name;
  return std::filesystem::exists(path) ? path : std::string{};
}
