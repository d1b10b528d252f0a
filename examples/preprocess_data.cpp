// Tokenizes files of records once, before training: Megatron's indexed datasets, by the flags of Megatron's and AscendSpeed's preprocess_data.
//
//   preprocess_data --input pages.jsonl --output-prefix pages --tokenizer gpt2 --append-eod --workers 8
//
// Interrupted, the same command goes on where it was.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_templates.hpp>
#include <xtrain/core/checksum.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/preprocess.hpp>
#include <xtrain/text/byte_level_files.hpp>
#include <xtrain/text/load_tokenizer.hpp>

#ifdef XTRAIN_EXAMPLE_ARROW
#include <xtrain/data/arrow_records.hpp>
#endif

#include "command_line.hpp"

namespace {

using command_line::usage_error;
using xtrain::require;

struct preprocess_flags {
  std::vector<std::string> input{}, keys{};
  std::string output_prefix{}, tokenizer{}, vocab_file{}, merge_file{}, tokenizer_type{}, handler{}, map_keys{}, chat_template{}, format{};
  std::string dataset_impl = "mmap", hf_params{};
  bool append_eod = false, prepend_bos = false, whole_files = false, instructions = false, split_sentences = false, accepted = false;
  std::size_t workers = 1, seq_length = 0, log_interval = 1000, divisible_by = 128, tensor_parallel = 1, partitions = 1;
  double sync_interval = 15;

