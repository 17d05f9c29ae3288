// Values over ranks, batch sizes, epochs or time: lines with markers and error bars, an ideal and a
// fitted line beside them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "page/figures/figure.h"
#include "report/html.h"

namespace tessera::report {
namespace {

constexpr double line_width = 560,
                 line_plot = 260;  // of the picture; the height of the plot itself
constexpr std::size_t most_told_marks = 30;

bool is_measured(const Line& line) {
  return line.look == LineLook::measured || line.look == LineLook::plain;
}

class LinePlot {
 public:
  explicit LinePlot(const LineFigure& figure)
      : f_(figure), canvas_(line_width, figure.title, figure.caption) {}

  std::string draw() {
    measure();
    keys();
    if (xs_.empty()) {
      canvas_.text(line_width / 2, canvas_.y() + 60, "fg-soft", "nothing measured yet", "middle");
      return canvas_.finish(canvas_.y() + 120);
    }
    canvas_.down(8);
    top_ = canvas_.y() + 14;
    bottom_ = top_ + line_plot;
    const std::string unit = f_.y_label;
    canvas_.text(12, canvas_.y() + 4, "fg-soft", unit);
    axis_y();
    axis_x();
    int colour = 0;
    for (const Line& line : f_.lines) {
      const bool own = is_measured(line);
      const int c = line.colour >= 0 ? line.colour : own ? colour : std::max(0, colour - 1);
      series(line, c % kColours);
      if (own) ++colour;
    }
    return canvas_.finish(bottom_ + 44);
  }

 private:
  static bool seen(const Mark& m) {
    return std::isfinite(m.x) && std::isfinite(m.y) && std::abs(m.y) < 1e300;
  }

  void measure() {
    double low = f_.from_zero && !f_.log10_y ? 0 : 1e308, high = -1e308;
    for (const Line& line : f_.lines)
      for (const Mark& m : line.marks) {
        if (!drawn(m)) continue;
        if (line.look != LineLook::fitted) xs_.insert(m.x);
        for (const double y : {m.y, m.low, m.high})
          if (std::isfinite(y) && (!f_.log10_y || y > 0)) {
            low = std::min(low, height(y));
            high = std::max(high, height(y));
          }
      }
    if (xs_.empty()) return;
    if (f_.from_zero_x) xs_.insert(0);
    if (f_.log10_y) {
      low = std::floor(low);
      high = std::max(std::ceil(high), low + 1);
    }
    if (!f_.from_zero && !f_.log10_y) {
      low -= (high - low) * 0.04;
      high += (high - low) * 0.04;
    }
    if (f_.percent_y && low >= 0 && high <= 1 && !f_.from_zero) {
      low = std::max(0.0, low);
      high = std::min(1.0, high);
    }
    ticks_ = ticks(low, std::max(high, low), 6, f_.percent_y);
    x_low_ = along(*xs_.begin());
    x_high_ = along(*xs_.rbegin());
    if (x_high_ - x_low_ < 1e-12) {
      x_low_ -= 0.5;
      x_high_ += 0.5;
    }
    double widest = 0;
    for (const double t : ticks_.at()) widest = std::max(widest, columns_of(tick_words(t)));
    left_ = std::max(44.0, 20 + kLetter * widest);
  }

  // A logarithmic axis has ticks at whole powers of ten.
  std::string tick_words(double t) const {
    if (!f_.log10_y) return ticks_.label(t, f_.percent_y);
    return std::abs(t - std::round(t)) < 1e-9 ? fmt::format("1e{:+03d}", std::lround(t)) : "";
  }
  double height(double value) const { return f_.log10_y ? std::log10(value) : value; }
  double along(double x) const { return f_.log2_x ? std::log2(x) : x; }
  double x(double value) const {
    return left_ + 10 + (along(value) - x_low_) / (x_high_ - x_low_) * (right_ - left_ - 20);
  }
  double y(double value) const {
    return bottom_ -
           (height(value) - ticks_.first) / (ticks_.last - ticks_.first) * (bottom_ - top_);
  }

  void keys() {
    std::vector<Canvas::Key> keys;
    int colour = 0;
    for (const Line& line : f_.lines) {
      const bool own = is_measured(line);
      const int c = (line.colour >= 0 ? line.colour
                     : own            ? colour
                                      : std::max(0, colour - 1)) %
                    kColours;
      if (own) ++colour;
      if (line.name.empty()) continue;
      keys.push_back({.name = line.name,
                      .classes = style_of(line, c),
                      .colour = line.look == LineLook::measured ? c : -1,
                      .stroke = true});
    }
    if (keys.size() > 1) canvas_.legend(keys, 12);
  }

  static std::string style_of(const Line& line, int c) {
    if (line.look == LineLook::ideal) return "fg-ideal";
    if (line.look == LineLook::fitted) return fmt::format("fg-s{} fg-fit", c);
    return fmt::format("fg-line fg-s{}", c);
  }

  void axis_y() {
    for (const double t : ticks_.at()) {
      const double at = bottom_ - (t - ticks_.first) / (ticks_.last - ticks_.first) * line_plot;
      canvas_.line(left_, at, right_, at, t == ticks_.first ? "fg-axis" : "fg-grid");
      canvas_.text(left_ - 7, at + 4, "fg-soft", tick_words(t), "end");
    }
  }

