// Definitions of preprocess.hpp.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/indexed_dataset.hpp>
#include <xtrain/data/indexed_instructions.hpp>
#include <xtrain/data/ordered_workers.hpp>
#include <xtrain/data/preprocess.hpp>
#include <xtrain/data/record_handler.hpp>
#include <xtrain/data/record_source.hpp>
#include <xtrain/data/text_with_loss_mask.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

struct preprocess_batch {
  std::vector<source_record> records{};
  std::vector<std::vector<text_with_loss_mask>> samples{};
  std::uint64_t bytes = 0;
  std::uint64_t file = 0, record = 0;  // position after the last record: file, and records read of it
};

class preprocess_outputs {
 public:
  preprocess_outputs(const std::string& prefix, const record_handler& handler, indexed_dtype dtype)
      : dtype_(dtype), is_instruction_(handler.is_instruction()) {
    if (is_instruction_) {
      packed_ = prefix + "_packed";
      for (const char* key : {"attention_mask", "labels", "input_ids"}) prefixes_.push_back(concat(packed_, "_", key, "_document"));
    } else {
      for (const std::string& key : handler.keys()) prefixes_.push_back(concat(prefix, "_", key, "_document"));
    }
  }

  void begin() {
    if (is_instruction_) samples_.emplace(packed_);
    else
      for (const std::string& prefix : prefixes_) texts_.emplace_back(prefix, dtype_);
  }
  ///   checksums  per pair of files()
  void go_on(const std::vector<indexed_position>& from, const std::vector<std::uint64_t>& checksums) {
    if (is_instruction_) samples_.emplace(packed_, from.front(), std::array{checksums[0], checksums[1], checksums[2]});
    else
      for (std::size_t k = 0; k < prefixes_.size(); ++k) texts_.emplace_back(prefixes_[k], dtype_, from[k], checksums[k]);
  }
  [[nodiscard]] std::size_t count() const { return is_instruction_ ? 1 : prefixes_.size(); }
  /// Pairs of files.
  [[nodiscard]] std::size_t files() const { return prefixes_.size(); }
  [[nodiscard]] std::vector<std::uint64_t> checksums() const {
    std::vector<std::uint64_t> all;
    if (is_instruction_) {
      const std::array<std::uint64_t, 3> three = samples_->checksums();
      all.assign(three.begin(), three.end());
    }
    for (const indexed_writer& one : texts_) all.push_back(one.checksum());
    return all;
  }

  void add(const preprocess_batch& batch, std::size_t seq_length, preprocess_progress& counts) {
    const std::size_t keys = count();
    open_.resize(keys, 0);
    for (std::size_t r = 0; r < batch.records.size(); ++r) {
      if (is_instruction_) {
        add_instruction(batch.samples[r], seq_length, counts);
        continue;
      }
      for (std::size_t k = 0; k < keys; ++k) {
        const text_with_loss_mask& sample = batch.samples[r][k];
        texts_[k].extend(sample.tokens);
        counts.tokens += sample.tokens.size();
        open_[k] += sample.tokens.size();
        if (!batch.records[r].ends) continue;
        if (std::exchange(open_[k], 0) > 0) texts_[k].end_sequence();
        else ++counts.empty;  // keeps the documents of all keys aligned       [Megatron-LM, add_document]
        texts_[k].end_document();
        ++counts.documents;
      }
    }
  }
  [[nodiscard]] std::vector<indexed_position> sync() {
    if (is_instruction_) return {samples_->sync()};
    std::vector<indexed_position> all;
    for (indexed_writer& one : texts_) all.push_back(one.sync());
    return all;
  }
  void finish() {
    if (is_instruction_) samples_->finish();
    for (indexed_writer& one : texts_) one.finish();
  }
  /// Completes a run interrupted while finishing: each pair is final or in parts.
  void finish_rest(const std::vector<indexed_position>& at, const std::vector<std::uint64_t>& checksums) const {
    const auto can = [](bool good, const std::string& path) {
      require<file_error>(good, path, ": must take its name; the system says: ", reason(errno));
    };
    for (const std::string& prefix : prefixes_) {  // remove indices of an older dataset
      const std::string bin = prefix + ".bin", idx = prefix + ".idx";
      if (file_exists(bin + ".part")) can(::unlink(idx.c_str()) == 0 || errno == ENOENT, idx);
      else if (file_exists(bin) && file_exists(idx + ".part") && !file_exists(idx))
        can(::rename(bin.c_str(), (bin + ".part").c_str()) == 0, bin);
    }
    for (std::size_t k = 0; k < prefixes_.size(); ++k) {
      if (file_exists(prefixes_[k] + ".bin.part")) {
        indexed_writer(prefixes_[k], dtype_, at[is_instruction_ ? 0 : k], checksums[k]).finish();
      } else {
        try {
          (void)indexed_file(prefixes_[k]);  // throws if incomplete
        } catch (const file_error& problem) {
          fail<damaged_part_error>(problem.what());
        }
        ::unlink((prefixes_[k] + ".idx.part").c_str());
      }
    }
  }

