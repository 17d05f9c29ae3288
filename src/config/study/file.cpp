#include "config/study/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "config/fields.h"
#include "config/study/values.h"
#include "config/tree.h"

namespace tessera::config {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_study = 1 << 20, most_parts = 64, most_axes = 8, most_values = 1000,
                      most_techniques = 100, most_claims = 200;
constexpr std::int64_t most_repeats = 1000;
const std::vector<std::string> kinds = {"strong",     "weak",     "batch", "accumulation",
                                        "techniques", "accuracy", "layers"};
const std::vector<std::string> verbs = {"train", "infer", "layers"};
const std::vector<std::string> devices = {"cuda"};
const std::vector<std::string> launchers = {"local", "mpirun", "srun"};
const std::vector<std::string> launch_keys = {"launch.hosts", "launch.per_host", "launch.throttle"};

// The key along x that a kind has by itself.
std::string own_axis(const std::string& kind) {
  if (kind == "strong" || kind == "weak") return "run.np";
  return kind == "batch" ? "batch.global" : kind == "accumulation" ? "batch.accumulate" : "";
}

class StudyReader : StudyValues {
 public:
  StudyReader(std::string_view text, const std::string& file)
      : StudyValues(fs::path(file).parent_path()), file_(file) {
    out_.path = file;
    out_.text = text;
  }

  StudyFile read() {
    Tree tree = read_toml_tree(out_.text, file_);
    problems_ = std::move(tree.problems);
    if (problems_.empty()) document(tree.root);
    if (problems_.empty()) problems_ = check_study(out_);
    if (!problems_.empty())
      throw ConfigError(std::move(problems_), {{file_, out_.text}},
                        "docs/studies.md explains the file; `tessera study FILE --list` shows its "
                        "runs without starting one");
    return std::move(out_);
  }

 private:
  // Keys of a configuration, in sections, dotted or in quotes: all the same.
  void settings(const Node& table, const std::string& prefix, std::vector<StudySetting>& to) {
    if (!table.is_table())
      return problem(table.place,
                     fmt::format("{}: expected a table of keys and values", clean(table.key, 40)));
    for (const Node& child : table.children) {
      const std::string key = prefix + child.key;
      if (child.is_table()) {
        settings(child, key + ".", to);
      } else if (known(key, child)) {
        if (std::any_of(to.begin(), to.end(), [&](const StudySetting& s) { return s.key == key; }))
          problem(child.key_place, key + " is given twice");
        else
          to.push_back({key, set_text(child.value), child.place});
      }
    }
  }

  bool known(const std::string& key, const Node& at) {
    if (key == "run.out" || key == "run.name") {
      problem(at.key_place, key + " is chosen by the study", "leave it out");
      return false;
    }
    if (std::find(launch_keys.begin(), launch_keys.end(), key) != launch_keys.end()) return true;
    const auto dot = key.find('.');
    if (dot != key.npos && find_field(key.substr(0, dot), key.substr(dot + 1))) return true;
    std::vector<std::string> names = launch_keys;
    for (const Field& f : fields()) names.push_back(f.name());
    const std::string close = near_name(key, names);
    problem(at.key_place, fmt::format("there is no key {}", clean(key, 60)),
            close.empty() ? "`tessera config keys` lists all" : "did you mean " + close + "?");
    return false;
  }

  void document(const Node& root) {
    bool has_study = false;
    keys_of(root, "at the top of a study",
            {{"study", table([&](const Node& n) {
                has_study = true;
                study(n);
              })},
             {"launch", table([&](const Node& n) { launch(n); })},
             {"base", table([&](const Node& n) { base(n); })},
             {"part", tables(most_parts, [&](const Node& n) { part(n); })},
             {"claim", tables(most_claims, [&](const Node& n) { claim(n); })}});
    if (!has_study)
      problem({file_, 1, 1}, "there is no section [study]",
              "it has name, title, repeats, warmup and time_limit");
    if (out_.parts.empty() && problems_.empty())
      problem({file_, 1, 1}, "there is no [[part]]: nothing to run",
              "a part has name, kind and grid");
  }

  void study(const Node& n) {
    keys_of(n, "in [study]",
            {{"name", folder_name(out_.name)},
             {"title", text(out_.title)},
             {"what", text(out_.what, true)},
             {"repeats", count(out_.repeats, 1, most_repeats)},
             {"warmup", count(out_.warmup, 0, 1'000'000)},
             {"time_limit", seconds(out_.time_limit)},
             {"keep", flag(out_.keep)}});
    if (out_.name.empty() && problems_.empty())
      problem(n.key_place, "the study has no name", "name = \"quick\"");
    if (out_.title.empty()) out_.title = out_.name;
  }

