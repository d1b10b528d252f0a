// Continues one text, or many. The text goes to standard output, everything else to standard error.
//
//   generate --model DIR --prompt "Once upon a time" --max-new-tokens 100
//   generate --model DIR --chat --system "You are terse." --prompt "Why is the sky blue?"
//   generate --model DIR --prompts questions.jsonl --batch-size 16 > answers.jsonl
//   generate --model DIR --adapter DIR --prompts dev.json --prompt-field content --answer-field summary --predictions DIR
//
// Policies (device, precision, ...) are chosen at compile time: see xtrain_add_trainer.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <type_traits>
#include <utility>

#include <xtrain/adapt/prefix_folder.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/generate/stop_text.hpp>

#include "command_line.hpp"
#include "log_styles_torchtune.hpp"
#include "predicted_answers.hpp"
#include "ranks.hpp"
#include "readable_adapter.hpp"
#include "recipe.hpp"

namespace {

/// The recipe with a prefix before every sequence, which cannot be merged into the weights.
struct prefix_recipe : recipe {
  using adapter = xtrain::prefix_tuning;
};
/// Whether the folder has a prefix, in PEFT's or ChatGLM's format, and no LoRA adapter.
bool has_prefix(const std::string& folder) {
  if (folder.empty()) return false;
  const std::string adapter = folder + "/adapter_config.json", model = folder + "/config.json";
  if (xtrain::file_exists(adapter)) return xtrain::read_settings(adapter).text_or("", {"peft_type"}) == "PREFIX_TUNING";
  return xtrain::file_exists(model) && xtrain::read_settings(model).has({"pre_seq_len"});
}

struct generate_flags {
  std::string model{}, adapter{}, tokenizer{}, prompt{}, prompts{}, system{}, format = "text", early_stopping = "false", log_style = "xtrain";
  xtrain::generate_config how{.max_new_tokens = 128};
  std::vector<std::string> stop{}, bad_words{};
  std::size_t batch_size = 8, weight_bits = 0;
  bool ids = false, echo = false, is_chat = false, log_probs = false;
  command_line::prediction_flags predictions{};
  command_line::chat_flags chat{};
  command_line::config_flags config{};
  command_line::vocabulary_flags vocabulary{};
  command_line::device_flags device{};
  command_line::rank_flags parallel{};