  // The values themselves where they are few; those whose label would touch the one before it have
  // none.
  void axis_x() {
    std::vector<std::pair<double, std::string>> labels;
    if ((f_.log2_x || f_.marks_are_x) && xs_.size() <= 24) {
      for (const double v : xs_) labels.emplace_back(v, plain_number(v));
    } else {
      const Ticks t = ticks(*xs_.begin(), *xs_.rbegin(), 7);
      for (const double v : t.at())
        if (v >= *xs_.begin() - 1e-9 && v <= *xs_.rbegin() + 1e-9)
          labels.emplace_back(v, t.label(v, false));
    }
    double free = -1e9;
    for (const auto& [value, said] : labels) {
      if (f_.log2_x && value <= 0) continue;
      const double half = kLetter * columns_of(said) / 2;
      canvas_.line(x(value), bottom_, x(value), bottom_ + 4, "fg-axis");
      if (x(value) - half < free) continue;
      canvas_.text(x(value), bottom_ + 17, "fg-soft fg-tick", said, "middle");
      free = x(value) + half + 6;
    }
    canvas_.text((left_ + right_) / 2, bottom_ + 36, "fg-soft", f_.x_label, "middle");
  }

  std::string value(double v) const { return f_.percent_y ? accuracy_text(v) : three(v); }

  bool drawn(const Mark& m) const {
    return seen(m) && (!f_.log2_x || m.x > 0) && (!f_.log10_y || m.y > 0);
  }

  // Those with an error bar and a tooltip: all, but of a long curve no more than one can point at,
  // the first and the last among them.
  std::vector<const Mark*> told(const Line& line) const {
    std::vector<const Mark*> all, out;
    for (const Mark& m : line.marks)
      if (drawn(m)) all.push_back(&m);
    if (line.look != LineLook::plain || all.size() <= most_told_marks) return all;
    for (std::size_t i = 0; i < most_told_marks; ++i)
      out.push_back(all[i * (all.size() - 1) / (most_told_marks - 1)]);
    return out;
  }

  void series(const Line& line, int c) {
    std::string d;
    bool pen = false;
    for (const Mark& m : line.marks) {
      if (!drawn(m)) {
        pen = false;
        continue;
      }
      const double px = x(m.x), py = std::clamp(y(m.y), top_ - 2000, bottom_ + 2000);
      d += fmt::format("{}{:.1f} {:.1f}", pen ? "L" : "M", px, py);
      pen = true;
    }
    if (!d.empty()) canvas_.path(d, style_of(line, c));
    if (line.look != LineLook::measured && line.look != LineLook::plain) return;
    for (const Mark* mark : told(line)) {
      const Mark& m = *mark;
      std::string tip = fmt::format("{}{}{} {}: {}", line.name, line.name.empty() ? "" : ", ",
                                    f_.x_label, plain_number(m.x), value(m.y));
      if (std::isfinite(m.low) && std::isfinite(m.high) && m.high > m.low) {
        const double px = x(m.x), a = y(m.low), b = y(m.high);
        canvas_.path(
            fmt::format("M{0:.1f} {1:.1f}V{2:.1f}M{3:.1f} {1:.1f}H{4:.1f}M{3:.1f} {2:.1f}H{4:.1f}",
                        px, a, b, px - 4, px + 4),
            fmt::format("fg-s{0} fg-e{0} fg-err", c));
        tip += fmt::format(" (from {} to {})", value(m.low), value(m.high));
      }
      if (!m.note.empty()) tip += "; " + m.note;
      if (line.look == LineLook::plain)
        canvas_.spot(x(m.x), y(m.y), c, tip);
      else
        canvas_.marker(x(m.x), y(m.y), c, tip);
    }
  }

  const LineFigure& f_;
  Canvas canvas_;
  std::set<double> xs_;
  Ticks ticks_;
  double left_ = 44, right_ = line_width - 14, top_ = 0, bottom_ = 0, x_low_ = 0, x_high_ = 1;
};

// The same values as rows of dots, ideal ones as ticks; a law through two points says nothing and
// is left out.
DotFigure as_dots(const LineFigure& f) {
  DotFigure out;
  out.title = f.title;
  out.caption = f.caption;
  out.x_label = f.y_label;
  out.percent = f.percent_y;
  std::vector<const Line*> measured, ideal;
  for (const Line& line : f.lines) {
    if (is_measured(line)) measured.push_back(&line);
    if (line.look == LineLook::ideal) ideal.push_back(&line);
  }
  for (std::size_t i = 0; i < measured.size(); ++i)
    for (const Mark& m : measured[i]->marks) {
      DotRow row;
      row.group = measured.size() > 1 ? measured[i]->name : "";
      row.name =
          f.x_label == "epoch" ? "epoch " + plain_number(m.x) : plain_number(m.x) + " " + f.x_label;
      if (m.x == 1 && row.name.ends_with("s")) row.name.pop_back();  // "1 rank"
      row.mark = m;
      row.colour = static_cast<int>(i) % kColours;
      row.value = f.percent_y ? percent(m.y) : three(m.y);
      if (!ideal.empty())
        for (const Mark& other : ideal[std::min(i, ideal.size() - 1)]->marks)
          if (other.x == m.x) row.ideal = other.y;
      out.rows.push_back(std::move(row));
    }
  return out;
}

bool has_few_values(const LineFigure& f) {
  std::set<double> xs;
  for (const Line& line : f.lines)
    for (const Mark& m : line.marks)
      if (is_measured(line) && std::isfinite(m.x) && std::isfinite(m.y)) xs.insert(m.x);
  return !xs.empty() && xs.size() <= 2;
}

}  // namespace

std::string line_figure(const LineFigure& figure) {
  if (figure.few_are_dots && has_few_values(figure)) return dot_figure(as_dots(figure));
  return LinePlot(figure).draw();
}

}  // namespace tessera::report
