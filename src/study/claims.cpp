#include "study/claims.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "base/check.h"
#include "base/printable.h"
#include "config/problem.h"
#include "files/text.h"
#include "page/page.h"
#include "record/stats.h"
#include "study/claim_expression.h"
#include "study/claim_metrics.h"

namespace tessera::study {
namespace {

using config::StudyClaim;
using report::ClaimResult;

struct Paper {
  const char *name, *title;
};
constexpr Paper kPapers[] = {
    {"vit", "Scaling Vision Transformers: Evaluating DeepSpeed for Image-Centric Workloads"},
    {"inference", "Performance Analysis of Parallelization on Vision Transformer"},
    {"techniques", "Benchmarking image classification models using parallelisation techniques"},
};

// The mistakes in a claim's own words; its expressions are not looked at.
std::vector<std::string> word_problems(const StudyClaim& claim) {
  std::vector<std::string> wrong;
  if (claim.paper.empty())
    wrong.push_back("paper is missing: a short word for where the claim is from");
  if (claim.says.empty()) wrong.push_back("says is empty: it quotes what the publication says");
  const bool asks = !claim.number.empty() || !claim.holds.empty();
  if (asks && !claim.untestable.empty())
    wrong.push_back("it has a number and is untestable: keep one of them");
  if (!asks && claim.untestable.empty())
    wrong.push_back("it has neither number and holds nor untestable");
  if (asks && claim.number.empty()) wrong.push_back("number is missing");
  if (asks && claim.holds.empty()) wrong.push_back("holds is missing, such as \">= 1.7\"");
  return wrong;
}

std::string_view text_of(const Quantity& q, std::string_view text) {
  return text.substr(q.begin, q.end - q.begin);
}

// Three significant digits, numbers from 1000 on without a fraction; more where only they show on
// which side of the condition it is.
std::string in_digits(double value, const Condition& condition) {
  const bool large = std::abs(value) >= 1000 && std::abs(value) < 1e15;
  char text[64];
  for (int digits = large ? 0 : 3; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, large ? "%.*f" : "%.*g", digits, value);
    if (condition.holds(std::strtod(text, nullptr)) == condition.holds(value)) break;
  }
  return text;
}
std::string with_unit(const std::string& number, const std::string& unit) {
  if (unit.empty()) return number;
  return number + (unit == "x" || unit == "%" ? "" : " ") + unit;
}

double combined(std::vector<double> values, const std::string& how) {
  const report::Spread s = report::spread_of(std::move(values));
  return how == "min" ? s.low : how == "max" ? s.high : how == "mean" ? s.mean : s.median;
}

// The values of an expression's quantities: combined over repeats, and of each repeat that all
// have.
struct Measured {
  std::vector<double> all;
  std::map<int, std::vector<double>> by_repeat;
  std::string missing;  // why nothing can be said; "": all is there
  bool open = false;    // a repeat is still to come
};

bool is_open(const report::Point& point) {
  return std::any_of(point.repeats.begin(), point.repeats.end(), [](const report::Repeat& r) {
    return r.outcome == report::Outcome::waiting || r.outcome == report::Outcome::running;
  });
}

Measured measure(const Expression& expression, const StudyClaim& claim,
                 const report::Study& study) {
  Measured m;
  std::vector<const report::Point*> points;
  for (const Quantity& q : expression.quantities) {
    m.missing = find_point(q, study, &points.emplace_back());
    if (!m.missing.empty()) {
      m.open = true;
      return m;
    }
    m.open |= is_open(*points.back());
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Quantity& q = expression.quantities[i];
    const report::Point* point = points[i];
    const std::string text(text_of(q, claim.number));
    const auto values = values_of(q, *point);
    if (values.empty()) {
      m.missing = text + " has no value";
      for (const report::Repeat& r : point->repeats)
        if (r.outcome == report::Outcome::failed && !r.reason.empty()) {
          m.missing += ": " + r.reason;
          break;
        }
      return m;
    }
    std::vector<double> plain;
    for (const auto& [repeat, value] : values) {
      plain.push_back(value);
      m.by_repeat[repeat].push_back(value);
    }
    m.all.push_back(combined(plain, q.repeat));
  }
  std::erase_if(m.by_repeat,
                [&](const auto& r) { return r.second.size() != expression.quantities.size(); });
  return m;
}

std::string sentence(const std::string& text) {
  return text.empty() || text.back() == '.' ? text : text + ".";
}
void add_note(ClaimResult& result, const std::string& text) {
  if (!text.empty()) result.note += (result.note.empty() ? "" : " ") + sentence(text);
}

void judge(const StudyClaim& claim, const report::Study& study, ClaimResult& result) {
  const Expression expression = parse_expression(claim.number);
  const Condition condition = parse_condition(claim.holds);
  const Measured measured = measure(expression, claim, study);
  if (!measured.open) result.verdict = kNoNumber;
  if (!measured.missing.empty()) return add_note(result, measured.missing);
  const double number = expression.evaluate(measured.all);
  if (!std::isfinite(number)) return add_note(result, "the number is not finite");
  result.verdict = condition.holds(number) ? kHolds : kDoesNotHold;

  double least = number, most = number;
  bool agree = true;
  for (const auto& [repeat, values] : measured.by_repeat) {
    const double one = expression.evaluate(values);
    if (!std::isfinite(one)) continue;
    least = std::min(least, one);
    most = std::max(most, one);
    agree &= condition.holds(one) == condition.holds(number);
  }
  const std::string from = in_digits(least, condition), to = in_digits(most, condition);
  result.number = with_unit(in_digits(number, condition), claim.unit);
  if (from != to) result.number += " (" + from + " to " + to + ")";
  result.number += ", asked: " + claim.holds;
  if (!agree) add_note(result, "Single repeats fall on both sides");
}

// Safe in a cell of a table.
std::string cell(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    if (c == '<')
      out += "&lt;";
    else
      out += static_cast<unsigned char>(c) < 32 || c == 127 ? ' ' : c;
  }
  return out;
}