  void add(CLI::App& app) {
    using namespace command_line;
    app.add_option("--input", input, "files, folders, or patterns like 'pages/*.jsonl'")->required()->type_name("PATH");
    app.add_option("--output-prefix", output_prefix, "path of the output, without extension")->required()->type_name("PREFIX");
    app.add_option("--json-keys,--json-key", keys, "fields of a record that are texts, each written as a dataset; default: text")
        ->type_name("NAME");
    app.add_option("--input-format", format, "format of all files; default: by their extensions")->type_name("NAME");
    app.add_flag("--whole-files", whole_files, "of text: a file is a document, not a line");
    app.add_option("--tokenizer,--tokenizer-name-or-path,--tokenizer-model,--tokenizer-name", tokenizer,
                   "folder or file of a tokenizer, or 'byte'")
        ->type_name("PATH");
    app.add_option("--vocab-file", vocab_file, "GPT-2's vocab.json, with --merge-file")->type_name("FILE");
    app.add_option("--merge-file", merge_file, "GPT-2's merges.txt")->type_name("FILE");
    app.add_option("--tokenizer-type", tokenizer_type,
                   "Megatron's name of the kind: GPT2BPETokenizer and SentencePieceTokenizer add no begin-of-text token")
        ->check(one_of({"GPT2BPETokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer",
                        "HuggingFaceTokenizer", "PretrainedFromHF"}));
    app.add_flag("--tokenizer-not-use-fast", accepted, "accepted: there is one implementation of each tokenizer");
    app.add_flag("--append-eod", append_eod, "end each document with the end-of-text token");
    app.add_flag("--prepend-bos", prepend_bos, "begin each document with the begin-of-text token, also where the tokenizer does not");
    app.add_option("--handler-name", handler,
                   "what becomes of a record: GeneralPretrainHandler, GeneralInstructionHandler, ...; default: texts")
        ->type_name("NAME");
    app.add_option("--map-keys", map_keys, "JSON object: the fields of instructions that are prompt, query and response")
        ->type_name("JSON");
    app.add_option("--chat-template", chat_template, "a name, a folder or a Jinja file, for ConversationHandler")->type_name("NAME");
    app.add_flag("--is-instruction-dataset", instructions, "instructions: GeneralInstructionHandler, unless another is given");
    app.add_option("--seq-length", seq_length, "leave out instructions with more tokens; 0: none")->check(whole_number())->type_name("N");
    app.add_option("--workers", workers, "threads that tokenize; 0: one per processor")
        ->check(whole_number())
        ->capture_default_str()
        ->type_name("N");
    app.add_option("--log-interval", log_interval, "records between two lines of progress")
        ->check(positive_whole_number())
        ->capture_default_str()
        ->type_name("N");
    app.add_option("--sync-interval", sync_interval, "seconds between two positions from which an interrupted run goes on")
        ->check(not_negative())
        ->capture_default_str()
        ->type_name("S");
    app.add_option("--make-vocab-size-divisible-by", divisible_by, "only for the padded vocabulary size that is printed")
        ->check(positive_whole_number())
        ->capture_default_str()
        ->type_name("N");
    app.add_option("--tensor-model-parallel-size", tensor_parallel, "the same")
        ->check(positive_whole_number())
        ->capture_default_str()
        ->type_name("N");
    app.add_option("--dataset-impl", dataset_impl, "mmap")->capture_default_str();
    app.add_flag("--streaming", accepted, "accepted: files are always read as a stream");
    app.add_option("--partitions", partitions, "1: the output is one dataset")->type_name("N");
    app.add_option("--hf-datasets-params", hf_params, "not supported: datasets are not downloaded")->type_name("FILE");
    app.add_flag("--split-sentences,--keep-newlines", split_sentences, "not supported");
  }
  void check() const {
    require<usage_error>(!split_sentences, "--split-sentences: is not supported: a document is one sequence");
    require<usage_error>(dataset_impl == "mmap", "--dataset-impl: must be mmap; given '", dataset_impl, "'");
    require<usage_error>(hf_params.empty(),
                         "--hf-datasets-params: is not supported: datasets are not downloaded. Give the downloaded files to --input");
    require<usage_error>(partitions == 1, "--partitions: must be 1; given ", partitions,
                         ". The order of documents does not depend on --workers");
    require<usage_error>(vocab_file.empty() == merge_file.empty(), "--vocab-file and --merge-file: must be given together");
    require<usage_error>(tokenizer.empty() != vocab_file.empty(), "--tokenizer, or --vocab-file and --merge-file: must be given");
    require<usage_error>(!append_eod || handler_name() != "ConversationHandler",
                         "--append-eod: the chat template of ConversationHandler says how a text ends");
  }
  [[nodiscard]] std::string handler_name() const {
    return !handler.empty()         ? handler
           : instructions           ? "GeneralInstructionHandler"
           : !chat_template.empty() ? "ConversationHandler"
                                    : "GeneralPretrainHandler";
  }
};

xtrain::tokenizer load(const preprocess_flags& flags) {
  if (flags.tokenizer.empty())
    return command_line::for_flag("--vocab-file", flags.vocab_file,
                                  [&] { return xtrain::load_vocabulary_and_merges(flags.vocab_file, flags.merge_file); });
  const xtrain::tokenizer loaded = command_line::tokenizer_of("--tokenizer", flags.tokenizer);
  command_line::warn_of_tokenizer(loaded);
  return loaded;
}

/// A template by its name, from a folder, or from a file; "": the tokenizer folder's.
xtrain::chat_template template_of(const preprocess_flags& flags) {
  const std::string& name = flags.chat_template;
  if (name.empty())
    return command_line::for_flag("--tokenizer", flags.tokenizer, [&] { return xtrain::chat_template::from_folder(flags.tokenizer); });
  return command_line::for_flag("--chat-template", name, [&] {
    if (xtrain::is_directory(name) || xtrain::gguf_file::is_one(name)) return xtrain::chat_template::from_folder(name);
    if (xtrain::file_exists(name)) return xtrain::chat_template::from_text(xtrain::mapped_file(name).text(), name);
    return xtrain::named_chat_template(name);
  });
}

xtrain::handler_options handler_options_of(const preprocess_flags& flags) {
  xtrain::handler_options options;
  if (!flags.keys.empty()) options.keys = flags.keys;
  options.append_eod = flags.append_eod;
  const std::string& type = flags.tokenizer_type;
  if (type == "GPT2BPETokenizer" || type == "SentencePieceTokenizer" || type == "GPTSentencePieceTokenizer")
    options.beginning = xtrain::text_beginning::never;
  if (flags.prepend_bos) options.beginning = xtrain::text_beginning::always;
  if (!flags.map_keys.empty())
    command_line::for_flag("--map-keys", "", [&] {
      const xtrain::json given = xtrain::parse_json<xtrain::config_error>(flags.map_keys, "the mapping");
      require<xtrain::config_error>(given.is_object(), "must be an object of names; given ", flags.map_keys);
      for (const auto& [key, field] : given.items()) {
        require<xtrain::config_error>(field.is_string(), "'", key, "' must be the name of a field; given ", field.dump());
        options.map_keys[key] = field.get<std::string>();
      }
    });
  if (flags.handler_name().starts_with("Conversation")) options.chat = template_of(flags);
  return options;
}

/// Everything that the output depends on except the files and the settings of preprocess_data.
std::string identity_of(const preprocess_flags& flags) {
  const std::string path = flags.tokenizer.empty() ? flags.vocab_file : flags.tokenizer;
  std::string text =
      xtrain::concat("tokenizer ", xtrain::tokenizer_identity(path), " handler ", flags.handler_name(), " eod ", flags.append_eod, " bos ",
                     flags.prepend_bos, " type ", flags.tokenizer_type, " map ", flags.map_keys, " template ", flags.chat_template);
  if (!flags.merge_file.empty()) text += xtrain::concat(" merges ", xtrain::checksum_text(xtrain::mapped_file(flags.merge_file).text()));
  if (xtrain::is_directory(flags.chat_template)) text += xtrain::concat(" ", xtrain::tokenizer_identity(flags.chat_template));
  else if (xtrain::file_exists(flags.chat_template))
    text += xtrain::concat(" ", xtrain::checksum_text(xtrain::mapped_file(flags.chat_template).text()));
  return text;
}

std::vector<xtrain::record_format> formats() {
  std::vector<xtrain::record_format> all = xtrain::record_formats();
#ifdef XTRAIN_EXAMPLE_ARROW
  for (xtrain::record_format& one : xtrain::arrow_record_formats()) all.push_back(std::move(one));
#else
  const auto refuse = [](const std::string& path, const xtrain::record_options&, const xtrain::record_visitor&) {
    xtrain::fail<xtrain::config_error>(
        path,
        ": reading it needs Apache Arrow, which was not found when this program was built: install the Python package pyarrow, "
        "configure with -DARROW_ROOT=FOLDER, and build it again");
  };
  all.push_back({"parquet", {".parquet"}, refuse});
  all.push_back({"arrow", {".arrow", ".feather", ".ipc"}, refuse});
#endif
  return all;
}

void preprocess(const preprocess_flags& flags) {
  flags.check();
  const xtrain::tokenizer with = load(flags);
  const std::string handler_name = flags.handler_name();
  const auto handler = command_line::for_flag("--handler-name", "",
                                              [&] { return xtrain::make_record_handler(handler_name, with, handler_options_of(flags)); });
  require<usage_error>(!flags.instructions || handler->is_instruction(),
                       "--is-instruction-dataset: needs a handler of instructions; given ", handler_name);
  require<usage_error>(handler->is_instruction() || flags.seq_length == 0,
                       "--seq-length: needs a handler of instructions: texts are not cut before training; given ", handler_name);

  xtrain::preprocess_options options;
  options.formats = formats();
  options.output_prefix = flags.output_prefix;
  options.records.whole_files = flags.whole_files;
  options.only_format = flags.format;
  options.seq_length = flags.seq_length;
  options.workers = flags.workers;
  options.sync_seconds = flags.sync_interval;
  options.identity = identity_of(flags);
  std::size_t left_out = 0;
  std::vector<std::string> repeated;
  const std::vector<std::string> files =
      command_line::for_flag("--input", "", [&] { return xtrain::record_files(flags.input, options.formats, &left_out, &repeated); });

  const std::size_t multiple = flags.divisible_by * flags.tensor_parallel,
                    padded = (with.vocab_size() + multiple - 1) / multiple * multiple;
  std::printf("files       %zu%s\n", files.size(),
              left_out == 0 ? "" : xtrain::concat(", and ", left_out, " of other formats left out").c_str());
  if (!repeated.empty())
    std::fprintf(stderr, "warning: --input: %zu %s given more than once and read once: %s%s\n", repeated.size(), repeated.size() == 1 ? "file is" : "files are",
                 repeated.front().c_str(), repeated.size() == 1 ? "" : ", ...");
  std::printf("vocabulary  %zu tokens, padded to %zu; stored in %zu bytes each\n", with.vocab_size(), padded,
              handler->is_instruction() ? std::size_t{4} : bytes_of(xtrain::indexed_dtype_for(with.vocab_size())));
  // ChatGLM-6B's tokens behind a text are for its answer
  if (const std::vector<xtrain::token> around = with.encode_whole("").ids();
      !flags.append_eod && !handler_name.starts_with("Conversation") && with.prompt_ending().empty() && around.size() > with.beginning().size())
    std::fprintf(stderr, "note: the tokenizer ends a text with %s; documents end without it, because --append-eod is not given\n",
                 xtrain::printable(with.token_text(around.back())).c_str());
  const auto began = std::chrono::steady_clock::now();
  std::uint64_t printed = 0, first_records = 0, first_tokens = 0, first_bytes = 0;
  bool first = true;
  const auto seconds = [&] { return std::max(1e-9, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()); };
  options.on_batch = [&](const xtrain::preprocess_progress& now) {
    if (std::exchange(first, false) && now.resumed > 0) {
      std::printf("resumed     after %llu records\n", static_cast<unsigned long long>(now.resumed));
      first_records = now.records;
      first_tokens = now.tokens;
      first_bytes = now.bytes;
      printed = now.records / flags.log_interval;
    }
    if (now.records / flags.log_interval == printed) return;
    printed = now.records / flags.log_interval;
    const double time = seconds();
    std::printf("processed   %llu records, %.0f records/s, %.2f MB/s\n", static_cast<unsigned long long>(now.records),
                static_cast<double>(now.records - first_records) / time, static_cast<double>(now.bytes - first_bytes) / time / 1e6);
    std::fflush(stdout);
  };
  const xtrain::preprocess_progress all = command_line::for_flags([&] { return preprocess_data(files, with, *handler, options); });
  const double time = seconds();
  std::printf("wrote       %llu documents, %llu tokens", static_cast<unsigned long long>(all.documents),
              static_cast<unsigned long long>(all.tokens));
  if (handler->is_instruction()) std::printf(", %llu of them targets", static_cast<unsigned long long>(all.targets));
  std::printf("; %.0f tokens/s\n", static_cast<double>(all.tokens - first_tokens) / time);
  if (all.empty > 0) std::printf("empty       %llu texts, each a document without a sequence\n", static_cast<unsigned long long>(all.empty));
  if (all.too_long > 0)
    std::printf("left out    %llu instructions of more than %zu tokens\n", static_cast<unsigned long long>(all.too_long), flags.seq_length);
  for (const std::string& key : handler->keys())
    std::printf("            %s%s_%s_document.{bin,idx}\n", flags.output_prefix.c_str(), handler->is_instruction() ? "_packed" : "",
                handler->is_instruction() ? "{input_ids,attention_mask,labels}" : key.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Tokenizes files of records, and writes them as Megatron's indexed datasets.", "preprocess_data");
  preprocess_flags flags;
  flags.add(app);
  return command_line::run(app, argc, argv, [&] { preprocess(flags); });
}
