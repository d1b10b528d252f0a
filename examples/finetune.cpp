// Fine-tunes an existing model: all weights, or a LoRA adapter; on texts, instructions, conversations, or, with an objective that compares answers, on
// preferences.
//
//   finetune --model DIR --data alpaca.json --format alpaca --lora-rank 8 --num-train-epochs 3 --learning-rate 2e-4 --output-dir adapter
//   finetune --model DIR --data chats.jsonl --format messages --chat-template chatml --output-dir tuned
//   finetune_dpo --model DIR --data pairs.jsonl --lora-rank 8 --beta 0.1 --learning-rate 5e-6 --output-dir preferred
//
// Policies (device, precision, ...) are chosen at compile time: see xtrain_add_trainer.
#include <xtrain/data/indexed_instructions.hpp>

#include "frozen_model.hpp"
#include "objective_flags.hpp"
#include "recipe.hpp"
#include "training_run.hpp"

namespace {

/// The recipe with a LoRA adapter.
struct lora_recipe : recipe {
  using adapter = xtrain::lora;
};

/// Formats of conversations, which a chat template renders.
struct chat_format {
  const char* name;
  xtrain::chat_form form;
};
constexpr std::array<chat_format, 6> chat_formats{{{"chat", xtrain::chat_form::automatic},
                                                   {"messages", xtrain::chat_form::messages},
                                                   {"conversations", xtrain::chat_form::conversations},
                                                   {"instruction", xtrain::chat_form::instruction},
                                                   {"moss", xtrain::chat_form::moss},
                                                   {"prompt_completion", xtrain::chat_form::prompt_completion}}};

using objective = recipe::objective;

/// A second model, which is not trained.
struct frozen_recipe : recipe {
  using adapter = xtrain::no_adapter;
};
using second_model = model_of<std::conditional_t<recipe::adapter::freezes_weights, frozen_recipe, recipe>>;

/// The objective's data: pairs, answers with labels, or samples.
constexpr bool compares_pairs = objective::group_size == 2, has_labels = command_line::reads_labels<objective>;
[[nodiscard]] std::vector<std::string> formats() {
  if (has_labels) return {"unpaired-preference"};
  if (compares_pairs) return {"preference"};
  return {"text", "alpaca", "indexed", "chat", "messages", "conversations", "instruction", "moss", "prompt_completion"};
}

struct finetune_flags : command_line::objective_training_flags<objective> {
  std::string model{}, tokenizer{}, data{}, format = formats().front(), preference_form = "auto", text_field = "text", overlong = "refuse";
  bool train_on_input = false, packed = false, keep_blocks = false;
  double loraplus_lr_ratio = 0.0, loraplus_lr_embedding = 1e-6, neftune_noise_alpha = 0.0;
  xtrain::lora::config lora{.rank = 0};
  command_line::config_flags config{};
  command_line::vocabulary_flags vocabulary{};
  command_line::chat_flags chat{};
  command_line::second_model_flags<objective> second{};
  std::vector<const CLI::Option*> of_adapter{};  ///< flags that have no effect without --lora-rank

