// Attention of a Swin within windows of an image: what makes q, k and v of tokens, and what reads
// o, treats every token alike, so windows need not be cut before and put back after it. Attention
// and its gradient find the tokens of a window in the image, and everything between `window` and
// `unwindow` works on the image instead. Sums over tokens add them in another order.
#include <algorithm>
#include <map>
#include <optional>

#include "ir/builder.h"
#include "ir/signature.h"
#include "transforms/transforms.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// Tokens of a value that lie in windows: how they were cut, and the dim that counts windows, which
// the tokens of a window follow.
struct Cut {
  Window how;  // with the image's size
  int dim = 0;
  bool operator==(const Cut&) const = default;
};

// The windows that each value of a program lies in; cuts that cannot be left out are refused.
class Cuts {
 public:
  Cuts(const Program& program, const CutsWindows& takes) : program_(program), takes_(takes) {
    for (const Eqn& e : program.eqns) see(e);
    for (const Output& out : program.outputs)
      if (const Cut* cut = of(out.var)) refuse(cut->how);
  }
  // The windows that the program can do without at this window, unwindow or attention; null: none.
  const Cut* left_out(const Eqn& e) const {
    const Var v = e.op == Op::window ? e.out[0] : e.in[0];
    const Cut* cut = of(v);
    if (!cut || std::find(refused_.begin(), refused_.end(), cut->how) != refused_.end())
      return nullptr;
    return cut;
  }

 private:
  const Cut* of(Var v) const {
    const auto found = cuts_.find(v);
    return found == cuts_.end() ? nullptr : &found->second;
  }
  void refuse(const Window& how) { refused_.push_back(how); }
  void refuse_all(const Eqn& e) {  // that it reads
    for (const Var v : e.in)
      if (of(v)) refuse(of(v)->how);
  }

  void see(const Eqn& e) {
    if (e.op == Op::window) return see_window(e);
    if (std::none_of(e.in.begin(), e.in.end(), [&](Var v) { return of(v) != nullptr; })) return;
    if (e.op == Op::unwindow) {
      if (std::get<Window>(e.attrs) != of(e.in[0])->how) refuse(of(e.in[0])->how);
    } else if (e.op == Op::attention || e.op == Op::attention_grad) {
      see_attention(e);
    } else if (!see_others(e)) {
      refuse_all(e);
    }
  }

  void see_window(const Eqn& e) {
    Window how = std::get<Window>(e.attrs);
    const Shape& image = program_.type(e.in[0]).shape;
    how.image = {image[1], image[2]};
    cuts_[e.out[0]] = {.how = how, .dim = 1};
    if (image[1] % how.size[0] != 0 || image[2] % how.size[1] != 0) refuse(how);  // padding
    if (of(e.in[0])) refuse(of(e.in[0])->how);
  }

  // q, k and v, and in the gradient o and do, lie in the same windows; so do results of their size.
  void see_attention(const Eqn& e) {
    const Cut cut = *of(*std::find_if(e.in.begin(), e.in.end(), [&](Var v) { return of(v); }));
    const bool gradient = e.op == Op::attention_grad;
    Attention attrs = std::get<Attention>(e.attrs);
    bool alike =
        cut.dim == program_.type(e.in[0]).rank() - 4 && attrs.window.empty() && !attrs.packed;
    for (std::size_t i = 0; i < e.in.size(); ++i) {
      const bool tokens = i < 3 || (gradient && (i == 3 || i == 5));
      alike = alike && (tokens ? of(e.in[i]) && *of(e.in[i]) == cut : of(e.in[i]) == nullptr);
    }
    attrs.window = cut.how.size;
    attrs.shift = cut.how.shift;
    if (!alike || !takes_(attrs, program_.type(e.in[0]))) return refuse_all(e);
    for (std::size_t i = 0; i < std::size_t{gradient ? 3U : 1U}; ++i)
      if (e.out[i] != none) cuts_[e.out[i]] = cut;
  }

  // Ops that treat every token alike. False for others.
  bool see_others(const Eqn& e) {
    switch (e.op) {
      case Op::cast:
      case Op::scale:
        cuts_[e.out[0]] = *of(e.in[0]);
        return true;
      case Op::stack:
      case Op::unstack: {
        Cut cut;
        for (std::size_t i = 0; i < e.in.size(); ++i) {
          if (!of(e.in[i]) || (i > 0 && *of(e.in[i]) != cut)) return false;
          cut = *of(e.in[i]);
        }
        cut.dim += e.op == Op::stack ? 1 : -1;
        if (cut.dim < 0) return false;
        for (const Var v : e.out)
          if (v != none) cuts_[v] = cut;
        return true;
      }
      case Op::contract:
      case Op::add:
      case Op::mul:
      case Op::sum:
        return see_letters(e);
      default:
        return false;
    }
  }

  // Two letters stand for windows and tokens; whatever has one of them lies in the same windows.
  bool see_letters(const Eqn& e) {
    const std::string sig = signature_of(e);
    std::string pair;
    std::optional<Window> how;
    for (std::size_t i = 0; i < e.in.size(); ++i)
      if (const Cut* cut = of(e.in[i])) {
        const std::string letters = letters_in(sig, static_cast<int>(i));
        const std::string these = letters.substr(static_cast<std::size_t>(cut->dim), 2);
        if (how && (*how != cut->how || pair != these)) return false;
        how = cut->how;
        pair = these;
      }
    const auto stands = [&](const std::string& letters) { return letters.find(pair); };
    const auto apart = [&](const std::string& letters) {
      return stands(letters) == std::string::npos &&
             letters.find_first_of(pair) != std::string::npos;
    };
    for (std::size_t i = 0; i < e.in.size(); ++i) {
      const std::string letters = letters_in(sig, static_cast<int>(i));
      if (apart(letters) || (!of(e.in[i]) && stands(letters) != std::string::npos)) return false;
    }
    const std::string result = letters_out(sig);
    if (apart(result)) return false;
    if (const std::size_t at = stands(result); at != std::string::npos)
      cuts_[e.out[0]] = {.how = *how, .dim = static_cast<int>(at)};
    return true;
  }

  static std::string signature_of(const Eqn& e) {
    if (const auto* contract = std::get_if<Contract>(&e.attrs)) return contract->sig;
    if (const auto* sum = std::get_if<Sum>(&e.attrs)) return sum->sig;
    return std::get<Sig>(e.attrs).sig;
  }

  const Program& program_;
  const CutsWindows& takes_;
  std::map<Var, Cut> cuts_;
  std::vector<Window> refused_;
};

}  // namespace

Program fuse_windows(const Program& program, const CutsWindows& takes) {
  const Cuts cuts(program, takes);
  Rewriter r(program);
  for (const Eqn& e : program.eqns) {
    const bool moves = e.op == Op::window || e.op == Op::unwindow,
               attends = e.op == Op::attention || e.op == Op::attention_grad;
    const Cut* cut = moves || attends ? cuts.left_out(e) : nullptr;
    if (!cut) {
      r.copy(e);
    } else if (moves) {
      r.set(e.out[0], r(e.in[0]));
    } else {
      Attention attrs = std::get<Attention>(e.attrs);
      attrs.window = cut->how.size;
      attrs.shift = cut->how.shift;
      r.copy_with(e, attrs, r(e.in));
    }
  }
  return r.finish();
}

}  // namespace tessera::transforms
