// Definitions of folder.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/io/torch_file.hpp>
#include <xtrain/io/weight_file.hpp>
#include <xtrain/io/write_together.hpp>

namespace xtrain {

template <class File>
bool weight_folder::read(const std::string& folder, const std::string& name) {
  const std::string single = folder + "/" + name, index = single + ".index.json";
  if (file_exists(single)) {
    add_all(keep<File>(single));
    return true;
  }
  if (file_exists(index)) read_index<File>(folder, index);
  return file_exists(index);
}

template <class File>
void weight_folder::read_index(const std::string& folder, const std::string& path) {
  const json index = read_json(path);
  require<file_error>(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), path,
                      ": must have an object 'weight_map'");
  std::map<std::string, const File*> opened;
  for (const auto& [name, value] : index["weight_map"].items()) {
    require<file_error>(value.is_string(), path, ": 'weight_map' must name a file for '", name, "'; given ", value.dump());
    const auto file = value.template get<std::string>();
    require<file_error>(!file.empty() && file.find('/') == std::string::npos && file != ".." && file.find('\0') == std::string::npos, path,
                        ": files must lie in the folder itself; '", name, "' is said to be in '", file, "'");
    if (!opened.contains(file)) {
      require<file_error>(file_exists(folder + "/" + file), folder, "/", file,
                          ": must be there, because the index names it; it is missing");
      opened[file] = &keep<File>(folder + "/" + file);
    }
    const file_tensor* tensor = opened[file]->find(name);
    require<file_error>(tensor != nullptr, path, ": '", name, "' must be in ", file, "; that file does not hold it");
    add(*tensor);
  }
}

XTRAIN_INLINE weight_folder::weight_folder(const std::string& folder, const std::string& stem) {
  require<file_error>(is_directory(folder), folder, ": must be a folder; no such folder");
  const std::string ours = stem + ".safetensors", theirs = "pytorch_" + stem + ".bin";
  if (read<safetensors_file>(folder, ours) || read<torch_file>(folder, theirs)) return;
  const std::vector<std::string> others = other_files(folder);
  require<file_error>(others.size() == 1, folder, ": must hold ", ours, " or ", theirs,
                      ", whole or with an index, or one .bin, .pt or .pth file; it holds ",
                      others.empty() ? "neither" : "several of the last");
  const weight_file& file = keep<weight_file>(folder + "/" + others.front());
  for (const auto& [name, tensor] : file.tensors()) add(*tensor);
}

XTRAIN_INLINE std::vector<std::string> weight_folder::other_files(const std::string& folder) {
  std::vector<std::string> names;
  for (std::string& name : try_names_in(folder).value_or(std::vector<std::string>{}))
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) names.push_back(std::move(name));
  return names;
}

namespace detail {

XTRAIN_INLINE std::pair<std::vector<std::vector<tensor_to_write>>, std::size_t> cut_into_shards(std::vector<tensor_to_write> tensors,
                                                                                                std::size_t shard_bytes) {
  std::vector<std::vector<tensor_to_write>> shards(1);
  std::size_t total = 0, in_shard = 0;
  for (tensor_to_write& tensor : tensors) {
    if (in_shard > 0 && in_shard + tensor.bytes > shard_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    in_shard += tensor.bytes;
    total += tensor.bytes;
    shards.back().push_back(std::move(tensor));
  }
  return {std::move(shards), total};
}

XTRAIN_INLINE void follow_weights(std::vector<tensor_to_write> tensors, std::size_t shard_bytes, file_writers* together) {
  for (auto& shard : cut_into_shards(std::move(tensors), shard_bytes).first) (void)follow_safetensors_with(together, std::move(shard));
}

}  // namespace detail

XTRAIN_INLINE void write_weights(const std::string& folder, std::vector<tensor_to_write> tensors, std::size_t shard_bytes,
                                 const std::string& stem, file_writers* together) {
  namespace fs = std::filesystem;
  const std::string single = stem + ".safetensors";
  const std::string index = single + ".index.json";
  auto cut = detail::cut_into_shards(std::move(tensors), shard_bytes);  // clang 14: lambdas below cannot capture structured bindings
  auto& shards = cut.first;
  const std::size_t total = cut.second;
  // files of an earlier save, removed once nothing refers to them
  std::vector<std::string> old;
  std::error_code ignored;
  for (std::string& name : names_in(folder))
    if (name.starts_with(stem + "-") && name.ends_with(".safetensors")) old.push_back(std::move(name));
  std::vector<std::string> fresh;
  if (shards.size() == 1) {
    (void)detail::write_safetensors_with(together, folder + "/" + single, std::move(shards.front()));
    fs::remove(folder + "/" + index, ignored);
  } else {
    json map = json::object();
    const auto number = [](std::size_t value) {
      const std::string digits = concat(value);
      return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
    };
    std::string generation;  // file names of an earlier save are still in its index: choose others
    const auto name_of_shard = [&](std::size_t s) {
      return concat(stem, "-", generation, number(s + 1), "-of-", number(shards.size()), ".safetensors");
    };
    for (std::size_t again = 1; std::any_of(old.begin(), old.end(),
                                            [&](const std::string& name) {
                                              for (std::size_t s = 0; s < shards.size(); ++s)
                                                if (name_of_shard(s) == name) return true;
                                              return false;
                                            });
         ++again)
      generation = concat("v", again, "-");
    for (std::size_t s = 0; s < shards.size(); ++s) {
      fresh.push_back(name_of_shard(s));
      for (const tensor_to_write& tensor : shards[s]) map[tensor.name] = fresh.back();
      (void)detail::write_safetensors_with(together, folder + "/" + fresh.back(), std::move(shards[s]));
    }
    write_file(folder + "/" + index, json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n");
    fs::remove(folder + "/" + single, ignored);  // until now readers preferred it
  }
  for (const std::string& name : old)
    if (std::find(fresh.begin(), fresh.end(), name) == fresh.end()) fs::remove(folder + "/" + name, ignored);
}

XTRAIN_INLINE std::vector<std::string> other_weights(const std::string& folder, const std::string& stem) {
  const std::string single = stem + ".safetensors", index = single + ".index.json";
  std::vector<std::string> own{single, index}, others;
  if (!file_exists(folder + "/" + single) && file_exists(folder + "/" + index))
    if (const json all = read_json(folder + "/" + index); all.is_object() && all.contains("weight_map"))
      for (const json& file : all["weight_map"])
        if (file.is_string()) own.push_back(file.get<std::string>());
  for (std::string& name : names_in(folder)) {
    const bool weights = name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") || name == "adapter_config.json" ||
                         ((name.starts_with("pytorch_") || name.starts_with("adapter_")) && (name.ends_with(".bin") || name.ends_with(".bin.index.json")));
    if (weights && std::find(own.begin(), own.end(), name) == own.end()) others.push_back(std::move(name));
  }
  std::sort(others.begin(), others.end());
  return others;
}

XTRAIN_INLINE void make_folder(const std::string& path) {
  std::error_code problem;
  std::filesystem::create_directories(path, problem);
  require<file_error>(!problem && is_directory(path), path, ": must be a folder that can be made; the system says: ", problem.message());
}

}  // namespace xtrain