  void add_all(CLI::App& app) {
    app.add_option("--model", model, "folder with config.json and safetensors, or a GGUF file")->required()->type_name("DIR");
    app.add_option("--tokenizer", tokenizer, "byte, a folder or a file; default: the model's folder")->type_name("byte|DIR|FILE");
    app.add_option("--data", data, "training data")->required()->type_name("FILE");
    app.add_option("--format", format,
                   has_labels       ? "unpaired-preference: an answer to a prompt, and a label"
                   : compares_pairs ? "preference: a chosen and a rejected answer to a prompt"
                                    : "text; alpaca: instruction, input, output, in Alpaca's prompt; or conversations, in the model's chat template: messages "
                                      "(role, content), conversations (ShareGPT), instruction (with earlier turns in it), moss, prompt_completion (trl; strings need no "
                                      "template), or chat for any of these five; "
                                      "indexed: --data is the prefix of AscendSpeed's instruction dataset, which has tokens and labels")
        ->check(command_line::one_of(formats()))
        ->capture_default_str();
    chat.add(app);
    if constexpr (compares_pairs) {
      app.add_option("--preference-form", preference_form,
                     "records of strings: text, used as they are; messages, in the model's chat template; auto: text, unless the prompt is an instruction")
          ->check(command_line::one_of({"auto", "text", "messages"}))
          ->capture_default_str();
    } else {
      app.add_option("--text-field", text_field, "field with the text, in records of a JSON file")->capture_default_str();
      app.add_flag("--train-on-input", train_on_input, "compute the loss on prompts, too");
      app.add_flag("--packing", packed, "pack several samples into a sequence, without attention between them");
    }
    app.add_option(
           "--overlong", overlong,
           has_labels
               ? "samples longer than the sequence length: refuse, truncate or drop; an answer is dropped also if the next record's answer to its prompt, "
                 "from which the divergence is estimated, is too long"
           : compares_pairs ? "samples longer than the sequence length: refuse, truncate or drop; a pair is dropped if one of its answers is too long"
                            : "samples longer than the sequence length: refuse, truncate or drop")
        ->check(command_line::one_of({"refuse", "truncate", "drop"}))
        ->capture_default_str();
    app.add_option("--seq-length", seq_length, "sequence length, in tokens; default: the longest sample's, or the model's")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    app.add_option("--lora-rank", lora.rank, "rank of the LoRA adapter; without it all weights are trained")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    const auto of = [&](const CLI::Option* flag) { of_adapter.push_back(flag); };
    of(app.add_option("--lora-alpha", lora.alpha, "the adapter's update is scaled by alpha / rank")
           ->check(command_line::positive())
           ->type_name("X")
           ->capture_default_str());
    of(app.add_option("--lora-dropout", lora.dropout, "dropout probability of the adapter's input")
           ->check(command_line::share_below_one())
           ->type_name("X"));
    app.add_flag("--use-rslora", lora.rank_stabilised, "scale the adapter's update by alpha / sqrt(rank) (rsLoRA)");
    CLI::Option* const ratio =
        app.add_option("--loraplus-lr-ratio", loraplus_lr_ratio, "learning rate of the adapter's B as a multiple of that of A (LoRA+); default: the same")
        ->check(command_line::positive())
        ->type_name("X");
    app.add_option("--loraplus-lr-embedding", loraplus_lr_embedding, "with --loraplus-lr-ratio: peak learning rate of an embedding's adapter")
        ->check(command_line::not_negative())
        ->needs(ratio)
        ->type_name("X")
        ->capture_default_str();
    app.add_option("--neftune-noise-alpha", neftune_noise_alpha, "noise on embeddings while training (NEFTune); 0: none")
        ->check(command_line::not_negative())
        ->type_name("X");
    of(app.add_flag("--keep-blocks", keep_blocks,
                    "store frozen weights of linear layers in the blocks of the GGUF file, and decode them for each product; default: decode once"));
    of(app.add_option("--lora-target-modules", lora.targets, "modules that get an adapter; default: the family's")->delimiter(',')->type_name("a,b"));
    of(app.add_option("--lora-modules-to-save", lora.modules_to_save, "modules that are fully trained and saved with the adapter")
           ->delimiter(',')
           ->type_name("a,b"));
    app.add_option("--num-train-epochs", epochs, "number of epochs")
        ->check(command_line::positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--max-steps", max_steps, "number of optimizer steps, instead of --num-train-epochs")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    learning_rate = compares_pairs ? 5e-6 : 2e-4;
    config.add(app);
    vocabulary.add(app);
    second.add(app);
    add(app);
  }
  /// The format of conversations; nothing for texts and Alpaca's records.
  [[nodiscard]] std::optional<xtrain::chat_form> chat_form() const {
    for (const chat_format& one : chat_formats)
      if (format == one.name) return one.form;
    return std::nullopt;
  }
  template <class Optimizer>
  [[nodiscard]] xtrain::training_config<Optimizer, objective> run_config() const {
    auto c = command_line::objective_training_flags<objective>::template run_config<Optimizer>();
    c.loraplus_lr_ratio = loraplus_lr_ratio;
    c.loraplus_lr_embedding = loraplus_lr_embedding;
    c.neftune_noise_alpha = neftune_noise_alpha;
    return c;
  }
  /// Refuses flags that the format does not use, and reads the chat template.
  void check_format() {
    using command_line::usage_error;
    if constexpr (!compares_pairs) {
      xtrain::require<usage_error>(format == "text" || text_field == "text", "--text-field ", text_field, ": needs --format text; it is ", format);
      xtrain::require<usage_error>(format != "text" || packed || overlong == "refuse", "--overlong ", overlong,
                                   ": needs samples; without --packing, text is one stream, which is cut at the sequence length");
    }
    xtrain::require<usage_error>(lora.rank > 0 || (!lora.rank_stabilised && loraplus_lr_ratio == 0.0),
                                 lora.rank_stabilised ? "--use-rslora" : "--loraplus-lr-ratio", ": needs an adapter; give --lora-rank");
    for (const CLI::Option* flag : of_adapter)
      xtrain::require<usage_error>(lora.rank > 0 || flag->count() == 0, flag->get_name(), ": needs an adapter; give --lora-rank");
    xtrain::require<usage_error>(neftune_noise_alpha == 0.0 || !packed, "--neftune-noise-alpha: needs one sample per sequence; --packing puts several there");
    xtrain::require<usage_error>(!train_on_input || format != "text", "--train-on-input: needs a --format with prompts; in text every token is a target");
    xtrain::require<usage_error>(!train_on_input || format != "indexed", "--train-on-input: --format indexed has labels in its files");
    xtrain::require<usage_error>(chat.given.empty() || chat_form() || compares_pairs, "--chat-template ", chat.given,
                                 ": needs a --format of conversations: chat, messages, conversations, instruction, moss or prompt_completion; it is ", format);
    const auto form = chat_form();
    const bool may_be_text = form == xtrain::chat_form::automatic || form == xtrain::chat_form::prompt_completion;
    if (compares_pairs || (may_be_text && holds_text())) find_template();
    else if (form) chat.find({tokenizer, model});
    second.check(!eval_data.empty(), is_reference_free());
  }
  /// Whether the data has prompts and completions as strings. An unreadable file is refused when it is read.
  [[nodiscard]] bool holds_text() const { return xtrain::file_exists(data) && !xtrain::is_directory(data) && xtrain::holds_text_completions(data); }
  /// Reads the template if there is one: records of strings need none.
  void find_template() {
    bool found = !chat.given.empty();
    for (const std::string& folder : {tokenizer, model}) found = found || (!folder.empty() && xtrain::chat_template::is_in(folder));
    if (found) chat.find({tokenizer, model});
  }
  /// Whether the trained model without its adapter is the reference model.
  [[nodiscard]] bool adapter_is_all() const { return lora.rank > 0 && lora.modules_to_save.empty(); }
};

/// Shared by the ranks of a process.
struct shared_things {
  command_line::made_once<xtrain::tokenizer> tokenizer{};
  command_line::interruption interrupt{};
};

xtrain::dataset read_data(const char* flag, const std::string& path, const finetune_flags& flags, const xtrain::tokenizer& tokenizer) {
  const auto when_too_long = flags.overlong == "truncate" ? xtrain::overlong::truncate
                             : flags.overlong == "drop"   ? xtrain::overlong::leave_out
                                                          : xtrain::overlong::refuse;
  return command_line::for_flag(flag, path, [&] {
    const auto began = std::chrono::steady_clock::now();
    const auto done = [&](xtrain::dataset all) { return command_line::tokenised(flag, path, std::move(all), began); };
    if (const auto form = flags.chat_form()) {
      const xtrain::chat_options options{
          .form = *form, .train_on_input = flags.train_on_input, .packed = flags.packed, .when_too_long = when_too_long};
      return done(flags.chat.form ? xtrain::chat_dataset(path, tokenizer, flags.chat.with(tokenizer), options)
                                  : xtrain::chat_dataset(path, tokenizer, options));
    }
    if constexpr (compares_pairs) {
      const xtrain::preference_options options{.form = flags.preference_form == "text"       ? xtrain::preference_form::text
                                                       : flags.preference_form == "messages" ? xtrain::preference_form::messages
                                                                                             : xtrain::preference_form::automatic,
                                               .when_too_long = when_too_long,
                                               .scores_last_token = xtrain::scores_sequences<recipe>};
      const auto read = [&](const auto&... form) {
        return has_labels ? xtrain::unpaired_preference_dataset(path, tokenizer, form..., options)
                          : xtrain::preference_dataset(path, tokenizer, form..., options);
      };
      return done(flags.chat.form ? read(flags.chat.with(tokenizer)) : read());
    }
    if (flags.format == "indexed") return done(xtrain::indexed_instruction_dataset(path, {.packed = flags.packed, .when_too_long = when_too_long}));
    if (flags.format == "alpaca")
      return done(xtrain::instruct_dataset(path, tokenizer,
                                      {.train_on_input = flags.train_on_input, .packed = flags.packed, .when_too_long = when_too_long}));
    const auto files = command_line::find_text_files({path});
    if (files.are_records)
      return done(xtrain::json_text_dataset(files.paths, tokenizer,
                                            {.field = flags.text_field,
                                             .layout = flags.packed ? xtrain::sequence_layout::packed : xtrain::sequence_layout::stream,
                                             .when_too_long = when_too_long}));
    for (const auto& [name, is_given] : {std::pair{"--text-field", flags.text_field != "text"}, {"--packing", flags.packed}})
      xtrain::require<command_line::usage_error>(!is_given, name, " needs JSON records; this is one stream of text");
    return done(xtrain::text_dataset(files.paths, tokenizer));
  });
}

/// A reference model or a teacher.
template <class Frozen>
class model_beside {
 public:
  /// Adds it to the plan of a run that keeps it in memory.
  ///   sizes  the trained model's
  template <class Layout>
  static void add_to(xtrain::dry_run& plan, const finetune_flags& flags, const typename Frozen::config_type& sizes, const typename Frozen::context_type& on,
                     const Layout& layout) {
    if (!flags.second.file.empty() || !is_needed(flags)) return;
    beside::add_to(plan, sizes_of(flags, sizes), on, layout, batches(flags));
  }
  /// Loads it if the run needs it, and computes log-probabilities for files. All ranks call it.
  template <class Layout>
  void prepare(const finetune_flags& flags, const std::string& changes, const typename Frozen::config_type& sizes, const typename Frozen::context_type& on,
               const Layout& layout, bool first_rank, xtrain::dataset& data, xtrain::dataset* held_out) {
    const auto& second = flags.second;
    if (!is_needed(flags)) return;
    const auto lacks = [&](const xtrain::dataset* one) { return one != nullptr && second.lacks_values(*one); };
    const bool computes = !second.file.empty() && (lacks(&data) || lacks(held_out));
    if (!second.file.empty() && !computes) return;
    const bool is_own = second.model.empty();
    const std::string& folder = is_own ? flags.model : second.model;
    const auto its_sizes = sizes_of(flags, sizes);
    Frozen& model = command_line::for_flag(is_own ? "--model" : second.model_flag(), folder, [&]() -> Frozen& {
      return frozen_.load(folder, its_sizes, on, layout, is_own && flags.vocabulary.resizes());
    });
    if (first_rank)
      std::fprintf(stderr, "%s: %s, %s parameters\n", second.is_teacher ? "teacher" : "reference model", folder.c_str(),
                   xtrain::count_text(static_cast<double>(model.parameters().count())).c_str());
    if (!computes) return;
    if (lacks(&data)) second.compute(model, data, false, flags.micro_batch_size, flags.seq_length, layout, first_rank, flags.model, changes);
    if (lacks(held_out)) second.compute(model, *held_out, true, flags.micro_batch_size, flags.seq_length, layout, first_rank, flags.model, changes);
    frozen_.reset();
  }
  /// Gives it to the trainer.
  template <class Trainer>
  void use(Trainer& trainer, const finetune_flags& flags) {
    frozen_.use(trainer, batches(flags));
  }

