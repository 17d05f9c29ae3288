#include "study/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "config/reader.h"
#include "files/hash.h"
#include "files/text.h"
#include "study/launch.h"

namespace tessera::study {
namespace {

using config::StudyFile;
using config::StudyPart;
using config::StudySetting;

// A key's value with where it was written.
using Keys = std::map<std::string, StudySetting>;

constexpr std::int64_t most_ranks = 65536,
                       largest_seed = 9'200'000'000'000'000'000;  // what run.np and run.seed may be

bool is_launch(const std::string& key) { return key.starts_with("launch."); }

class Planner {
 public:
  Planner(const StudyFile& file, bool with_hosts) : file_(file) {
    read_files(with_hosts);
    if (!problems_.empty()) refuse();  // without the configuration every point would be wrong
  }

  Plan plan() {
    for (std::size_t p = 0; p < file_.parts.size(); ++p) part(p);
    if (!problems_.empty()) refuse();
    order();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse() {
    throw config::ConfigError(std::move(problems_),
                              {{file_.path, file_.text}, {file_.config, config_text_}},
                              "`tessera study FILE --list` plans without running");
  }

  void read_files(bool with_hosts) {
    const auto unreadable = [&](const config::Place& place, const char* key,
                                const std::string& path, const Error& e) {
      problems_.push_back({place,
                           fmt::format("{}: {}: {}", key, config::clean(path, 200), e.message),
                           "give a path relative to the study's file"});
    };
    try {
      if (!file_.config.empty()) config_text_ = files::read_text(file_.config, 1 << 20);
    } catch (const Error& e) {
      unreadable(file_.config_place, "config", file_.config, e);
    }
    try {
      if (with_hosts && file_.launch.with == "mpirun" && !file_.launch.hostfile.empty())
        hosts_ = hosts_in(file_.launch.hostfile);
    } catch (const Error& e) {
      unreadable(file_.launch.hostfile_place, "hostfile", file_.launch.hostfile, e);
    }
  }

  void part(std::size_t p) {
    const StudyPart& part = file_.parts[p];
    static const std::vector<config::StudyTechnique> none(1);
    for (const config::StudyTechnique& technique :
         part.techniques.empty() ? none : part.techniques) {
      std::vector<std::size_t> at(part.grid.size());
      for (bool more = true; more;) {
        point(p, technique, at);
        more = false;
        for (std::size_t i = at.size(); i-- > 0 && !more;)
          more = ++at[i] < part.grid[i].values.size() || (at[i] = 0);
      }
    }
  }

  void point(std::size_t p, const config::StudyTechnique& technique,
             const std::vector<std::size_t>& at) {
    const StudyPart& part = file_.parts[p];
    PlannedPoint out;
    out.part = p;
    out.technique = technique.name;
    Keys keys;
    for (const auto* settings : {&file_.base, &part.set, &technique.set})
      for (const StudySetting& s : *settings) keys[s.key] = s;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const config::StudyAxis& axis = part.grid[i];
      keys[axis.key] = {axis.key, axis.values[at[i]], axis.place};
      out.axes.emplace_back(axis.key, axis.values[at[i]]);
    }
    if (part.kind == "weak" && !grow_with_ranks(part, keys, out)) return;
    const config::Config* loaded = load(part, keys, out);
    if (!loaded) return;
    out.ranks = static_cast<int>(loaded->run.np);
    out.seed = loaded->run.seed;
    out.batch = loaded->batch.global;
    for (const auto& [key, s] : keys)
      if (key != "run.seed") (is_launch(key) ? out.launch : out.keys).emplace_back(key, s.value);
    if (!check_launch(part, keys, out)) return;
    check_room(part, keys, out);
    if (const std::int64_t more = repeats_of(part) - 1; out.seed > largest_seed - more)
      problem(keys.contains("run.seed") ? keys["run.seed"].place : part.place, out,
              fmt::format("run.seed = {} and one more with each repeat passes the largest seed",
                          out.seed),
              fmt::format("at most {}", largest_seed - more));
    add(part, std::move(out));
  }

