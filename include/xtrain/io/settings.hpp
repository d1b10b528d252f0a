#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/header_inline.hpp>
#include <xtrain/core/json_fwd.hpp>
#include <xtrain/core/named_settings.hpp>

namespace xtrain {

/// Settings asked for, with aliases, also in nested objects.
struct asked_settings {
  std::vector<std::vector<std::string>> names{};
  std::map<std::string, std::shared_ptr<asked_settings>> inner{};
};

/// Named settings, read or written. Values under several names of a setting must be equal; null is missing, as is an empty object with another value.
class json_settings final : public named_settings {
 public:
  json_settings();
  /// `who`: for errors.
  ///   throws  config_error unless `object` is an object
  json_settings(json object, std::string who);
  json_settings(const json_settings& from);
  json_settings(json_settings&& from) noexcept;
  json_settings& operator=(const json_settings& from);
  json_settings& operator=(json_settings&& from) noexcept;
  XTRAIN_HEADER_INLINE ~json_settings() override;

  [[nodiscard]] XTRAIN_HEADER_INLINE bool has(names keys) const override;
  [[nodiscard]] XTRAIN_HEADER_INLINE bool is_null(const char* key) const override;

  /// A positive integer.
  [[nodiscard]] XTRAIN_HEADER_INLINE std::size_t size(names keys) const override;
  [[nodiscard]] XTRAIN_HEADER_INLINE std::size_t size_or(std::size_t otherwise, names keys) const override;
  [[nodiscard]] XTRAIN_HEADER_INLINE double number_or(double otherwise, names keys) const override;
  [[nodiscard]] XTRAIN_HEADER_INLINE bool flag_or(bool otherwise, names keys) const override;
  [[nodiscard]] XTRAIN_HEADER_INLINE std::string text_or(const std::string& otherwise, names keys) const override;
  /// One token or a list; empty when missing.
  [[nodiscard]] XTRAIN_HEADER_INLINE std::vector<token> tokens(names keys) const override;
  /// May be negative; `otherwise` when missing, nullopt for null.
  [[nodiscard]] XTRAIN_HEADER_INLINE std::optional<token> token_or(std::optional<token> otherwise, const char* key) const override;
  /// Empty when missing.
  [[nodiscard]] XTRAIN_HEADER_INLINE std::vector<std::string> texts(names keys) const override;
  /// Nested object; empty when missing.
  [[nodiscard]] json_settings inner(names keys) const;

  [[nodiscard]] XTRAIN_HEADER_INLINE std::unique_ptr<named_settings> object_at(names keys) const override;

  void set(const char* key, json value);
  XTRAIN_HEADER_INLINE void set(const char* key, bool value) override;
  XTRAIN_HEADER_INLINE void set(const char* key, std::size_t value) override;
  XTRAIN_HEADER_INLINE void set(const char* key, token value) override;
  XTRAIN_HEADER_INLINE void set(const char* key, double value) override;
  XTRAIN_HEADER_INLINE void set(const char* key, const char* value) override;
  XTRAIN_HEADER_INLINE void set(const char* key, const std::string& value) override;
  XTRAIN_HEADER_INLINE void set(const char* key, const std::vector<std::string>& values) override;
  void set(const char* key, const std::vector<double>& values);
  void set(const char* key, const std::vector<std::size_t>& values);
  [[nodiscard]] XTRAIN_HEADER_INLINE std::unique_ptr<named_settings> new_object() const override;
  XTRAIN_HEADER_INLINE void set_object(const char* key, const named_settings& object) override;
  XTRAIN_HEADER_INLINE void set_null(const char* key) override;
  /// nullopt: null, so that readers use no default
  XTRAIN_HEADER_INLINE void set_token(const char* key, std::optional<token> value) override;
  XTRAIN_HEADER_INLINE void set_tokens(const char* key, const std::vector<token>& all) override;
  XTRAIN_HEADER_INLINE void erase(names keys) override;

  [[nodiscard]] XTRAIN_HEADER_INLINE const std::string& who() const override;
  [[nodiscard]] const json& object() const;
  /// Indented JSON.
  [[nodiscard]] std::string text() const;

  /// Records aliases of settings that are read, also in nested objects.
  void remember_names(std::shared_ptr<asked_settings> asked);

 private:
  /// The first that is present and not null.
  [[nodiscard]] const json* find(names keys) const;
  /// throws config_error when two names of the setting have different values
  [[nodiscard]] const json* value_of(names keys) const;
  [[nodiscard]] std::size_t as_size(const json& value, names keys) const;

  std::unique_ptr<json> object_;  // null only after a move
  std::string who_;
  std::shared_ptr<asked_settings> asked_;
};

/// Of a JSON file.
///   throws  file_error, config_error unless it holds an object
[[nodiscard]] json_settings read_settings(const std::string& path);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/settings_impl.hpp>
#endif
