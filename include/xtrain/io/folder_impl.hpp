#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
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

namespace detail {

/// Metadata of parts of tensors, as torch.distributed.checkpoint writes them.
inline const std::string parts_key = "DCP_SHARDING_INFO";

/// Saved by DeepSpeed.
[[nodiscard]] inline bool holds_zero_checkpoint(const std::string& folder) {
  if (file_exists(folder + "/zero_to_fp32.py")) return true;
  for (const std::string& name : try_names_in(folder).value_or(std::vector<std::string>{}))
    if (name.starts_with("global_step") && is_directory(concat(folder, "/", name))) return true;
  return false;
}

XTRAIN_INLINE bool is_beside_model(std::string_view name) {
  constexpr std::array<std::string_view, 6> beginnings{"adapter_", "optimizer", "scheduler", "rng_state", "scaler", "training_args"};
  return std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view one) { return name.starts_with(one); });
}

/// A file name and its numbers.
struct numbered_name {
  explicit numbered_name(std::string_view name) {
    for (std::size_t i = 0; i < name.size();) {
      if (name[i] < '0' || name[i] > '9') {
        pattern += name[i++];
        continue;
      }
      std::size_t value = 0;
      for (; i < name.size() && name[i] >= '0' && name[i] <= '9'; ++i)
        value = std::min<std::size_t>(value * 10 + static_cast<std::size_t>(name[i] - '0'), 1U << 30);
      pattern += '#';
      numbers.push_back(value);
    }
  }
  std::string pattern{};  // '#' for each number
  std::vector<std::size_t> numbers{};
};

/// Why names are no set; empty: they are one. A set: one file, or files counted from 0 or 1, as many as the number after "-of-". Files with parts of tensors
/// may have two counts: rank and file.
[[nodiscard]] inline std::string missing_in_set(const std::vector<numbered_name>& names, bool parts) {
  const numbered_name& first = names.front();
  std::vector<std::size_t> counts;  // numbers that differ
  for (const numbered_name& name : names)
    if (name.pattern != first.pattern) return "their names must differ in one number only";
  for (std::size_t i = 0; i < first.numbers.size(); ++i)
    if (std::any_of(names.begin(), names.end(), [&](const numbered_name& name) { return name.numbers[i] != first.numbers[i]; })) counts.push_back(i);
  if (counts.size() > (parts ? 2U : 1U)) return "their names must differ in one number only";
  std::size_t total = 0;  // after "-of-"
  if (const std::size_t of = first.pattern.find("#-of-#"); of != std::string::npos)
    total = first.numbers[static_cast<std::size_t>(std::count(first.pattern.begin(), first.pattern.begin() + static_cast<std::ptrdiff_t>(of), '#')) + 1];
  if (!parts && total != 0 && names.size() != total) return concat("there must be ", total, ", as their names say; there are ", names.size());
  for (const std::size_t which : counts) {
    std::set<std::size_t> found;
    for (const numbered_name& name : names) found.insert(name.numbers[which]);
    if (*found.begin() > 1 || *found.rbegin() - *found.begin() + 1 != found.size()) return "their numbers must count from 0 or 1 without a gap";
  }
  return {};
}

}  // namespace detail

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
    add(*tensor, path);
  }
}

XTRAIN_INLINE weight_folder::weight_folder(const std::string& folder, const std::string& stem) {
  require<file_error>(is_directory(folder), folder, ": must be a folder; no such folder");
  const std::string ours = stem + ".safetensors", theirs = "pytorch_" + stem + ".bin";
  if (read<safetensors_file>(folder, ours) || read<torch_file>(folder, theirs)) return;
  for (const bool safetensors : {true, false})
    if (const std::vector<std::string> others = other_files(folder, stem, safetensors); !others.empty()) {
      read_set(folder, others);
      return;
    }
  fail<file_error>(folder, ": must hold ", ours, " or ", theirs, ", whole or with an index, or other .safetensors, .bin, .pt or .pth files; it holds none",
                   detail::holds_zero_checkpoint(folder) ? concat(". It is a checkpoint of DeepSpeed. ", detail::gather_zero) : "");
}

