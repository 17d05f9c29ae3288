#include "page/figures/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/html.h"

namespace tessera::report {
namespace {

// Okabe and Ito without yellow, which is not seen on white; the last is grey.
constexpr const char* figure_style = R"(<style>
.fg{font-family:system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:12px;print-color-adjust:exact;-webkit-print-color-adjust:exact}
.fg-page{fill:#fff}.fg-text{fill:#1c1f23}.fg-soft{fill:#5b636d}.fg-title{font-size:15px;font-weight:600}.fg-head{font-weight:600}.fg-over{paint-order:stroke;stroke:#fff;stroke-width:5px}
.fg-grid{stroke:#e3e6ea;stroke-width:1}.fg-axis{stroke:#8b939d;stroke-width:1}.fg-row{fill:#f1f2f4}.fg-box{fill:#f6f7f9;stroke:#b9c0c8;stroke-width:1}
.fg-line{fill:none;stroke-width:2;stroke-linejoin:round}.fg-err{stroke-width:1.4;fill:none}.fg-mark{stroke:#fff;stroke-width:1}.fg-mark:hover,.fg-bar:hover{stroke:#000;stroke-width:1.5}
.fg-s0{stroke:#0072b2}.fg-s1{stroke:#d55e00;stroke-dasharray:7 3}.fg-s2{stroke:#009e73;stroke-dasharray:2 3}.fg-s3{stroke:#cc79a7;stroke-dasharray:9 3 2 3}
.fg-s4{stroke:#e69f00;stroke-dasharray:12 4}.fg-s5{stroke:#56b4e9;stroke-dasharray:4 2}.fg-s6{stroke:#6a5acd;stroke-dasharray:2 2 6 2}.fg-s7{stroke:#777;stroke-dasharray:1 4}
.fg-f0{fill:#0072b2}.fg-f1{fill:#d55e00}.fg-f2{fill:#009e73}.fg-f3{fill:#cc79a7}.fg-f4{fill:#e69f00}.fg-f5{fill:#56b4e9}.fg-f6{fill:#6a5acd}.fg-f7{fill:#777}
.fg-e0,.fg-e1,.fg-e2,.fg-e3,.fg-e4,.fg-e5,.fg-e6,.fg-e7{stroke-dasharray:none}
.fg-spot{opacity:0}.fg-spot:hover{opacity:1}.fg-range{fill:none;stroke:#1c1f23;stroke-width:1.4}
.fg-ideal{fill:none;stroke:#6b737d;stroke-width:1.5;stroke-dasharray:5 5}.fg-fit{fill:none;stroke-width:1.3;stroke-dasharray:1 3}
.fg-bar{stroke:#fff;stroke-width:.8}.fg-beside{fill:none;stroke:#d55e00;stroke-width:1.3;stroke-dasharray:4 2}
.fg-tickm{fill:none;stroke:#6b737d;stroke-width:2}.fg-onfull{fill:#fff}.fg-h0{fill:#f1f2f4}.fg-h1{fill:#d6e6f3}.fg-h2{fill:#a6cbe6}.fg-h3{fill:#3f8fc4}.fg-h4{fill:#1b78b8}.fg-h5{fill:#005f99}
.fg-compute{fill:#0072b2}.fg-exposed{fill:#d55e00}.fg-wait{fill:#e69f00}.fg-data{fill:#009e73}.fg-host{fill:#999}.fg-flight{fill:#56b4e9}
@media screen and (prefers-color-scheme:dark){.fg-page{fill:#14161a}.fg-over{stroke:#14161a}.fg-text{fill:#e8eaed}.fg-soft{fill:#a5adb8}.fg-range{stroke:#e8eaed}.fg-grid{stroke:#2d323a}.fg-axis{stroke:#6d7681}.fg-row{fill:#22262d}.fg-box{fill:#1c1f25;stroke:#4a515b}
.fg-mark,.fg-bar{stroke:#14161a}.fg-mark:hover,.fg-bar:hover{stroke:#fff}.fg-ideal,.fg-tickm{stroke:#98a1ac}.fg-h0{fill:#1c2026}.fg-h1{fill:#17324a}.fg-h2{fill:#1b4a70}.fg-h3{fill:#1f6aa3}.fg-h4{fill:#2480c4}.fg-h5{fill:#3b9be0}.fg-s0{stroke:#4aa8e0}.fg-f0{fill:#4aa8e0}.fg-s6{stroke:#a396ff}.fg-f6{fill:#a396ff}.fg-s7{stroke:#aaa}.fg-f7{fill:#aaa}.fg-compute{fill:#2f8fcb}}
</style>
)";

}  // namespace

Canvas::Canvas(double width, std::string title, std::string caption)
    : width_(width), title_(std::move(title)), caption_(std::move(caption)) {
  const std::string shown = shorten(title_, static_cast<std::size_t>((width - 24) / 8.4));
  text(12, 24, "fg-text fg-title", shown, "start", shown == title_ ? "" : title_);
  y_ = 34;
}

void Canvas::text(double x, double y, const std::string& classes, const std::string& what,
                  const char* anchor, const std::string& tip) {
  out_ += fmt::format(
      "<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}{}</text>\n", classes, x,
      y, anchor, escape(what), tip.empty() ? "" : "<title>" + escape(tip) + "</title>");
}

void Canvas::line(double x1, double y1, double x2, double y2, const std::string& classes) {
  out_ +=
      fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                  classes, x1, y1, x2, y2);
}

void Canvas::rect(double x, double y, double w, double h, const std::string& classes,
                  const std::string& tip, double round) {
  const std::string shape = fmt::format(
      "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"{}", classes,
      x, y, w, h, round > 0 ? fmt::format(" rx=\"{:.0f}\"", round) : "");
  out_ += tip.empty() ? shape + "/>\n" : shape + "><title>" + escape(tip) + "</title></rect>\n";
}

void Canvas::path(const std::string& d, const std::string& classes) {
  out_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", classes, d);
}

// Circle, square, diamond, triangle, triangle down, cross, star of three, small circle.
void Canvas::marker(double x, double y, int colour, const std::string& tip) {
  const std::string end = tip.empty() ? "/>\n" : "><title>" + escape(tip) + "</title></path>\n";
  std::string d;
  const auto shape = [&](std::initializer_list<std::pair<double, double>> corners) {
    for (const auto& [dx, dy] : corners)
      d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x + dx, y + dy);
    d += "Z";
  };
  const auto circle = [&](double r) {
    d = fmt::format("M{:.1f} {:.1f}a{r} {r} 0 1 0 {w} 0a{r} {r} 0 1 0 -{w} 0Z", x - r, y,
                    fmt::arg("r", r), fmt::arg("w", 2 * r));
  };
  switch (colour % kColours) {
    case 0:
      circle(4.5);
      break;
    case 1:
      shape({{-4, -4}, {4, -4}, {4, 4}, {-4, 4}});
      break;
    case 2:
      shape({{0, -5.5}, {5.5, 0}, {0, 5.5}, {-5.5, 0}});
      break;
    case 3:
      shape({{0, -5}, {5, 4}, {-5, 4}});
      break;
    case 4:
      shape({{0, 5}, {5, -4}, {-5, -4}});
      break;
    case 5:
      shape({{-5, -1.6},
             {-1.6, -1.6},
             {-1.6, -5},
             {1.6, -5},
             {1.6, -1.6},
             {5, -1.6},
             {5, 1.6},
             {1.6, 1.6},
             {1.6, 5},
             {-1.6, 5},
             {-1.6, 1.6},
             {-5, 1.6}});
      break;
    case 6:
      shape({{-5, 0}, {-2.5, -4.4}, {2.5, -4.4}, {5, 0}, {2.5, 4.4}, {-2.5, 4.4}});
      break;
    default:
      circle(3);
  }
  out_ += fmt::format("<path class=\"fg-mark fg-f{}\" d=\"{}\"", colour % kColours, d) + end;
}

void Canvas::spot(double x, double y, int colour, const std::string& tip) {
  out_ += fmt::format(
      "<path class=\"fg-spot fg-f{}\" d=\"M{:.1f} {:.1f}a5 5 0 1 0 10 0a5 5 0 1 0 -10 "
      "0Z\"><title>{}</title></path>\n",
      colour % kColours, x - 5, y, escape(tip));
}

// Runs that are named after their settings begin alike: then it is the ends of their names that
// tell them apart.
static std::string legend_name(const std::vector<Canvas::Key>& keys, const std::string& name,
                               std::size_t most) {
  const std::string begin = shorten(name, most);
  if (std::none_of(keys.begin(), keys.end(), [&](const Canvas::Key& other) {
        return other.name != name && shorten(other.name, most) == begin;
      }))
    return begin;
  std::string_view end = name;
  const auto inside_letter = [&] { return (static_cast<unsigned char>(end.front()) >> 6) == 2; };
  while (!end.empty() && (columns_of(end) + 1 > static_cast<double>(most) || inside_letter()))
    end.remove_prefix(1);
  return "…" + shorten(end, most);
}

void Canvas::legend(const std::vector<Key>& keys, double left) {
  if (keys.empty()) return;
  const double room = width_ - 12;
  const auto most = static_cast<std::size_t>((room - left - 34) / kLetter);
  double x = left;
  y_ += 12;
  for (const Key& key : keys) {
    std::string said = legend_name(keys, key.name, std::min<std::size_t>(most, 44));
    while (columns_of(said) > static_cast<double>(most) && said.size() > 3)
      said = shorten(said, said.size() / 2);
    const double w = 34 + kLetter * columns_of(said);
    if (x > left && x + w > room) {
      x = left;
      y_ += 18;
    }
    if (key.stroke)
      line(x, y_ - 4, x + 22, y_ - 4, key.classes);
    else if (!key.classes.empty())
      rect(x + 4, y_ - 10, 13, 12, key.classes);
    if (key.colour >= 0) marker(x + 11, y_ - 4, key.colour, "");
    text(x + 28, y_, "fg-text fg-legend", said, "start", said == key.name ? "" : key.name);
    x += w + 12;
  }
  y_ += 10;
}

std::string Canvas::finish(double height) const {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fg\" role=\"img\" viewBox=\"0 0 "
             "{0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
             "height=\"{1:.0f}\">\n<title>{2}</title>\n<desc>{3}</desc>\n{4}<rect "
             "class=\"fg-page\" width=\"{0:.0f}\" "
             "height=\"{1:.0f}\"/>\n",
             width_, height, escape(title_), escape(caption_), figure_style) +
         out_ + "</svg>\n";
}

std::vector<double> Ticks::at() const {
  std::vector<double> out;
  for (int i = 0; i < 64 && first + i * step <= last + step * 1e-6; ++i)
    out.push_back(first + i * step);
  return out;
}

std::string Ticks::label(double value, bool percent) const {
  if (std::abs(value) < step * 1e-9) value = 0;
  if (percent) return fmt::format("{:.{}f}%", 100 * value, std::max(0, decimals - 2));
  return std::abs(value) >= 1e6 || (step < 1e-5 && value != 0)
             ? fmt::format("{:.2g}", value)
             : fmt::format("{:.{}f}", value, decimals);
}

Ticks ticks(double low, double high, int most, bool percent) {
  Ticks out;
  if (!std::isfinite(low) || !std::isfinite(high)) {
    low = 0;
    high = 1;
  }
  if (high - low < 1e-12 * std::max({1e-6, std::abs(low), std::abs(high)}))
    high = low + std::max(percent ? 0.01 : 1e-9, std::abs(low) * 0.1);
  const double rough = (high - low) / most, power = std::pow(10, std::floor(std::log10(rough)));
  out.step = 10 * power;
  for (const double m : {1.0, 2.0, 5.0})
    if (m * power >= rough * (1 - 1e-9)) {
      out.step = m * power;
      break;
    }
  out.first = std::floor(low / out.step + 1e-9) * out.step;
  out.last = std::ceil(high / out.step - 1e-9) * out.step;
  out.decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(out.step) - 1e-9)), 0, 12);
  return out;
}

}  // namespace tessera::report