 private:
  using beside = command_line::frozen_model<Frozen, objective>;

  /// Whether the run needs it, or its log-probabilities.
  [[nodiscard]] static bool is_needed(const finetune_flags& flags) {
    const auto& second = flags.second;
    if (second.is_reference && flags.is_reference_free()) return false;
    return !second.is_reference || !second.file.empty() || !second.model.empty() || !flags.adapter_is_all();  // else: the trained model without its adapter
  }
  [[nodiscard]] static typename Frozen::config_type sizes_of(const finetune_flags& flags, const typename Frozen::config_type& own) {
    const std::string& folder = flags.second.model;
    if (folder.empty()) return own;
    return command_line::for_flag(flags.second.model_flag(), folder, [&] { return beside::sizes_in(folder, own.vocab_size); });
  }
  [[nodiscard]] static xtrain::forward_only_config batches(const finetune_flags& flags) {
    return beside::batches(flags.micro_batch_size, flags.parallel.micro_batch_sizes, flags.gradient_accumulation_steps, flags.seq_length);
  }

  beside frozen_{};
};
/// For objectives without one.
struct no_model_beside {
  static void add_to(const auto&...) {}
  void prepare(const auto&...) {}
  void use(const auto&...) {}
};

/// The block formats of a GGUF file's weights.
///   throws  config_error when no weight is in blocks
xtrain::weight_blocks blocks_of(const std::string& model) {
  xtrain::weight_blocks all = xtrain::blocks_in(model);
  xtrain::require<xtrain::config_error>(!all.empty(), model, ": must be a GGUF file with matrices in blocks, such as Q8_0 or Q4_K; it has none");
  return all;
}

/// Prints which frozen matrices are in blocks, and which had to be decoded.
template <class Store>
void show_blocks(const Store& store, const xtrain::weight_blocks& blocks) {
  std::size_t stored = 0, decoded = 0;
  std::string first;
  for (const auto& entry : store.entries()) {
    if (entry.spec.blocks) ++stored;
    else if (blocks.formats.contains(entry.spec.name) && decoded++ == 0) first = entry.spec.name;
  }
  std::fprintf(stderr, "%zu matrices are stored in the file's blocks; %zu others of its blocks were decoded%s\n", stored, decoded,
               decoded == 0 ? "" : xtrain::concat(", the first is ", first).c_str());
}

/// returns the exit status: see train()
template <class Model>
int finetune(finetune_flags flags, const xtrain::json_settings& settings, typename Model::recipe::parallel::config layout,
             bool first_rank, shared_things& shared) {
  using device = typename Model::device;
  std::string tokenizer_from = flags.tokenizer.empty() ? flags.model : flags.tokenizer;
  if (!flags.plan) flags.check_output(flags.model);
  std::optional<xtrain::folder_lock> lock;
  if (!flags.plan && !flags.vocabulary.add_tokens.empty()) {  // all ranks read this tokenizer, so it is written first
    command_line::on_first_rank(layout, [&] {
      lock.emplace(flags.lock_output(first_rank));
      (void)flags.vocabulary.extended_tokenizer(tokenizer_from, flags.output);
    });
    flags.tokenizer = tokenizer_from = flags.output;
  }
  const auto& tokenizer = shared.tokenizer.get([&] {
    return command_line::tokenizer_of(flags.tokenizer.empty() ? "--model" : "--tokenizer", tokenizer_from);
  });
  if (first_rank) command_line::warn_of_tokenizer(tokenizer);
  const auto& family = command_line::for_flag("--model", flags.model, [&]() -> const auto& { return Model::family_of(settings); });
  const auto config = flags.config.apply(settings, family, first_rank);
  auto sizes = command_line::for_flag("--model", flags.model, [&] { return xtrain::sizes_of(config, family); });
  sizes.vocab_size = flags.vocabulary.size(sizes.vocab_size, tokenizer);
  // the run's changes of --model, which may be the reference model
  const std::string changes =
      (config.text() == settings.text() ? "" : config.text()) + (flags.vocabulary.resizes() ? xtrain::concat(sizes.vocab_size, " tokens") : "");
  if constexpr (command_line::second_model_flags<objective>::exists) flags.second.find_files(layout, !flags.plan);
  const auto read = [&](const char* flag, const std::string& path, bool eval) {
    return command_line::read_once(layout, flags.parallel, [&] {
      xtrain::dataset all = read_data(flag, path, flags, tokenizer);
      flags.second.read_file(all, eval, flags.model, changes);
      return all;
    });
  };
  auto data = read("--data", flags.data, false);
  std::optional<xtrain::dataset> held_out;
  if (!flags.eval_data.empty()) held_out.emplace(read("--eval-data", flags.eval_data, true));
  command_line::for_flag("--data", flags.data, [&] { require_tokens_below(data, sizes.vocab_size); });
  if (flags.seq_length == 0) {  // sequences need not be longer than the longest sample
    flags.seq_length = sizes.max_position_embeddings;
    if (data.layout() == xtrain::sequence_layout::separate) flags.seq_length = std::min(sizes.max_position_embeddings, (data.longest() + 6) / 8 * 8);
  }
  flags.launches_kernels = flags.launches_kernels || !has_few_layouts(data);

  if (flags.second.is_teacher && !flags.second.file.empty()) flags.use_top_k(data.top_k() > 0 ? data.top_k() : flags.second.top_k);

  const auto on = command_line::open_device<device>(flags.device, flags.parallel, layout, first_rank, flags.plan);
  typename Model::options options{.parallel = layout, .seed = flags.seed};
  if constexpr (Model::recipe::adapter::freezes_weights) options.adapter = flags.lora;
  if (flags.keep_blocks) options.blocks = command_line::for_flag("--keep-blocks", flags.model, [&] { return blocks_of(flags.model); });
  std::conditional_t<command_line::second_model_flags<objective>::exists, model_beside<second_model>, no_model_beside> beside;
  command_line::show_plan<Model>(sizes, options, flags, on, flags.plan && first_rank,
                                 [&](xtrain::dry_run& plan) { beside.add_to(plan, flags, sizes, on, layout); });
  if (flags.plan) return 0;

  beside.prepare(flags, changes, sizes, on, layout, first_rank, data, held_out ? &*held_out : nullptr);
  auto model = command_line::for_flag("--model", flags.model, [&] {
    return xtrain::load_as<Model>(flags.model, sizes, on, options, {.resize_vocabulary = flags.vocabulary.resizes()});
  });
  if (first_rank)
    std::fprintf(stderr, "%s%s parameters, %s of them trainable; %zu samples\n", xtrain::describe<typename Model::recipe>().c_str(),
                 xtrain::count_text(static_cast<double>(model.parameters().count())).c_str(),
                 xtrain::count_text(static_cast<double>(model.parameters().trained_count())).c_str(), data.size());
  if (first_rank && flags.keep_blocks) show_blocks(model.parameters(), options.blocks);
  if (!lock) lock.emplace(flags.lock_output(first_rank));
  std::string tokenizer_files = tokenizer_from;
  if (tokenizer_files == "byte") {  // the byte tokenizer has no files yet: write them
    if (first_rank) {
      xtrain::make_folder(flags.output);
      tokenizer.save(flags.output);
    }
    tokenizer_files = flags.output;
  }
  const int status = command_line::train(model, flags, data, held_out ? &*held_out : nullptr,
                                         {.save_steps = flags.save_steps,
                                          .save_total_limit = flags.save_total_limit,
                                          .tokenizer_from = tokenizer_files,
                                          .base_model = flags.model,
                                          .asynchronous = flags.save_asynchronously,
                                          .write_more = [&](const std::string& folder) { flags.chat.save(folder); }},
                                         first_rank, shared.interrupt, [&](auto& trainer) { beside.use(trainer, flags); });
  if (status == 0 && first_rank) command_line::for_flag("--output-dir", flags.output, [&] { flags.chat.save(flags.output); });
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Fine-tunes a model: all weights, or a LoRA adapter.", command_line::called(argc, argv, "finetune"));
  finetune_flags flags;
  flags.add_all(app);
  flags.parallel.add<recipe::parallel>(app);
  return command_line::run(app, argc, argv, [&] {
    flags.check_uses(app, !flags.eval_data.empty());
    flags.watch_over(app.get_name(), argc, argv);
    const xtrain::json_settings config = command_line::for_flag("--model", flags.model, [&] { return xtrain::read_config(flags.model); });
    flags.check_format();
    shared_things shared;
    std::atomic<int> status = 0;
    command_line::on_ranks<recipe::parallel, processes>(flags.parallel, [&](const auto& layout, bool first_rank) {
      const auto run = flags.lora.rank > 0 ? finetune<model_of<lora_recipe>> : finetune<model_of<recipe>>;
      const int one = run(flags, config, layout, first_rank, shared);
      if (one != 0) status = one;
    });
    return status.load();
  });
}
