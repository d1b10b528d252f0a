// Fine-tunes an existing model: all weights, or a LoRA adapter.
//
//   finetune --model DIR --data alpaca.json --format alpaca --lora-rank 8 --num-train-epochs 3 --learning-rate 2e-4 --output-dir adapter
//   finetune --model DIR --data chats.jsonl --format messages --chat-template chatml --output-dir tuned
//
// Policies (device, precision, ...) are chosen at compile time: see xtrain_add_trainer.
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
constexpr std::array<chat_format, 5> chat_formats{{{"chat", xtrain::chat_form::automatic},
                                                   {"messages", xtrain::chat_form::messages},
                                                   {"conversations", xtrain::chat_form::conversations},
                                                   {"instruction", xtrain::chat_form::instruction},
                                                   {"moss", xtrain::chat_form::moss}}};

struct finetune_flags : command_line::training_flags {
  std::string model{}, tokenizer{}, data{}, format = "text", text_field = "text", overlong = "refuse";
  bool train_on_input = false, packed = false;
  xtrain::lora::config lora{.rank = 0};
  command_line::config_flags config{};
  command_line::vocabulary_flags vocabulary{};
  command_line::chat_flags chat{};

  void add_all(CLI::App& app) {
    app.add_option("--model", model, "folder with config.json and safetensors")->required()->type_name("DIR");
    app.add_option("--tokenizer", tokenizer, "byte, a folder or a file; default: the model's folder")->type_name("byte|DIR|FILE");
    app.add_option("--data", data, "training data")->required()->type_name("FILE");
    app.add_option("--format", format,
                   "text; alpaca: instruction, input, output, in Alpaca's prompt; or conversations, in the model's chat template: messages (role, content), "
                   "conversations (ShareGPT), instruction (with earlier turns in it), moss, or chat for any of these four")
        ->check(command_line::one_of({"text", "alpaca", "chat", "messages", "conversations", "instruction", "moss"}))
        ->capture_default_str();
    chat.add(app);
    app.add_option("--text-field", text_field, "field with the text, in records of a JSON file")->capture_default_str();
    app.add_flag("--train-on-input", train_on_input, "compute the loss on prompts, too");
    app.add_flag("--packing", packed, "pack several samples into a sequence, without attention between them");
    app.add_option("--overlong", overlong, "samples longer than the sequence length: refuse, truncate or drop")
        ->check(command_line::one_of({"refuse", "truncate", "drop"}))
        ->capture_default_str();
    app.add_option("--seq-length", seq_length, "sequence length, in tokens; default: the longest sample's, or the model's")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    app.add_option("--lora-rank", lora.rank, "rank of the LoRA adapter; without it all weights are trained")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    app.add_option("--lora-alpha", lora.alpha, "the adapter's update is scaled by alpha / rank")
        ->check(command_line::positive())
        ->type_name("X")
        ->capture_default_str();
    app.add_option("--lora-dropout", lora.dropout, "dropout probability of the adapter's input")->check(command_line::share_below_one())->type_name("X");
    app.add_option("--lora-target-modules", lora.targets, "modules that get an adapter; default: the family's")->delimiter(',')->type_name("a,b");
    app.add_option("--lora-modules-to-save", lora.modules_to_save, "modules that are fully trained and saved with the adapter")
        ->delimiter(',')
        ->type_name("a,b");
    app.add_option("--num-train-epochs", epochs, "number of epochs")
        ->check(command_line::positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--max-steps", max_steps, "number of optimizer steps, instead of --num-train-epochs")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    learning_rate = 2e-4;
    config.add(app);
    vocabulary.add(app);
    add(app);
  }
  /// The format of conversations; nothing for texts and Alpaca's records.
  [[nodiscard]] std::optional<xtrain::chat_form> chat_form() const {
    for (const chat_format& one : chat_formats)
      if (format == one.name) return one.form;
    return std::nullopt;
  }
  /// Refuses flags that the format has no use for, and reads the chat template.
  void check_format() {
    using command_line::usage_error;
    xtrain::require<usage_error>(!train_on_input || format != "text", "--train-on-input: needs a --format with prompts; in text every token is a target");
    xtrain::require<usage_error>(chat.given.empty() || chat_form(), "--chat-template ", chat.given,
                                 ": needs a --format of conversations: chat, messages, conversations, instruction or moss; it is ", format);
    if (chat_form()) chat.find({tokenizer, model});
  }
};

/// What the ranks of a process share.
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
    if (const auto form = flags.chat_form())
      return done(xtrain::chat_dataset(path, tokenizer, flags.chat.with(tokenizer),
                                       {.form = *form, .train_on_input = flags.train_on_input, .packed = flags.packed, .when_too_long = when_too_long}));
    if (flags.format == "alpaca")
      return done(xtrain::instruct_dataset(path, tokenizer,
                                      {.train_on_input = flags.train_on_input, .packed = flags.packed, .when_too_long = when_too_long}));
    if (path.ends_with(".json") || path.ends_with(".jsonl"))
      return done(xtrain::json_text_dataset(path, tokenizer,
                                            {.field = flags.text_field,
                                             .layout = flags.packed ? xtrain::sequence_layout::packed : xtrain::sequence_layout::stream,
                                             .when_too_long = when_too_long}));
    return done(xtrain::text_dataset(path, tokenizer));
  });
}

