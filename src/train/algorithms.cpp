#include "train/algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "files/json.h"
#include "files/look.h"
#include "files/text.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using exec::Choice;
using exec::Choices;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int file_version = 1;
constexpr std::size_t most_tables = 64, most_facts = 16, most_rows = 100000;
constexpr std::size_t longest_fact = 200, longest_key = 1000, longest_algorithm = 4000;
constexpr std::int64_t most_workspace = std::int64_t{1} << 40;
constexpr std::size_t largest_file = std::size_t{64} << 20;

[[noreturn]] void bad(const std::string& what) { throw Error(ErrorKind::usage, what); }

const json& member(const json& of, const char* name, json::value_t type, const char* what) {
  const auto found = of.is_object() ? of.find(name) : of.end();
  if (!of.is_object() || found == of.end() || found->type() != type)
    bad(fmt::format("'{}' is missing or is not {}", name, what));
  return *found;
}

std::string text_of(const json& value, std::size_t longest, const char* what) {
  const auto* text = value.get_ptr<const std::string*>();
  if (!text || text->size() > longest)
    bad(fmt::format("{} is not a text of at most {} characters", what, longest));
  return *text;
}

Choices::Facts facts_of(const json& object) {
  if (object.size() > most_facts) bad("a table has too many facts");
  Choices::Facts out;
  for (const auto& [name, value] : object.items())
    out.emplace_back(name, text_of(value, longest_fact, "a fact"));
  return out;
}

std::pair<std::string, Choice> row_of(const json& row) {
  const std::string key =
      text_of(member(row, "for", json::value_t::string, "a text"), longest_key, "'for'");
  const std::string algorithm = text_of(member(row, "algorithm", json::value_t::string, "a text"),
                                        longest_algorithm, "'algorithm'");
  const auto found = row.find("workspace");
  const bool whole = found != row.end() && found->is_number_integer();
  const std::int64_t bytes = whole ? found->get<std::int64_t>() : -1;
  if (bytes < 0 || bytes > most_workspace) bad("'workspace' is missing or is no number of bytes");
  return {key, {algorithm, bytes}};
}

Choices table_of(const json& table) {
  Choices out(facts_of(member(table, "made_with", json::value_t::object, "an object")),
              facts_of(member(table, "beside", json::value_t::object, "an object")));
  const json& rows = member(table, "rows", json::value_t::array, "a list");
  if (rows.size() > most_rows) bad("a table has too many rows");
  for (const json& row : rows) {
    auto [key, choice] = row_of(row);
    out.add(key, std::move(choice));
  }
  return out;
}

// Facts in the order of their names: JSON objects have no other.
Choices::Facts sorted(Choices::Facts facts) {
  std::sort(facts.begin(), facts.end());
  return facts;
}
bool same_made(const Choices& a, const Choices& b) {
  return sorted(a.made_with()) == sorted(b.made_with());
}

std::string words(const Choices::Facts& facts) {
  std::vector<std::string> out;
  for (const auto& [name, value] : sorted(facts)) out.push_back(name + " " + value);
  return join(out, ", ");
}

// The sentence that this rank should say about going on with other algorithms than before; empty:
// nothing.
std::string difference(const Choices* own, const std::vector<Choices>& before) {
  if (before.empty() && own)
    return "the run has no record of the algorithms that it took so far (it ran on another device, "
           "or under an older version): from here on its bits may differ from those of a run that "
           "was not interrupted";
  if (before.empty() || (own && run::same_made(before, *own))) return "";
  const std::string now = own ? words(own->made_with()) : "a device without such choices";
  return fmt::format(
      "the algorithms of this run were chosen with {}; it goes on with {}, so from here on its "
      "bits will differ from those of a run that was not interrupted",
      words(before.back().made_with()), now);
}

}  // namespace

Algorithms read_algorithms(std::string_view text) {
  Algorithms out;
  try {
    const json file = files::parse_json(text);
    if (file.is_discarded()) bad("it is not JSON");
    const json& version = file.is_object() && file.contains("version") ? file["version"] : json();
    if (version != json(file_version))
      bad(fmt::format("expected version {}, found {}", file_version,
                      version.is_null() ? "none" : version.dump()));
    const json& tables = member(file, "tables", json::value_t::array, "a list");
    if (tables.size() > most_tables) bad("it has too many tables");
    for (const json& table : tables) out.tables.push_back(table_of(table));
  } catch (const Error& e) {
    out.tables.clear();
    out.problem = e.message;
  }
  return out;
}