  // Weak scaling: as many samples and as large a batch per rank as at the smallest number of ranks.
  bool grow_with_ranks(const StudyPart& part, Keys& keys, PlannedPoint& out) {
    std::int64_t least = 0;
    const auto number = [](const std::string& text) {
      std::int64_t n = 0;
      const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), n);
      return code == std::errc() && end == text.data() + text.size() ? n : 0;
    };
    for (const config::StudyAxis& axis : part.grid)
      for (const std::string& value : axis.values)
        if (const std::int64_t n = number(value);
            axis.key == "run.np" && n > 0 && (least == 0 || n < least))
          least = n;
    const std::int64_t ranks = number(keys["run.np"].value);
    if (least == 0) return true;
    Keys smallest = keys;
    smallest["run.np"].value = std::to_string(least);
    const config::Config* at_least = load(part, smallest, out);
    if (!at_least || ranks <= 0 || ranks > most_ranks)
      return at_least != nullptr;  // what is no such number is said of its own point
    const auto place = keys["run.np"].place;
    const std::int64_t batch = at_least->batch.global * ranks / least;
    const std::string fraction =
        fmt::format("{:.12g}", at_least->data.fraction * static_cast<double>(ranks) /
                                   static_cast<double>(least));
    keys["batch.global"] = {"batch.global", std::to_string(batch), place};
    keys["data.fraction"] = {"data.fraction", fraction, place};
    out.fixed = {{"data.fraction", fraction}, {"batch.global", std::to_string(batch)}};
    if (batch * least != at_least->batch.global * ranks)
      problem(place, out,
              fmt::format("batch.global = {} at {} ranks cannot be shared out alike among {}",
                          at_least->batch.global, least, ranks),
              fmt::format("choose a multiple of {}", least));
    return true;
  }

  // Null: refused, and the problems are noted with the point's name; those that many points share,
  // once.
  const config::Config* load(const StudyPart& part, const Keys& keys, const PlannedPoint& point) {
    std::vector<config::Override> overrides;
    std::map<std::string, config::Place> places;
    for (const auto& [key, s] : keys) {
      if (is_launch(key)) continue;
      config::Override o{
          .key = key, .value = s.value, .origin = "--set " + key + "=" + s.value, .is_flag = false};
      places[o.origin] = s.place;
      overrides.push_back(std::move(o));
    }
    const auto purpose = part.verb == "train"   ? config::Purpose::train
                         : part.verb == "infer" ? config::Purpose::inference
                                                : config::Purpose::other;
    try {
      config_ = config::load_text(config_text_, file_.config, overrides, purpose);
      return &config_;
    } catch (const config::ConfigError& e) {
      for (const config::Problem& p : e.problems) {
        const auto found = places.find(p.place.origin);
        const config::Place& place = found != places.end()    ? found->second
                                     : p.place.origin.empty() ? part.place
                                                              : p.place;
        problem(place, point, p.message, p.advice);
      }
    }
    return nullptr;
  }

