#include "record/record_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "files/json.h"
#include "files/text.h"
#include "record/stats.h"

namespace tessera::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t longest_document = 64u << 20;  // summary.json of thousands of ranks
constexpr std::size_t longest_setting_line = 64u << 10;

}  // namespace

[[noreturn]] void damaged(const std::string& where, const std::string& problem) {
  throw Error(ErrorKind::usage, problem, where,
              "the file is damaged, or not of a run folder; `tessera train` writes it");
}

bool has_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    throw Error(ErrorKind::usage, "cannot look at the file: " + error.message(), path.string());
  return fs::is_regular_file(status);
}
void open_file(std::ifstream& file, const fs::path& path) {
  file.open(path, std::ios::binary);
  if (!file) throw Error(ErrorKind::usage, "cannot open the file", path.string());
}

json document_at(const fs::path& path) {
  if (!has_file(path)) return json::object();
  std::error_code error;
  if (fs::file_size(path, error) > longest_document || error)
    damaged(path.string(), "expected at most 64 MiB of JSON");
  json out = files::parse_json(files::read_text(path, longest_document));
  if (!out.is_object())
    damaged(path.string(),
            fmt::format("expected a JSON object of at most {} levels", files::json_levels));
  return out;
}

bool get_line(std::istream& file, std::string& line, std::size_t most, const fs::path& path) {
  line.clear();
  std::streambuf& bytes = *file.rdbuf();
  try {
    for (int c; line.size() <= most && (c = bytes.sbumpc()) != std::istream::traits_type::eof();
         line += static_cast<char>(c))
      if (c == '\n') return true;
  } catch (
      const std::ios_base::failure& problem) {  // how the library says that the disk could not read
    throw Error(ErrorKind::usage, std::string("cannot read the file: ") + problem.what(),
                path.string());
  }
  if (line.size() <= most) file.setstate(std::ios::eofbit);
  return !line.empty();
}

std::map<std::string, std::string> resolved_facts(const fs::path& path) {
  std::map<std::string, std::string> out;
  if (!has_file(path)) return out;
  std::ifstream file;
  open_file(file, path);
  std::string section;
  std::size_t lines = 0;
  for (std::string line; get_line(file, line, longest_setting_line, path) && ++lines < 4096;) {
    if (line.size() > longest_setting_line) break;  // nothing that a run writes
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1);
    const std::size_t equals = line.find('=');
    if (line.starts_with('[') || line.starts_with('#') || equals == line.npos || line.size() > 8192)
      continue;
    std::string key = line.substr(0, equals), value = line.substr(equals + 1);
    key.erase(key.find_last_not_of(' ') + 1);
    value.erase(0, std::min(value.find_first_not_of(' '), value.size()));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    out[section + "." + key] = value;
  }
  return out;
}

double Values::number(const char* key) const {
  const json* v = find(key);
  if (v && !v->is_number()) damaged(where_, std::string(key) + ": expected a number");
  return v ? v->get<double>() : kUnknown;
}

std::int64_t Values::whole(const char* key, std::int64_t otherwise, std::int64_t most) const {
  const json* v = find(key);
  if (!v) return otherwise;
  if (!v->is_number_integer() ||
      (v->is_number_unsigned() && v->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) ||
      v->get<std::int64_t>() < 0 || v->get<std::int64_t>() > most)
    damaged(where_, fmt::format("{}: expected a whole number from 0 to {}", key, most));
  return v->get<std::int64_t>();
}

std::string Values::text(const char* key, const std::string& otherwise) const {
  const json* v = find(key);
  if (v && !v->is_string()) damaged(where_, std::string(key) + ": expected text");
  return v ? v->get<std::string>().substr(0, 4096) : otherwise;
}

Values Values::object(const char* key) const {
  static const json none = json::object();
  const json* v = find(key);
  if (v && !v->is_object()) damaged(where_, std::string(key) + ": expected an object");
  return {v ? *v : none, where_ + ", " + key};
}

const json& Values::list(const char* key) const {
  static const json none = json::array();
  const json* v = find(key);
  if (v && (!v->is_array() || v->size() > 1u << 20))
    damaged(where_, std::string(key) + ": expected a list");
  return v ? *v : none;
}

const json* Values::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace tessera::report