  void add(CLI::App& app) {
    app.add_option("--model", model, "folder with config.json and safetensors, or a GGUF file")->required()->type_name("DIR");
    app.add_option("--adapter", adapter, "folder with an adapter for the model: LoRA, or the prefix of prefix tuning and P-tuning; or a GGUF file of LoRA")
        ->type_name("PATH");
    app.add_option("--weight-bits", weight_bits,
                   "with a prefix, 4 or 8: weights of linear layers are integers with a scale per row, as ChatGLM-6B's --quantization_bit makes them; 0: as "
                   "they are")
        ->check(command_line::one_of({"0", "4", "8"}))
        ->type_name("N");
    app.add_option("--tokenizer", tokenizer, "byte, a folder or a file; default: the adapter's folder if it has one, or else the model's")
        ->type_name("byte|DIR|FILE");
    auto* one = app.add_option("--prompt", prompt, "text to continue; empty: start from the begin-of-text token")->type_name("TEXT");
    auto* many = app.add_option("--prompts", prompts,
                                "texts to continue: one in each line, or in a JSON file (.json, .jsonl) strings, or objects with a 'prompt'. Every answer is a line "
                                "of JSON")
                     ->excludes(one)
                     ->type_name("FILE");
    auto* const predicts = predictions.add(app, many);
    auto* as_format = app.add_option("--format", format, "text: the prompt as it is; alpaca: the prompt is an instruction")
                          ->check(command_line::one_of({"text", "alpaca"}))
                          ->capture_default_str();
    auto* as_chat = app.add_flag("--chat", is_chat, "the prompt is what the user says in a chat; the answer ends with its turn")->excludes(as_format);
    app.add_option("--system", system, "system message of the chat")->needs(as_chat)->type_name("TEXT");
    chat.add(app)->needs(as_chat);
    const auto count = [&](const char* flag, std::size_t& to, const char* help, bool positive = false) {
      const CLI::Validator check = positive ? command_line::positive_whole_number() : command_line::whole_number();
      app.add_option(flag, to, help)->check(check)->type_name("N")->capture_default_str();
    };
    const auto number = [&](const char* flag, double& to, const char* help, const CLI::Validator& check) {
      app.add_option(flag, to, help)->check(check)->type_name("X")->capture_default_str();
    };
    const CLI::Validator any = command_line::number_from<double>(-1e9, 1e9, "a number from -1e9 to 1e9");
    count("--max-new-tokens", how.max_new_tokens, "maximum number of tokens to generate");
    app.get_option("--max-new-tokens")->excludes("--max-length");
    count("--min-new-tokens", how.min_new_tokens, "an answer does not end at a stop token before it has as many tokens");
    count("--batch-size", batch_size, "sequences that are generated at a time", true);
    count("--num-return-sequences", how.num_return_sequences, "answers to each prompt, sampled or of a beam search; each is a line of JSON", true);
    xtrain::sampling_config& s = how.sampling;
    number("--temperature", s.temperature, "sampling temperature; 0: greedy", command_line::not_negative());
    count("--top-k", s.top_k, "sample from the k most likely tokens; 0: all");
    number("--top-p", s.top_p, "sample from the most likely tokens that together have this probability", command_line::positive_share());
    number("--min-p", s.min_p, "sample from tokens at least this times as likely as the most likely one", command_line::share());
    number("--repetition-penalty", s.repetition_penalty, "above 1: tokens that occurred before become less likely", command_line::positive());
    number("--frequency-penalty", s.frequency_penalty, "subtracted from a token's logit for every time that it was generated", any);
    number("--presence-penalty", s.presence_penalty, "subtracted once from the logit of a token that was generated", any);
    count("--no-repeat-ngram-size", s.no_repeat_ngram_size, "as many tokens in a row occur only once, prompt included; 0: any number of times");
    app.add_option("--bad-words", bad_words, "texts that are not generated, at the beginning of a word or within one")->type_name("TEXT ...");
    app.add_option("--seed", s.seed, "random seed of the sampling")->check(command_line::whole_number())->type_name("N")->capture_default_str();
    app.add_option("--stop", stop, "texts that end an answer, and are not part of it")->type_name("TEXT ...");
    count("--num-beams", how.beams.num_beams, "above 1: beam search with as many texts", true);
    number("--length-penalty", how.beams.length_penalty, "of a beam search: above 0 favors long answers", any);
    app.add_option("--early-stopping", early_stopping,
                   "of a beam search: true ends it with the first --num-beams answers; never: when no better one is possible")
        ->check(command_line::one_of({"false", "true", "never"}))
        ->capture_default_str();
    app.add_flag("--log-probs", log_probs, "with lines of JSON: the log-probability of each token");
    app.add_flag("--ids", ids, "print token ids instead of text");
    app.add_flag("--echo", echo, "print the prompt before the generated text");
    app.add_option("--log-style", log_style,
                   "torchtune: what was said and the answer, when it is whole, and the speed, as lines of torchtune's log, on standard error")
        ->check(command_line::one_of({"xtrain", "torchtune"}))
        ->capture_default_str();
    for (const char* other : {"--chat", "--format", "--stop", "--log-probs", "--ids", "--echo", "--log-style", "--num-return-sequences", "--num-beams"})
      predicts->excludes(app.get_option(other));
    config.add(app);
    vocabulary.add_size(app);
    device.add(app);
    parallel.add<recipe::parallel>(app);
  }
  /// The system message and the user's.
  [[nodiscard]] std::vector<xtrain::chat_message> messages(const std::string& says) const {
    std::vector<xtrain::chat_message> all;
    if (!system.empty()) all.push_back({"system", system});
    all.push_back({"user", says});
    return all;
  }
  [[nodiscard]] bool logs_as_torchtune() const { return log_style == "torchtune"; }
  [[nodiscard]] bool prints_lines() const { return !prompts.empty() || how.num_return_sequences > 1 || log_probs; }
  /// The texts of --prompt or --prompts.
  [[nodiscard]] std::vector<std::string> texts() const {
    if (prompts.empty()) return {prompt};
    return command_line::for_flag("--prompts", prompts, [&] {
      const xtrain::mapped_file file(prompts);
      std::vector<std::string> all;
      if (prompts.ends_with(".jsonl") || prompts.ends_with(".json")) {
        xtrain::detail::for_each_record(file, [&](const xtrain::json& record, std::size_t line) {
          const xtrain::json& value = record.is_object() && record.contains("prompt") ? record.at("prompt") : record;
          xtrain::require<xtrain::file_error>(value.is_string(), prompts, ": a line must be a string or an object with a string 'prompt'; line ", line,
                                              " is neither");
          all.push_back(value.get<std::string>());
        });
      } else {
        xtrain::detail::require_text(prompts, file.text());
        std::string_view rest = file.text();
        if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);  // a byte order mark
        while (!rest.empty()) {
          const std::size_t end = std::min(rest.find('\n'), rest.size());
          std::string_view text = rest.substr(0, end);
          rest.remove_prefix(std::min(end + 1, rest.size()));
          if (text.ends_with('\r')) text.remove_suffix(1);
          all.emplace_back(text);
        }
      }
      xtrain::require<xtrain::file_error>(!all.empty(), prompts, ": must have a prompt; it has none");
      return all;
    });
  }
};

