// A run's record as JSON and back. Convention: one list of fields serves both directions; what is
// not known is null; a value of the wrong kind, or a list longer than any run writes, is refused
// before anything is made of it.
#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "record/record.h"
#include "report/html.h"

namespace tessera::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t most_records = 1 << 20, longest_string = 1 << 16;

template <class V, class B>
void breakdown_fields(V& v, B& b) {
  v("compute", b.compute);
  v("comm_exposed", b.comm_exposed);
  v("comm_hidden", b.comm_hidden);
  v("wait", b.wait);
  v("data", b.data);
  v("host", b.host);
  v("bubble", b.bubble);
  v("copy", b.copy);
  v("pipelined", b.pipelined);
}
template <class V, class Q>
void quantile_fields(V& v, Q& q) {
  v("median", q.median);
  v("p10", q.p10);
  v("p90", q.p90);
  v("min", q.min);
  v("max", q.max);
  v("mean", q.mean);
}
template <class V, class E>
void epoch_fields(V& v, E& e) {
  v("seconds", e.seconds);
  v("elapsed", e.elapsed);
  v("loss", e.loss);
  v("train_top1", e.train_top1);
  v("test_loss", e.test_loss);
  v("test_top1", e.test_top1);
  v("barrier_wait", e.barrier_wait);
  v("whole", e.whole);
}
template <class V, class R>
void rank_fields(V& v, R& r) {
  v("host", r.host);
  v("device", r.device);
  v("breakdown", r.breakdown);
  v("barrier_wait", r.barrier_wait);
  v("others_waited", r.others_waited);
  v("planned", r.planned);
  v("measured", r.measured);
}
template <class V, class P>
void part_fields(V& v, P& p) {
  v("name", p.name);
  v("seconds", p.seconds);
  v("share", p.share);
  v("count", p.count);
  v("busy", p.busy);
}
template <class V, class R>
void run_fields(V& v, R& r) {
  v("verb", r.verb);
  v("folder", r.folder);
  v("model", r.model);
  v("data", r.data);
  v("dtype", r.dtype);
  v("layout", r.layout);
  v("ranks", r.ranks);
  v("hosts", r.hosts);
  v("threads", r.threads);
  v("global_batch", r.global_batch);
  v("accumulate", r.accumulate);
  v("steps", r.steps);
  v("seed", r.seed);
  v("skipped", r.skipped);
  v("warmup", r.warmup);
  v("params", r.params);
  v("date", r.date);
  v("images_per_s", r.images_per_s);
  v("mfu", r.mfu);
  v("wall", r.wall);
  v("step_ms", r.step_ms);
  v("epoch_seconds", r.epoch_seconds);
  v("latency_ms", r.latency_ms);
  v("breakdown", r.breakdown);
  v("comm_bytes", r.comm_bytes);
  v("ring_bytes", r.ring_bytes);
  v("planned", r.planned);
  v("measured", r.measured);
  v("bubble", r.bubble);
  v("loss", r.loss);
  v("test_loss", r.test_loss);
  v("test_top1", r.test_top1);
  v("best_top1", r.best_top1);
  v("epochs", r.epochs);
  v("losses", r.losses);
  v("by_rank", r.by_rank);
  v("parts", r.parts);
  v("env", r.env);
  v("settings", r.settings);
}

template <class V>
void fields_of(V& v, auto& record);

class RecordWriter {
 public:
  ordered_json out = ordered_json::object();
  void operator()(const char* key, const std::string& s) {
    out[key] = shorten(s, longest_string / 4);
  }  // also makes it UTF-8
  void operator()(const char* key, double d) { out[key] = number(d); }
  void operator()(const char* key, bool b) { out[key] = b; }
  void operator()(const char* key, int i) { out[key] = i; }
  void operator()(const char* key, std::int64_t i) { out[key] = i; }
  void operator()(const char* key, const ordered_json& j) { out[key] = j; }
  void operator()(const char* key, const std::vector<std::pair<std::int64_t, double>>& pairs) {
    ordered_json list = ordered_json::array();
    for (const auto& [a, b] : pairs) list.push_back({a, number(b)});
    out[key] = std::move(list);
  }
  void operator()(const char* key,
                  const std::vector<std::pair<std::string, std::string>>& settings) {
    ordered_json list = ordered_json::array();
    for (const auto& [name, value] : settings)
      list.push_back({shorten(name, kLongestSetting), shorten(value, kLongestSetting)});
    out[key] = std::move(list);
  }
  template <class T>
  void operator()(const char* key, const std::vector<T>& records) {
    ordered_json list = ordered_json::array();
    for (const T& r : records) list.push_back(object(r));
    out[key] = std::move(list);
  }
  template <class T>
  void operator()(const char* key, const T& record) {
    out[key] = object(record);
  }

