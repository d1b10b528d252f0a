// --adapter of the programs: a folder, or a GGUF file of LoRA.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <xtrain/adapt/gguf_adapter_folder.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/families.hpp>

#include "command_line.hpp"

namespace command_line {

/// The folder of an adapter. For a GGUF file, a temporary one with this object's lifetime.
class readable_adapter {
 public:
  ///   base   returns the base model's config.json
  template <class Base>
  readable_adapter(std::string adapter, Base&& base) : path_(std::move(adapter)) {
    if (path_.empty() || !xtrain::gguf_file::is_one(path_)) return;
    temporary_ = (std::filesystem::temp_directory_path() / "xtrain-adapter-XXXXXX").string();
    xtrain::require<xtrain::file_error>(::mkdtemp(temporary_.data()) != nullptr, temporary_, ": must be created; the system says: ", std::strerror(errno));
    try {
      for_flag("--adapter", path_, [&] {
        const xtrain::json_settings config = base();
        const auto& family = xtrain::all_families::of<>(config);
        xtrain::write_adapter_folder(temporary_, path_, xtrain::gguf_config_of(xtrain::sizes_of(config, family), family));
      });
    } catch (...) {
      remove();
      throw;
    }
    path_ = temporary_;
  }
  ~readable_adapter() { remove(); }
  readable_adapter(const readable_adapter&) = delete;
  readable_adapter& operator=(const readable_adapter&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void remove() const {
    std::error_code ignored;
    if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
  }

  std::string path_, temporary_{};
};

}  // namespace command_line