  void launch(const Node& n) {
    StudyLaunch& l = out_.launch;
    const std::size_t before = problems_.size();
    keys_of(n, "in [launch]",
            {{"with", word(l.with, launchers)},
             {"hostfile",
              [&](const Node& h) {
                l.hostfile_place = h.place;
                path(l.hostfile)(h);
              }},
             {"per_host", count(l.per_host, 0, 65536)},
             {"arguments", words(l.arguments)}});
    if (problems_.size() == before && l.with == "local" &&
        (!l.hostfile.empty() || l.per_host > 0 || !l.arguments.empty()))
      problem(n.key_place,
              "hostfile, per_host and arguments are for a launcher, but with = \"local\"",
              "with = \"mpirun\" or \"srun\"");
  }

  void base(const Node& n) {
    Node keys = n;
    const auto config = std::find_if(keys.children.begin(), keys.children.end(), [](const Node& c) {
      return c.key == "config" && !c.is_table();
    });
    if (config != keys.children.end()) {
      out_.config_place = config->place;
      path(out_.config)(*config);
      keys.children.erase(config);
    }
    settings(keys, "", out_.base);
  }

  void part(const Node& n) {
    StudyPart p;
    p.place = n.place;
    const std::size_t before = problems_.size();
    Place axis_place;
    keys_of(n, "in [[part]]",
            {{"name", folder_name(p.name)},
             {"title", text(p.title)},
             {"what", text(p.what, true)},
             {"kind", word(p.kind, kinds)},
             {"verb", word(p.verb, verbs)},
             {"needs", word(p.needs, devices)},
             {"axis",
              [&](const Node& a) {
                axis_place = a.place;
                text(p.axis)(a);
              }},
             {"repeats", count(p.repeats, 1, most_repeats)},
             {"time_limit", seconds(p.time_limit)},
             {"arguments", words(p.arguments)},
             {"set", [&](const Node& s) { settings(s, "", p.set); }},
             {"grid", [&](const Node& g) { grid(g, "", p.grid); }},
             {"technique", tables(most_techniques, [&](const Node& t) { technique(t, p); })},
             {"published", [&](const Node& t) { published(t, p); }},
             {"published_by", text(p.published_by)}});
    if (problems_.size() > before) return void(out_.parts.push_back(std::move(p)));
    if (p.name.empty()) problem(n.place, "the part has no name", "name = \"strong\"");
    if (p.kind.empty()) problem(n.place, "the part has no kind", "kind = " + alternatives(kinds));
    if (std::any_of(out_.parts.begin(), out_.parts.end(),
                    [&](const StudyPart& other) { return other.name == p.name; }))
      problem(n.place, "two parts are called '" + p.name + "'", "give each its own name");
    if (p.title.empty()) p.title = p.name;
    const auto has = [&](const std::string& key) {
      return std::any_of(p.grid.begin(), p.grid.end(),
                         [&](const StudyAxis& a) { return a.key == key; });
    };
    const std::string own = own_axis(p.kind);
    if (!p.axis.empty() && !has(p.axis))
      problem(axis_place, "axis: the grid has no key " + clean(p.axis, 60));
    if (p.axis.empty())
      p.axis = !own.empty()                              ? own
               : p.kind == "accuracy" && !p.grid.empty() ? p.grid.front().key
                                                         : "";
    if (!own.empty() && p.axis == own && !has(own))
      problem(n.place, fmt::format("a part of kind {} needs {} in its grid", p.kind, own),
              fmt::format("grid = {{ \"{}\" = [1, 2] }}", own));
    if (p.kind == "weak" && !has("run.np"))
      problem(n.place, "a part of kind weak needs run.np in its grid");
    if (p.kind == "techniques" && p.techniques.empty())
      problem(n.place, "a part of kind techniques needs [[part.technique]]");
    if (p.kind == "layers" && p.verb == "train") p.verb = "layers";
    if (!p.arguments.empty() && p.verb == "train")
      problem(n.place, "arguments are for verb = \"infer\" or \"layers\"");
    out_.parts.push_back(std::move(p));
  }

