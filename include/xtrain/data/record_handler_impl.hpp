// Definitions of record_handler.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_record.hpp>
#include <xtrain/chat/chat_template.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/core/text_span.hpp>
#include <xtrain/data/chat_encoder.hpp>
#include <xtrain/data/record_handler.hpp>
#include <xtrain/data/record_source.hpp>
#include <xtrain/data/text_with_loss_mask.hpp>
#include <xtrain/jinja/characters.hpp>
#include <xtrain/jinja/from_json.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE ascendspeed_prompt::ascendspeed_prompt()
    : text_(
          "\nBelow is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes "
          "the request. Please note that you need to think through your response logically and step by step.\n") {}

XTRAIN_INLINE void ascendspeed_prompt::add(std::string_view speaker, std::string_view words) {
  text_ += speaker;
  answer_ = text_.size();
  text_ += words;
  text_ += '\n';
}

/// Common to handlers: tokenizer, and tokens around a text.
class handler_base : public record_handler {
 public:
  /// `name`: without "Handler".
  handler_base(const tokenizer& with, std::string name, handler_options options) : with_(with), options_(std::move(options)), name_(std::move(name)) {
    const special_tokens& special = with.special();
    require<config_error>(!options_.append_eod || special.eos >= 0,
                          "append_eod: the tokenizer must have an end-of-text token; it has none");
    if (options_.beginning == text_beginning::as_tokenizer) before_ = with.beginning();
    if (options_.beginning == text_beginning::always) {
      before_ = with.beginning();
      // a vocabulary with one token for both (GPT-2's <|endoftext|>) may name only the end
      const token first = special.first();
      require<config_error>(!before_.empty() || first >= 0, "prepend_bos: the tokenizer must have a begin-of-text token; it has none");
      if (before_.empty()) before_ = {first};
    }
  }
  [[nodiscard]] json settings() const override {
    json all{{"name", name_}, {"append_eod", options_.append_eod}, {"begins_with", before_}, {"map_keys", options_.map_keys}};
    if (options_.chat) all["chat_template"] = options_.chat->fingerprint();
    return all;
  }

 protected:
  void begin(text_with_loss_mask& to) const {
    for (const token id : before_) to.add(id, false);
  }
  void end(text_with_loss_mask& to) const {
    if (options_.append_eod) to.add(with_.special().eos, true);
  }
  void add(std::string_view text, text_with_loss_mask& to) const {
    const std::vector<token> ids = with_.encode(text);
    to.tokens.insert(to.tokens.end(), ids.begin(), ids.end());
    to.learned.insert(to.learned.end(), ids.size(), true);
  }

  tokenizer with_;
  handler_options options_;
  std::string name_;
  std::vector<token> before_;
};

class pretrain_handler : public handler_base {
 public:
  using handler_base::handler_base;
  [[nodiscard]] std::vector<std::string> keys() const override { return options_.keys; }
  [[nodiscard]] bool is_instruction() const override { return false; }
  void tokenize(source_record& from, std::vector<text_with_loss_mask>& into) const override {
    const json record = std::move(from).parsed();
    into.resize(options_.keys.size());
    for (std::size_t i = 0; i < into.size(); ++i) document(string_field(record, options_.keys[i], from.place), from, into[i]);
  }

 protected:
  void document(std::string_view text, const source_record& from, text_with_loss_mask& to) const {
    to.clear();
    if (text.empty()) return;
    if (from.begins) begin(to);
    add(text, to);
    if (from.ends) end(to);
  }
};

class alpaca_handler final : public pretrain_handler {
 public:
  using pretrain_handler::pretrain_handler;
  void tokenize(source_record& from, std::vector<text_with_loss_mask>& into) const override {
    const json record = std::move(from).parsed();
    const auto input = record.find("input");
    const std::string given = input == record.end() || input->is_null() ? std::string() : string_field(record, "input", from.place);
    into.resize(1);
    // AscendSpeed writes Python's "None" for a missing input; models trained there expect it
    document(concat("A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the "
                    "user's questions.USER: Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
                    "### Instruction:\n",
                    string_field(record, "instruction", from.place), "\n\n###", given.empty() ? "None" : " Input:\n", given,
                    "\n\n### Response: ASSISTANT: ", string_field(record, "output", from.place)),
             from, into[0]);
  }
};

class stack_overflow_handler final : public pretrain_handler {
 public:
  using pretrain_handler::pretrain_handler;
  void tokenize(source_record& from, std::vector<text_with_loss_mask>& into) const override {
    const json record = std::move(from).parsed();
    into.resize(1);
    const auto field = [&](const char* name) -> const std::string& { return string_field(record, name, from.place); };
    document(
        concat("In python, ", field("title"), "\n### Question:\n", field("question_body"), "\n### Response:\n", field("answer_body"), "\n"),
        from, into[0]);
  }
};