  // False: refused, and its launch.* values may be no numbers.
  bool check_launch(const StudyPart& part, const Keys& keys, const PlannedPoint& point) {
    const std::string& with = file_.launch.with;
    bool sound = true;
    const auto refused = [&](const config::Place& place, const std::string& message,
                             const std::string& advice) {
      sound = false;
      problem(place, point, message, advice);
    };
    for (const auto& [key, value] : point.launch) {
      const config::Place& place = keys.at(key).place;
      if (key == "launch.throttle") {
        try {
          const Throttle t = parse_throttle(value);
          if (t.rank >= point.ranks)
            refused(
                place,
                fmt::format("launch.throttle names rank {}, but there are {}", t.rank, point.ranks),
                "");
          if (part.verb != "train" || point.ranks < 2 || config_.parallel.comm == "local")
            refused(place, "launch.throttle slows one process of a training on several",
                    "leave it out, or give run.np and no parallel.comm = \"local\"");
        } catch (const Error& e) {
          refused(place, e.message, e.hint);
        }
        continue;
      }
      const bool number =
          !value.empty() && value.size() < 7 && value.find_first_not_of("0123456789") == value.npos;
      if (!number || (key == "launch.hosts" && value == "0"))
        refused(place, key + ": expected a whole number, found " + config::clean(value), "");
      if (with == "local")
        refused(place, key + " is for a launcher, but [launch] with = \"local\"",
                "with = \"mpirun\" or \"srun\"");
      if (key == "launch.hosts" && with == "mpirun" && file_.launch.hostfile.empty())
        refused(place, "launch.hosts counts lines of a hostfile, but [launch] has none",
                "hostfile = \"hosts.txt\"");
      if (key == "launch.hosts" && number && hosts_ && std::stoull(value) > hosts_->size())
        refused(place,
                fmt::format("launch.hosts = {}, but {} has only {}", value,
                            config::clean(file_.launch.hostfile, 200), hosts_->size()),
                "");
    }
    return sound;
  }

  // The hosts of a point, where something says how many.
  std::optional<std::size_t> hosts_of(const PlannedPoint& point) const {
    for (const auto& [key, value] : point.launch)
      if (key == "launch.hosts") return std::stoull(value);
    return hosts_ ? std::optional(hosts_->size()) : std::nullopt;
  }

  void check_room(const StudyPart& part, const Keys& keys, const PlannedPoint& point) {
    const std::optional<std::size_t> hosts = hosts_of(point);
    const int each = ranks_per_host(file_, point);
    if (!hosts || *hosts * static_cast<std::size_t>(each) >= static_cast<std::size_t>(point.ranks))
      return;
    const auto own = keys.find("launch.per_host");
    problem(own != keys.end() ? own->second.place : part.place, point,
            fmt::format("{} ranks do not fit on {} host{} with {} on each", point.ranks, *hosts,
                        *hosts == 1 ? "" : "s", each),
            "name more hosts, or change per_host or run.np");
  }

  void problem(const config::Place& place, const PlannedPoint& point, const std::string& message,
               const std::string& advice) {
    const std::string same =
        fmt::format("{}:{}:{}:{}", place.origin, place.line, place.column, message);
    if (!said_.insert(same).second) return;
    const std::string name = point_name(point);
    problems_.push_back({place,
                         fmt::format("part {}{}{}: {}", file_.parts[point.part].name,
                                     name.empty() ? "" : ", ", config::clean(name, 120), message),
                         advice});
  }

  std::int64_t repeats_of(const StudyPart& part) const {
    return part.repeats > 0 ? part.repeats : file_.repeats;
  }

  void add(const StudyPart& part, PlannedPoint point) {
    const std::size_t index = out_.points.size();
    const auto repeats = static_cast<int>(repeats_of(part));
    // Length before each text: no two lists of texts are written alike.
    std::string canonical = "tessera study 1";
    const auto append = [&](const std::string& text) {
      canonical += fmt::format("\n{}:{}", text.size(), text);
    };
    append(part.name);
    append(part.verb);
    append(point.technique);
    append(config_text_.empty() ? "" : files::hash_text(files::xxh3(config_text_)));
    append(file_.launch.with);
    append(hosts_hash(point));
    append(std::to_string(file_.launch.per_host));
    for (const auto* words : {&file_.launch.arguments, &part.arguments}) {
      append(std::to_string(words->size()));
      for (const std::string& word : *words) append(word);
    }
    for (const Pairs* pairs : {&point.keys, &point.launch}) {
      append(std::to_string(pairs->size()));
      for (const auto& [key, value] : *pairs) {
        append(key);
        append(value);
      }
    }
    append(std::to_string(point.seed));
    for (int r = 0; r < repeats; ++r) {
      PlannedRun run;
      run.point = index;
      run.repeat = r;
      run.identity = files::hash_text(files::xxh3(fmt::format("{}\nrepeat {}", canonical, r)));
      run.folder = fmt::format("runs/{}/{}r{}-{}", part.name, slug(point), r, run.identity);
      point.runs.push_back(out_.runs.size());
      out_.runs.push_back(std::move(run));
    }
    out_.points.push_back(std::move(point));
  }