  void grid(const Node& table, const std::string& prefix, std::vector<StudyAxis>& to) {
    if (!table.is_table())
      return problem(table.place, "grid: expected a table of keys, each with a list of values");
    for (const Node& child : table.children) {
      const std::string key = prefix + child.key;
      if (child.is_table()) {
        grid(child, key + ".", to);
        continue;
      }
      if (!known(key, child)) continue;
      if (child.value.kind != Value::Kind::list || child.value.items.empty() ||
          child.value.items.size() > most_values) {
        problem(child.place,
                fmt::format("{}: expected a list of 1 to {} values, found {}", key, most_values,
                            describe(child.value)),
                fmt::format("{} = [{}]", key, clean(set_text(child.value), 40)));
        continue;
      }
      StudyAxis axis{key, {}, child.place};
      std::set<std::string> seen;
      for (const Value& v : child.value.items) {
        axis.values.push_back(set_text(v));
        if (!seen.insert(axis.values.back()).second)
          problem(child.place, fmt::format("{}: {} is in the list twice", key, describe(v)));
      }
      if (std::any_of(to.begin(), to.end(), [&](const StudyAxis& a) { return a.key == key; }))
        problem(child.key_place, key + " is in the grid twice");
      else if (to.size() == most_axes)
        problem(child.key_place, "the grid has too many keys",
                fmt::format("at most {}", most_axes));
      else
        to.push_back(std::move(axis));
    }
  }

  void technique(const Node& n, StudyPart& p) {
    StudyTechnique t;
    t.place = n.place;
    keys_of(n, "in [[part.technique]]",
            {{"name", text(t.name)}, {"set", [&](const Node& s) { settings(s, "", t.set); }}});
    if (t.name.empty()) problem(n.place, "the technique has no name", "name = \"data parallel\"");
    if (std::any_of(p.techniques.begin(), p.techniques.end(),
                    [&](const StudyTechnique& other) { return other.name == t.name; }))
      problem(n.place, "two techniques are called '" + clean(t.name, 40) + "'");
    p.techniques.push_back(std::move(t));
  }

  void published(const Node& n, StudyPart& p) {
    if (!n.is_table() || n.children.size() > 100)
      return problem(n.place, "published: expected a table of at most 100 rows and numbers");
    for (const Node& row : n.children) {
      const double v = row.value.kind == Value::Kind::integer
                           ? static_cast<double>(row.value.integer)
                           : row.value.real;
      if ((row.value.kind != Value::Kind::integer && row.value.kind != Value::Kind::real) ||
          !std::isfinite(v))
        problem(row.place, fmt::format("published: expected a number for {}, found {}",
                                       clean(row.key, 40), describe(row.value)));
      else
        p.published.emplace_back(row.key, v);
    }
  }

  void claim(const Node& n) {
    StudyClaim c;
    c.place = n.place;
    const std::size_t before = problems_.size();
    keys_of(n, "in [[claim]]",
            {{"paper", folder_name(c.paper)},
             {"says", text(c.says)},
             {"number", text(c.number)},
             {"holds", text(c.holds)},
             {"unit", text(c.unit, true)},
             {"note", text(c.note, true)},
             {"untestable", text(c.untestable)}});
    if (problems_.size() == before && c.says.empty())
      problem(n.place, "the claim does not say anything", "says = \"...\"");
    if (problems_.size() == before && c.untestable.empty() && (c.number.empty() || c.holds.empty()))
      problem(n.place, "a claim needs number and holds, or untestable",
              "untestable = \"why it cannot be tested here\"");
    out_.claims.push_back(std::move(c));
  }

  std::string file_;
  StudyFile out_;
};

[[noreturn]] void refuse_study(const std::string& path, std::string message) {
  throw ConfigError({{{path}, std::move(message), ""}}, {},
                    "docs/studies.md explains the file; studies/ has some");
}

}  // namespace

StudyFile study_from_text(std::string_view text, const std::string& file) {
  if (text.size() > largest_study)
    refuse_study(file, "the file is larger than 1 MiB, the most that a study may have");
  return StudyReader(text, file).read();
}

StudyFile read_study(const std::string& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    refuse_study(path, "the file cannot be looked at: " + error.message());
  if (!fs::exists(status)) refuse_study(path, "there is no such file");
  if (!fs::is_regular_file(status))
    refuse_study(path, "expected a study's TOML file, found something else");
  std::ifstream in(path, std::ios::binary);
  std::string text(largest_study + 1, '\0');
  if (!in) refuse_study(path, "the file cannot be opened");
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) refuse_study(path, "the file cannot be read");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return study_from_text(text, path);
}

}  // namespace tessera::config