// (name, title) of all that claims are from, each once: the three studies first, then others under
// their own name.
std::vector<std::pair<std::string, std::string>> papers_of(const std::vector<ClaimResult>& claims) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Paper& p : kPapers)
    if (std::any_of(claims.begin(), claims.end(),
                    [&](const ClaimResult& c) { return c.paper == p.name; }))
      out.emplace_back(p.name, p.title);
  for (const ClaimResult& c : claims)
    if (std::none_of(out.begin(), out.end(),
                     [&](const auto& known) { return known.first == c.paper; }))
      out.emplace_back(c.paper, c.paper);
  return out;
}

// The command that runs the parts that a claim's number is made of.
std::string claim_command(const StudyClaim& claim, const report::Study& study) {
  if (claim.number.empty() || study.file.empty()) return study.command;
  std::string out = "tessera study " + shell_word(study.file);
  std::set<std::string> parts;
  for (const Quantity& q : parse_expression(claim.number).quantities)
    if (parts.insert(q.part).second) out += " --only " + shell_word(q.part);
  return out;
}

}  // namespace

std::vector<std::string> check_claims(const std::vector<StudyClaim>& claims,
                                      const report::Study& study) {
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const StudyClaim& claim = claims[i];
    const std::string line =
        claim.place.line > 0 ? "line " + std::to_string(claim.place.line) + ", " : "";
    const std::string which =
        line + "claim " + std::to_string(i + 1) + " (" + config::clean(claim.says, 50) + "): ";
    for (const std::string& wrong : word_problems(claim)) problems.push_back(which + wrong);
    try {
      if (!claim.holds.empty()) (void)parse_condition(claim.holds);
    } catch (const Error& e) {
      problems.push_back(which + e.message);
    }
    try {
      if (claim.number.empty()) continue;
      for (const Quantity& q : parse_expression(claim.number).quantities) {
        const report::Point* point = nullptr;
        if (const std::string wrong = find_point(q, study, &point); !wrong.empty())
          problems.push_back(which + "number, column " + std::to_string(q.begin + 1) + ": " +
                             wrong);
      }
    } catch (const Error& e) {
      problems.push_back(which + e.message);
    }
  }
  return problems;
}

