// Named settings, as in config.json, without a JSON library.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>

namespace xtrain {

/// Settings to read or write. Values under several names of a setting must be equal.
///   throws  config_error for another type, or different values under two names
class named_settings {
 public:
  using names = std::initializer_list<const char*>;

  virtual ~named_settings() = default;

  [[nodiscard]] virtual bool has(names keys) const = 0;
  /// The key is null; other members take null for missing.
  [[nodiscard]] virtual bool is_null(const char* key) const = 0;
  /// Positive.
  ///   throws  config_error when missing
  [[nodiscard]] virtual std::size_t size(names keys) const = 0;
  [[nodiscard]] virtual std::size_t size_or(std::size_t otherwise, names keys) const = 0;
  [[nodiscard]] virtual double number_or(double otherwise, names keys) const = 0;
  [[nodiscard]] virtual bool flag_or(bool otherwise, names keys) const = 0;
  [[nodiscard]] virtual std::string text_or(const std::string& otherwise, names keys) const = 0;
  /// One token or a list; empty when missing.
  [[nodiscard]] virtual std::vector<token> tokens(names keys) const = 0;
  /// May be negative; `otherwise` when missing, nullopt for null.
  [[nodiscard]] virtual std::optional<token> token_or(std::optional<token> otherwise, const char* key) const = 0;
  /// Empty when missing.
  [[nodiscard]] virtual std::vector<std::string> texts(names keys) const = 0;
  /// Nested object; empty when missing.
  [[nodiscard]] virtual std::unique_ptr<named_settings> object_at(names keys) const = 0;
  /// For errors.
  [[nodiscard]] virtual const std::string& who() const = 0;

  virtual void set(const char* key, bool value) = 0;
  virtual void set(const char* key, std::size_t value) = 0;
  virtual void set(const char* key, token value) = 0;
  virtual void set(const char* key, double value) = 0;
  virtual void set(const char* key, const char* value) = 0;
  virtual void set(const char* key, const std::string& value) = 0;
  virtual void set(const char* key, const std::vector<std::string>& values) = 0;
  virtual void set_null(const char* key) = 0;
  /// nullopt: null, so that readers use no default
  virtual void set_token(const char* key, std::optional<token> value) = 0;
  /// empty: null, one: a number, else a list
  virtual void set_tokens(const char* key, const std::vector<token>& all) = 0;
  /// Empty, to be written to.
  [[nodiscard]] virtual std::unique_ptr<named_settings> new_object() const = 0;
  virtual void set_object(const char* key, const named_settings& object) = 0;
  virtual void erase(names keys) = 0;

 protected:
  named_settings() = default;
  named_settings(const named_settings&) = default;
  named_settings& operator=(const named_settings&) = default;
};

}  // namespace xtrain