class instruction_handler : public handler_base {
 public:
  using handler_base::handler_base;
  [[nodiscard]] std::vector<std::string> keys() const override { return {"input_ids"}; }
  [[nodiscard]] bool is_instruction() const override { return true; }
  void tokenize(source_record& from, std::vector<text_with_loss_mask>& into) const override {
    const std::vector<prompt_and_answer> samples = texts_of(std::move(from).parsed(), from.place);
    into.resize(samples.size());
    for (std::size_t i = 0; i < into.size(); ++i) {
      const prompt_and_answer& sample = samples[i];
      const text_span answered{sample.answer, sample.text.size()};
      into[i].clear();
      begin(into[i]);
      into[i].add(sample.text, 0, std::span(&answered, 1), with_);
      end(into[i]);
    }
  }

 protected:
  [[nodiscard]] virtual std::vector<prompt_and_answer> texts_of(const json& record, const source_place& place) const {
    const std::string& prompt = string_field(record, options_.map_keys.at("prompt"), place);
    const std::string& query_key = options_.map_keys.at("query");
    const auto query = record.find(query_key);
    ascendspeed_prompt all;
    all.user(concat(prompt, "\n", query == record.end() || query->is_null() ? std::string() : string_field(record, query_key, place)));
    all.assistant(string_field(record, options_.map_keys.at("response"), place));
    return {all.sample()};
  }
  [[nodiscard]] static std::string_view stripped(std::string_view text) { return jinja::stripped(text, true, true); }
  template <class... Parts>
  static void must(bool holds, const source_place& place, const Parts&... parts) {
    if (!holds) [[unlikely]]
      fail<data_error>(place.text(), ": ", parts...);
  }
};

class belle_handler final : public instruction_handler {
 public:
  using instruction_handler::instruction_handler;

 private:
  [[nodiscard]] std::vector<prompt_and_answer> texts_of(const json& record, const source_place& place) const override {
    constexpr std::string_view human = "Human:", assistant = "Assistant:";
    std::string_view rest = stripped(string_field(record, options_.map_keys.at("prompt"), place));
    must(rest.starts_with(human), place, "an instruction of turns must begin with 'Human:'; single turns are GeneralInstructionHandler's");
    ascendspeed_prompt all;
    while (!rest.empty()) {
      rest.remove_prefix(human.size());
      const std::size_t end = std::min(rest.find(human), rest.size());
      const std::string_view turn = rest.substr(0, end);
      const std::size_t answer = turn.find(assistant);
      must(answer != std::string_view::npos, place, "every turn of 'Human:' must have an 'Assistant:'; one has none");
      all.user(stripped(turn.substr(0, answer)));
      const std::string_view words = stripped(turn.substr(answer + assistant.size()));
      rest = rest.substr(end);
      if (!rest.empty()) all.assistant(words);
      else must(words.empty(), place, "an instruction of turns must end with 'Assistant:'; it ends with an answer");
    }
    all.assistant(stripped(string_field(record, options_.map_keys.at("response"), place)));
    return {all.sample()};
  }
};

class moss_handler final : public instruction_handler {
 public:
  using instruction_handler::instruction_handler;

 private:
  [[nodiscard]] static std::string without(std::string text, std::initializer_list<std::string_view> marks) {
    for (const std::string_view mark : marks)
      for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) text.erase(at, mark.size());
    return std::string(stripped(text));
  }
  [[nodiscard]] std::vector<prompt_and_answer> texts_of(const json& record, const source_place& place) const override {
    const auto chat = record.find("chat");
    must(chat != record.end() && chat->is_object() && !chat->empty(), place, "a record must have 'chat', an object of turns; it has none");
    ascendspeed_prompt all;
    std::vector<prompt_and_answer> samples;
    for (std::size_t i = 1; i <= chat->size(); ++i) {
      const std::string name = concat("turn_", i);
      const auto turn = chat->find(name);
      must(turn != chat->end(), place, "turns must be turn_1 to turn_", chat->size(), "; '", name, "' is missing");
      if (turn->empty()) continue;
      must(turn->is_object(), place, "'", name, "' must be an object; it is ", turn->type_name());
      all.user(without(string_field(*turn, "Human", place), {"<eoh>", "<|Human|>: "}));
      all.assistant(without(string_field(*turn, "MOSS", place), {"<|MOSS|>:", "<eom>"}));
      samples.push_back(all.sample());
    }
    must(!samples.empty(), place, "'chat' must have a turn; all are empty");
    return samples;
  }
};

class leetcode_handler final : public instruction_handler {
 public:
  using instruction_handler::instruction_handler;

 private:
  [[nodiscard]] std::vector<prompt_and_answer> texts_of(const json& record, const source_place& place) const override {
    const std::string_view problem = string_field(record, "code_with_problem", place);
    ascendspeed_prompt all;
    all.user(stripped(problem.substr(0, problem.find("```"))));
    all.assistant(concat(string_field(record, "code_only", place), "\n", string_field(record, "explanation_only", place)));
    return {all.sample()};
  }
};

