// Pre-trains a language model on text.
//
//   pretrain --data corpus.txt --tokenizer byte --model-type llama --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 256
//     --max-steps 1000 --output-dir out
//   pretrain --data-path 0.3 wiki_text_document 0.7 web_text_document --split 969,30,1 --tokenizer DIR --config config.json --max-steps 1000 --output-dir out
//
// Policies (device, precision, ...) are chosen at compile time: see xtrain_add_trainer.
#include <xtrain/data/gpt_dataset.hpp>

#include "objective_flags.hpp"
#include "recipe.hpp"
#include "training_run.hpp"

namespace {

struct pretrain_flags : command_line::objective_training_flags<recipe::objective> {
  std::vector<std::string> data{}, data_path{};
  std::string split = "969,30,1";
  std::size_t eval_iters = 0;
  std::string tokenizer = "byte", model = "llama", config{}, text_field = "text";
  xtrain::decoder_config sizes{.hidden_size = 256, .num_layers = 4, .num_heads = 4, .max_position_embeddings = 256};
  double dropout = 0.0;
  bool untied = false, family_given = false;
  command_line::config_flags replaced{};

  void add_all(CLI::App& app) {
    auto* texts = app.add_option("--data", data, "text files, folders of them, or JSON(-lines) files")->type_name("PATH...");
    auto* indexed =
        app.add_option("--data-path", data_path,
                       "instead of --data: Megatron's indexed datasets, PREFIX.bin and PREFIX.idx, in Megatron's order; several with a weight before each")
            ->excludes(texts)
            ->type_name("[WEIGHT] PREFIX...");
    app.add_option("--split", split, "weights of the training, validation and test part of --data-path's documents")
        ->needs(indexed)
        ->type_name("N,N,N")
        ->capture_default_str();
    app.add_option("--eval-iters", eval_iters, "batches of --data-path's validation part to evaluate on; 0: none")
        ->check(command_line::whole_number())
        ->needs(indexed)
        ->type_name("N");
    app.add_option("--text-field", text_field, "field with the text, in records of a JSON file")->capture_default_str();
    app.add_option("--tokenizer", tokenizer, "byte, a folder with tokenizer files, or such a file")
        ->type_name("byte|DIR|FILE")
        ->capture_default_str();
    app.add_option("--model-type", model, xtrain::concat("model family (", families::names(), "); with --config, its model_type is used"))
        ->check(command_line::one_of(families::all_names()))
        ->capture_default_str();
    auto* file = app.add_option("--config", config, "config.json of the model, instead of the flags below")->type_name("FILE");
    const auto size = [&](const char* flag, std::size_t& to, const char* help) {
      app.add_option(flag, to, help)->check(command_line::positive_whole_number())->excludes(file)->type_name("N")->capture_default_str();
    };
    size("--num-layers", sizes.num_layers, "transformer layers");
    size("--hidden-size", sizes.hidden_size, "hidden size");
    size("--num-attention-heads", sizes.num_heads, "attention heads");
    app.add_option("--num-key-value-heads", sizes.num_kv_heads, "key/value heads, for grouped-query attention; default: as many as attention heads")
        ->check(command_line::positive_whole_number())
        ->excludes(file)
        ->type_name("N");
    app.add_option("--intermediate-size", sizes.intermediate_size, "intermediate size of feed-forward layers; default: the family's")
        ->check(command_line::positive_whole_number())
        ->excludes(file)
        ->type_name("N");
    app.add_option("--seq-length", sizes.max_position_embeddings, "sequence length, in tokens")
        ->check(command_line::positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--dropout", dropout, "dropout probability, wherever the family has dropout")
        ->check(command_line::share_below_one())
        ->excludes(file)
        ->type_name("X");
    app.add_flag("--untie-word-embeddings", untied, "do not tie the language model head to the token embeddings")->excludes(file);
    app.add_option("--max-steps", max_steps, "number of optimizer steps; default: as many as --num-train-epochs need")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    app.add_option("--num-train-epochs", epochs, "number of epochs")
        ->check(command_line::positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    replaced.add(app);
    add(app);
  }
};

/// Shared by the ranks of a process.
struct shared_things {
  command_line::made_once<xtrain::tokenizer> tokenizer{};
  command_line::made_once<std::shared_ptr<const xtrain::gpt_samples>> samples{}, held_out{};
};

xtrain::dataset read_data(const char* flag, const std::vector<std::string>& paths, const pretrain_flags& flags,
                          const xtrain::tokenizer& tokenizer) {
  return command_line::for_flag(flag, paths.front(), [&] {
    const auto began = std::chrono::steady_clock::now();
    const auto files = command_line::find_text_files(paths);
    xtrain::require<command_line::usage_error>(files.are_records || flags.text_field == "text", "--text-field ", flags.text_field,
                                               " needs JSON records; this is text");
    return command_line::tokenised(flag, paths.front(),
                                   files.are_records ? xtrain::json_text_dataset(files.paths, tokenizer, {.field = flags.text_field})
                                                     : xtrain::text_dataset(files.paths, tokenizer),
                                   began);
  });
}

/// Samples of a part of --data-path for this many steps of `batch` samples; 0 steps: for --num-train-epochs.
std::shared_ptr<const xtrain::gpt_samples> read_indexed(const pretrain_flags& flags, xtrain::data_split part, std::size_t steps, std::size_t batch,
                                                        const xtrain::decoder_config& sizes) {
  return command_line::for_flag("--data-path", "", [&] {
    const auto [sources, blended] = xtrain::parse_data_path(flags.data_path);
    xtrain::require<command_line::usage_error>(!blended || steps > 0, "several datasets, or one with a weight, need --max-steps");
    return std::make_shared<const xtrain::gpt_samples>(
        sources, blended,
        xtrain::gpt_options{.seq_length = flags.seq_length > 0 ? flags.seq_length : sizes.max_position_embeddings,
                            .vocab_size = sizes.vocab_size,
                            .samples = steps * batch,
                            .epochs = flags.epochs,
                            .samples_multiple_of = batch,
                            .seed = flags.seed,
                            .split = flags.split,
                            .part = part});
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
    xtrain::require<command_line::usage_error>(sizes.vocab_size >= tokenizer.vocab_size(), "--tokenizer ", flags.tokenizer,
                                          ": its vocabulary of ", tokenizer.vocab_size(), " tokens must fit the model's ", sizes.vocab_size,
                                          " (--config ", flags.config, ")");
    if (context_given) flags.seq_length = flags.sizes.max_position_embeddings;
    return sizes;
  }
  const auto divides = [](const char* flag, std::size_t value, const char* by_flag, std::size_t by) {
    xtrain::require<command_line::usage_error>(value % by == 0, flag, " ", value, ": must be divisible by ", by_flag, " ", by);
  };
  divides("--hidden-size", sizes.hidden_size, "--num-attention-heads", sizes.num_heads);
  if (sizes.num_kv_heads > 0) divides("--num-attention-heads", sizes.num_heads, "--num-key-value-heads", sizes.num_kv_heads);
  sizes.vocab_size = tokenizer.vocab_size();
  sizes.tie_word_embeddings = !flags.untied;
  sizes.embedding_dropout = sizes.attention_dropout = sizes.residual_dropout = flags.dropout;
  sizes.bos = tokenizer.special().bos;
  if (tokenizer.special().eos >= 0) sizes.eos = {tokenizer.special().eos};
  return sizes;
}

/// returns the exit status: see train()
template <class Model>
int pretrain(pretrain_flags flags, const xtrain::json_settings& config, bool context_given,
             typename Model::recipe::parallel::config layout, bool first_rank, shared_things& shared,
             command_line::interruption& interrupt) {
  using device = typename Model::device;
  const auto& tokenizer = shared.tokenizer.get(
      [&] { return command_line::tokenizer_of("--tokenizer", flags.tokenizer); });
  if (first_rank) command_line::warn_of_tokenizer(tokenizer);
  const auto& family = flags.config.empty() ? *families::named(flags.model)
                                            : command_line::for_flag("--config", flags.config, [&]() -> const auto& { return Model::family_of(config); });
  const bool same_family = std::string_view(families::named(flags.model)->name) == family.name;
  xtrain::require<command_line::usage_error>(flags.config.empty() || !flags.family_given || same_family, "--model-type ", flags.model,
                                             ": must be that of --config ", flags.config, ", ", family.name);
  const auto sizes = complete(flags, family, config, tokenizer, context_given, first_rank);
  command_line::for_flags([&] { command_line::require_kept(sizes, family); });
  const auto on = command_line::open_device<device>(flags.device, flags.parallel, layout, first_rank, flags.plan);
  const typename Model::options options{.parallel = layout, .seed = flags.seed};
  command_line::show_plan<Model>(sizes, options, flags, on, flags.plan && first_rank);
  if (flags.plan) return 0;

  const bool indexed = !flags.data_path.empty();
  xtrain::require<command_line::usage_error>(indexed || !flags.data.empty(), "--data: must be given: text to train on; or --data-path, an indexed dataset");
  xtrain::require<command_line::usage_error>(!indexed || flags.text_field == "text", "--text-field ", flags.text_field,
                                             ": needs JSON records; --data-path has tokens");
  xtrain::require<command_line::usage_error>(flags.eval_iters == 0 || flags.eval_data.empty(), "--eval-iters: evaluates on --data-path; --eval-data ",
                                             flags.eval_data, " is given as well");
  flags.check_output();
  const auto read = [&](const char* flag, const std::vector<std::string>& paths) {
    return command_line::read_once(layout, flags.parallel, [&] { return read_data(flag, paths, flags, tokenizer); });
  };
  std::optional<xtrain::dataset> given, held_out;
  if (!indexed) given.emplace(read("--data", flags.data));
  if (!flags.eval_data.empty()) held_out.emplace(read("--eval-data", {flags.eval_data}));

  Model model(sizes, on, options);
  if (indexed) {  // every rank maps the files; the number of samples, hence their order, depends on the ranks
    const std::size_t batch = flags.micro_batch_size * flags.gradient_accumulation_steps * model.parallel().data().size();
    given.emplace(xtrain::gpt_dataset(
        shared.samples.get([&] { return read_indexed(flags, xtrain::data_split::train, flags.max_steps, batch, sizes); })));
    if (flags.eval_iters > 0)
      held_out.emplace(xtrain::gpt_dataset(
          shared.held_out.get([&] { return read_indexed(flags, xtrain::data_split::validation, flags.eval_iters, batch, sizes); })));
    flags.epochs = 1;  // the samples contain all epochs
    if (first_rank)
      std::fprintf(stderr, "--data-path %s: %zu samples to train on, %zu to evaluate on\n", given->source().c_str(), given->size(),
                   held_out ? held_out->size() : 0);
  }
  const xtrain::dataset& data = *given;
  if (first_rank)
    std::fprintf(stderr, "%s%s parameters, %s tokens of text\n", xtrain::describe<recipe>().c_str(),
                 xtrain::count_text(static_cast<double>(model.parameters().count())).c_str(),
                 xtrain::count_text(static_cast<double>(data.tokens())).c_str());
  const auto lock = flags.lock_output(first_rank);  // files from before the first checkpoint could belong to another run
  std::string tokenizer_files = flags.tokenizer;
  if (tokenizer_files == "byte") {  // the byte tokenizer has no files yet: write them
    if (first_rank) {
      xtrain::make_folder(flags.output);
      tokenizer.save(flags.output);
    }
    tokenizer_files = flags.output;
  }
  return command_line::train(model, flags, data, held_out ? &*held_out : nullptr,
                             {.save_steps = flags.save_steps,
                              .save_total_limit = flags.save_total_limit,
                              .tokenizer_from = tokenizer_files,
                              .asynchronous = flags.save_asynchronously},
                             first_rank, interrupt);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Pre-trains a language model on text.", "pretrain");
  pretrain_flags flags;
  flags.add_all(app);
  flags.parallel.add<recipe::parallel>(app);
  return command_line::run(app, argc, argv, [&] {
    flags.check_uses(app, !flags.eval_data.empty() || flags.eval_iters > 0, "--eval-data, or --eval-iters with --data-path");
    flags.watch_over(app.get_name(), argc, argv);
    flags.family_given = app.count("--model-type") > 0;
    const bool context_given = app.count("--seq-length") > 0;
    command_line::interruption interrupt;
    shared_things shared;
    xtrain::json_settings config;
    if (flags.config.empty()) config.set("model_type", flags.model);
    else
      config = command_line::for_flag("--config", flags.config,
                                      [&] { return xtrain::read_settings(flags.config); });
    xtrain::require<command_line::usage_error>(!flags.config.empty() || flags.replaced.override_config.empty(),
                                          "--override-config: replaces settings of a --config; none is given");
    std::atomic<int> status = 0;
    command_line::on_ranks<recipe::parallel, processes>(flags.parallel, [&](const auto& layout, bool first_rank) {
      const int one = pretrain<model_of<recipe>>(flags, config, context_given, layout, first_rank, shared, interrupt);
      if (one != 0) status = one;
    });
    return status.load();
  });
}
