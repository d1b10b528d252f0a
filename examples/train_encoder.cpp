// Trains BERT: masked language modeling, sequence classification, or pre-training with both masked tokens and sentence pairs.
//
//   train_encoder --task masked-lm      --model bert-base-uncased --data corpus.txt --max-steps 1000 --output-dir adapted
//   train_encoder --task classification --model adapted --data train.jsonl --eval-data test.jsonl --num-train-epochs 3 --output-dir classifier
//
// Policies (device, precision, ...) are chosen at compile time: see xtrain_add_trainer.
#include <xtrain/data/labelled_dataset.hpp>
#include <xtrain/data/masked_text_dataset.hpp>
#include <xtrain/eval/accuracy.hpp>
#include <xtrain/models/bert.hpp>

#include "recipe.hpp"
#include "training_run.hpp"

namespace {

struct encoder_flags : command_line::training_flags {
  std::string task = "masked-lm", model{}, config{}, tokenizer{};
  std::vector<std::string> data{};
  xtrain::labelled_options records{};
  xtrain::masked_text_options text{};
  command_line::config_flags replaced{};
  command_line::vocabulary_flags vocabulary{};

  void add_all(CLI::App& app) {
    app.add_option("--task", task, "masked-lm; classification: of labelled JSON records; pretraining: masked LM and next sentence prediction")
        ->check(command_line::one_of({"masked-lm", "classification", "pretraining"}))
        ->capture_default_str();
    auto* folder = app.add_option("--model", model, "folder with config.json and weights")->type_name("DIR");
    app.add_option("--config", config, "config.json of a model to train from scratch")
        ->excludes(folder)
        ->type_name("FILE");
    app.add_option("--tokenizer", tokenizer, "a folder or a file; default: the model's folder")->type_name("DIR|FILE");
    app.add_option("--data", data, "text files or folders of them; for classification, one JSON(-lines) file")->required()->type_name("PATH...");
    app.add_option("--text-field", records.text, "field with the text")->capture_default_str();
    app.add_option("--text-pair-field", records.second, "field with the second text of a pair");
    app.add_option("--label-field", records.label, "field with the label")->capture_default_str();
    app.add_flag("--line-by-line", text.lines, "every line is a sequence, instead of packing the text into full sequences");
    app.add_option("--mlm-probability", text.masking.share, "ratio of tokens to mask")
        ->check(command_line::positive_share())
        ->capture_default_str()
        ->type_name("X");
    app.add_flag("--whole-word-mask", text.masking.whole_words, "mask whole words");
    app.add_option("--seq-length", seq_length, "sequence length, in tokens; default: the model's, or the longest record's")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    app.add_option("--num-train-epochs", epochs, "number of epochs")
        ->check(command_line::positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--max-steps", max_steps, "number of optimizer steps, instead of --num-train-epochs")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    learning_rate = 5e-5;
    replaced.add(app);
    vocabulary.add(app);
    add(app);
  }
};

/// Shared by the ranks of a process.
struct shared_things {
  command_line::made_once<xtrain::tokenizer> tokenizer{};
  command_line::interruption interrupt{};
};

/// A model's labels.
struct known_labels {
  std::vector<std::string> names{};
  bool are_trained = false;  ///< the classifier is trained for them: others are refused
};

/// A config.json's labels, and whether the folder has a classifier for them.
///   throws  config_error when their numbers contradict each other
known_labels labels_of(const std::string& folder, const std::vector<std::string>& names) {
  known_labels known{.names = names};
  if (folder.empty()) return known;
  const xtrain::weight_folder weights(folder);
  const xtrain::file_tensor* const classifier = weights.find("classifier.weight");
  if (classifier == nullptr) return known;
  known.are_trained = true;
  const std::size_t rows = classifier->shape.empty() ? 0 : classifier->shape[0];
  for (std::size_t i = 0; names.empty() && i < rows; ++i) known.names.push_back(xtrain::concat("LABEL_", i));
  xtrain::require<xtrain::config_error>(known.names.size() == rows, "id2label must name the ", rows, " rows of classifier.weight; it has ", known.names.size(),
                                        " names");
  return known;
}

/// Records with known labels, by name or number. Unless the classifier is trained, records with other labels keep their own.
///   throws  data_error when a trained classifier lacks a label
xtrain::sentence_dataset read_labels(const std::string& path, const xtrain::tokenizer& tokenizer, xtrain::labelled_options options,
                                     const known_labels& known) {
  const auto all_in = [](const std::vector<std::string>& labels, const std::vector<std::string>& some) {
    return std::all_of(labels.begin(), labels.end(), [&](const std::string& label) { return std::find(some.begin(), some.end(), label) != some.end(); });
  };
  xtrain::sentence_dataset found = xtrain::labelled_dataset(path, tokenizer, options);
  if (known.names.empty() || found.labels == known.names) return found;
  std::vector<std::string> numbers, placeholders;
  for (std::size_t i = 0; i < known.names.size(); ++i) {
    numbers.push_back(xtrain::concat(i));
    placeholders.push_back(xtrain::concat("LABEL_", i));
  }
  const bool has_names = all_in(found.labels, known.names);
  const bool names_are_numbers = std::any_of(known.names.begin(), known.names.end(), [&](const std::string& name) { return all_in({name}, numbers); });
  const bool has_numbers = !has_names && !names_are_numbers && all_in(found.labels, numbers);
  const bool are_own = !known.are_trained && (known.names == placeholders || !has_numbers);
  if (!has_names && are_own) return found;
  options.labels = has_numbers ? numbers : known.names;
  xtrain::sentence_dataset read = xtrain::labelled_dataset(path, tokenizer, options);
  read.labels = known.names;
  return read;
}

xtrain::sentence_dataset read_data(const char* flag, const std::vector<std::string>& paths, const encoder_flags& flags,
                                   const xtrain::tokenizer& tokenizer, const known_labels& known) {
  return command_line::for_flag(flag, paths.front(), [&] {
    const auto began = std::chrono::steady_clock::now();
    const auto done = [&](xtrain::sentence_dataset all) { return command_line::tokenised(flag, paths.front(), std::move(all), began); };
    xtrain::require<command_line::usage_error>(flags.task == "classification" || !command_line::find_text_files(paths).are_records,
                                               "must be text for --task ", flags.task, ", which would read JSON records with their syntax");
    if (flags.task == "masked-lm") return done(xtrain::masked_text_dataset(paths, tokenizer, flags.text));
    if (flags.task == "pretraining") return done(xtrain::sentence_pair_dataset(paths, tokenizer, flags.text));
    xtrain::require<command_line::usage_error>(paths.size() == 1, "must be one file of records; given ", paths.size());
    return done(read_labels(paths.front(), tokenizer, flags.records, known));
  });
}

/// returns the exit status: see train()
template <class Model>
int train_encoder(encoder_flags flags, const xtrain::json_settings& settings, typename Model::recipe::parallel::config layout,
                   bool first_rank, shared_things& shared) {
  using family = typename Model::family;
  if (!flags.plan) flags.check_output(flags.model);
  std::optional<xtrain::folder_lock> lock;
  if (!flags.plan && !flags.vocabulary.add_tokens.empty()) {  // all ranks read this tokenizer, so it is written first
    command_line::on_first_rank(layout, [&] {
      lock.emplace(flags.lock_output(first_rank));
      (void)flags.vocabulary.extended_tokenizer(flags.tokenizer, flags.output);
    });
    flags.tokenizer = flags.output;
  }
  const auto& tokenizer =
      shared.tokenizer.get([&] { return command_line::tokenizer_of("--tokenizer", flags.tokenizer); });
  if (first_rank) command_line::warn_of_tokenizer(tokenizer);
  const auto config = flags.replaced.apply(settings, Model::family_info(), first_rank);
  auto sizes = command_line::for_flag(flags.model.empty() ? "--config" : "--model", flags.model + flags.config,
                                      [&] { return xtrain::sizes_of(config, Model::family_info()); });
  sizes.vocab_size = flags.vocabulary.size(sizes.vocab_size, tokenizer);
  flags.text.seq_length = flags.records.seq_length = flags.seq_length > 0 ? flags.seq_length : sizes.max_position_embeddings;
  flags.text.seed = flags.seed;
  const auto read = [&](const char* flag, const std::vector<std::string>& paths, const known_labels& known) {
    return command_line::read_once(layout, flags.parallel, [&] { return read_data(flag, paths, flags, tokenizer, known); });
  };
  const known_labels known = flags.task != "classification" ? known_labels{} : command_line::for_flag("--model", flags.model, [&] {
    return labels_of(flags.model, sizes.labels);
  });
  const auto data = read("--data", flags.data, known);
  if (flags.task == "classification") sizes.labels = data.labels;
  std::optional<xtrain::sentence_dataset> held_out;
  if (!flags.eval_data.empty()) {
    held_out.emplace(read("--eval-data", {flags.eval_data}, {.names = data.labels, .are_trained = true}));  // the model cannot predict other labels
  }
  command_line::for_flag("--data", flags.data.front(), [&] { require_tokens_below(data, sizes.vocab_size); });
  if (flags.seq_length == 0)
    flags.seq_length = std::min(sizes.max_position_embeddings, (std::max(data.longest(), held_out ? held_out->longest() : 0) + 7) / 8 * 8);

  const auto on = command_line::open_device<typename Model::device>(flags.device, flags.parallel, layout, first_rank, flags.plan);
  const typename Model::options options{.parallel = layout, .seed = flags.seed};
  command_line::show_plan<Model>(sizes, options, flags, on, flags.plan && first_rank);
  if (flags.plan) return 0;
  auto model = flags.model.empty() ? Model(sizes, on, options) : command_line::for_flag("--model", flags.model, [&] {
    return xtrain::load_as<Model>(flags.model, sizes, on, options, {.resize_vocabulary = flags.vocabulary.resizes()});
  });
  if (first_rank)
    std::fprintf(stderr, "%s%s parameters; %zu sequences\n", xtrain::describe<typename Model::recipe>().c_str(),
                 xtrain::count_text(static_cast<double>(model.parameters().count())).c_str(), data.size());
  if (!lock) lock.emplace(flags.lock_output(first_rank));
  const int status = command_line::train(model, flags, data, held_out ? &*held_out : nullptr,
                                         {.save_steps = flags.save_steps,
                                          .save_total_limit = flags.save_total_limit,
                                          .tokenizer_from = flags.tokenizer,
                                          .base_model = flags.model,
                                          .asynchronous = flags.save_asynchronously},
                                         first_rank, shared.interrupt);
  if constexpr (requires { typename family::template heads<recipe>::classifier_type; }) {
    if (status != 0 || !held_out) return status;
    if constexpr (requires { model.parallel().holds_all(); }) {
      if (!model.parallel().holds_all()) {
        if (first_rank) std::fprintf(stderr, "accuracy is not computed, because no rank of a pipeline has the whole model: load the saved one on one rank\n");
        return status;
      }
    }
    const auto found = xtrain::accuracy(model, *held_out, {.micro_batch_size = flags.micro_batch_size});
    if (first_rank) std::fprintf(stderr, "accuracy %.4f: %zu of %zu labels\n", found.share(), found.right, found.rows);
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains BERT: masked language modeling, text classification, or pre-training with masked LM and next sentence prediction.", "train_encoder");
  encoder_flags flags;
  flags.add_all(app);
  flags.parallel.add<recipe::parallel>(app);
  return command_line::run(app, argc, argv, [&] {
    flags.check_uses(app, !flags.eval_data.empty());
    flags.watch_over(app.get_name(), argc, argv);
    for (const char* flag : {"--text-field", "--text-pair-field", "--label-field"})
      xtrain::require<command_line::usage_error>(app.count(flag) == 0 || flags.task == "classification", flag, ": needs --task classification; it is ",
                                                 flags.task);
    for (const char* flag : {"--mlm-probability", "--whole-word-mask", "--line-by-line"})
      xtrain::require<command_line::usage_error>(app.count(flag) == 0 || flags.task != "classification", flag,
                                                 ": needs a text whose tokens are masked; --task is classification");
    xtrain::require<command_line::usage_error>(!flags.model.empty() || !flags.config.empty(), "--model or --config: one of them must be given");
    xtrain::require<command_line::usage_error>(!flags.model.empty() || !flags.tokenizer.empty(), "--tokenizer: must be given beside --config");
    if (flags.tokenizer.empty()) flags.tokenizer = flags.model;
    const auto config = command_line::for_flag(flags.model.empty() ? "--config" : "--model", flags.model + flags.config, [&] {
      return flags.model.empty() ? xtrain::read_settings(flags.config) : xtrain::read_config(flags.model);
    });
    shared_things shared;
    std::atomic<int> status = 0;
    command_line::on_ranks<recipe::parallel, processes>(flags.parallel, [&](const auto& layout, bool first_rank) {
      const auto go = [&](auto tag) {
        const int one = train_encoder<typename decltype(tag)::type>(flags, config, layout, first_rank, shared);
        if (one != 0) status = one;
      };
      if (flags.task == "masked-lm") go(command_line::model_tag<xtrain::bert_masked_lm<recipe>>{});
      else if (flags.task == "classification") go(command_line::model_tag<xtrain::bert_classifier<recipe>>{});
      else go(command_line::model_tag<xtrain::bert_pretraining<recipe>>{});
    });
    return status.load();
  });
}