 private:
  /// A record's samples form one document.
  void add_instruction(const std::vector<text_with_loss_mask>& samples, std::size_t seq_length, preprocess_progress& counts) {
    bool any = false;
    for (const text_with_loss_mask& sample : samples) {
      if (seq_length > 0 && sample.tokens.size() > seq_length) {
        ++counts.too_long;
        continue;
      }
      samples_->add_sequence(sample.tokens, [&](std::size_t i) { return static_cast<bool>(sample.learned[i]); });
      counts.targets += static_cast<std::uint64_t>(std::count(sample.learned.begin(), sample.learned.end(), true));
      counts.tokens += sample.tokens.size();
      any = true;
    }
    if (!any) return;
    samples_->end_document();
    ++counts.documents;
  }

  indexed_dtype dtype_;
  bool is_instruction_;
  std::string packed_;
  std::vector<std::string> prefixes_;
  std::vector<indexed_writer> texts_;
  std::optional<instruction_writer> samples_;
  std::vector<std::size_t> open_;  // tokens of the current document, per key
};

/// PREFIX_preprocess.json: position of a run.
struct preprocess_state {
  json run{};  ///< must match on resumption: settings, files
  std::uint64_t file = 0, record = 0;
  bool complete = false;  ///< all data is in the parts
  std::vector<indexed_position> positions{};
  std::vector<std::uint64_t> checksums{};
  preprocess_progress counts{};

  static constexpr std::array<std::pair<const char*, std::uint64_t preprocess_progress::*>, 7> names{
      {{"records", &preprocess_progress::records},
       {"bytes", &preprocess_progress::bytes},
       {"documents", &preprocess_progress::documents},
       {"tokens", &preprocess_progress::tokens},
       {"targets", &preprocess_progress::targets},
       {"empty", &preprocess_progress::empty},
       {"too_long", &preprocess_progress::too_long}}};

  void write(const std::string& path) const {
    json all{{"version", 2}, {"checksums", checksums}, {"run", run}, {"file", file}, {"record", record}, {"complete", complete}};
    for (const indexed_position& one : positions) all["positions"].push_back({one.tokens, one.sequences, one.documents});
    for (const auto& [name, member] : names) all["counts"][name] = counts.*member;
    write_file(path, all.dump() + "\n");
  }
  /// Reads it; checks that the run matches.
  void read(const std::string& path, std::size_t outputs, std::size_t pairs) {
    const json all = read_json(path);
    constexpr const char* again = ". Remove it to begin again";
    try {
      require<file_error>(all.at("version") == 2, path, ": must be of version 2; given ", all.at("version").dump(), again);
      const json& other = all.at("run");
      for (const auto& [name, value] : run.at("settings").items())
        require<config_error>(other.at("settings").at(name) == value, path, ": to go on, '", name, "' must be as in the interrupted run, ",
                              other.at("settings").at(name).dump(), "; given ", value.dump(), again);
      const json &files = run.at("files"), &others = other.at("files");
      require<file_error>(files.size() == others.size(), path, ": to go on, the files must be the ", others.size(),
                          " of the interrupted run; given ", files.size(), again);
      for (std::size_t i = 0; i < files.size(); ++i)
        require<file_error>(files[i] == others[i], path, ": to go on, file ", i + 1,
                            " must be unchanged (path, size, time, format): ", others[i].dump(), "; given ", files[i].dump(), again);
      file = all.at("file").get<std::uint64_t>();
      record = all.at("record").get<std::uint64_t>();
      complete = all.at("complete").get<bool>();
      for (const json& one : all.at("positions"))
        positions.push_back({one.at(0).get<std::uint64_t>(), one.at(1).get<std::uint64_t>(), one.at(2).get<std::uint64_t>()});
      for (const auto& [name, member] : names) counts.*member = all.at("counts").at(name).get<std::uint64_t>();
      require<file_error>(positions.size() == outputs, path, ": must have a position of each of ", outputs, " outputs; it has ",
                          positions.size(), again);
      checksums = all.at("checksums").get<std::vector<std::uint64_t>>();
      require<file_error>(checksums.size() == pairs, path, ": must have a checksum of each of ", pairs, " pairs of files; it has ",
                          checksums.size(), again);
    } catch (const json::exception& problem) {
      fail<file_error>(path, ": must be the record of an interrupted run; ", problem.what(), again);
    }
  }
};

