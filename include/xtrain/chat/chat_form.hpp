// Formats of conversations and preferences in public data sets.
#pragma once

#include <cstdint>
#include <string>

namespace xtrain {

/// A conversation's format; `automatic`: by field names.
enum class chat_form : std::uint8_t {
  automatic,
  messages,       ///< messages: role, content; or the record is the list
  conversations,  ///< conversations (ShareGPT): from, value
  instruction,    ///< instruction, input, output; earlier turns in the instruction after "Human:" and "Assistant:"
  moss,           ///< chat: turn_1, turn_2, ... with Human and MOSS; meta_instruction
  prompt_completion  ///< prompt, completion: both strings or lists of messages (trl); the completion is learned
};

/// Format of prompt and answers. `automatic`: strings are text, unless the prompt is an instruction, a question or messages.
enum class preference_form : std::uint8_t {
  automatic,
  text,     ///< unchanged strings
  messages  ///< for a chat template; a string is a user's or assistant's content
};

/// Fields of a record with chosen and rejected answers; empty: names of public sets.
struct preference_fields {
  std::string prompt{};  ///< the entire prompt: system, history, ... are then not read
  std::string chosen{}, rejected{};
};

}  // namespace xtrain
