// The values of a DeepSpeed configuration by their path, and the reading they become: settings,
// defaults, problems and warnings. Convention: a value of a wrong kind is a problem and sets
// nothing; "auto" leaves a key of ours open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "config/deepspeed/deepspeed.h"

namespace tessera::config {
namespace deepspeed {

Value of(std::string text);
Value of(double number);
Value of(std::int64_t number);
Value of(bool yes);

bool is_auto(const JsonNode& node);
bool is_number(const Value& v);
double number_of(const Value& v);

// Whether a key that is not supported asks for something.
bool active(const JsonNode& node);

}  // namespace deepspeed

class DeepSpeedFile {
 protected:
  DeepSpeedFile(const JsonNode& root, std::string file) : root_(root), file_(std::move(file)) {}

  const JsonNode* at(std::string_view path) const;
  // Likewise, but not what the file leaves open: null, or "auto" for `key` of ours.
  const JsonNode* spoken(std::string_view path, std::string_view key);
  void problem(const JsonNode& node, std::string message, std::string advice);
  void warn(const Place& place, std::string message, std::string advice);
  void wrong(std::string_view path, const JsonNode& node, std::string_view expected);
  void set(std::string key, std::string path, Value value, Place place);
  void fallback(std::string key, Value value);
  // 5e8 is a whole number too.
  std::optional<std::int64_t> whole_at(std::string_view path, std::string_view key);
  // Less than `least`: as if it were not there.
  void whole(const char* path, const char* key, std::optional<std::int64_t> least = {});
  std::optional<double> number_at(std::string_view path, std::string_view key);
  void number(const char* path, const char* key);
  std::optional<bool> flag_at(std::string_view path, std::string_view key);
  void flag(const char* path, const char* key);
  std::optional<std::string> text_at(std::string_view path, std::string_view key);

  const JsonNode& root_;
  std::string file_;
  DeepSpeedReading out_;
};

}  // namespace tessera::config