/// Size of a record in a batch: bytes of strings and numbers.
[[nodiscard]] inline std::size_t bytes_of_texts(const json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().size();
  if (!value.is_structured()) return value.is_null() ? 0 : 8;
  std::size_t bytes = 0;
  for (const json& one : value) bytes += bytes_of_texts(one);
  return bytes;
}

/// Path, size, modification time and format per file.
[[nodiscard]] inline json file_identities(const std::vector<std::string>& files, const std::vector<const record_format*>& formats) {
  json all = json::array();
  for (std::size_t i = 0; i < files.size(); ++i) {
    struct ::stat status {};
    require<file_error>(::stat(files[i].c_str(), &status) == 0, files[i], ": must be readable; the system says: ", reason(errno));
    all.push_back({files[i], static_cast<std::int64_t>(status.st_size),
                   static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec, formats[i]->name});
  }
  return all;
}

}  // namespace detail

XTRAIN_INLINE preprocess_progress preprocess_data(const std::vector<std::string>& files, const tokenizer& with,
                                                  const record_handler& handler, const preprocess_options& options) {
  require<data_error>(!files.empty(), "preprocess_data: at least one file must be given");
  require<config_error>(!options.output_prefix.empty(), "preprocess_data: an output prefix must be given");
  std::vector<const record_format*> formats;
  for (const std::string& path : files) {
    const record_format* format = options.only_format.empty() ? find_format(options.formats, path) : nullptr;
    for (const record_format& one : options.formats)
      if (one.name == options.only_format) format = &one;
    require<config_error>(format != nullptr, path, ": its format must be known",
                          options.only_format.empty()
                              ? concat(" by its extension", path.ends_with(".gz") ? "; compressed files must be decompressed first" : "")
                              : concat("; there is no format '", options.only_format, "'"));
    formats.push_back(format);
  }
  // instructions are i32: labels may be -100
  const indexed_dtype dtype = handler.is_instruction() ? indexed_dtype::i32 : indexed_dtype_for(with.vocab_size());
  detail::preprocess_outputs outputs(options.output_prefix, handler, dtype);
  detail::preprocess_state state;
  state.run = {{"settings",
                {{"keys", handler.keys()},
                 {"is_instruction", handler.is_instruction()},
                 {"vocab_size", with.vocab_size()},
                 {"seq_length", options.seq_length},
                 {"whole_files", options.records.whole_files},
                 {"handler", handler.settings()},
                 {"tokenizer", tokenizer_fingerprint(with)},
                 {"identity", options.identity}}},
               {"files", detail::file_identities(files, formats)}};
  const std::string state_path = options.output_prefix + "_preprocess.json";
  const auto of_whole_parts = [&](const auto& work) {
    try {
      work();
    } catch (const damaged_part_error& problem) {
      fail<file_error>(problem.what(), ". Remove ", state_path, " to begin again");
    }
  };
  if (file_exists(state_path)) {
    state.read(state_path, outputs.count(), outputs.files());
    state.counts.resumed = state.counts.records;
    if (!state.complete) of_whole_parts([&] { outputs.go_on(state.positions, state.checksums); });
  } else {
    outputs.begin();
    state.positions.resize(outputs.count());
  }

  preprocess_progress& counts = state.counts;
  auto synced = std::chrono::steady_clock::now();
  const auto sync = [&] {
    state.positions = outputs.sync();
    state.checksums = outputs.checksums();
    state.write(state_path);
    synced = std::chrono::steady_clock::now();
  };
  if (!state.complete) {
    detail::ordered_workers<detail::preprocess_batch> workers(
        options.workers,
        [&](detail::preprocess_batch& batch) {
          batch.samples.resize(batch.records.size());
          for (std::size_t r = 0; r < batch.records.size(); ++r) {
            try {
              handler.tokenize(batch.records[r], batch.samples[r]);
            } catch (const json::exception& problem) {  // a handler used a missing field
              fail<data_error>(batch.records[r].place.text(), ": ", problem.what());
            }
            batch.records[r].text = {};
            batch.records[r].fields = {};
            batch.records[r].in_order = {};
          }
        },
        [&](detail::preprocess_batch& batch) {
          outputs.add(batch, options.seq_length, counts);
          counts.records += batch.records.size();
          counts.bytes += batch.bytes;
          state.file = batch.file;
          state.record = batch.record;
          const bool between = batch.records.back().ends;
          if (between && std::chrono::duration<double>(std::chrono::steady_clock::now() - synced).count() >= options.sync_seconds) sync();
          if (options.on_batch) options.on_batch(counts);
        });
    const std::uint64_t first_file = state.file, first_record = state.record;
    detail::preprocess_batch batch;
    for (std::uint64_t file = first_file; file < files.size(); ++file) {
      std::uint64_t record = 0;
      formats[file]->read(files[file], options.records, [&](source_record&& one) {
        if (++record <= (file == first_file ? first_record : 0)) return;
        batch.bytes += one.text.size() + detail::bytes_of_texts(one.fields);
        batch.records.push_back(std::move(one));
        if (batch.bytes < options.batch_bytes && batch.records.size() < 8192) return;  // records may have no text
        batch.file = file;
        batch.record = record;
        workers.give(std::exchange(batch, {}));
      });
      require<file_error>(file != first_file || record >= first_record, files[file], ": must have the ", first_record,
                          " records that an interrupted run has read; it has ", record);
    }
    if (!batch.records.empty()) {
      batch.file = files.size();
      workers.give(std::move(batch));
    }
    workers.finish();
    require<data_error>(counts.documents > counts.empty, files.front(), ": must hold something to train on; of ", counts.records,
                        " records nothing is left (", counts.empty, " without text, ", counts.too_long, " longer than ", options.seq_length,
                        " tokens)");
    state.file = files.size();
    state.record = 0;
    state.complete = true;
    sync();
    outputs.finish();
  } else {
    of_whole_parts([&] { outputs.finish_rest(state.positions, state.checksums); });
  }
  ::unlink(state_path.c_str());
  return counts;
}

