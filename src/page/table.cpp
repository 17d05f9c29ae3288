#include "page/table.h"

#include <fmt/format.h>

#include <cmath>

#include "report/html.h"

namespace tessera::report {

std::string html_table(const Table& table) {
  std::string out = "<div class=\"scroll\"><table>";
  out += "<thead><tr>";
  for (const Column& c : table.columns)
    out += fmt::format("<th{} scope=\"col\">{}</th>", c.text ? " class=\"text\"" : "",
                       escape(c.name, 80));
  out += "</tr></thead>\n<tbody>";
  for (const std::vector<Cell>& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::string classes = i < table.columns.size() && table.columns[i].text ? "text" : "";
      if (!row[i].look.empty()) classes += (classes.empty() ? "" : " ") + row[i].look;
      out += classes.empty() ? "<td>" : fmt::format("<td class=\"{}\">", classes);
      out += "<span class=\"value\">" + escape(row[i].text, 2000) + "</span>";
      if (!row[i].range.empty())
        out += "<span class=\"range\">" + escape(row[i].range, 400) + "</span>";
      out += "</td>";
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  return table.caption.empty() ? out
                               : out + "<p class=\"below\">" + escape(table.caption) + "</p>\n";
}

std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*_[]|~").find(c) != std::string_view::npos) out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return escape(out);
}

std::string markdown_table(const Table& table) {
  std::string head = "|", rule = "|", out;
  for (const Column& c : table.columns) {
    head += " " + markdown_text(c.name) + " |";
    rule += c.text ? "---|" : "---:|";
  }
  for (const std::vector<Cell>& row : table.rows) {
    out += "|";
    for (const Cell& cell : row) {
      std::string text = markdown_text(cell.text);
      if (cell.look == "best" || cell.look == "bad") text = "**" + text + "**";
      if (!cell.range.empty()) text += " (" + markdown_text(cell.range) + ")";
      out += " " + text + " |";
    }
    out += "\n";
  }
  return head + "\n" + rule + "\n" + out +
         (table.caption.empty() ? "" : "\n" + markdown_text(table.caption) + "\n");
}

Cell spread_cell(const Spread& s, const Words& words) {
  if (!s.known()) return {"–", "", ""};
  const std::string low = words(s.low), high = words(s.high);
  return {words(s.median), s.n > 1 && low != high ? low + " to " + high : "", ""};
}

std::string apart_words(double v) {
  return v == 0 ? std::string("0") : fmt::format("{}{:.2e}", v < 0 ? "−" : "+", std::abs(v));
}

void mark_best(Table& table, std::size_t column, const std::vector<Spread>& values, bool least,
               double Spread::*by) {
  std::size_t best = values.size(), known = 0;
  bool differ = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].known()) continue;
    ++known;
    if (best != values.size()) differ |= values[i].*by != values[best].*by;
    if (best == values.size() ||
        (least ? values[i].*by < values[best].*by : values[i].*by > values[best].*by))
      best = i;
  }
  if (known < 2 || !differ) return;
  for (std::size_t i = 0; i < values.size() && i < table.rows.size(); ++i)
    if (values[i].known() && (i == best || values[i].*by == values[best].*by ||
                              difference(values[i], values[best]) == Difference::within))
      table.rows[i].at(column).look = "best";
}

Csv::Csv(const std::vector<std::string>& header) {
  for (const std::string& name : header) text(name);
  end();
}

void Csv::cell(const std::string& value) {
  if (!first_) out_ += ',';
  first_ = false;
  out_ += value;
}

Csv& Csv::text(const std::string& value) {
  std::string clean;
  for (const char c : value) clean += c == '\0' ? ' ' : c;
  // Spreadsheets look past blanks for the sign of a formula.
  const std::size_t sign = clean.find_first_not_of(" \t\r\n");
  if (sign != clean.npos && (std::string("=+-@|%").find(clean[sign]) != std::string::npos))
    clean.insert(0, "'");
  else if (!clean.empty() && (clean[0] == '\t' || clean[0] == '\r'))
    clean.insert(0, "'");
  if (clean.find_first_of(",\"\r\n;'\t ") != clean.npos) {
    std::string quoted = "\"";
    for (const char c : clean) quoted += c == '"' ? "\"\"" : std::string(1, c);
    clean = quoted + "\"";
  }
  cell(clean);
  return *this;
}

Csv& Csv::number(double value) {
  cell(std::isfinite(value) ? fmt::format("{}", value) : "");
  return *this;
}

Csv& Csv::whole(std::int64_t value) {
  cell(std::to_string(value));
  return *this;
}

void Csv::end() {
  out_ += "\r\n";
  first_ = true;
}

}  // namespace tessera::report