/// returns the exit status: see train()
template <class Model>
int finetune(finetune_flags flags, const xtrain::json_settings& settings, const typename Model::recipe::parallel::config& layout,
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
    return command_line::for_flag(flags.tokenizer.empty() ? "--model" : "--tokenizer", tokenizer_from, [&] { return xtrain::load_tokenizer(tokenizer_from); });
  });
  const auto& family = command_line::for_flag("--model", flags.model, [&]() -> const auto& { return Model::family_of(settings); });
  const auto config = flags.config.apply(settings, family, first_rank);
  auto sizes = command_line::for_flag("--model", flags.model, [&] { return xtrain::sizes_of(config, family); });
  sizes.vocab_size = flags.vocabulary.size(sizes.vocab_size, tokenizer);
  const auto read = [&](const char* flag, const std::string& path) {
    return command_line::read_once(layout, flags.parallel, [&] { return read_data(flag, path, flags, tokenizer); });
  };
  const auto data = read("--data", flags.data);
  std::optional<xtrain::dataset> held_out;
  if (!flags.eval_data.empty()) held_out.emplace(read("--eval-data", flags.eval_data));
  command_line::for_flag("--data", flags.data, [&] { require_tokens_below(data, sizes.vocab_size); });
  if (flags.seq_length == 0) {  // sequences need not be longer than the longest sample
    flags.seq_length = sizes.max_position_embeddings;
    if (data.layout() == xtrain::sequence_layout::separate) flags.seq_length = std::min(sizes.max_position_embeddings, (data.longest() + 6) / 8 * 8);
  }

  const auto on = flags.device.open<device>();
  typename Model::options options{.parallel = layout, .seed = flags.seed};
  if constexpr (Model::recipe::adapter::freezes_weights) options.adapter = flags.lora;
  command_line::show_plan<Model>(sizes, options, flags, on, flags.plan && first_rank);
  if (flags.plan) return 0;

  auto model = command_line::for_flag("--model", flags.model, [&] {
    return xtrain::load_as<Model>(flags.model, sizes, on, options, {.resize_vocabulary = flags.vocabulary.resizes()});
  });
  if (first_rank)
    std::fprintf(stderr, "%s%s parameters, %s of them trainable; %zu samples\n", xtrain::describe<typename Model::recipe>().c_str(),
                 xtrain::count_text(static_cast<double>(model.parameters().count())).c_str(),
                 xtrain::count_text(static_cast<double>(model.parameters().trained_count())).c_str(), data.size());
  if (!lock) lock.emplace(flags.lock_output(first_rank));
  const int status = command_line::train(model, flags, data, held_out ? &*held_out : nullptr,
                                         {.save_steps = flags.save_steps,
                                          .save_total_limit = flags.save_total_limit,
                                          .tokenizer_from = tokenizer_from == "byte" ? "" : tokenizer_from,
                                          .base_model = flags.model,
                                          .asynchronous = flags.save_asynchronously},
                                         first_rank, shared.interrupt);
  if (status == 0 && first_rank) command_line::for_flag("--output-dir", flags.output, [&] { flags.chat.save(flags.output); });
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Fine-tunes a model: all weights, or a LoRA adapter.", "finetune");
  finetune_flags flags;
  flags.add_all(app);
  flags.parallel.add<recipe::parallel>(app);
  return command_line::run(app, argc, argv, [&] {
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
