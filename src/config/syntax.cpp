// The texts with a small syntax of their own: data sources, targets, recomputation, schedules,
// lengths.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "config/config.h"
#include "config/problem.h"

namespace tessera::config {
namespace {

// Reads a whole number from the front of `text` and then `after` ("" : the end); false when there
// is something else.
bool take(std::string_view& text, std::int64_t& out, std::string_view after) {
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, out);
  if (code != std::errc() || text.empty() || text.front() == '-') return false;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  if (after.empty()) return text.empty();
  if (!text.starts_with(after)) return false;
  text.remove_prefix(after.size());
  return true;
}

[[noreturn]] void refuse(std::string message, std::string hint) {
  throw Error(ErrorKind::usage, std::move(message), "", std::move(hint));
}

}  // namespace

std::int64_t Span::of(std::int64_t total) const {
  return is_percent ? std::llround(static_cast<double>(total) * percent / 100.0) : steps;
}

Source parse_source(std::string_view text) {
  static const std::string forms =
      "choose synthetic, synthetic:HxWxC,CLASSES, cifar10:DIR, cifar100:DIR, folder:DIR or npy:DIR";
  const std::string said = "data.source = \"" + clean(text) + "\"";
  const auto colon = text.find(':');
  Source s;
  s.kind = text.substr(0, colon);
  std::string_view rest = colon == text.npos ? std::string_view{} : text.substr(colon + 1);
  if (s.kind == "synthetic") {
    if (colon == text.npos) return s;
    if (!(take(rest, s.h, "x") && take(rest, s.w, "x") && take(rest, s.channels, ",") &&
          take(rest, s.classes, "")))
      refuse(said + ": expected HEIGHTxWIDTHxCHANNELS,CLASSES after the colon",
             "for example synthetic:64x64x3,10");
    const auto within = [](std::int64_t v, std::int64_t most) { return v >= 1 && v <= most; };
    if (!within(s.h, 16384) || !within(s.w, 16384) || !within(s.channels, 1024) ||
        !within(s.classes, 1 << 20))
      refuse(said + " is out of range",
             "sides are 1 to 16384, channels 1 to 1024, classes 1 to 1048576");
    return s;
  }
  if (s.kind == "cifar10" || s.kind == "cifar100" || s.has_class_folders()) {
    if (rest.empty())
      refuse(said + " does not say where the files are",
             s.has_class_folders() ? "write " + s.kind + ":DIR; DIR holds a folder of " +
                                         (s.kind == "npy" ? ".npy arrays" : "images") +
                                         " for each class, or train/ and val/ with such folders"
                                   : "write " + s.kind + ":DIR; `tessera data get " + s.kind +
                                         " --out DIR` fetches them");
    s.dir = rest;
    if (!s.has_class_folders()) {
      s.h = s.w = 32;
      s.channels = 3;
      s.classes = s.kind == "cifar10" ? 10 : 100;
      s.train_size = 50000;
    }
    return s;
  }
  const std::string near =
      s.kind.size() > 32 ? ""
                         : nearest(s.kind, {"synthetic", "cifar10", "cifar100", "folder", "npy"});
  refuse(said + " is not known", (near.empty() ? "" : "did you mean " + near + "? ") + forms);
}

Target parse_until(std::string_view text) {
  const auto equals = text.find('=');
  Target t;
  t.metric = text.substr(0, equals);
  const std::string said = "run.until = \"" + clean(text) + "\"";
  const std::string_view number =
      equals == text.npos ? std::string_view{} : text.substr(equals + 1);
  const auto [stop, code] = std::from_chars(number.data(), number.data() + number.size(), t.value);
  if (number.empty() || code != std::errc() || stop != number.data() + number.size() ||
      !std::isfinite(t.value))
    refuse(said + ": expected METRIC=VALUE", "for example top1=0.94");
  if (t.metric != "top1" && t.metric != "top5" && t.metric != "loss")
    refuse(said + " names no metric", "choose top1, top5 or loss");
  if (t.value < 0 || (t.metric != "loss" && t.value > 1))
    refuse(said + " can never be reached",
           t.metric == "loss" ? "choose 0 or more" : "choose 0 to 1 (0.94 is 94%)");
  return t;
}

std::int64_t parse_freeze(std::string_view text) {
  if (text == "none") return 0;
  if (text == "backbone") return -1;
  std::int64_t n = 0;
  std::string_view rest = text;
  if (take(rest, n, "") && n >= 1 && n <= 1024) return n;
  refuse("optim.freeze = \"" + clean(text) + "\" is not known",
         "choose none, backbone, or how many parts counted from the input: 1 to 1024");
}

std::int64_t parse_recompute(std::string_view text) {
  if (text == "none") return 0;
  if (text == "full") return 1;
  std::int64_t n = 0;
  std::string_view rest = text;
  if (rest.starts_with("every=")) {
    rest.remove_prefix(6);
    if (take(rest, n, "") && n >= 1 && n <= 1024) return n;
  }
  refuse("parallel.recompute = \"" + clean(text) + "\" is not known",
         "choose none, full or every=N with N from 1 to 1024");
}

Compression parse_compress(std::string_view text) {
  for (const char* plain : {"none", "fp16", "bf16", "int8", "onebit"})
    if (text == plain) return {plain, 0, 0};
  const std::string said = "parallel.compress = \"" + clean(text) + "\"";
  const auto equals = text.find('=');
  const std::string_view kind = text.substr(0, equals), number = equals == text.npos
                                                                     ? std::string_view{}
                                                                     : text.substr(equals + 1);
  if (kind == "topk") {
    double fraction = 0;
    const auto [stop, code] =
        std::from_chars(number.data(), number.data() + number.size(), fraction);
    if (!number.empty() && code == std::errc() && stop == number.data() + number.size() &&
        fraction > 0 && fraction <= 1)
      return {"topk", fraction, 0};
    refuse(said + ": topk takes the share of the elements that is sent",
           "give more than 0 and at most 1, for example topk=0.01");
  }
  if (kind == "powersgd") {
    std::int64_t rank = 0;
    std::string_view rest = number;
    if (take(rest, rank, "") && rank >= 1 && rank <= 1024) return {"powersgd", 0, rank};
    refuse(said + ": powersgd takes a rank", "give 1 to 1024, for example powersgd=4");
  }
  refuse(said + " is not known",
         "choose none, fp16, bf16, int8, onebit, topk=FRACTION or powersgd=RANK");
}

Schedule parse_schedule(std::string_view text) {
  static const std::vector<std::string> names = {"gpipe", "1f1b", "interleaved", "zb"};
  if (text == "zb-h1") return {"zb", ""};
  for (const std::string& name : names)
    if (text == name) return {name, ""};
  const std::string said = "parallel.schedule = \"" + clean(text) + "\"";
  if (text.starts_with("file:")) {
    if (text.size() > 5) return {"file", std::string(text.substr(5))};
    refuse(said + " does not say where the file is", "write file:PATH");
  }
  std::error_code error;
  if (!text.empty() && std::filesystem::is_regular_file(text, error))
    refuse(said + " is not known", "it is a file: write file:" + clean(text, 200));
  const std::string near = text.size() > 32 ? "" : nearest(text, names);
  refuse(said + " is not known", (near.empty() ? "" : "did you mean " + near + "? ") +
                                     "choose gpipe, 1f1b, interleaved, zb or file:PATH");
}

}  // namespace tessera::config