std::vector<ClaimResult> judge_claims(const std::vector<StudyClaim>& claims,
                                      const report::Study& study) {
  std::vector<ClaimResult> results;
  for (const StudyClaim& claim : claims) {
    ClaimResult& r = results.emplace_back();
    r.paper = claim.paper;
    r.says = claim.says;
    r.verdict = claim.untestable.empty() ? kNotRun : kNotTestable;
    add_note(r, claim.untestable);
    try {
      r.command = claim_command(claim, study);
      if (claim.untestable.empty()) judge(claim, study, r);
    } catch (const Error& e) {  // check_claims says it before anything runs
      add_note(r, e.message);
    }
    add_note(r, claim.note);
  }
  return results;
}

std::string claims_markdown(const std::vector<ClaimResult>& claims, const report::Study& study) {
  std::map<std::string, int> count;
  for (const ClaimResult& c : claims) ++count[c.verdict];
  const auto papers = papers_of(claims);
  const bool known = std::all_of(papers.begin(), papers.end(),
                                 [](const auto& paper) { return paper.first != paper.second; });
  std::string out =
      std::string(known ? "# What the three studies say, tested" : "# Claims, tested") +
      "\n\nYou will find here what publications claim, the number that was computed for each "
      "claim, and whether it holds.\n\nMade by `" +
      cell(study.command) + "`";
  if (!study.file.empty())
    out +=
        "; `" + cell(study.file) +
        "` has the runs and, for each claim, the number that is computed and what it must satisfy";
  out += ".\n";
  for (const report::Part& part : study.parts)
    for (const report::Point& point : part.points)
      for (const report::Repeat& repeat : point.repeats)
        if (repeat.record && repeat.record->env.is_object() && out.find("Machine:") == out.npos) {
          const auto& env = repeat.record->env;
          auto text = [&](const char* key) {
            return !env.contains(key)     ? std::string("?")
                   : env[key].is_string() ? env[key].get<std::string>()
                                          : env[key].dump();
          };
          const std::string commits = report::commits_of(study);
          out += "Machine: " +
                 cell(text("cpu") + ", " + text("cores") + " cores, " +
                      (commits.empty() ? "commit ?" : commits)) +
                 ".\n";
        }
  out += "Numbers are medians over repeats, in brackets their range";
  out += known ? "; the studies ran on other machines, so it is\ntheir conclusions that are "
                 "tested, not their seconds.\n\n"
               : ".\n\n";
  for (std::string_view verdict : {kHolds, kDoesNotHold, kNotTestable, kNotRun, kNoNumber})
    if (const int n = count[std::string(verdict)]; n > 0)
      out += "- " + std::string(verdict) + ": " + std::to_string(n) + "\n";
  for (const auto& [paper, title] : papers) {
    out += "\n## " + cell(title) +
           "\n\n| what it says | command | our number | verdict | note |\n|---|---|---|---|---|\n";
    for (const ClaimResult& c : claims)
      if (c.paper == paper)
        out += "| " + cell(c.says) + " | " +
               (c.verdict == kNotTestable ? "" : "`" + cell(c.command) + "`") + " | " +
               cell(c.number) + " | " + cell(c.verdict) + " | " + cell(c.note) + " |\n";
  }
  return out;
}

void write_claims(const report::Study& study, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "claims.md";
  std::error_code error;
  if (!study.claims.empty())
    files::write_atomically(path, claims_markdown(study.claims, study));
  else if (report::files_of_page(folder.string()).contains("data/claims.csv"))
    std::filesystem::remove(path, error);
  if (error)
    throw Error(ErrorKind::disk,
                "the study has no claims any more, and those of before cannot be removed: " +
                    error.message(),
                path.string(), "remove it yourself");
}

}  // namespace tessera::study
