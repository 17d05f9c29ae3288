#include "config/study/values.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::config {
namespace {

constexpr std::size_t longest_study_text = 2000, longest_study_name = 40;

}  // namespace

std::string near_name(std::string_view word, const std::vector<std::string>& names) {
  return word.size() > 64 ? "" : nearest(word, names);
}

void StudyValues::problem(const Place& place, std::string message, std::string advice) {
  problems_.push_back({place, std::move(message), std::move(advice)});
}

void StudyValues::keys_of(const Node& table, const std::string& where, const Keys& keys) {
  std::vector<std::string> names;
  for (const auto& [name, act] : keys) names.push_back(name);
  for (const Node& child : table.children) {
    const auto found = std::find(names.begin(), names.end(), child.key);
    if (found != names.end()) {
      keys[static_cast<std::size_t>(found - names.begin())].second(child);
      continue;
    }
    const std::string close = near_name(child.key, names);
    problem(child.key_place, fmt::format("there is no key '{}' {}", clean(child.key, 40), where),
            close.empty() ? "it has " + join(names, ", ") : "did you mean " + close + "?");
  }
}

std::function<void(const Node&)> StudyValues::text(std::string& to, bool may_be_empty) {
  return [&to, may_be_empty, this](const Node& n) {
    if (n.value.kind != Value::Kind::text)
      problem(n.place, fmt::format("{}: expected text in quotes, found {}", clean(n.key, 40),
                                   describe(n.value)));
    else if (n.value.text.size() > longest_study_text)
      problem(n.place,
              fmt::format("{}: the text has {} bytes", clean(n.key, 40), n.value.text.size()),
              fmt::format("at most {}", longest_study_text));
    else if (n.value.text.empty() && !may_be_empty)
      problem(n.place, clean(n.key, 40) + ": the text is empty");
    else
      to = n.value.text;
  };
}

std::function<void(const Node&)> StudyValues::word(std::string& to,
                                                   const std::vector<std::string>& choices) {
  return [&to, &choices, this](const Node& n) {
    const bool is_text = n.value.kind == Value::Kind::text;
    if (is_text && std::find(choices.begin(), choices.end(), n.value.text) != choices.end())
      return void(to = n.value.text);
    const std::string close = is_text ? near_name(n.value.text, choices) : "";
    problem(
        n.place,
        fmt::format("{}: expected {}, found {}", n.key, alternatives(choices), describe(n.value)),
        close.empty() ? "" : "did you mean \"" + close + "\"?");
  };
}

std::function<void(const Node&)> StudyValues::count(std::int64_t& to, std::int64_t least,
                                                    std::int64_t most) {
  return [&to, least, most, this](const Node& n) {
    if (n.value.kind != Value::Kind::integer || n.value.integer < least || n.value.integer > most)
      return problem(n.place, fmt::format("{}: expected a whole number, {} to {}, found {}", n.key,
                                          least, most, describe(n.value)));
    to = n.value.integer;
  };
}

std::function<void(const Node&)> StudyValues::seconds(double& to) {
  return [&to, this](const Node& n) {
    const double s =
        n.value.kind == Value::Kind::integer ? static_cast<double>(n.value.integer) : n.value.real;
    const bool number = n.value.kind == Value::Kind::integer || n.value.kind == Value::Kind::real;
    if (!number || !(s > 0 && s <= 1e7))
      return problem(n.place,
                     fmt::format("{}: expected seconds, more than 0 and at most 10000000, found {}",
                                 n.key, describe(n.value)));
    to = s;
  };
}

std::function<void(const Node&)> StudyValues::flag(bool& to) {
  return [&to, this](const Node& n) {
    if (n.value.kind != Value::Kind::boolean)
      return problem(n.place, n.key + ": expected true or false, found " + describe(n.value));
    to = n.value.boolean;
  };
}

std::function<void(const Node&)> StudyValues::words(std::vector<std::string>& to) {
  return [&to, this](const Node& n) {
    const bool texts = n.value.kind == Value::Kind::list && n.value.items.size() <= 100 &&
                       std::all_of(n.value.items.begin(), n.value.items.end(), [](const Value& v) {
                         return v.kind == Value::Kind::text &&
                                v.text.size() <= longest_study_text &&
                                v.text.find('\0') == v.text.npos;
                       });
    if (!texts)
      return problem(n.place,
                     n.key + ": expected a list of at most 100 texts, found " + describe(n.value));
    for (const Value& v : n.value.items) to.push_back(v.text);
  };
}

std::function<void(const Node&)> StudyValues::folder_name(std::string& to) {
  return [&to, this](const Node& n) {
    const std::string& s = n.value.text;
    if (n.value.kind != Value::Kind::text || s.empty() || s.size() > longest_study_name ||
        s.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") != s.npos || s.front() == '-')
      return problem(
          n.place,
          fmt::format("{}: expected a name of a-z, 0-9, _ and -, at most {} of them, found {}",
                      n.key, longest_study_name, describe(n.value)));
    to = s;
  };
}

std::function<void(const Node&)> StudyValues::path(std::string& to) {
  return [&to, this](const Node& n) {
    text(to)(n);
    if (to.find('\0') != to.npos) {
      to.clear();
      return problem(n.place, n.key + ": a path has no zero byte");
    }
    if (!to.empty()) to = (folder_ / to).lexically_normal().string();
  };
}

std::function<void(const Node&)> StudyValues::tables(std::size_t most,
                                                     const std::function<void(const Node&)>& read) {
  return [=, this](const Node& n) {
    if (!n.is_tables())
      return problem(n.key_place, fmt::format("expected tables, [[{}]] each, found {}", n.key,
                                              describe(n.value)));
    if (n.children.size() > most)
      return problem(n.key_place, fmt::format("{} of [[{}]]", n.children.size(), n.key),
                     fmt::format("at most {}", most));
    for (const Node& child : n.children) read(child);
  };
}

std::function<void(const Node&)> StudyValues::table(const std::function<void(const Node&)>& read) {
  return [=, this](const Node& n) {
    if (!n.is_table())
      return problem(n.place,
                     fmt::format("{}: expected a table, found {}", n.key, describe(n.value)));
    read(n);
  };
}

}  // namespace tessera::config
