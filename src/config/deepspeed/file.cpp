#include "config/deepspeed/file.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera::config {

namespace deepspeed {

Value of(std::string text) {
  Value v;
  v.kind = Value::Kind::text;
  v.text = std::move(text);
  return v;
}
Value of(double number) {
  Value v;
  v.kind = Value::Kind::real;
  v.real = number;
  return v;
}
Value of(std::int64_t number) {
  Value v;
  v.kind = Value::Kind::integer;
  v.integer = number;
  return v;
}
Value of(bool yes) {
  Value v;
  v.kind = Value::Kind::boolean;
  v.boolean = yes;
  return v;
}

bool is_auto(const JsonNode& node) {
  return node.value.kind == Value::Kind::text && node.value.text == "auto";
}
bool is_number(const Value& v) {
  return v.kind == Value::Kind::integer || v.kind == Value::Kind::real;
}
double number_of(const Value& v) {
  return v.kind == Value::Kind::integer ? static_cast<double>(v.integer) : v.real;
}

bool active(const JsonNode& node) {
  const Value& v = node.value;
  if (is_auto(node)) return false;
  if (v.kind == Value::Kind::table) {
    const JsonNode* enabled = node.find("enabled");
    return enabled ? active(*enabled) : !node.members.empty();
  }
  if (v.kind == Value::Kind::text)
    return !v.text.empty() && v.text != "none" && v.text != "fp32" && v.text != "float32";
  return v.kind == Value::Kind::boolean ? v.boolean
         : v.kind == Value::Kind::list  ? !v.items.empty()
                                        : is_number(v) && number_of(v) != 0;
}

}  // namespace deepspeed

const JsonNode* DeepSpeedFile::at(std::string_view path) const {
  const JsonNode* node = &root_;
  for (const std::string& part : split(path, '.'))
    if (node = node->find(part); node == nullptr) return nullptr;
  return node;
}

const JsonNode* DeepSpeedFile::spoken(std::string_view path, std::string_view key) {
  const JsonNode* node = at(path);
  if (node == nullptr || node->is_null()) return nullptr;
  if (!deepspeed::is_auto(*node)) return node;
  if (!key.empty()) out_.automatic.emplace(key);
  return nullptr;
}

void DeepSpeedFile::problem(const JsonNode& node, std::string message, std::string advice) {
  out_.problems.push_back({node.place, std::move(message), std::move(advice)});
}

void DeepSpeedFile::warn(const Place& place, std::string message, std::string advice) {
  out_.warnings.push_back({place, std::move(message), std::move(advice)});
}

void DeepSpeedFile::wrong(std::string_view path, const JsonNode& node, std::string_view expected) {
  problem(node, fmt::format("{}: expected {}, found {}", path, expected, describe(node.value)), "");
}

void DeepSpeedFile::set(std::string key, std::string path, Value value, Place place) {
  out_.settings.push_back({.key = std::move(key),
                           .path = std::move(path),
                           .value = std::move(value),
                           .place = std::move(place)});
}

void DeepSpeedFile::fallback(std::string key, Value value) {
  out_.defaults.push_back(
      {.key = std::move(key), .path = "", .value = std::move(value), .place = {file_}});
}

std::optional<std::int64_t> DeepSpeedFile::whole_at(std::string_view path, std::string_view key) {
  const JsonNode* node = spoken(path, key);
  if (node == nullptr) return {};
  const Value& v = node->value;
  if (v.kind == Value::Kind::integer) return v.integer;
  if (v.kind == Value::Kind::real && std::abs(v.real) < 1e15 && v.real == std::floor(v.real))
    return static_cast<std::int64_t>(v.real);
  wrong(path, *node, "a whole number");
  return {};
}

void DeepSpeedFile::whole(const char* path, const char* key, std::optional<std::int64_t> least) {
  if (const std::optional<std::int64_t> n = whole_at(path, key); n && (!least || *n >= *least))
    set(key, path, deepspeed::of(*n), at(path)->place);
}

std::optional<double> DeepSpeedFile::number_at(std::string_view path, std::string_view key) {
  const JsonNode* node = spoken(path, key);
  if (node != nullptr && deepspeed::is_number(node->value))
    return deepspeed::number_of(node->value);
  if (node != nullptr) wrong(path, *node, "a number");
  return {};
}

void DeepSpeedFile::number(const char* path, const char* key) {
  if (const std::optional<double> n = number_at(path, key))
    set(key, path, deepspeed::of(*n), at(path)->place);
}

std::optional<bool> DeepSpeedFile::flag_at(std::string_view path, std::string_view key) {
  const JsonNode* node = spoken(path, key);
  if (node != nullptr && node->value.kind == Value::Kind::boolean) return node->value.boolean;
  if (node != nullptr) wrong(path, *node, "true or false");
  return {};
}

void DeepSpeedFile::flag(const char* path, const char* key) {
  if (const std::optional<bool> yes = flag_at(path, key))
    set(key, path, deepspeed::of(*yes), at(path)->place);
}

std::optional<std::string> DeepSpeedFile::text_at(std::string_view path, std::string_view key) {
  const JsonNode* node = spoken(path, key);
  if (node != nullptr && node->value.kind == Value::Kind::text) return node->value.text;
  if (node != nullptr) wrong(path, *node, "a text");
  return {};
}

}  // namespace tessera::config
