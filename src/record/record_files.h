// The files of a run folder, read with care: nothing that is too long is held, and what is damaged
// is named with its place. Convention: a file that is absent is empty; one that cannot be looked at
// or opened is an error, because a page must not lack a part of a run without a word.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera::report {

// Throws Error(usage): the file is not what a run writes.
[[noreturn]] void damaged(const std::string& where, const std::string& problem);

bool has_file(const std::filesystem::path& path);
void open_file(std::ifstream& file, const std::filesystem::path& path);

// An empty object where there is no such file.
nlohmann::json document_at(const std::filesystem::path& path);

// As std::getline, but a line of more than `most` characters ends there, one longer than that: what
// is too long is never held.
bool get_line(std::istream& file, std::string& line, std::size_t most,
              const std::filesystem::path& path);

// `key = value` under `[section]`, as `tessera train` writes resolved.toml: (section.key, value
// without quotes).
std::map<std::string, std::string> resolved_facts(const std::filesystem::path& path);

// Values of one object; what is absent or null is unknown, what is of another kind is refused.
class Values {
 public:
  Values(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}
  double number(const char* key) const;
  std::int64_t whole(const char* key, std::int64_t otherwise,
                     std::int64_t most = std::int64_t{1} << 53) const;
  std::string text(const char* key, const std::string& otherwise = "") const;
  Values object(const char* key) const;
  const nlohmann::json& list(const char* key) const;
  bool has(const char* key) const { return find(key) != nullptr; }
  const nlohmann::json& raw() const { return object_; }

 private:
  const nlohmann::json* find(const char* key) const;

  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace tessera::report