std::string to_text(const std::vector<Choices>& tables) {
  ordered_json file = {{"version", file_version}, {"tables", ordered_json::array()}};
  for (const Choices& table : tables) {
    ordered_json out = {{"made_with", ordered_json::object()},
                        {"beside", ordered_json::object()},
                        {"rows", ordered_json::array()}};
    for (const auto& [name, value] : table.made_with()) out["made_with"][name] = value;
    for (const auto& [name, value] : table.beside()) out["beside"][name] = value;
    for (const auto& [key, choice] : table.rows())
      out["rows"].push_back(
          {{"for", key}, {"algorithm", choice.algorithm}, {"workspace", choice.workspace}});
    file["tables"].push_back(std::move(out));
  }
  return file.dump(1) + "\n";
}

const Choices* same_made(const std::vector<Choices>& tables, const Choices& own) {
  for (const Choices& table : tables)
    if (same_made(table, own)) return &table;
  return nullptr;
}

std::vector<Choices> agree_on_choices(const Ranks& ranks, Choices* own,
                                      const std::vector<Choices>& before) {
  std::vector<Choices> all;
  const auto put = [&](const Choices& table) {
    for (Choices& known : all)
      if (same_made(known, table)) {
        for (const auto& [key, choice] : table.rows())
          if (!known.find(key)) known.add(key, choice);
        return;
      }
    all.push_back(table);
  };
  const std::string mine = own ? to_text({*own}) : "";
  for (const std::string& text : ranks.gather_text(mine))
    for (const Choices& table : read_algorithms(text).tables) put(table);
  const std::size_t now = all.size();
  for (const Choices& table : before) put(table);
  std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(now), all.end());
  if (own) own->take(same_made(all, *own)->rows());
  return all;
}

void settle_algorithms(Choices* own, const std::function<void()>& choose, const Ranks& ranks,
                       const fs::path& folder, bool resumed, std::vector<std::string>& notes) {
  const fs::path path = folder / algorithms_file;
  std::string kept, unreadable;
  if (ranks.first() && resumed) try {
      if (files::is_there(path)) kept = files::read_text(path, largest_file);
    } catch (const Error& e) {
      unreadable = e.message;
    }
  if (!ranks.any(own || !kept.empty() || !unreadable.empty())) return;
  kept = ranks.gather_text(kept)[0];
  unreadable = ranks.gather_text(unreadable)[0];
  const Algorithms found = kept.empty() ? Algorithms{{}, unreadable} : read_algorithms(kept);
  const Choices* const known = own ? same_made(found.tables, *own) : nullptr;
  if (known) own->take(known->rows());
  std::string note;
  if (!found.problem.empty())
    note = fmt::format(
        "{} cannot be used ({}): algorithms are chosen anew, and from here on the bits may differ "
        "from those of a run that was not interrupted",
        path.string(), found.problem);
  else if (resumed)
    note = difference(own, found.tables);
  ranks.together([&] {
    if (own) choose();
  });
  if (own && own->refused() > 0 && note.empty())
    note = fmt::format(
        "{} of the recorded algorithms are not taken by the libraries any more and "
        "were chosen anew: the bits may differ",
        own->refused());
  const std::vector<std::string> said = ranks.gather_text(note);
  for (std::size_t r = 0; r < said.size(); ++r) {
    const auto here = said.begin() + static_cast<std::ptrdiff_t>(r);
    if (!here->empty() && std::find(said.begin(), here, *here) == here)
      notes.push_back(ranks.size() > 1 ? fmt::format("rank {}: {}", r, *here) : *here);
  }
  const std::vector<Choices> all = agree_on_choices(ranks, own, found.tables);
  ranks.together([&] {
    if (!ranks.first() || all.empty()) return;
    const fs::path aside = folder / "algorithms.old.json";
    std::error_code error;
    if (!found.problem.empty()) fs::rename(path, aside, error);
    if (error)
      throw Error(ErrorKind::disk,
                  fmt::format("cannot be used ({}), and cannot be set aside as {}: {}",
                              found.problem, aside.string(), error.message()),
                  path.string(), "move it away yourself: algorithms are then chosen anew");
    files::write_atomically(path, to_text(all));
  });
}

}  // namespace tessera::run