/// Shared by ranks that are threads of this process.
struct shared_things {
  command_line::made_once<xtrain::tokenizer> tokenizer{};
};

/// An answer as a line of JSON.
std::string line_of(const generate_flags& flags, std::size_t i, const xtrain::generated_sequence& one, const std::string& text, bool ended) {
  xtrain::json line{{"prompt", i / flags.how.num_return_sequences}};
  if (flags.how.num_return_sequences > 1) line["answer"] = i % flags.how.num_return_sequences;
  if (flags.ids) line["ids"] = one.tokens;
  else line["text"] = text;
  line["finish_reason"] = one.stop >= 0 || ended ? "stop" : "length";
  if (flags.how.beams.num_beams > 1) line["score"] = one.score;
  if (flags.log_probs) line["log_probs"] = one.log_probs;
  return line.dump(-1, ' ', false, xtrain::json::error_handler_t::replace) + "\n";
}

template <class Model, class Layout>
void generate(const generate_flags& flags, const xtrain::json_settings& settings, Layout layout, bool first_rank, shared_things& shared) {
  const auto& family = command_line::for_flag("--model", flags.model, [&]() -> const auto& { return Model::family_of(settings); });
  command_line::chat_flags chat = flags.chat;
  if (flags.is_chat) chat.find({flags.adapter, flags.tokenizer, flags.model});
  const command_line::tokenizer_place place = command_line::tokenizer_place_of(flags.tokenizer, flags.adapter, flags.model);
  const xtrain::tokenizer& tokenizer = shared.tokenizer.get([&] {
    return command_line::tokenizer_of(place.flag, place.path);
  });
  if (first_rank) command_line::warn_of_tokenizer(tokenizer);
  const auto on = command_line::open_device<typename Model::device>(flags.device, flags.parallel, layout, first_rank);
  const auto config = flags.config.apply(settings, family, first_rank);
  auto sizes = command_line::for_flag("--model", flags.model, [&] { return xtrain::sizes_of(config, family); });
  sizes.vocab_size = flags.vocabulary.size(sizes.vocab_size, tokenizer);
  constexpr bool with_prefix = Model::recipe::adapter::freezes_weights;
  bool resizes = flags.vocabulary.resizes();
  if (!with_prefix && !flags.adapter.empty() && !resizes) {
    const std::size_t rows = command_line::for_flag("--adapter", flags.adapter, [&] { return xtrain::adapter_vocabulary(flags.adapter, family, sizes); });
    resizes = rows != std::exchange(sizes.vocab_size, rows);
  }
  typename Model::options options{.parallel = layout};
  if constexpr (with_prefix) {
    options.adapter = command_line::for_flag("--adapter", flags.adapter, [&] { return xtrain::prefix_config_of(flags.adapter); });
    options.adapter.projection = 0;  // the network's output is used
    options.adapter.weight_bits = flags.weight_bits;
  }
  auto model = command_line::for_flag("--model", flags.model, [&] {
    return xtrain::load_as<Model>(flags.model, sizes, on, options, {.resize_vocabulary = resizes});
  });
  if (!flags.adapter.empty()) {
    xtrain::require<command_line::usage_error>(flags.parallel.ranks == 1, "--adapter: is loaded on one rank; given are --ranks ", flags.parallel.ranks,
                                              with_prefix ? "" : ". Merge it first, with convert");
    command_line::for_flag("--adapter", flags.adapter, [&] {
      if constexpr (with_prefix) load_adapter(model, flags.adapter);
      else merge_adapter(model, flags.adapter);
    });
  }

  if (flags.logs_as_torchtune() && first_rank)
    command_line::torchtune_lines::info(
        xtrain::concat("Model is initialized with precision torch.", recipe::precision::name == xtrain::fp32::name ? "float32" : "bfloat16", "."));
  xtrain::generate_config how = flags.how;
  how.stop = model.config().eos;
  for (const xtrain::token t : xtrain::generation_stop_tokens(flags.model)) how.stop.push_back(t);
  if (tokenizer.special().eos >= 0) how.stop.push_back(tokenizer.special().eos);
  std::optional<command_line::answered_prompts> answered;
  if (flags.predictions.given())
    command_line::for_flag("--prompts", flags.prompts, [&] { answered.emplace(flags.predictions, flags.prompts); });
  std::vector<std::string> texts = answered ? answered->prompts : flags.texts(), ends = flags.stop;
  std::vector<std::vector<xtrain::token>> prompts;
  if (flags.is_chat) {
    const xtrain::chat_template form = chat.with(tokenizer);
    for (std::string& text : texts) {
      text = command_line::for_flag("--chat-template", chat.given, [&] { return form.apply(flags.messages(text), {.add_generation_prompt = true}); });
      prompts.push_back(xtrain::encode_chat(text, tokenizer, form));
    }
    if (const std::string turn = form.end_of_turn(); !turn.empty()) {
      const auto tokens = tokenizer.encode(turn);
      xtrain::require<command_line::usage_error>(how.beams.num_beams == 1 || tokens.size() == 1, "--chat: must not be given with --num-beams ",
                                                how.beams.num_beams, ", because the end of a turn, '", turn, "', is ", tokens.size(),
                                                " tokens: a beam search ends at single ones");
      if (tokens.size() == 1) how.stop.push_back(tokens.front());
      ends.push_back(turn);  // where it is no token of the vocabulary
    }
  } else {
    for (std::string& text : texts) {
      if (flags.format == "alpaca") text = xtrain::alpaca_template().text(text, "");
      prompts.push_back(command_line::for_flag(flags.prompts.empty() ? "--prompt" : "--prompts", "", [&] { return tokenizer.encode_prompt(text); }));
    }
  }
  std::sort(how.stop.begin(), how.stop.end());
  how.stop.erase(std::unique(how.stop.begin(), how.stop.end()), how.stop.end());
  for (const std::string& word : flags.bad_words)
    for (const std::string& text : {word, " " + word})
      if (auto tokens = tokenizer.encode(text); !tokens.empty()) how.sampling.bad_words.push_back(std::move(tokens));
  how.log_probs = flags.log_probs;
  how.beams.stops_early = flags.early_stopping == "true"    ? xtrain::early_stopping::yes
                          : flags.early_stopping == "never" ? xtrain::early_stopping::never
                                                            : xtrain::early_stopping::no;

  if (answered) {
    for (auto& prompt : prompts) command_line::cut_prompt(prompt, flags.predictions.max_prompt_tokens, tokenizer);
    return command_line::for_flags(
        [&] { command_line::predict(model, flags.predictions, *answered, prompts, how, flags.batch_size, tokenizer, first_rank); });
  }
  const bool streams = !flags.prints_lines() && how.beams.num_beams == 1 && !flags.logs_as_torchtune();
  const auto show = [&](const std::string& piece) {
    if (!first_rank) return;
    command_line::print(piece);
  };
  auto answers = command_line::for_flag("--stop", "", [&] { return xtrain::stop_text(tokenizer, prompts, ends, how.num_return_sequences); });
  bool first = true;
  if (how.beams.num_beams == 1)
    how.on_token = [&](std::size_t i, xtrain::token next) {
      const bool goes_on = answers.push(i, next);
      const std::string words = answers.take(i);
      if (streams) show(flags.ids ? xtrain::concat(first ? "" : " ", next) : words);
      first = false;
      return goes_on;
    };
  if (flags.echo && !flags.ids && !flags.prints_lines()) show(texts.front());
  std::size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  const std::size_t rows = std::max(how.beams.num_beams, std::min(flags.batch_size, prompts.size() * how.num_return_sequences));
  const auto found = command_line::for_flags([&] {
    xtrain::generator generator(
        model, rows, std::min(model.config().max_position_embeddings, longest + std::min(how.max_new_tokens, model.config().max_position_embeddings)));
    return std::pair(generator.generate_sequences(prompts, how), generator.statistics());
  });
  const std::vector<xtrain::generated_sequence>& sequences = found.first;
  if (!first_rank) return;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (how.beams.num_beams > 1)
      for (const xtrain::token t : sequences[i].tokens)
        if (!answers.push(i, t)) break;
    const std::string text = answers.finish(i);
    if (flags.logs_as_torchtune()) {
      command_line::torchtune_lines::info(xtrain::concat(flags.system, flags.prompt, text));
    } else if (flags.prints_lines()) {
      show(line_of(flags, i, sequences[i], text, answers.ended(i)));
    } else if (!flags.ids) {
      show(answers.take(i));
    } else if (!streams) {
      for (const xtrain::token t : sequences[i].tokens) show(xtrain::concat(std::exchange(first, false) ? "" : " ", t));
    }
  }
  const xtrain::generate_statistics& took = found.second;
  if (flags.logs_as_torchtune()) {
    const double seconds = took.prompt_seconds + took.decode_seconds, speed = seconds > 0 ? static_cast<double>(took.new_tokens) / seconds : 0.0;
    const auto number = [](double value) {
      std::array<char, 64> text{};
      std::snprintf(text.data(), text.size(), "%.2f", value);
      return std::string(text.data());
    };
    using command_line::torchtune_lines;
    torchtune_lines::info(xtrain::concat("Time for inference: ", number(seconds), " sec total, ", number(speed), " tokens/sec"));
    torchtune_lines::info(xtrain::concat("Bandwidth achieved: ", number(took.bandwidth() * 1e-9), " GB/s"));
    torchtune_lines::info(xtrain::concat("Memory used: ", number(static_cast<double>(model.context().memory().total_peak) * 1e-9), " GB"));
    return;
  }
  if (!flags.prints_lines() && ::isatty(1) == 1) show("\n");
  std::fprintf(stderr,
               "prompt: %zu tokens in %.3f s; generated: %zu tokens, %.1f tokens/s\nBandwidth achieved: %.2f GB/s\nMemory used: %.2f GB\n",
               took.prompt_tokens, took.prompt_seconds, took.new_tokens, took.tokens_per_second(), took.bandwidth() * 1e-9,
               static_cast<double>(model.context().memory().total_peak) * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Continues one text, or many. The text goes to standard output, everything else to standard error.", "generate");
  generate_flags flags;
  flags.add(app);
  return command_line::run(app, argc, argv, [&] {
    xtrain::require<command_line::usage_error>(!flags.logs_as_torchtune() || (!flags.prints_lines() && !flags.ids && !flags.echo),
                                              "--log-style torchtune: is for one answer to --prompt, without --ids, --echo and --log-probs");
    xtrain::require<command_line::usage_error>(app.count("--prompt") + app.count("--prompts") == 1, "--prompt or --prompts: one of them must be given");
    xtrain::require<command_line::usage_error>(flags.stop.empty() || flags.how.beams.num_beams == 1,
                                              "--stop: must not be given with --num-beams ", flags.how.beams.num_beams, ": a beam search ends at tokens");
    if (flags.how.beams.num_beams == 1) {
      for (const char* name : {"--length-penalty", "--early-stopping"})
        xtrain::require<command_line::usage_error>(app.count(name) == 0, name, ": is for a beam search; give --num-beams above 1");
    }
    const xtrain::json_settings config = command_line::for_flag("--model", flags.model, [&] { return xtrain::read_config(flags.model); });
    const command_line::readable_adapter adapter(flags.adapter, [&] { return config; });
    flags.adapter = adapter.path();
    const bool prefix = command_line::for_flag("--adapter", flags.adapter, [&] { return has_prefix(flags.adapter); });
    xtrain::require<command_line::usage_error>(prefix || flags.weight_bits == 0, "--weight-bits: must be given with --adapter, a prefix; given ",
                                              flags.weight_bits);
    shared_things shared;
    const xtrain::sampling_config& sampling = flags.how.sampling;
    const bool narrows = sampling.top_k > 1 || sampling.top_p < 1.0 || sampling.min_p > 0.0;
    command_line::on_ranks<recipe::parallel, processes>(flags.parallel, [&](const auto& layout, bool first_rank) {
      if (first_rank && narrows && sampling.temperature == 0.0 && flags.how.beams.num_beams == 1)
        std::fprintf(stderr, "generate: warning: --top-k, --top-p and --min-p have no effect with --temperature 0, which takes the most likely token\n");
      if constexpr (std::is_same_v<recipe::parallel, xtrain::single>) {
        if (prefix) return generate<model_of<prefix_recipe>>(flags, config, layout, first_rank, shared);
      }
      xtrain::require<command_line::usage_error>(!prefix, "--adapter ", flags.adapter,
                                                ": is a prefix of keys and values, which needs a program for one rank; this one is for several");
      generate<model_of<recipe>>(flags, config, layout, first_rank, shared);
    });
  });
}