XTRAIN_INLINE std::string tokenizer_fingerprint(const tokenizer& of) {
  const special_tokens& special = of.special();
  std::string all = concat(of.vocab_size(), " ", special.bos, " ", special.eos, " ", special.adds_bos);
  for (std::size_t id = 0; id < of.vocab_size(); ++id) all += concat("\n", of.token_text(static_cast<token>(id)));
  constexpr std::string_view text =
      "  The quick brown fox's 12345 jumps, over 3.14 LAZY dogs!\n\n\tfor (int i = 0; i < n; ++i) { y[i] += x[i]; }\r\n"
      "Gr\xC3\xBC\xC3\x9F" "e na\xC3\xAFve \xE2\x82\xAC 100 \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 "
      "\xE4\xBD\xA0\xE5\xA5\xBD \xE3\x81\x82 \xF0\x9F\x99\x82 don't we'll";
  try {
    for (const token id : of.encode(text)) all += concat(" ", id);
  } catch (const error& problem) {  // the vocabulary may lack characters
    all += problem.what();
  }
  return checksum_text(all);
}

XTRAIN_INLINE std::string tokenizer_identity(const std::string& path) {
  if (!file_exists(path)) return path;  // "byte"
  const std::string folder = is_directory(path) ? path : detail::parent_of(path);
  std::string all;
  for (const std::string& name : try_names_in(folder).value_or(std::vector<std::string>{})) {
    bool of_tokenizer = false;
    for (const std::string_view ending : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                          "vocab.json", "merges.txt", "vocab.txt", ".model", ".tiktoken", "chat_template.jinja", "chat_template.json"})
      of_tokenizer = of_tokenizer || name.ends_with(ending);
    const std::string file = concat(folder, "/", name);
    if (of_tokenizer && !is_directory(file)) all += concat(name, " ", checksum_text(mapped_file(file).text()), "\n");
  }
  if (!is_directory(path)) all += checksum_text(mapped_file(path).text());
  return checksum_text(all);
}

}  // namespace xtrain