 private:
  static ordered_json number(double d) {
    return std::isfinite(d) ? ordered_json(d) : ordered_json(nullptr);
  }
  template <class T>
  static ordered_json object(const T& record) {
    RecordWriter inner;
    fields_of(inner, record);
    return std::move(inner.out);
  }
};

class RecordReader {
 public:
  RecordReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) refuse("", "an object");
  }
  void operator()(const char* key, std::string& s) {
    const json* v = find(key);
    if (!v) return;
    if (!v->is_string() || v->get_ref<const std::string&>().size() > longest_string)
      refuse(key, "text of at most 65,536 bytes");
    s = v->get<std::string>();
  }
  void operator()(const char* key, double& d) {
    const json* v = find(key);
    if (!v) return;
    d = number(key, *v);
  }
  void operator()(const char* key, bool& b) {
    const json* v = find(key);
    if (!v) return;
    if (!v->is_boolean()) refuse(key, "true or false");
    b = v->get<bool>();
  }
  void operator()(const char* key, std::int64_t& i) {
    const json* v = find(key);
    if (v) i = whole(key, *v);
  }
  void operator()(const char* key, int& i) {
    const json* v = find(key);
    if (!v) return;
    const std::int64_t n = whole(key, *v);
    if (n < 0 || n > 1 << 20) refuse(key, "a number from 0 to 1,048,576");
    i = static_cast<int>(n);
  }
  void operator()(const char* key, ordered_json& j) {
    if (const json* v = find(key))
      j = ordered_json::parse(v->dump(-1, ' ', false, json::error_handler_t::replace));
  }
  void operator()(const char* key, std::vector<std::pair<std::int64_t, double>>& pairs) {
    const json* v = list(key);
    if (!v) return;
    for (const json& p : *v) {
      if (!p.is_array() || p.size() != 2) refuse(key, "pairs of a step and a loss");
      pairs.emplace_back(whole(key, p[0]), p[1].is_null() ? kUnknown : number(key, p[1]));
    }
  }
  void operator()(const char* key, std::vector<std::pair<std::string, std::string>>& settings) {
    const json* v = list(key);
    if (!v) return;
    if (v->size() > kMostSettings) refuse(key, "at most 512 of them");
    for (const json& p : *v) {
      if (!p.is_array() || p.size() != 2 || !p[0].is_string() || !p[1].is_string())
        refuse(key, "pairs of a name and a value");
      settings.emplace_back(shorten(p[0].get_ref<const std::string&>(), kLongestSetting),
                            shorten(p[1].get_ref<const std::string&>(), kLongestSetting));
    }
  }
  template <class T>
  void operator()(const char* key, std::vector<T>& records) {
    const json* v = list(key);
    if (!v) return;
    for (const json& r : *v) {
      RecordReader inner(r, fmt::format("{}, {}[{}]", where_, key, records.size()));
      T record;
      fields_of(inner, record);
      records.push_back(std::move(record));
    }
  }
  template <class T>
  void operator()(const char* key, T& record) {
    const json* v = find(key);
    if (!v) return;
    RecordReader inner(*v, where_ + ", " + key);
    fields_of(inner, record);
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const {
    throw Error(ErrorKind::usage, (key.empty() ? "" : key + ": ") + "expected " + expected, where_,
                "the record is damaged; run it again");
  }
  // Absent or null: what the record has by itself.
  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  const json* list(const char* key) const {
    const json* v = find(key);
    if (v && (!v->is_array() || v->size() > most_records)) refuse(key, "a list");
    return v;
  }
  double number(const char* key, const json& v) const {
    if (!v.is_number()) refuse(key, "a number");
    return v.get<double>();
  }
  std::int64_t whole(const char* key, const json& v) const {
    if (!v.is_number_integer() || (v.is_number_unsigned() && v.get<std::uint64_t>() > INT64_MAX))
      refuse(key, "a whole number");
    return v.get<std::int64_t>();
  }

  const json& object_;
  std::string where_;
};

template <class V>
void fields_of(V& v, auto& record) {
  using T = std::remove_cvref_t<decltype(record)>;
  if constexpr (std::is_same_v<T, Breakdown>)
    breakdown_fields(v, record);
  else if constexpr (std::is_same_v<T, Quantiles>)
    quantile_fields(v, record);
  else if constexpr (std::is_same_v<T, EpochRecord>)
    epoch_fields(v, record);
  else if constexpr (std::is_same_v<T, RankRecord>)
    rank_fields(v, record);
  else if constexpr (std::is_same_v<T, PartRecord>)
    part_fields(v, record);
  else
    run_fields(v, record);
}

}  // namespace

ordered_json to_json(const RunRecord& run) {
  RecordWriter writer;
  run_fields(writer, run);
  return std::move(writer.out);
}

RunRecord run_from_json(const json& object, const std::string& where) {
  RecordReader reader(object, where);
  RunRecord run;
  run_fields(reader, run);
  return run;
}

}  // namespace tessera::report
