// Front ends beside a trainers.txt by which their trainers for npu run on a stand-in for AscendCL and HCCL.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include "scratch.hpp"

/// The folder. Made once from a build's programs.
inline const std::string& npu_programs(const std::string& examples) {
  static const scratch_folder folder;
  static const bool is_made = [&] {
    const auto add = [&](const std::string& name, const std::string& as) {
      if (!std::filesystem::exists(examples + "/" + name)) return;
      std::error_code problem;  // on another file system
      std::filesystem::create_hard_link(examples + "/" + name, folder / as, problem);
      if (problem) std::filesystem::copy_file(examples + "/" + name, folder / as);
    };
    for (const char* name : {"tune", "hf_train", "megatron"}) add(name, name);
    add("generate_npu_rehearsed", "generate_npu");
    put_file(folder / "trainers.txt", get_file(examples + "/trainers.txt") + "npu_definitions=XTRAIN_NPU_REHEARSAL\n");
    return true;
  }();
  (void)is_made;
  return folder.path();
}