class conversation_handler final : public handler_base {
 public:
  conversation_handler(const tokenizer& with, const std::string& name, const handler_options& options)
      : handler_base(with, name, options), encoder_(with_, &*options_.chat), warnings_(options_.warn) {}
  [[nodiscard]] std::vector<std::string> keys() const override { return {"input_ids"}; }
  [[nodiscard]] bool is_instruction() const override { return true; }
  void tokenize(source_record& from, std::vector<text_with_loss_mask>& into) const override {
    into.resize(1);
    try {
      // a template may print a tool's fields, in text order
      const jinja_value record = jinja_value_from_json(from.json_text(), *from.place.path, from.place.number);
      const chat_record chat = chat_record_reader(*from.place.path, from.place.number).read(record, chat_form::automatic);
      const std::vector<unread_field> unread = encoder_.encode(chat, {}, into[0]);
      require<data_error>(std::find(into[0].learned.begin(), into[0].learned.end(), true) != into[0].learned.end(),
                          "a conversation must have an answer to train on; it has none");
      warnings_.say(*from.place.path, from.place.text(), unread, chat.variables, *options_.chat);
    } catch (const data_error& problem) {
      const std::string words = problem.what(), line = concat(*from.place.path, ": line ", from.place.number);
      if (from.place.in_rows && words.starts_with(line)) fail<data_error>(from.place.text(), words.substr(line.size()));
      if (words.starts_with(*from.place.path)) throw;
      fail<data_error>(from.place.text(), ": ", words);
    } catch (const config_error& problem) {
      fail<config_error>(from.place.text(), ": ", problem.what());
    } catch (const json::exception& problem) {  // a string is not UTF-8
      fail<data_error>(from.place.text(), ": its fields must be JSON; ", problem.what());
    }
  }

 private:
  chat_record_encoder encoder_;
  mutable unread_warnings warnings_;  // thread-safe
};

}  // namespace detail

XTRAIN_INLINE std::unique_ptr<const record_handler> make_record_handler(const std::string& name, const tokenizer& with,
                                                                        handler_options options) {
  std::string which = name;
  if (which.ends_with("Handler")) which.resize(which.size() - 7);
  const bool conversation = which == "Conversation";
  require<config_error>(conversation || !options.chat, name, ": must be ConversationHandler to have a chat template");
  require<config_error>(
      with.prompt_ending().empty() || which.ends_with("Pretrain"), name,
      ": must be a handler of texts: this tokenizer puts tokens between a prompt and its answer (ChatGLM-6B), for which instruct_dataset is made");
  const handler_options usual;
  const bool keys = options.keys != usual.keys, mapped = options.map_keys != usual.map_keys;
  for (const auto& [key, field] : options.map_keys)
    require<config_error>(usual.map_keys.contains(key), "map_keys: must map prompt, query and response; given '", key, "'");
  options.map_keys.insert(usual.map_keys.begin(), usual.map_keys.end());
  require<config_error>(!keys || which == "GeneralPretrain", name, ": must be GeneralPretrainHandler to have json keys");
  require<config_error>(!mapped || which == "GeneralInstruction" || which == "BelleMultiTurnInstruction", name,
                        ": must be GeneralInstructionHandler to have map_keys");
  require<config_error>(!conversation || options.beginning == text_beginning::as_tokenizer, name,
                        ": the chat template must say how a text begins; given a setting for it");
  require<config_error>(!conversation || !options.append_eod, name, ": the chat template must say how a text ends; given append_eod");
  if (which == "GeneralPretrain") {
    require<config_error>(!options.keys.empty(), name, ": must have json keys; given none");
    std::vector<std::string> sorted = options.keys;
    std::sort(sorted.begin(), sorted.end());
    require<config_error>(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), name,
                          ": json keys must differ; one is given twice");
    return std::make_unique<detail::pretrain_handler>(with, which, std::move(options));
  }
  if (which == "AlpacaPretrain") return std::make_unique<detail::alpaca_handler>(with, which, std::move(options));
  if (which == "StackOverflowPythonPretrain") return std::make_unique<detail::stack_overflow_handler>(with, which, std::move(options));
  if (which == "GeneralInstruction") return std::make_unique<detail::instruction_handler>(with, which, std::move(options));
  if (which == "BelleMultiTurnInstruction") return std::make_unique<detail::belle_handler>(with, which, std::move(options));
  if (which == "MOSSInstruction") return std::make_unique<detail::moss_handler>(with, which, std::move(options));
  if (which == "LeetcodePythonInstruction") return std::make_unique<detail::leetcode_handler>(with, which, std::move(options));
  if (conversation) {
    require<config_error>(options.chat.has_value(), name, ": must have a chat template; given none");
    return std::make_unique<detail::conversation_handler>(with, which, options);
  }
  const std::array<std::string, 8> known{"GeneralPretrainHandler",           "AlpacaPretrainHandler",  "StackOverflowPythonPretrainHandler",
                                         "GeneralInstructionHandler",        "BelleMultiTurnInstructionHandler", "MOSSInstructionHandler",
                                         "LeetcodePythonInstructionHandler", "ConversationHandler"};
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  const std::string near = nearest_name(which + "Handler", known);
  fail<config_error>("a handler must be one of ", list, "; given '", name, near.empty() ? "'" : "'; did you mean '" + near + "'?");
}

}  // namespace xtrain