XTRAIN_INLINE std::vector<std::string> weight_folder::other_files(const std::string& folder, const std::string& stem, bool safetensors) {
  std::vector<std::string> names;
  for (std::string& name : try_names_in(folder).value_or(std::vector<std::string>{})) {
    if (detail::is_beside_model(name) && !(name.starts_with("adapter_") && stem.starts_with("adapter_"))) continue;
    const bool torch = name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
    if (safetensors ? name.ends_with(".safetensors") : torch) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

XTRAIN_INLINE void weight_folder::read_set(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    require<file_error>(name.find("zero_pp_rank_") == std::string::npos, folder, ": must hold whole weights; it is a checkpoint of DeepSpeed. ",
                        detail::gather_zero);
  const std::string lists = concat("; it holds ", names.front(), names.size() > 1 ? concat(" and ", names.back()) : "",
                                   names.size() > 2 ? concat(", ", names.size(), " in all") : "");
  std::vector<detail::numbered_name> numbered;
  for (const std::string& name : names) numbered.emplace_back(name);
  std::vector<const safetensors_file*> parts;
  bool are_parts = true;
  for (const std::string& name : names) {
    if (!name.ends_with(".safetensors")) {
      are_parts = false;
      break;
    }
    const safetensors_file& file = keep<safetensors_file>(folder + "/" + name);
    parts.push_back(&file);
    are_parts = are_parts && file.metadata().contains(detail::parts_key);
  }
  const std::string problem = detail::missing_in_set(numbered, are_parts);
  require<file_error>(problem.empty(), folder, ": files of weights must be one set, or have an index: ", problem, lists);
  if (are_parts) return read_parts(parts);
  for (const safetensors_file* file : parts) add_all(*file);
  if (parts.empty())
    for (const std::string& name : names)
      for (const auto& entry : keep<weight_file>(folder + "/" + name).tensors()) add(*entry.second, concat(folder, "/", name));
}

XTRAIN_INLINE void weight_folder::read_parts(const std::vector<const safetensors_file*>& files) {
  struct part {
    const file_tensor* tensor;
    std::vector<std::size_t> begin;
  };
  std::map<std::string, std::vector<part>> parts_of;
  for (const safetensors_file* file : files) {
    const json offsets = parse_json(file->metadata().at(detail::parts_key), concat(file->path(), ", ", detail::parts_key));
    for (const file_tensor& tensor : file->tensors()) {
      const auto fail_unless = [&](bool holds) {
        require<file_error>(holds, file->path(), ": ", detail::parts_key, " must say where the part of '", tensor.name, "' begins: saved_offsets, one per dim");
      };
      fail_unless(offsets.is_object() && offsets.contains(tensor.name) && offsets[tensor.name].is_object() &&
                  offsets[tensor.name].contains("saved_offsets") && offsets[tensor.name]["saved_offsets"].is_array() &&
                  offsets[tensor.name]["saved_offsets"].size() == tensor.shape.size());
      part one{&tensor, {}};
      for (const json& offset : offsets[tensor.name]["saved_offsets"]) {
        fail_unless(offset.is_number_unsigned() && offset.get<std::uint64_t>() < std::uint64_t{1} << 40);
        one.begin.push_back(offset.get<std::size_t>());
      }
      parts_of[tensor.name].push_back(std::move(one));
    }
  }
  for (auto& entry : parts_of) {
    std::vector<part>& parts = entry.second;
    const file_tensor& first = *parts.front().tensor;
    const auto check = [&](bool holds, const char* what) {
      require<file_error>(holds, files.front()->path(), " and the files beside it: parts of '", first.name, "' must ", what);
    };
    std::vector<std::size_t> shape(first.shape.size());
    std::size_t numbers = 0, all = 1;
    for (const part& one : parts) {
      check(one.tensor->dtype == first.dtype && one.tensor->shape.size() == shape.size(), "have the same dtype and number of dims");
      for (std::size_t d = 0; d < shape.size(); ++d) shape[d] = std::max(shape[d], one.begin[d] + one.tensor->shape[d]);
      numbers += one.tensor->size();
    }
    for (const std::size_t dim : shape) check(!__builtin_mul_overflow(all, dim, &all), "make a tensor of this machine's size");
    check(numbers == all, "fill it, and share no number");
    if (parts.size() == 1) {
      add(first, files.front()->path());
      continue;
    }
    const std::size_t bits = bits_of(first.dtype), width = bits / 8;
    check(bits % 8 == 0, "have numbers of whole bytes");
    const auto bytes = std::make_shared<std::vector<std::byte>>(all * width);
    std::vector<bool> written(all);
    for (const part& one : parts) {  // along the last dim
      const std::vector<std::size_t>& size = one.tensor->shape;
      const std::size_t row = size.empty() ? 1 : size.back();
      for (std::size_t at = 0; at < one.tensor->size(); at += row) {
        std::size_t rest = at / row, target = size.empty() ? 0 : one.begin.back(), stride = size.empty() ? 1 : shape.back();
        for (std::size_t d = size.size(); d-- > 1;) {
          target += (one.begin[d - 1] + rest % size[d - 1]) * stride;
          rest /= size[d - 1];
          stride *= shape[d - 1];
        }
        const auto begin = written.begin() + static_cast<std::ptrdiff_t>(target), end = begin + static_cast<std::ptrdiff_t>(row);
        check(std::find(begin, end, true) == end, "fill it, and share no number");
        std::fill(begin, end, true);
        std::copy_n(one.tensor->bytes.begin() + static_cast<std::ptrdiff_t>(at * width), row * width,
                    bytes->begin() + static_cast<std::ptrdiff_t>(target * width));
      }
    }
    auto whole = std::make_shared<file_tensor>(file_tensor{.name = first.name, .dtype = first.dtype, .shape = shape, .bytes = *bytes});
    add(*whole, files.front()->path());
    keep(std::move(whole));
    keep(bytes);
  }
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
  auto cut = detail::cut_into_shards(std::move(tensors), shard_bytes);  // clang 14 does not capture structured bindings
  auto& shards = cut.first;
  const std::size_t total = cut.second;
  // an earlier save's files, removed when unreferenced
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
    std::string generation;  // the index still names an earlier save's files
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
    json whole;
    whole["metadata"]["total_size"] = total;
    whole["weight_map"] = map;
    write_file(folder + "/" + index, whole.dump(2) + "\n");
    fs::remove(folder + "/" + single, ignored);  // readers preferred it until now
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
