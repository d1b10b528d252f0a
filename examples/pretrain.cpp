// Pre-trains a language model on text.
//
//   pretrain --data corpus.txt --tokenizer byte --model llama --layers 4 --width 256 --heads 4 --context 256 --steps 1000 --output out
//
// Policies (device, precision, ...) are chosen at compile time: see xtrain_add_trainer.
#include "recipe.hpp"
#include "training_run.hpp"

namespace {

struct pretrain_flags : command_line::training_flags {
  std::vector<std::string> data{};
  std::string tokenizer = "byte", model = "llama", config{}, text_field = "text";
  xtrain::decoder_config sizes{.width = 256, .layers = 4, .heads = 4, .context = 256};
  double dropout = 0.0;
  bool untied = false;
  command_line::config_flags replaced{};

  void add_all(CLI::App& app) {
    app.add_option("--data", data, "text files, folders of them, or JSON(-lines) files")->type_name("PATH...");
    app.add_option("--text-field", text_field, "of every record of a JSON file")->capture_default_str();
    app.add_option("--tokenizer", tokenizer, "byte, a folder with tokenizer files, or such a file")
        ->type_name("byte|DIR|FILE")
        ->capture_default_str();
    app.add_option("--model", model, xtrain::concat("family (", families::names(), "); of a --config, what its model_type says"))
        ->check(command_line::one_of(families::all_names()))
        ->capture_default_str();
    auto* file = app.add_option("--config", config, "config.json with the sizes, instead of the flags below")->type_name("FILE");
    const auto size = [&](const char* flag, std::size_t& to, const char* help) {
      app.add_option(flag, to, help)->check(command_line::positive_whole_number())->excludes(file)->type_name("N")->capture_default_str();
    };
    size("--layers", sizes.layers, "blocks");
    size("--width", sizes.width, "channels of the residual stream");
    size("--heads", sizes.heads, "attention heads");
    app.add_option("--kv-heads", sizes.kv_heads, "key/value heads; default: as many as heads")
        ->check(command_line::positive_whole_number())
        ->excludes(file)
        ->type_name("N");
    app.add_option("--feed-forward", sizes.feed_forward, "inner size of feed-forward layers; default: the family's")
        ->check(command_line::positive_whole_number())
        ->excludes(file)
        ->type_name("N");
    app.add_option("--context", sizes.context, "longest row, in tokens")
        ->check(command_line::positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--dropout", dropout, "everywhere the family has it")
        ->check(command_line::share_below_one())
        ->excludes(file)
        ->type_name("X");
    app.add_flag("--untied-head", untied, "the head has a weight of its own")->excludes(file);
    app.add_option("--steps", steps, "optimizer steps; default: as many as --epochs need")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    app.add_option("--epochs", epochs, "passes over the data")
        ->check(command_line::positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    replaced.add(app);
    add(app);
  }
};

/// The ranks of a process share it.
using shared_tokenizer = command_line::made_once<xtrain::tokenizer>;

xtrain::dataset read_data(const char* flag, const std::vector<std::string>& paths, const pretrain_flags& flags,
                          const xtrain::tokenizer& tokenizer) {
  return command_line::for_flag(flag, paths.front(), [&] {
    const auto began = std::chrono::steady_clock::now();
    const bool json = std::all_of(paths.begin(), paths.end(),
                                  [](const std::string& path) { return path.ends_with(".json") || path.ends_with(".jsonl"); });
    return command_line::tokenised(flag, paths.front(),
                                   json ? xtrain::json_text_dataset(paths, tokenizer, {.field = flags.text_field}) : xtrain::text_dataset(paths, tokenizer), began);
  });
}

/// The config from the flags or from a file, with the tokenizer's vocabulary and special tokens.
xtrain::decoder_config complete(pretrain_flags& flags, const xtrain::decoder_family_info& family, const xtrain::json_settings& config,
                                const xtrain::tokenizer& tokenizer, bool context_given, bool first_rank) {
  xtrain::decoder_config sizes = flags.sizes;
  sizes.family = &family;
  if (!flags.config.empty()) {
    const auto settings = flags.replaced.apply(config, family, first_rank);
    sizes = command_line::for_flag("--config", flags.config, [&] { return xtrain::sizes_of(settings, family); });
    xtrain::require<command_line::usage_error>(sizes.vocabulary >= tokenizer.vocabulary(), "--tokenizer ", flags.tokenizer,
                                          ": its vocabulary of ", tokenizer.vocabulary(), " tokens must fit the model's ", sizes.vocabulary,
                                          " (--config ", flags.config, ")");
    if (context_given) flags.context = flags.sizes.context;
    return sizes;
  }
  const auto divides = [](const char* flag, std::size_t value, const char* by_flag, std::size_t by) {
    xtrain::require<command_line::usage_error>(value % by == 0, flag, " ", value, ": must be divisible by ", by_flag, " ", by);
  };
  divides("--width", sizes.width, "--heads", sizes.heads);
  if (sizes.kv_heads > 0) divides("--heads", sizes.heads, "--kv-heads", sizes.kv_heads);
  sizes.vocabulary = tokenizer.vocabulary();
  sizes.tied_head = !flags.untied;
  sizes.embedding_dropout = sizes.attention_dropout = sizes.residual_dropout = flags.dropout;
  sizes.bos = tokenizer.special().bos;
  if (tokenizer.special().eos >= 0) sizes.eos = {tokenizer.special().eos};
  return sizes;
}

/// returns the exit status: see train()
template <class Model>
int pretrain(pretrain_flags flags, const xtrain::json_settings& config, bool context_given,
             const typename Model::recipe::parallel::config& layout, bool first_rank, shared_tokenizer& tokenizers,
             command_line::interruption& interrupt) {
  using device = typename Model::device;
  const auto& tokenizer = tokenizers.get([&] { return command_line::for_flag("--tokenizer", flags.tokenizer, [&] { return xtrain::load_tokenizer(flags.tokenizer); }); });
  const auto& family = flags.config.empty() ? *families::named(flags.model)
                                            : command_line::for_flag("--config", flags.config, [&]() -> const auto& { return Model::family_of(config); });
  const auto sizes = complete(flags, family, config, tokenizer, context_given, first_rank);
  const auto on = flags.device.open<device>();
  const typename Model::options options{.parallel = layout, .seed = flags.seed};
  command_line::show_plan<Model>(sizes, options, flags, on, flags.plan && first_rank);
  if (flags.plan) return 0;

  xtrain::require<command_line::usage_error>(!flags.data.empty(), "--data: must be given: text to learn from");
  flags.check_output();
  const auto read = [&](const char* flag, const std::vector<std::string>& paths) {
    return command_line::read_once(layout, flags.parallel, [&] { return read_data(flag, paths, flags, tokenizer); });
  };
  const auto data = read("--data", flags.data);
  std::optional<xtrain::dataset> held_out;
  if (!flags.eval_data.empty()) held_out.emplace(read("--eval-data", {flags.eval_data}));

  Model model(sizes, on, options);
  if (first_rank)
    std::fprintf(stderr, "%s%s parameters, %s tokens of text\n", xtrain::describe<recipe>().c_str(),
                 xtrain::count_text(static_cast<double>(model.parameters().count())).c_str(),
                 xtrain::count_text(static_cast<double>(data.tokens())).c_str());
  const auto lock = flags.lock_output(first_rank);  // files written before the first checkpoint could belong to another run, too
  std::string tokenizer_files = flags.tokenizer;
  if (tokenizer_files == "byte") {  // the byte tokenizer has no files yet: write them
    if (first_rank) {
      xtrain::make_folder(flags.output);
      tokenizer.save(flags.output);
    }
    tokenizer_files = flags.output;
  }
  return command_line::train(model, flags, data, held_out ? &*held_out : nullptr,
                      {.every = flags.save_every, .keep = flags.save_total_limit, .tokenizer_from = tokenizer_files, .asynchronous = flags.save_asynchronously},
                      first_rank, interrupt);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a language model from nothing but text.", "pretrain");
  pretrain_flags flags;
  flags.add_all(app);
  flags.parallel.add<recipe::parallel>(app);
  return command_line::run(app, argc, argv, [&] {
    flags.watch_over(app.get_name(), argc, argv);
    const bool context_given = app.count("--context") > 0;
    command_line::interruption interrupt;
    shared_tokenizer tokenizers;
    xtrain::json_settings config;
    if (flags.config.empty()) config.set("model_type", flags.model);
    else
      config = command_line::for_flag("--config", flags.config,
                                      [&] { return xtrain::read_settings(flags.config); });
    xtrain::require<command_line::usage_error>(!flags.config.empty() || flags.replaced.override_config.empty(),
                                          "--override-config: replaces settings of a --config; none is given");
    std::atomic<int> status = 0;
    command_line::on_ranks<recipe::parallel, processes>(flags.parallel, [&](const auto& layout, bool first_rank) {
      const int one = pretrain<model_of<recipe>>(flags, config, context_given, layout, first_rank, tokenizers, interrupt);
      if (one != 0) status = one;
    });
    return status.load();
  });
}