  // A hash of the hostfile's lines that the point may use; those below them can change.
  std::string hosts_hash(const PlannedPoint& point) const {
    if (!hosts_) return "";
    std::string lines;
    for (std::size_t i = 0; i < std::min(hosts_->size(), hosts_of(point).value_or(0)); ++i)
      lines += (*hosts_)[i] + "\n";
    return files::hash_text(files::xxh3(lines));
  }

  // A readable beginning of a folder's name.
  static std::string slug(const PlannedPoint& point) {
    std::string out;
    const auto append = [&](std::string_view text) {
      for (const char c : text)
        out += (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ? c
               : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a')
                                      : '_';
    };
    append(point.technique);
    for (const auto& [key, value] : point.axes) {
      if (!out.empty()) out += '-';
      append(key.substr(key.find('.') + 1));
      append(value);
    }
    out.resize(std::min<std::size_t>(out.size(), 60));
    while (out.starts_with('.')) out.erase(0, 1);
    return out.empty() ? "" : out + "-";
  }

  // In turns: all points once, then all of them again, backwards; so a machine that slows down
  // slows all points alike.
  void order() {
    std::vector<std::size_t> turn(out_.runs.size());
    for (std::size_t i = 0; i < turn.size(); ++i) turn[i] = i;
    std::stable_sort(turn.begin(), turn.end(), [&](std::size_t a, std::size_t b) {
      const PlannedRun &x = out_.runs[a], &y = out_.runs[b];
      if (x.repeat != y.repeat) return x.repeat < y.repeat;
      return x.repeat % 2 == 0 ? x.point < y.point : x.point > y.point;
    });
    std::vector<PlannedRun> runs;
    for (PlannedPoint& point : out_.points) point.runs.clear();
    for (const std::size_t i : turn) {
      out_.points[out_.runs[i].point].runs.push_back(runs.size());
      runs.push_back(std::move(out_.runs[i]));
    }
    out_.runs = std::move(runs);
  }

  const StudyFile& file_;
  std::string config_text_;
  Plan out_;
  std::optional<std::vector<std::string>> hosts_;  // of the hostfile
  config::Config config_;                          // the one loaded last
  std::vector<config::Problem> problems_;
  std::set<std::string> said_;
};

}  // namespace

Throttle parse_throttle(const std::string& text) {
  Throttle out;
  const auto colon = text.find(':');
  const char* end = text.data() + text.size();
  const auto rank =
      std::from_chars(text.data(), text.data() + std::min(colon, text.size()), out.rank);
  const auto share = colon == text.npos
                         ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                         : std::from_chars(text.data() + colon + 1, end, out.share);
  if (rank.ec != std::errc() || rank.ptr != text.data() + std::min(colon, text.size()) ||
      share.ec != std::errc() || share.ptr != end || out.rank < 0 ||
      !(out.share >= 0.05 && out.share < 1))
    throw Error(
        ErrorKind::usage,
        "launch.throttle: expected RANK:SHARE with a share from 0.05 to less than 1, found " +
            config::clean(text),
        "", "\"1:0.33\": rank 1 gets a third of its time");
  return out;
}

Plan plan_study(const StudyFile& file, bool with_hosts) { return Planner(file, with_hosts).plan(); }

std::string point_name(const PlannedPoint& point) {
  std::string out = point.technique;
  for (const auto& [key, value] : point.axes) out += (out.empty() ? "" : " ") + key + "=" + value;
  return out;
}

}  // namespace tessera::study
